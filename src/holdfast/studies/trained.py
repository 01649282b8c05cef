"""What the studies that train share: their settings, their models, and the FMR family of several trainings at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.core.errors import UserError
from holdfast.models.torch_classifier import resolve_device
from holdfast.report.page.tables import Column
from holdfast.report.study import DRAWN_WORLD, Finding
from holdfast.stats.core.bootstrap import Floats
from holdfast.studies import several, small_training
from holdfast.studies.dynamic import MEASURES, counts_of, family, measured, shared_images
from holdfast.studies.seeds import Estimate, over_seeds_and_scenes
from holdfast.studies.small_training import RHO, SEEDS, SIZE
from holdfast.studies.study import Setting, StudyOptions
from holdfast.training import robust
from holdfast.training.classifiers import Size

if TYPE_CHECKING:
    import pandas as pd

SHOWN = ("standard_accuracy", "validation_rate", "perturbed_accuracy", "fmr")
COLUMNS = [Column(name, MEASURES[name], "percent", f"{name}_low", f"{name}_high") for name in SHOWN]

NOTE = "models this small learn nothing"

INTERVALS = (
    "Intervals are at the 95 % level, for other trainings and other scenes; the trainings share their training scenes."
)


def settings(*, scenes: int = 60) -> tuple[Setting, ...]:
    """What can be chosen in every study that trains."""
    return (
        Setting("seeds", SEEDS, "trainings of each kind", 1),
        Setting("scenes", scenes, "test scenes, a multiple of 12 for equally many of each class", 12),
        Setting("context", RHO, "how strongly class and background go together in the test scenes, 0 to 1"),
        Setting("steps", 20, "of a walk, at most", 2),
        Setting("step_size", 0.05, "of a walk, in units of the generator's latent"),
        Setting("generator", "embedded:vqgan", "what makes images of latents", "pixel:"),
        Setting("oracle", "clip:embedded", "who says whether an image still shows its class"),
        Setting("train", SIZE.train, "training scenes", 48),
        Setting("epochs", SIZE.epochs, "passes over the training scenes", 1),
        Setting("batch", SIZE.batch, "scenes a training step", 24),
        Setting("trained", "", "folder of models that were trained beforehand; empty: models/ of the study's folder"),
    )


def note(options: StudyOptions) -> str:
    """What a reader of the page must know first."""
    return DRAWN_WORLD + (f" A rehearsal: {NOTE}." if options.quick else "")


def size_of(options: StudyOptions) -> Size:
    """How much is trained; the settings are checked first."""
    chosen = options.settings
    for name, least in (("seeds", 1), ("epochs", 1), ("batch", 2), ("scenes", 12)):
        if chosen[name] < least:
            raise UserError(f"{name} must be {least} or more")
    if chosen["train"] < chosen["batch"]:
        raise UserError("train, the number of training scenes, must be at least one batch")
    test = SIZE.test if not options.quick else chosen["scenes"]
    return Size(train=chosen["train"], test=test, epochs=chosen["epochs"], batch=chosen["batch"], seconds=None)


def folder_of(options: StudyOptions) -> Path:
    """Where the models are."""
    return Path(options.settings["trained"] or options.out / "models")


def models_of(
    options: StudyOptions, ways: Sequence[str], *, generator: str = robust.GENERATOR
) -> dict[str, dict[str, str]]:
    """Train what is missing. Way → short name → the model's name; ``generator`` is the one that ``dat`` trains with."""
    seeds = options.settings["seeds"]
    wanted = small_training.trainings(ways, seeds, first=options.seed)
    folder = folder_of(options)
    small_training.train_all(
        wanted,
        size_of(options),
        out=folder,
        work=options.out / "work",
        device=resolve_device(options.device),
        generator=generator,
        progress=options.progress,
    )
    return {way: {one.name: named(folder, one.name) for one in wanted if one.way == way} for way in ways}


def named(folder: Path, name: str) -> str:
    """The name of a model in a folder of them, shown as its own short name."""
    return f"local-dir:{folder / name}?name={name}"


def all_of(models: Mapping[str, Mapping[str, str]]) -> list[str]:
    """The names of all models."""
    return [name for group in models.values() for name in group.values()]


