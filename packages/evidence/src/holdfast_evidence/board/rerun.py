"""Measure some rows of an entry again, and check all of its rows against the data.

A stranger's names are loaded only if that runs no code but ours and reads no file of this machine.
What is not known to be harmless is not followed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection as Container
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast import registry
from holdfast.core.errors import UserError, first_line
from holdfast.core.names import parse_name
from holdfast.core.schema import CLASSIFY, DETECT
from holdfast.core.tasks import Task
from holdfast.core.types import ORIGINAL, Sample
from holdfast.pipeline.classifiers import EvaluateSpec, Tested, load_models
from holdfast.pipeline.evaluate.adaptation import adaptation_images
from holdfast.pipeline.evaluate.classes import ClassEvaluation
from holdfast.pipeline.evaluate.detector_worker import Detection, TestedDetector, load_detectors
from holdfast.pipeline.evaluate.matching import as_detectors_see
from holdfast.pipeline.evaluate.worker import Evaluation, Loaded
from holdfast.pipeline.evaluation_rows import EvaluationIds, EvaluationJob, row_key
from holdfast.pipeline.generate.backgrounds import Painter, load_painter
from holdfast.pipeline.jobs.progress import Progress
from holdfast.pipeline.samples import Prepared, applicable, prepare, read, samples_table, stored_conditions
from holdfast.pipeline.specs import PerturbSpec, RerunOptions, WalkOptions, parse_matte
from holdfast.pipeline.walk.perturb import perturb
from holdfast.scenarios import Condition, find_scenario, make_condition
from holdfast.stats.walks.walk_rows import PERTURBED, RANDOM_WALK
from holdfast.store.foreign import parse_foreign_json
from holdfast_evidence.board import objects
from holdfast_evidence.board.entry import Entry, dataset_sha256
from holdfast_evidence.board.table import pictures_of

MODELS = ("embedded", "known", "timm", "torchvision", "packaged", "clip", "hf")
GENERATORS = ("embedded", "pixel", "noise", "rotate", "vqgan", "kl", "tiny", "ddim")
_FROM_HUB = ("clip", "hf", "vqgan", "kl", "tiny", "ddim")
"""These look for a folder or a file of the name before they ask the hub."""

_WORDS = {"labels": ("imagenet",), "ensemble": ("openai", "simple")}  # options that name a file, but for these words
_PLAIN = re.compile(r"(?!\.)[\w.+-]+(?:/(?!\.)[\w.+-]+)?")


def harmless_model(text: str) -> bool:
    """Return whether a model's name may be loaded."""
    return _harmless(text, MODELS)


def harmless_generator(text: str) -> bool:
    """Return whether a latent generator's name may be loaded."""
    return _harmless(text, GENERATORS)


def harmless_oracle(text: str) -> bool:
    """Return whether an oracle's name may be loaded: a model's, or those of an ensemble; votes are files."""
    scheme, _, rest = text.partition(":")
    if scheme == "ensemble":
        head, _, query = rest.partition("?")
        members = re.split(r"\+(?=[A-Za-z][\w-]+:)", head)  # as the ensemble does
        return all(harmless_oracle(f"{member}?{query}" if query else member) for member in members)
    return harmless_model(rest if scheme == "classifier" else text) and scheme in ("classifier", "clip")


def _harmless(text: str, schemes: tuple[str, ...]) -> bool:
    try:
        name = parse_name(text)
    except UserError:
        return False
    if name.scheme not in schemes:
        return False
    body = name.name.removeprefix("hf/") if name.scheme == "clip" else name.name
    if (body and not _PLAIN.fullmatch(body)) or (name.tag and not _PLAIN.fullmatch(name.tag)):
        return False
    if name.scheme in _FROM_HUB and any(_is_here(path) for path in (body, name.tag, f"{body}@{name.tag}")):
        return False
    return all(
        (option not in _WORDS or value in _WORDS[option]) and not (isinstance(value, str) and _is_here(value))
        for option, value in name.options.items()
    )


def _is_here(path: str) -> bool:
    try:
        return bool(path) and Path(path).exists()
    except OSError:  # too long to be the name of anything
        return False


_SHARD = 64

Key = tuple[str, str, str, str]


