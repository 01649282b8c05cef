"""What is trained and tested: folds, jobs, and the names of their rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc

from holdfast.core.errors import UserError
from holdfast.core.files import safe_part
from holdfast.core.fingerprint import fingerprint, generator
from holdfast.core.schema import CLASSIFY, row_id
from holdfast.core.types import ORIGINAL, Collection, Sample
from holdfast.data.collection import TEST, stratified_folds, stratified_split
from holdfast.data.labels import asks_for_nine
from holdfast.pipeline.evaluation_rows import row_key
from holdfast.pipeline.jobs.plan import Job, Scope
from holdfast.pipeline.samples import Prepared, stored_conditions
from holdfast.pipeline.specs import TrainSpec as TrainSpec
from holdfast.pipeline.specs.training import ALL_BUT_ONE
from holdfast.pipeline.specs.training import EACH as EACH
from holdfast.pipeline.train.architectures import Architecture
from holdfast.pipeline.train.pictures import Showing, showing
from holdfast.scenarios import Condition, parse_conditions
from holdfast.training import robust

VERSION = 1
"""Of the training: goes up when the same job would end in other weights, so that old models are trained again."""


@dataclass(frozen=True)
class TrainingJob:
    """One training: a network, on one condition, tested on one fold."""

    architecture: Architecture
    # what it is trained on; ``trained_on`` is that condition's name in the table. With ``others``, the condition that
    # it is not trained on
    condition: Condition
    trained_on: str
    fold: int  # tested, so not trained on
    identity: str  # of everything that decides the weights
    tested: tuple[tuple[str, Condition], ...]  # conditions that it is tested on, by their names in the table
    others: tuple[Condition, ...] = ()  # the conditions it is trained on, one for each image; empty: ``condition``

    def trained_pictures(self, samples: Sequence[Sample], seed: int) -> list[Showing]:
        """Return what the network is trained on: samples, each with what is made of it."""
        return mixed(samples, self.others, seed) if self.others else showing(samples, self.condition)

    @property
    def key(self) -> dict[str, Any]:
        """Return the key columns in which rows of this network differ from those of others."""
        return {"model": self.architecture.name, "trained_on": self.trained_on, "fold": self.fold}

    @property
    def folder(self) -> Path:
        """Return the job's folder below ``models/``, ``jobs/`` and ``tensorboard/``."""
        name = safe_part(self.architecture.name.replace(":", "-"))
        return Path(name) / safe_part(self.trained_on) / f"fold-{self.fold}"

    @property
    def name(self) -> str:
        """Return the job's name, which its files and its rows in tables share."""
        return "--".join(self.folder.parts)


ALL_BUT = "all but "  # begins ``trained_on`` of networks that saw every condition but the one named behind it


def mixed(samples: Sequence[Sample], conditions: Sequence[Condition], seed: int) -> list[Showing]:
    """Return every image once, under one of the conditions that is drawn for it."""
    # So a mixture has as many images as a single condition: what it gains is variety, not number.
    by_photo: dict[str, list[Showing]] = {}
    for condition in conditions:
        for sample, rendered_as in showing(samples, condition):
            by_photo.setdefault(sample.source_id, []).append((sample, rendered_as))
    return [
        pictures[int(generator(seed, photo, "mixture").integers(len(pictures)))] for photo, pictures in by_photo.items()
    ]


def check(spec: TrainSpec) -> None:
    """Raise a UserError if a setting makes no sense."""
    if not spec.architectures:
        raise UserError("no architecture was named; --architectures timm:resnet50,timm:vgg16 lists them")
    for name, share in (("train-split", spec.train_split), ("validation", spec.validation)):
        if not (0 < share < 1 or (name == "validation" and share == 0)):
            raise UserError(f"--{name} is a share between 0 and 1, not {share}")
    if spec.train_on == ALL_BUT_ONE and len(parse_conditions(spec.scenarios)) < 3:
        raise UserError("--train-on all-but-one needs three scenarios at least: two to train on and one to test")
    if type(spec) is TrainSpec and spec.labels and not asks_for_nine(spec.labels):
        raise UserError("train --labels takes nine or nine:FILE.csv: a trained network has the classes of its images")
    if spec.robust:
        robust.described(spec.robust)
        if "grey" in spec.robust.split("+"):
            raise UserError("--robust grey would be tested in colour; holdfast study greyscale tests in grey, too")
        if spec.task != CLASSIFY or spec.balance == "weights":
            raise UserError("--robust trains classifiers, and not with --balance weights; --balance sampling works")
    if spec.early_stopping and not spec.validation:
        raise UserError("--early-stopping needs validation images, and --validation 0 leaves none")