def by_training(walks: pd.DataFrame, models: Mapping[str, Mapping[str, str]]) -> dict[str, list[pd.DataFrame]]:
    """Way → the walks of each of its trainings, all on the scenes that every model walked, in one order."""
    names = [name for group in models.values() for name in group]
    found = {name: walks[walks["model"] == name] for name in names}
    shared = dict(zip(found, shared_images(list(found.values())), strict=True))
    return {way: [shared[name] for name in group] for way, group in models.items()}


def family_table(groups: Mapping[str, Sequence[pd.DataFrame]], *, key: str = "training") -> pd.DataFrame:
    """SA, VR, PA and FMR of each way with ``_low`` and ``_high``, and counts over all of its trainings."""
    import pandas as pd

    rows = []
    for way, trainings in groups.items():
        sums = np.sum([counts_of(one).sum(axis=0) for one in trainings], axis=0)
        row: dict[str, Any] = {key: way, "trainings": len(trainings)}
        for measure in SHOWN:
            found = estimate(trainings, measure)
            row |= {measure: found.value, f"{measure}_low": found.low, f"{measure}_high": found.high}
        rows.append(row | {"n": int(sums[0]), "validated": int(sums[2]), "survived": int(sums[3])})
    return pd.DataFrame(rows)


COUNTS = [Column("validated", "Validated", "integer"), Column("survived", "of those right", "integer")]


def estimate(trainings: Sequence[pd.DataFrame], measure: str) -> Estimate:
    """A measure's mean over trainings, with an interval for other trainings and other scenes."""
    import pandas as pd

    found = _crossed(pseudo_values(trainings, measure), np.array([_whole(one, measure) for one in trainings]))
    if found.high > found.low or np.isnan(found.value):
        ends = found.low, found.high
    else:  # all alike: what is left is how few images there were
        row = family(pd.concat(trainings).assign(all=0), ["all"]).iloc[0]
        ends = float(row[f"{measure}_low"]), float(row[f"{measure}_high"])
    highest = np.inf if measure == "fmr" else 1.0
    return Estimate(found.value, max(ends[0], 0.0), min(ends[1], highest))


def difference(first: Sequence[pd.DataFrame], second: Sequence[pd.DataFrame], measure: str) -> Estimate:
    """By how much the second way has more of a measure, training by training and scene by scene."""
    whole = [np.array([_whole(one, measure) for one in group]) for group in (first, second)]
    return _crossed(pseudo_values(second, measure) - pseudo_values(first, measure), whole[1] - whole[0])


def _crossed(pseudo: Floats, whole: Floats) -> Estimate:
    """The interval of pseudo-values about the plain mean: theirs differs from it by the jackknife's correction."""
    found = over_seeds_and_scenes(pseudo)
    shift = float(whole.mean()) - found.value
    return Estimate(float(whole.mean()), found.low + shift, found.high + shift)


def _whole(walks: pd.DataFrame, measure: str) -> float:
    return float(measured(counts_of(walks).sum(axis=0), measure))


def pseudo_values(trainings: Sequence[pd.DataFrame], measure: str) -> Floats:
    """Jackknife pseudo-values of a measure, (trainings, scenes); NaN where it has no value without some scene."""
    counts = np.stack([counts_of(one) for one in trainings])
    sums = counts.sum(axis=1, keepdims=True)
    scenes = counts.shape[1]
    return np.asarray(scenes * measured(sums, measure) - (scenes - 1) * measured(sums - counts, measure))


def every_model(options: StudyOptions, models: Mapping[str, Mapping[str, str]], folder: Path | None = None) -> Finding:
    """What each model's card says."""
    import pandas as pd

    where = folder or folder_of(options)
    rows = []
    for way, group in models.items():
        for name in group:
            facts = several.facts_of(where / name)
            kept = {key: facts.get(key) for key in ("method", "epochs", "seconds", "device", "sha256")}
            rows.append({"model": name, "training": way, **(facts.get("metrics") or {}), **kept})
    frame = pd.DataFrame(rows)
    accuracy = next(str(name) for name in frame.columns if str(name).startswith("accuracy"))
    columns = [
        Column("model", "Model"),
        Column("method", "Trained"),
        Column(accuracy, "Accuracy on held-out scenes", "percent"),
        Column("seconds", "Seconds", "integer"),
        Column("device", "on"),
        Column("sha256", "Weights", show=lambda text: text[:12]),
    ]
    return Finding("Every model", [f"{len(frame)} models."], frame, columns)