def model_name(entry: Entry, given: RerunOptions) -> str:
    """Return the name that loads the model; a name that would run a stranger's code or read a file must be given."""
    if given.model:
        return given.model
    if not harmless_model(entry.model.name):
        raise UserError(
            f"the entry's model is {entry.model.name}, a name that could run code or read files here; pass your "
            "own name of it with --model"
        )
    return entry.model.name


@dataclass
class Evaluated:
    """The dataset and the model of a static or hard entry, ready to be measured again."""

    spec: EvaluateSpec
    prepared: Prepared
    tested: Sequence[Tested | TestedDetector]
    painter: Painter | None
    expected: dict[Key, tuple[Sample, Condition]]
    folder: Path
    threshold: float | None = None  # of a detector's boxes

    @classmethod
    def of(cls, entry: Entry, table: pa.Table, given: RerunOptions, folder: Path, progress: Progress) -> Evaluated:
        """Read the data; a UserError if it is not the entry's."""
        threshold = objects.threshold_of(table) if entry.protocol.name == "objects" else None
        table = pictures_of(table)
        if any(table["trained_on"].unique().to_pylist()):
            raise UserError(
                "the models of this entry were trained in the submitter's run: verify cannot load them; ask for the "
                "run (holdfast share bundle RUN --models) and train again to compare"
            )
        if fill := entry.protocol.settings.get("fill"):
            raise UserError(
                f"objects were taken out of backgrounds by a network of the submitter's (--fill {fill}:FILE): verify "
                "cannot make these images; ask for the run (holdfast share bundle RUN) and evaluate again to compare"
            )
        seeds = table["seed"].unique().to_pylist()
        if len(seeds) != 1:
            raise UserError(f"the rows of this entry have {len(seeds)} seeds; verify takes entries of one run")
        spec = EvaluateSpec(
            given.data, masks=given.masks, backgrounds=given.backgrounds, split=given.split, limit=given.limit,
            seed=seeds[0], max_pixels=given.max_pixels, labels=given.labels, device=given.device,
            models=(model_name(entry, given),), batch_size=given.batch_size, generator=given.generator,
            prompts=given.prompts, oracle=given.oracle,
            matte=parse_matte(str(entry.protocol.settings.get("matte", "white"))),
            fast=bool(entry.protocol.settings.get("fast")),  # how rows are named; they are measured exactly
            boxes=given.boxes, images=given.images, box_masks=given.box_masks,
        )  # fmt: skip
        collection = read(spec)
        if threshold is not None:
            collection = as_detectors_see(spec, collection)
        prepared = prepare(spec, collection, progress)
        check_dataset(entry, samples_table(prepared))
        tested = load_models(spec, collection) if threshold is None else load_detectors(spec, collection)
        conditions = conditions_of(table)
        painter = load_painter(spec, collection, conditions)
        expected = _expected(spec, prepared, entry, conditions, table)
        return cls(spec, prepared, tested, painter, expected, folder, threshold)

    def problems(self, records: Sequence[Mapping[str, Any]]) -> list[str]:
        """Return what is wrong with all rows together: invented or missing ones, or labels that the data lacks."""
        stated = {key_of(row) for row in records}
        strange, missing = stated - set(self.expected), set(self.expected) - stated
        problems = []
        if strange:
            key = min(strange)
            problems.append(f"{len(strange)} rows are of nothing that the data has, such as {key[0]} under {key[1]}.")
        if missing:
            key = min(missing)
            problems.append(f"{len(missing)} rows are missing, such as {key[0]} under {key[1]}.")
        return problems + row_problems(records, self.prepared.collection.samples)

    def rows(self, chosen: Sequence[Mapping[str, Any]], progress: Progress) -> dict[Key, dict[str, Any]]:
        """Return key of an entry's row → the same row, measured here."""
        plain: dict[str, tuple[Sample, list[tuple[Condition, int]], list[str]]] = {}
        painted: dict[str, tuple[Sample, list[tuple[Condition, int]], list[str]]] = {}
        ids = EvaluationIds(self.spec, self.prepared, self.tested, self.painter, self._task)
        names: dict[str, Key] = {}
        for row in {key_of(chosen_row): chosen_row for chosen_row in chosen}.values():
            sample, condition = self.expected[key_of(row)]
            paints = condition.definition.paints
            (row_id,) = ids.of(sample, condition, [0])
            names[row_id] = key_of(row)
            _, parts, own = (painted if paints else plain).setdefault(sample.sample_id, (sample, [], []))
            parts.append((condition, 0))
            own.append(row_id)
        rows: dict[Key, dict[str, Any]] = {}
        progress("verify", 0, len(chosen))
        for jobs, painter in ((plain, None), (painted, self.painter)):
            worker = self._worker()
            loaded = Loaded(self.tested, painter)
            waiting = [EvaluationJob(*job) for job in jobs.values()]
            for start in range(0, len(waiting), _SHARD):
                for row in worker.run(loaded, waiting[start : start + _SHARD]):
                    rows[names[row["row_id"]]] = row
                progress("verify", len(rows), len(chosen))
        return rows

    @property
    def _task(self) -> Task:
        return registry.tasks.get(CLASSIFY if self.threshold is None else DETECT)

    def _worker(self) -> Evaluation:
        if self.threshold is not None:
            thresholds = {each.model.name: self.threshold for each in self.tested if isinstance(each, TestedDetector)}
            return Detection(self.spec, self.prepared, self.folder, self._task, thresholds)
        tested = [each for each in self.tested if isinstance(each, Tested)]
        adaptation = adaptation_images(self.spec, self.prepared, tested)
        return ClassEvaluation(self.spec, self.prepared, self.folder, self._task, adaptation)


