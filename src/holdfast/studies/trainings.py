"""Studies that train: their settings, their models, and SA, VR, PA and FMR over several trainings at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.types import ORIGINAL
from holdfast.models.torch_classifier import resolve_device
from holdfast.report.page.tables import Column
from holdfast.report.study import Finding
from holdfast.results import Results, static_conditions
from holdfast.stats.core.bootstrap import Floats
from holdfast.stats.models.trainings import Estimate, mean_over_trainings
from holdfast.studies.study import Setting, StudyOptions
from holdfast.studies.walks import FAMILY, counts_of, family, in_points, measured, shared_images, walk_settings
from holdfast.training import robust
from holdfast.training.classifiers import Size
from holdfast.training.small_models import RHO, SEEDS, SIZE, SmallModel, facts_of, small_models, train_all

if TYPE_CHECKING:
    import pandas as pd

INTERVALS = (
    "Intervals are at the 95 % level, for other trainings and other scenes; the trainings share their training scenes."
)


def size_settings(size: Size = SIZE, seeds: int = SEEDS, train: int = 48) -> tuple[Setting, ...]:
    """Return the settings that say how much is trained; ``train`` is the number of scenes of a rehearsal."""
    return (
        Setting("seeds", seeds, "trainings of each kind", 1),
        Setting("train", size.train, "training scenes", train),
        Setting("epochs", size.epochs, "passes over the training scenes", 1),
        Setting("batch", size.batch, "scenes per training step", 24),
    )


def training_settings(*, scenes: int = 60) -> tuple[Setting, ...]:
    """Return the settings of a study that trains models and walks them."""
    walked = walk_settings(
        (), scenes, steps=20, step_size=0.05, context=RHO, without=("data", "masks", "labels", "models")
    )  # fmt: skip
    folder = Setting("trained", "", "folder of models that were trained beforehand; empty: models/ of this study")
    return *size_settings(), *walked, folder


def size_of(options: StudyOptions, size: Size = SIZE) -> Size:
    """Return how much is trained, after a check of the settings."""
    options.require(seeds=1, epochs=1, batch=2, scenes=12)
    settings = options.settings
    if settings["train"] < settings["batch"]:
        raise UserError("train, the number of training scenes, must be at least one batch")
    test = settings["scenes"] if options.quick else size.test
    return Size(train=settings["train"], test=test, epochs=settings["epochs"], batch=settings["batch"], seconds=None)


def folder_of(options: StudyOptions) -> Path:
    """Return the folder of the trained models."""
    return Path(options.settings.get("trained") or options.out / "models")


def trained_models(
    options: StudyOptions, ways: Sequence[str], *, generator: str = robust.GENERATOR
) -> dict[str, dict[str, str]]:
    """Train the models that are missing, and return way of training → short name → the model's name.

    ``generator`` is the one that ``dat`` trains with.
    """
    wanted = small_models(ways, options.settings["seeds"], first=options.seed)
    train_for(options, wanted, size_of(options), generator=generator)
    folder = folder_of(options)
    return {way: {model.name: local_name(folder, model.name) for model in wanted if model.way == way} for way in ways}


def train_for(options: StudyOptions, models: Sequence[SmallModel], size: Size, **more: Any) -> None:
    """Train the missing models of a study into its folder."""
    train_all(
        models, size, out=folder_of(options), work=options.out / "work", device=resolve_device(options.device),
        progress=options.progress, **more,
    )  # fmt: skip


def local_name(folder: Path, name: str) -> str:
    """Return the name of a model in a folder of models; results call it ``name``."""
    return f"local-dir:{folder / name}?name={name}"


def all_names(models: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the names of all models of all ways of training."""
    return [name for group in models.values() for name in group.values()]


def model_table(folder: Path, models: Mapping[str, Mapping[str, str]]) -> Finding:
    """Return a finding that lists what the card of each model says."""
    import pandas as pd

    rows = []
    for way, group in models.items():
        for name in group:
            facts = facts_of(folder / name)
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


def facts(
    options: StudyOptions, models: Mapping[str, Mapping[str, str]], *more: tuple[str, str]
) -> list[tuple[str, str]]:
    """Return the numbers at the top of the page: models, ``more``, test scenes."""
    return [(str(len(all_names(models))), "models"), *more, (str(options.settings["scenes"]), "test scenes")]


@dataclass(frozen=True)
class RightAnswers:
    """Right answers of one run, 0..1, as an array (models, conditions, scenes).

    ``scored`` holds the conditions of the robustness score, without the original.
    """

    models: list[str]
    conditions: list[str]
    scenes: list[str]
    scored: list[str]
    right: Floats

    def on(self, scenes: Sequence[str]) -> RightAnswers:
        """Return the answers on some of the scenes, in their order."""
        places = {name: place for place, name in enumerate(self.scenes)}
        return replace(self, scenes=list(scenes), right=self.right[:, :, [places[name] for name in scenes]])

    def of(self, model: str, condition: str) -> Floats:
        """Return the answers of one model under one condition, (scenes,)."""
        return np.asarray(self.right[self.models.index(model), self.conditions.index(condition)])

    def with_original(self, model: str, conditions: Sequence[str] | None = None) -> Floats:
        """Return the answers of a model under the original and some conditions (those of the score), (n, scenes)."""
        names = (ORIGINAL, *(self.scored if conditions is None else conditions))
        return np.stack([self.of(model, name) for name in names])