def with_folds(collection: Collection, spec: TrainSpec) -> Collection:
    """Return the collection with each image's fold, stratified by class; one split has folds 0 (test) and −1."""
    # Classes without a sample are left out: nothing can be learned of them.
    samples = collection.samples
    present = {sample.label for sample in samples}
    classes = tuple(name for name in collection.classes if name in present)
    if len(classes) < 2 and spec.task == CLASSIFY:
        raise UserError(f"{spec.data} has images of {len(classes)} class; a classifier needs at least 2")
    if spec.folds > 1:
        return replace(collection, classes=classes, samples=stratified_folds(samples, folds=spec.folds, seed=spec.seed))
    photos = Counter(label for _, label in {(sample.source_id, sample.label) for sample in samples})
    lone = [name for name in classes if photos[name] < 2]
    if lone:
        raise UserError(
            f"{', '.join(lone[:5])} {'has' if len(lone) == 1 else 'have'} a single image; training and testing need at "
            "least 2 of each class"
        )
    split = stratified_split(samples, test_fraction=1 - spec.train_split, seed=spec.seed)
    folded = tuple(
        replace(own, fold=0 if placed.split == TEST else -1) for own, placed in zip(samples, split, strict=True)
    )
    return replace(collection, classes=classes, samples=folded)


def scenarios_text(spec: TrainSpec) -> str:
    """Return what is asked for, with the originals if all models are trained on them."""
    named = {condition.scenario for condition in parse_conditions(spec.scenarios, feather=spec.feather)}
    return spec.scenarios if ORIGINAL in named or spec.train_on != ORIGINAL else f"{ORIGINAL},{spec.scenarios}"


def conditions_of(spec: TrainSpec, collection: Collection) -> dict[str, Condition]:
    """Return name in the table → condition, the original first if it takes part."""
    conditions = parse_conditions(scenarios_text(spec), feather=spec.feather)
    stored = stored_conditions(collection.samples)
    for condition in conditions:
        definition = condition.definition
        if condition.scenario in stored or (definition.paints and spec.generator):
            continue
        if definition.attack or definition.paints or definition.tool == "style":
            how = "is made against a finished model" if definition.attack else "is painted by another network"
            does = "--generator names what paints it, or" if definition.paints else "it cannot be trained on;"
            raise UserError(f"{condition.scenario} {how}: {does} holdfast synth writes images that can be trained on")
    masked = any(sample.mask is not None for sample in collection.samples)
    needing = [
        condition.name
        for condition in conditions
        if condition.definition.needs_mask and condition.scenario not in stored
    ]
    if needing and not masked:
        raise UserError(
            f"{', '.join(needing[:3])}{' and others' if len(needing) > 3 else ''} need masks and none of the "
            f"{len(collection)} images has one; --masks FOLDER names them, holdfast mask makes some"
        )
    several = Counter((condition.scenario, condition.variant) for condition in conditions)
    named = {
        condition.name
        + (f" {condition.parameters_json}" if several[condition.scenario, condition.variant] > 1 else ""): condition
        for condition in conditions
    }
    return dict(sorted(named.items(), key=lambda item: item[1].scenario != ORIGINAL))


def make_jobs(
    spec: TrainSpec, prepared: Prepared, conditions: Mapping[str, Condition], architectures: Sequence[Architecture]
) -> list[TrainingJob]:
    """Return every job; those of one condition and one network are side by side."""
    # Crops and robust ways came later: without them, the identity of a training is what it was before.
    recipe = {key: value for key, value in asdict(spec.settled()).items() if key not in ("crop", "robust") or value}
    asked = {
        "recipe": recipe, "seed": spec.seed, "matte": spec.matte, "balance": spec.balance, "version": VERSION,
        "early_stopping": spec.early_stopping, "validation": spec.validation, "classes": prepared.collection.classes,
    }  # fmt: skip
    jobs = []
    for name, condition in conditions.items():
        is_original = condition.scenario == ORIGINAL
        if spec.train_on == ORIGINAL and not is_original:
            continue
        others: tuple[Condition, ...] = ()
        if spec.train_on == ALL_BUT_ONE and not is_original:
            others = tuple(other for other in conditions.values() if other != condition)
        job = TrainingJob(architectures[0], condition, ALL_BUT + name if others else name, 0, "", (), others)
        shown = job.trained_pictures(prepared.collection.samples, spec.seed)
        parts = sorted({sample.fold for sample, _ in shown})
        about = {
            part: fingerprint(
                sorted(
                    (sample.sample_id, content_of(spec, prepared, sample, rendered_as))
                    for sample, rendered_as in shown
                    if sample.fold == part
                )
            )
            for part in parts
        }
        tested = tuple(conditions.items()) if is_original else ((name, condition),)
        for architecture in architectures:
            for fold in range(spec.folds):
                trained = [about[part] for part in parts if part != fold]
                identity = fingerprint(
                    {**asked, "network": architecture.fingerprint, "condition": [condition.scenario, condition.variant],
                     "parameters": condition.parameters_json, "images": trained}
                    | ({"without": name} if others else {})
                )  # fmt: skip
                jobs.append(replace(job, architecture=architecture, fold=fold, identity=identity, tested=tested))
    return jobs