def check_dataset(entry: Entry, samples: pa.Table) -> None:
    """Raise a UserError if the data is not what the entry was measured on."""
    digest = dataset_sha256(samples)
    if digest != entry.dataset.sha256:
        raise UserError(
            f"this is not the data of the entry: its hash is {digest[:12]}… ({len(samples)} images), the entry's "
            f"{entry.dataset.sha256[:12]}… ({entry.dataset.images} images of {entry.dataset.name}); masks, --split and "
            "--limit have to be the same, too"
        )


def conditions_of(table: pa.Table) -> list[Condition]:
    """Return the conditions of a table, each with the parameters that its rows state."""
    conditions: list[Condition] = []
    for row in table.group_by(["condition", "variant", "parameters"]).aggregate([]).to_pylist():
        if row["condition"] not in registry.scenarios:
            continue  # an image that is stored as it is, such as a generated one
        definition = find_scenario(row["condition"])
        parameters = parse_foreign_json(row["parameters"], f"the parameters of {row['condition']}")
        if row["variant"] == "as_stored" or not isinstance(parameters, dict):
            continue
        options = {name: value for name, value in parameters.items() if name != "version" or definition.version == 1}
        condition = make_condition(definition, row["variant"], options)
        if condition.parameters_json != row["parameters"]:
            raise UserError(
                f"{condition.name} was made by another version of its scenario than this Holdfast has: "
                f"{row['parameters'][:200]}"
            )
        conditions.append(condition)
    return conditions


def key_of(row: Mapping[str, Any]) -> Key:
    """Return the key of a row within an entry."""
    return row["sample_id"], row["condition"], row["variant"], row["parameters"]


def _expected(
    spec: EvaluateSpec, prepared: Prepared, entry: Entry, conditions: Sequence[Condition], table: pa.Table
) -> dict[Key, tuple[Sample, Condition]]:
    """Return every row that an entry of these conditions has on this data."""
    samples = prepared.collection.samples
    stored = stored_conditions(samples)
    has_original = any(condition.scenario == ORIGINAL for condition in conditions)
    wanted = [*conditions, *([] if has_original else [Condition(ORIGINAL)])]
    combinations = table.group_by(["condition", "variant", "parameters"]).aggregate([]).to_pylist()
    ways = {(row["condition"], row["variant"], row["parameters"]) for row in combinations}
    planned: dict[Key, tuple[Sample, Condition]] = {}
    for sample in samples:
        for condition in applicable(sample, wanted, stored):
            task = registry.tasks.get(DETECT if entry.protocol.name == "objects" else CLASSIFY)
            row = row_key(spec, prepared.collection.name, sample, condition, entry.model.name, task)
            generated = row["kind"] == "generated" and not condition.definition.paints
            if key_of(row)[1:] in ways and generated == (entry.protocol.name == "hard"):
                planned[key_of(row)] = sample, condition
    return planned


