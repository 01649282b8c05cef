"""Studies that train: their settings, their models, and SA, VR, PA and FMR over several trainings at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from holdfast.core.errors import UserError
from holdfast.core.files import safe_part, write_atomic
from holdfast.core.fingerprint import bytes_sha256
from holdfast.core.networks import resolve_device
from holdfast.core.types import ORIGINAL, Collection, Sample
from holdfast.data.collection import TEST, TRAIN, stratified_split
from holdfast.data.images import FileImage
from holdfast.data.labels import NINE, asks_for_nine
from holdfast.data.nine_classes import in_nine_classes
from holdfast.data.writers import encode_image, encode_mask
from holdfast.pipeline.samples import DataSpec, read
from holdfast.reports.page.tables import Column, plain
from holdfast.reports.study import Finding
from holdfast.results import Results, static_conditions
from holdfast.stats.core.bootstrap import COUNT, SHARE, Estimate, Floats
from holdfast.training import robust
from holdfast_studies.drawn.classifiers import SIDE, OwnPictures, Scenes, Size, squeezed
from holdfast_studies.drawn.small_models import RHO, SEEDS, SIZE, SmallModel, facts_of, small_models, train_all
from holdfast_studies.study import Setting, StudyOptions, collection_of, dots_of, is_drawn, model_names, result_names
from holdfast_studies.trained.statistics import mean_over_trainings
from holdfast_studies.walking import walks
from holdfast_studies.walking.walks import FAMILY, counts_of, family, in_points, measured, shared_images

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


TRAINED = "trained"  # a value of the setting ``models`` that stands for the small models that a study trains


def training_settings(*, scenes: int = 60, models: bool = True) -> tuple[Setting, ...]:
    """Return the settings of a study that trains models and walks them; ``models`` may be the user's own, too."""
    walk = walks.walk_settings((), scenes, steps=20, step_size=0.05, context=RHO, without=("models",))
    own = Setting(
        "models", (TRAINED,), "trained stands for our small ones; or models of yours, one for each way of training, "
        "in the order of the page, and again for more trainings",
    )  # fmt: skip
    walk = (*walk, own) if models else walk
    folder = Setting("trained", "", "folder of models that were trained beforehand; empty: models/ of this study")
    return *size_settings(), *walk, folder


def size_of(options: StudyOptions, size: Size = SIZE) -> Size:
    """Return how much is trained, after a check of the settings."""
    options.require(seeds=1, epochs=1, batch=2, scenes=12)
    settings = options.settings
    if settings["train"] < settings["batch"]:
        raise UserError("train, the number of training scenes, must be at least one batch")
    test = settings["scenes"] if options.quick else size.test
    return Size(train=settings["train"], test=test, epochs=settings["epochs"], batch=settings["batch"], seconds=None)


def is_own(options: StudyOptions) -> bool:
    """Return whether all models are the user's own, so that nothing is trained."""
    return TRAINED not in options.settings.get("models", (TRAINED,))


def settled(options: StudyOptions) -> StudyOptions:
    """Return the options of a study that trains with the user's images, four fifths of them for training.

    The setting ``data`` is then the part that is tested, ``train_data`` the other one; both are folders of links in
    ``work/``. Splits that the data has itself are kept. Drawn scenes, and images for own models, stay as they are.
    """
    settings = options.settings
    if is_drawn(options) or is_own(options):
        return options
    collection = read(DataSpec(str(settings["data"]), settings["masks"] or None, seed=options.seed))
    collection = in_nine_classes(collection, settings.get("labels"))
    samples = tuple(sample for sample in collection.samples if sample.condition == ORIGINAL)
    if {sample.split for sample in samples} != {TRAIN, TEST}:
        samples = stratified_split(samples, seed=options.seed)
    parts = options.out / "work" / "parts"
    for sample in samples:
        _place(sample, parts / sample.split)
    tested, masks = parts / TEST / "images", parts / TEST / "masks"
    changed = {"data": str(tested), "masks": str(masks) if masks.is_dir() else "", "train_data": str(parts / TRAIN)}
    if asks_for_nine(settings.get("labels")):
        changed["labels"] = NINE
    return replace(options, settings={**settings, **changed})