def right_answers(
    results: Results, models: Sequence[str], conditions: Sequence[str] | None = None, *, least: int = 2
) -> RightAnswers:
    """Read the right answers of a run; scenes that lack an answer of any model or condition are left out.

    Args:
        results: the run.
        models: in the order of the array.
        conditions: in the order of the array; None: all of the run.
        least: fewer scenes than this are a UserError.
    """
    counts = results.counts
    names = list(counts.conditions if conditions is None else conditions)
    scored = [name for name in static_conditions(counts) if name not in (ORIGINAL, *counts.same_images)]
    cells = counts.cells
    keys = [cells["source_id"].astype(str), cells["model"].astype(str), cells["condition"].astype(str)]
    table = (cells["right"] / cells["n"]).groupby(keys).mean().unstack(["model", "condition"])
    wanted = [(model, condition) for model in models for condition in names]
    whole = table.reindex(columns=wanted).dropna().sort_index()
    if len(whole) < least:
        raise UserError(f"{results.path} has fewer than {least} images that every model answered; look at its errors")
    right = whole.to_numpy(np.float64).T.reshape(len(models), len(names), len(whole))
    return RightAnswers(list(models), names, [str(name) for name in whole.index], scored, right)


def by_training(walks: pd.DataFrame, models: Mapping[str, Mapping[str, str]]) -> dict[str, list[pd.DataFrame]]:
    """Return way of training → the walks of each of its models, on the images that every model walked, in one order."""
    names = [name for group in models.values() for name in group]
    shared = dict(zip(names, shared_images([walks[walks["model"] == name] for name in names]), strict=True))
    return {way: [shared[name] for name in group] for way, group in models.items()}


def training_table(groups: Mapping[str, Sequence[pd.DataFrame]]) -> pd.DataFrame:
    """Return SA, VR, PA and FMR of each way of training with intervals, and counts over all of its trainings."""
    import pandas as pd

    rows = []
    for way, trainings in groups.items():
        sums = np.sum([counts_of(walks).sum(axis=0) for walks in trainings], axis=0)
        row: dict[str, Any] = {"training": way, "trainings": len(trainings)}
        for measure in FAMILY:
            row |= training_estimate(trainings, measure).row(measure)
        rows.append(row | {"n": int(sums[0]), "validated": int(sums[2]), "survived": int(sums[3])})
    return pd.DataFrame(rows)


def training_estimate(trainings: Sequence[pd.DataFrame], measure: str) -> Estimate:
    """Return the mean of a measure over trainings, with an interval for other trainings and other images."""
    import pandas as pd

    mean = _around_mean(pseudo_values(trainings, measure), np.array([_whole(walks, measure) for walks in trainings]))
    if not (mean.high > mean.low or np.isnan(mean.value)):  # all images are alike: what is left is how few they are
        row = family(pd.concat(trainings).assign(all=0), ["all"]).iloc[0]
        mean = Estimate(mean.value, float(row[f"{measure}_low"]), float(row[f"{measure}_high"]))
    return mean.clipped(highest=np.inf if measure == "fmr" else 1.0)


def training_difference(first: Sequence[pd.DataFrame], second: Sequence[pd.DataFrame], measure: str) -> Estimate:
    """Return a measure of the second way of training less that of the first, paired by training and image."""
    whole = [np.array([_whole(walks, measure) for walks in group]) for group in (first, second)]
    return _around_mean(pseudo_values(second, measure) - pseudo_values(first, measure), whole[1] - whole[0])


def changes(first: Sequence[pd.DataFrame], second: Sequence[pd.DataFrame]) -> dict[str, str]:
    """Return ``training_difference`` of every measure in words."""
    return {measure: in_points(training_difference(first, second, measure)) for measure in FAMILY}


def _around_mean(pseudo: Floats, whole: Floats) -> Estimate:
    """Return the plain mean with the interval of pseudo-values, whose own mean has the jackknife's correction."""
    mean = mean_over_trainings(pseudo)
    shift = float(whole.mean()) - mean.value
    return Estimate(float(whole.mean()), mean.low + shift, mean.high + shift)


def _whole(walks: pd.DataFrame, measure: str) -> float:
    return float(measured(counts_of(walks).sum(axis=0), measure))


def pseudo_values(trainings: Sequence[pd.DataFrame], measure: str) -> Floats:
    """Return the jackknife pseudo-values of a measure, (trainings, images); NaN where it has no value."""
    counts = np.stack([counts_of(walks) for walks in trainings])
    sums = counts.sum(axis=1, keepdims=True)
    images = counts.shape[1]
    return np.asarray(images * measured(sums, measure) - (images - 1) * measured(sums - counts, measure))