def row_problems(records: Sequence[Mapping[str, Any]], samples: Iterable[Sample]) -> list[str]:
    """Return problems of rows that contradict the dataset, and of rows that exist twice."""
    known = {sample.sample_id: sample for sample in samples}
    problems = []
    # images are what intervals are drawn over, and a fold makes one answer look like two
    for column, words in (("label", "label"), ("source_id", "source image"), ("fold", "fold")):
        wrong = [
            row
            for row in records
            if row["sample_id"] in known and row[column] not in _spellings(known[row["sample_id"]], column)
        ]
        if wrong:
            row = wrong[0]
            problems.append(
                f"{len(wrong)} rows have another {words} than the dataset, such as {row['sample_id']}: {row[column]} "
                f"instead of {getattr(known[row['sample_id']], column)}."
            )
    if twice := sum(count - 1 for count in Counter(key_of(row) for row in records).values()):
        problems.append(f"{twice} rows are there twice: the same image and condition under another id.")
    return problems


def _spellings(sample: Sample, column: str) -> tuple[Any, ...]:
    """Return what a row may have in a column of the dataset; an image without objects has no label."""
    value = getattr(sample, column)
    return (value, None) if value == "" else (value,)


def walked(
    entry: Entry,
    records: Sequence[Mapping[str, Any]],
    given: RerunOptions,
    chosen: Container[str],
    folder: Path,
    progress: Progress,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Walk some images again; return the rows, and what is wrong with the rows as a whole."""
    parameters = json.loads(next(row["parameters"] for row in records if row["condition"] == PERTURBED))
    try:
        spec = _walk_spec(entry, records, parameters, given)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise UserError(f"the walks of this entry are set in a way that there is not: {first_line(error)}") from None
    collection = read(spec)
    check_dataset(entry, samples_table(prepare(spec, collection, progress)))
    run, _ = perturb(spec, folder / "walks", only=chosen, progress=progress)
    rows = run.rows().to_pylist()
    problems = row_problems(records, collection.samples)
    if missing := {sample.sample_id for sample in collection.samples} - {row["sample_id"] for row in records}:
        problems.append(f"{len(missing)} images have no walk in the entry, such as {min(missing)}.")
    mine = {row["parameters"] for row in rows if row["condition"] == PERTURBED}
    for other in mine - {row["parameters"] for row in records if row["condition"] == PERTURBED}:
        now = json.loads(other)
        odd = sorted(name for name in {*now, *parameters} if now.get(name) != parameters.get(name))
        problems.append(f"The walks could not be set as the entry's were: {', '.join(odd)} came out otherwise.")
    return rows, problems


def _walk_spec(
    entry: Entry, records: Sequence[Mapping[str, Any]], parameters: Mapping[str, Any], given: RerunOptions
) -> PerturbSpec:
    """Return the walks as the entry sets them, with what is given here instead of what it would load."""
    for name, harmless in (("generator", harmless_generator), ("oracle", harmless_oracle)):
        text = str(parameters.get(name, ""))
        if not getattr(given, name) and not harmless(text):
            raise UserError(
                f"the entry's {name} is {text[:200]}, which would run code or read files by a stranger's word; say "
                f"with --{name} what it is here"
            )
    if parameters.get("sparse") and not given.sparse:
        raise UserError("these walks move a sparse part of the latent; --sparse names the file of its mask")
    walk = {option.name: parameters[option.name] for option in fields(WalkOptions) if option.name in parameters}
    return PerturbSpec(
        given.data, masks=given.masks, backgrounds=given.backgrounds, split=given.split, limit=given.limit,
        seed=next(row["seed"] for row in records), max_pixels=given.max_pixels, models=(model_name(entry, given),),
        generator=given.generator or str(parameters["generator"]), oracle=given.oracle or str(parameters["oracle"]),
        labels=given.labels, space=str(parameters["space"]), loss_space=str(parameters["loss_space"]),
        oracle_space="" if given.oracle else str(parameters["oracle_space"]), size=int(parameters["size"]),
        sparse=given.sparse, random_walk=any(row["condition"] == RANDOM_WALK for row in records),
        device=given.device, walk=WalkOptions(**walk),
    )  # fmt: skip