def _place(sample: Sample, folder: Path) -> None:
    """Put an image and its mask into the folder of a part, as links if they are files."""
    if safe_part(sample.label) != sample.label:
        raise UserError(f"the class {sample.label!r} cannot be the name of a folder; rename it to train on it")
    own = sample.image.path if isinstance(sample.image, FileImage) else None
    name = safe_part(sample.sample_id.removesuffix(Path(own).suffix) if own else sample.sample_id)
    file = folder / "images" / sample.label / f"{name}{Path(own).suffix if own else '.png'}"
    if file.exists():
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    if sample.mask is not None:
        mask = sample.mask.load(*sample.image.load().shape[:2])
        write_atomic(folder / "masks" / sample.label / f"{name}.png", encode_mask(mask))
    if own:
        file.symlink_to(Path(own).resolve())
    else:
        write_atomic(file, encode_image(sample.image.load()))


def static_scenarios(options: StudyOptions) -> str:
    """Return the static scenarios, or corruptions, which need no masks, if the images have none."""
    has_masks = is_drawn(options) or any(sample.mask for sample in collection_of(options).samples)
    return "static" if has_masks else "original,corruptions@3"


def train_part(options: StudyOptions, limit: int) -> dict[str, Any]:
    """Return at most so many training images as options of ``api.perturb``: drawn scenes, or the user's."""
    labels = {"labels": options.settings.get("labels") or None}
    if "train_data" not in options.settings:
        return {"data": f"diorama:train?n={limit}&context={RHO:g}&seed={options.seed}", **labels}
    folder = Path(options.settings["train_data"])
    masks = str(folder / "masks") if (folder / "masks").is_dir() else None
    return {"data": str(folder / "images"), "masks": masks, "limit": limit, **labels}


def train_images(options: StudyOptions, limit: int) -> Collection:
    """Read the images of ``train_part``."""
    part = train_part(options, limit)
    spec = DataSpec(part["data"], part.get("masks"), limit=part.get("limit", 0), seed=options.seed)
    return in_nine_classes(read(spec), part["labels"])


def pictures_of(options: StudyOptions) -> OwnPictures | None:
    """Return the user's images as small models see them; None for drawn scenes."""
    if "train_data" not in options.settings:
        return None
    train, test = train_images(options, options.settings["train"]), collection_of(options)
    places = {name: place for place, name in enumerate(train.classes)}
    parts: dict[str, Scenes] = {}
    for part, collection in ((TRAIN, train), (TEST, test)):
        known = [sample for sample in collection.samples if sample.label in places]
        images = [sample.image.load() for sample in known]
        parts[part] = squeezed(images, [places[sample.label] for sample in known], side=SIDE)
    digest = bytes_sha256(parts[TRAIN].images.tobytes())[:12]
    return OwnPictures(f"the user's data ({digest})", tuple(train.classes), parts)


def folder_of(options: StudyOptions) -> Path:
    """Return the folder of the trained models."""
    return Path(options.settings.get("trained") or options.out / "models")


def trained_models(
    options: StudyOptions, ways: Sequence[str], *, generator: str = robust.GENERATOR
) -> dict[str, dict[str, str]]:
    """Train the missing models (or take the user's own), and return way of training → short name → the model's name."""
    if is_own(options):
        own = model_names(options.settings["models"])
        if len(own) % len(ways):
            raise UserError(f"name a model for each of the {len(ways)} ways ({', '.join(ways)}); {len(own)} were named")
        shown = result_names(options, own)
        return {way: dict(list(zip(shown, own, strict=True))[place :: len(ways)]) for place, way in enumerate(ways)}
    wanted = small_models(ways, options.settings["seeds"], first=options.seed)
    train_for(options, wanted, size_of(options), generator=generator)
    folder = folder_of(options)
    return {way: {model.name: local_name(folder, model.name) for model in wanted if model.way == way} for way in ways}