def content_of(spec: TrainSpec, prepared: Prepared, sample: Sample, condition: Condition) -> list[str]:
    """Return the hashes of what an image is made of: image, label and donors, and the mask where it matters."""
    definition = condition.definition
    image = fingerprint([prepared.images[sample.sample_id], sample.label, prepared.lent(definition), spec.matte])
    masked = definition.needs_mask or spec.task != CLASSIFY  # to a segmenter the mask is the truth
    return [image, prepared.masks[sample.sample_id] if masked else ""]


@dataclass(frozen=True)
class GivenModel:
    """A model that is tested as it is."""

    place: int  # in the specification
    name: str
    identity: str

    @property
    def key(self) -> dict[str, Any]:
        """Return the key column in which rows of this model differ from those of others."""
        return {"model": self.name}


class TestedPicture(NamedTuple):
    """An image that a network is tested on, under a condition by its name in the table."""

    condition: str
    sample: Sample
    rendered_as: Condition


@dataclass(frozen=True)
class TrainingJobs:
    """Every training, with the images of its fold that it is tested on."""

    trainings: Sequence[TrainingJob]
    samples: Sequence[Sample]

    def __len__(self) -> int:
        return len(self.trainings)

    def __iter__(self) -> Iterator[TrainingTest]:
        for training in self.trainings:
            parts = [
                TestedPicture(name, sample, rendered_as)
                for name, condition in training.tested
                for sample, rendered_as in showing(self.samples, condition)
                if sample.fold == training.fold
            ]
            yield Job(training, parts)


TrainingTest = Job[TrainingJob, TestedPicture]
ModelTest = TrainingTest | Job[GivenModel, TestedPicture]


@dataclass(frozen=True)
class Places:
    """Which images of a condition a job trains on, and which choose its best epoch."""

    train: list[int]
    validation: list[int]


def places_of(samples: Sequence[Sample], job: TrainingJob, classes: Sequence[str], spec: TrainSpec) -> Places:
    """Split the images outside the job's fold by source; UserError if a class is missing from a part."""
    own = [place for place, sample in enumerate(samples) if sample.fold != job.fold]
    tested = {sample.label for sample in samples if sample.fold == job.fold}
    if spec.validation and own:
        split = stratified_split([samples[place] for place in own], test_fraction=spec.validation, seed=spec.seed)
        held = {place for place, sample in zip(own, split, strict=True) if sample.split == TEST}
    else:
        held = set()
    train = [place for place in own if place not in held]
    for part, present in (("training images", {samples[place].label for place in train}), ("test images", tested)):
        missing = [name for name in classes if name not in present]
        if missing:
            named = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
            raise UserError(f"no class may be missing from the {part} of {job.trained_on}, fold {job.fold}: {named} is")
    return Places(train, sorted(held))


def key_of(spec: TrainSpec, dataset: str, tested: TrainingJob | GivenModel, shown: Showing) -> dict[str, Any]:
    """Return the key columns of one row."""
    return row_key(spec, dataset, *shown, "") | {"task": spec.task, "protocol": spec.protocol} | tested.key


_SCOPE = ("model", "trained_on", "fold", "condition", "variant", "parameters")


def ids_of(spec: TrainSpec, prepared: Prepared, job: ModelTest) -> list[str]:
    """Return the ids of the rows of a test, known before its network is trained."""
    ids = []
    for _, sample, rendered_as in job.parts:
        image, mask = content_of(spec, prepared, sample, rendered_as)
        key = key_of(spec, prepared.collection.name, job.item, (sample, rendered_as))
        ids.append(row_id(key, image=image, mask=mask, model=job.item.identity))
    return ids


def scope_of(spec: TrainSpec, dataset: str, jobs: Iterable[ModelTest], columns: tuple[str, ...] = _SCOPE) -> Scope:
    """Return the scope of tests: stored rows of the same networks, folds and conditions, whatever the sample."""
    names = sorted({job.item.key["model"] for job in jobs})

    def keys() -> Iterator[dict[str, Any]]:
        for job in jobs:
            yield from (key_of(spec, dataset, job.item, (part.sample, part.rendered_as)) for part in job.parts)

    return Scope.of_keys(pc.field("model").isin(names), columns, keys)