def train_for(options: StudyOptions, models: Sequence[SmallModel], size: Size, **more: Any) -> None:
    """Train the missing models of a study into its folder."""
    pictures = pictures_of(options)
    if pictures is not None:
        count = len(pictures.parts[TRAIN])
        size = replace(size, train=count, test=len(pictures.parts[TEST]), batch=min(size.batch, count))
    train_all(
        models, size, out=folder_of(options), work=options.out / "work", device=resolve_device(options.device),
        pictures=pictures, progress=options.progress, **more,
    )  # fmt: skip


def local_name(folder: Path, name: str) -> str:
    """Return the name of a model in a folder of models; results call it ``name``."""
    return f"local-dir:{folder / name}?name={name}"


def all_names(models: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the names of all models of all ways of training."""
    return [name for group in models.values() for name in group.values()]


def way_of(models: Mapping[str, Mapping[str, str]], words: Mapping[str, str]) -> dict[str, str]:
    """Return name of a model in the results → its way of training in words."""
    return {name: words.get(way, way) for way, group in models.items() for name in group}


def model_table(options: StudyOptions, models: Mapping[str, Mapping[str, str]], folder: Path | None = None) -> Finding:
    """Return a finding that lists what the card of each model says, or the names of the user's own."""
    if is_own(options):
        named = [{"model": name, "training": way} for way, group in models.items() for name in group]
        columns = [*plain("text", model="Model", training="Stands for")]
        return Finding("Every model", [f"{len(named)} models, none trained here."], pd.DataFrame(named), columns)
    folder = folder or folder_of(options)
    rows = []
    for way, group in models.items():
        for name in group:
            facts = facts_of(folder / name)
            kept = {key: facts.get(key) for key in ("method", "epochs", "seconds", "device", "sha256")}
            rows.append({"model": name, "training": way, **(facts.get("metrics") or {}), **kept})
    frame = pd.DataFrame(rows)
    accuracy = next(str(name) for name in frame.columns if str(name).startswith("accuracy"))
    columns = [
        *plain("text", model="Model", method="Trained"),
        Column(accuracy, "Accuracy on held-out scenes", "percent"),
        Column("seconds", "Seconds", "integer"),
        Column("device", "on"),
        Column("sha256", "Weights", show=lambda text: text[:12]),
    ]
    return Finding("Every model", [f"{len(frame)} models."], frame, columns)


def facts(
    options: StudyOptions, models: Mapping[str, Mapping[str, str]], more: Mapping[str, int] | None = None
) -> dict[str, int]:
    """Return the numbers at the top of the page: models, ``more``, test images."""
    drawn = is_drawn(options)
    tested = options.settings["scenes"] if drawn else len(collection_of(options))
    return {"models": len(all_names(models)), **(more or {}), "test scenes" if drawn else "test images": tested}


@dataclass(frozen=True)
class RightAnswers:
    """Right answers of one run, 0..1, (models, conditions, scenes); ``scored`` are the conditions of the score."""

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
    results: Results,  # the run
    models: Sequence[str],  # in the order of the array
    conditions: Sequence[str] | None = None,  # in the order of the array; None: all of the run
    *,
    least: int = 2,  # fewer scenes than this are a UserError
    every_condition: bool = False,  # whether all conditions but the original are scored, not the static scenarios only
) -> RightAnswers:
    """Read the right answers of a run; scenes that lack an answer of any model or condition are left out."""
    counts = results.counts
    names = list(counts.conditions if conditions is None else conditions)
    # A run without static scenarios is one of corruptions, and all of them are scored.
    static = [] if every_condition else [name for name in static_conditions(counts) if name != ORIGINAL]
    scored = [name for name in static or counts.conditions if name not in (ORIGINAL, *counts.same_images)]
    cells = counts.cells
    keys = [cells["source_id"].astype(str), cells["model"].astype(str), cells["condition"].astype(str)]
    table = (cells["right"] / cells["n"]).groupby(keys).mean().unstack(["model", "condition"])
    wanted = [(model, condition) for model in models for condition in names]
    whole = table.reindex(columns=wanted).dropna().sort_index()
    if len(whole) < least:
        raise UserError(f"{results.path} has fewer than {least} images that every model answered; look at its errors")
    right = whole.to_numpy(np.float64).T.reshape(len(models), len(names), len(whole))
    return RightAnswers(list(models), names, [str(name) for name in whole.index], scored, right)


def by_training(rows: pd.DataFrame, models: Mapping[str, Mapping[str, str]]) -> dict[str, list[pd.DataFrame]]:
    """Return way of training → the walks of each of its models, on the images that every model walked, in one order."""
    names = [name for group in models.values() for name in group]
    shared = dict(zip(names, shared_images([rows[rows["model"] == name] for name in names]), strict=True))
    return {way: [shared[name] for name in group] for way, group in models.items()}


def training_table(groups: Mapping[str, Sequence[pd.DataFrame]]) -> pd.DataFrame:
    """Return SA, VR, PA and FMR of each way of training with intervals, and counts over all of its trainings."""
    rows = []
    for way, trainings in groups.items():
        sums = np.sum([counts_of(own).sum(axis=0) for own in trainings], axis=0)
        row: dict[str, Any] = {"training": way, "trainings": len(trainings)}
        for measure in FAMILY:
            row |= training_estimate(trainings, measure).row(measure)
        rows.append(row | {"n": int(sums[0]), "validated": int(sums[2]), "survived": int(sums[3])})
    return pd.DataFrame(rows)


def walked(heading: str, said: list[str], frame: pd.DataFrame, title: str, caption: str, *more: Column) -> Finding:
    """Return a finding about ``training_table``, with a dot of FMR for each way of training and ``more`` columns."""
    columns = [Column("training", title), *walks.columns(), *walks.COUNTS, *more]
    chart = dots_of(frame.assign(measure="FMR"), "fmr", line="measure", row="training", title="FMR")
    return Finding(heading, said, frame, columns, chart=chart, caption=caption)


def training_estimate(trainings: Sequence[pd.DataFrame], measure: str) -> Estimate:
    """Return the mean of a measure over trainings, with an interval for other trainings and other images."""
    mean = _around_mean(pseudo_values(trainings, measure), np.array([_whole(rows, measure) for rows in trainings]))
    if not (mean.high > mean.low or np.isnan(mean.value)):  # all images are alike: what is left is how few they are
        row = family(pd.concat(trainings).assign(all=0), ["all"]).iloc[0]
        mean = Estimate(mean.value, float(row[f"{measure}_low"]), float(row[f"{measure}_high"]))
    return mean.within(COUNT if measure == "fmr" else SHARE)


def training_difference(first: Sequence[pd.DataFrame], second: Sequence[pd.DataFrame], measure: str) -> Estimate:
    """Return a measure of the second way of training less that of the first, paired by training and image."""
    whole = [np.array([_whole(rows, measure) for rows in group]) for group in (first, second)]
    return _around_mean(pseudo_values(second, measure) - pseudo_values(first, measure), whole[1] - whole[0])


def changes(first: Sequence[pd.DataFrame], second: Sequence[pd.DataFrame]) -> dict[str, str]:
    """Return ``training_difference`` of every measure in words."""
    return {measure: in_points(training_difference(first, second, measure)) for measure in FAMILY}


def _around_mean(pseudo: Floats, whole: Floats) -> Estimate:
    """Return the plain mean with the interval of pseudo-values, whose own mean has the jackknife's correction."""
    mean = mean_over_trainings(pseudo)
    shift = float(whole.mean()) - mean.value
    return Estimate(float(whole.mean()), mean.low + shift, mean.high + shift)


def _whole(rows: pd.DataFrame, measure: str) -> float:
    return float(measured(counts_of(rows).sum(axis=0), measure))


def pseudo_values(trainings: Sequence[pd.DataFrame], measure: str) -> Floats:
    """Return the jackknife pseudo-values of a measure, (trainings, images); NaN if it has no value."""
    counts = np.stack([counts_of(rows) for rows in trainings])
    sums = counts.sum(axis=1, keepdims=True)
    images = counts.shape[1]
    return np.asarray(images * measured(sums, measure) - (images - 1) * measured(sums - counts, measure))
