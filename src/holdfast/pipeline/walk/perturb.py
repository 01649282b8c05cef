"""``holdfast perturb``: walk images against models as far as an oracle agrees, and write rows of the one table."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from holdfast.core.errors import HoldfastError, SampleError, raise_machine_trouble, stop_or_sentence
from holdfast.core.fingerprint import canonical_json, fingerprint, seed_from
from holdfast.core.networks import several_gpus
from holdfast.core.schema import row_id
from holdfast.core.types import ORIGINAL, Collection, Sample
from holdfast.engine import Executor, LocalExecutor, ahead, core_count
from holdfast.oracle import card
from holdfast.pipeline.classifiers import Tested, proved
from holdfast.pipeline.jobs.execute import Made, check_same, execute, shard_size
from holdfast.pipeline.jobs.plan import Job, Plan, Scope, plan
from holdfast.pipeline.jobs.progress import Progress, Summary, silent
from holdfast.pipeline.jobs.rows import check_answered
from holdfast.pipeline.samples import Prepared, begin_run, prepare, recorded_spec
from holdfast.pipeline.walk.calibration import calibrated, step_notes
from holdfast.pipeline.walk.publish import provenance, write_manifest
from holdfast.pipeline.walk.recording import (
    KIND,
    NEXT_ROUND,
    NO_WALK,
    PEOPLE,
    PERTURBED,
    RANDOM_WALK,
    WALK_CONDITIONS,
    FeatureDistance,
    FinishedWalk,
    PlannedWalk,
    WalkJob,
    WalkRecorder,
    feature_distance,
    walk_key,
)
from holdfast.pipeline.walk.resources import (
    PerturbSpec,
    UnderTest,
    WalkSetting,
    crop_of,
    kin_warnings,
    load_setting,
    load_tested,
    read_originals,
    square,
    view_notes,
)
from holdfast.pipeline.walk.walk import PENDING, WalkInput, WalkResult, walk_with
from holdfast.pipeline.walk.walk_step import Stepper
from holdfast.store import Run, writing

_SECONDS_TOGETHER = 20.0  # how long finished walks wait for others, to be shown to the model in one batch


@dataclass
class WalkResources:
    """What a process walks with: generator and oracle, and the models by their place in the specification."""

    setting: WalkSetting  # generator and oracle
    distance: FeatureDistance | None  # between images, in the oracle's features
    tested: dict[int, Tested] = field(default_factory=dict)  # the models that are loaded
    # the last one, with its model and whether it walks a baseline: compiling takes long
    stepper: tuple[tuple[int, bool], Stepper] | None = None
    proved: set[int] = field(default_factory=set)  # models, by their place, whose networks see what ``predict`` shows

    @classmethod
    def of(cls, setting: WalkSetting, tested: Sequence[Tested] = ()) -> WalkResources:
        """Return the resources of loaded parts."""
        return cls(setting, feature_distance(setting.oracle, setting.size), dict(enumerate(tested)))


class WalkWorker:
    """Walks samples; loads models one after the other, as jobs come model by model."""

    def __init__(
        self,
        spec: PerturbSpec,
        collection: Collection,
        run: Path,
        frames: frozenset[str],
        known: WalkResources,
        pictured: frozenset[str] = frozenset(),
    ) -> None:
        self.name = f"{spec.generator} or {spec.oracle}"
        self.spec = replace(spec, size=known.setting.size)  # else it would follow from the first image
        self.run_path, self.frames, self.pictured = run, frames, pictured
        self.collection = replace(collection, samples=(), problems=())
        self.classes = {name: place for place, name in enumerate(collection.classes)}
        self._expected = [model.fingerprint for model in known.tested.values()]

    def load(self) -> WalkResources:
        """Load generator and oracle."""
        return WalkResources.of(load_setting(self.spec, self.collection))

    def fingerprints(self, resources: WalkResources) -> list[str]:
        """Return what row ids depend on, apart from the models, each of which is checked when it is loaded."""
        return [canonical_json(resources.setting.parameters)]

    def run(self, resources: WalkResources, jobs: Sequence[WalkJob]) -> Iterator[Made]:
        """Yield the missing rows of walks, model by model."""
        recorder = WalkRecorder(
            self.spec, self.collection.name, resources.setting, self.run_path, resources.distance, self.pictured
        )
        for (place, baseline), alike in itertools.groupby(jobs, key=lambda job: (job.item.model, job.item.baseline)):
            model, own = self._tested(resources, place), list(alike)
            if place not in resources.proved:
                yield self._prove(resources, model, own)
                resources.proved.add(place)
            on_the_way: dict[str, tuple[WalkInput, FinishedWalk]] = {}
            finished: list[FinishedWalk] = []
            start = time.monotonic()
            walkers = self._walkers(resources, own, on_the_way, finished)
            stepper = self._stepper(resources, model, place, baseline)
            for walked in self._surviving(stepper, walkers, on_the_way, finished, baseline=baseline):
                walk = on_the_way.pop(walked.key)[1]
                walk.walked = walked
                finished.append(walk)
                if len(finished) >= 4 * self.spec.walk.batch_size or time.monotonic() - start > _SECONDS_TOGETHER:
                    yield from recorder.rows(model, finished)
                    finished.clear()
                    start = time.monotonic()
            yield from recorder.rows(model, finished)

    def _tested(self, resources: WalkResources, place: int) -> Tested:
        """Return a model; load it if needed and let go of those before it."""
        if place not in resources.tested:
            resources.tested.clear()
            resources.stepper = None
            name = self.spec.models[place]
            (model,) = load_tested(replace(self.spec, models=(name,)), self.collection)
            check_same(name, self._expected[place], model.fingerprint)
            resources.tested[place] = model
        return resources.tested[place]

    def _prove(self, resources: WalkResources, model: Tested, jobs: Sequence[WalkJob]) -> Summary:
        """Return notes that model and oracle see in a walk what they see elsewhere; raise a UserError if not."""
        samples = {job.item.sample.sample_id: job.item.sample for job in jobs}.values()
        oracle = resources.setting.oracle
        judges = [getattr(member, "classifier", None) for member in getattr(oracle, "members", None) or [oracle]]
        notes = [note for each in (model.classifier, *judges) for note in proved(each, samples, self.spec.max_pixels)]
        return Summary(notes=notes)

    def _stepper(self, resources: WalkResources, model: Tested, place: int, baseline: bool) -> Stepper:
        if resources.stepper is None or resources.stepper[0] != (place, baseline):
            setting, options = resources.setting, self.spec.walk
            if baseline:
                options = replace(options, direction="random", stop_when_fooled=False)
            under = UnderTest(model.classifier, model.labels, setting.loss_space, options.view)
            stepper = Stepper(setting.generator, under, setting.oracle, options, setting.mask)
            resources.stepper = (place, baseline), stepper
        return resources.stepper[1]

    def _surviving(
        self,
        stepper: Stepper,
        walkers: Iterator[WalkInput],
        on_the_way: dict[str, tuple[WalkInput, FinishedWalk]],
        finished: list[FinishedWalk],
        *,
        baseline: bool,
    ) -> Iterator[WalkResult]:
        """Yield the walks; after a failure, repeat those under way one by one to find the image that fails."""
        frames, latents = () if baseline else self.frames, self.spec.keep_latents and not baseline

        def walked(some: Iterable[WalkInput]) -> Iterator[WalkResult]:
            return walk_with(stepper, some, frames=frames, latents=latents)

        while True:
            try:
                yield from walked(walkers)
                return
            except HoldfastError:
                raise
            except Exception as error:
                raise_machine_trouble(error)
                alone = [walker for walker, _ in on_the_way.values()]
            for walker in alone:
                try:
                    yield from walked([walker])
                except Exception as error:
                    walk = on_the_way.pop(walker.key)[1]
                    walk.error = stop_or_sentence(error)
                    finished.append(walk)

    def _walkers(
        self,
        resources: WalkResources,
        jobs: Sequence[WalkJob],
        on_the_way: dict[str, tuple[WalkInput, FinishedWalk]],
        finished: list[FinishedWalk],
    ) -> Iterator[WalkInput]:
        """Yield images to walk, decoded ahead in threads; those that cannot walk are finished before they start."""

        def decoded(job: WalkJob) -> tuple[WalkJob, Any]:
            try:
                image = job.item.sample.image.load(max_pixels=self.spec.max_pixels)
            except SampleError as error:
                return job, error
            return job, square(image, resources.setting.size)

        lost = [job for job in jobs if job.item.baseline and job.item.steps is None]
        finished += [FinishedWalk(job, error=NO_WALK, status="skipped") for job in lost]
        waiting = (job for job in jobs if not job.item.baseline or job.item.steps is not None)
        with ThreadPoolExecutor(core_count()) as threads:
            for job, image in ahead(threads, decoded, waiting, 2 * core_count()):
                sample, steps = job.item.sample, job.item.steps
                if isinstance(image, SampleError):
                    finished.append(FinishedWalk(job, error=str(image)))
                    continue
                budget = self.spec.walk.steps if steps is None else steps
                # The same for every model, so that all meet the same random directions.
                seed = seed_from(self.spec.seed, sample.sample_id, "walk")
                walker = WalkInput(sample.sample_id, image, self.classes[sample.label], seed, steps)
                on_the_way[sample.sample_id] = walker, FinishedWalk(job, image, budget=budget)
                yield walker


def perturb(
    spec: PerturbSpec,
    out: Path,
    *,
    # names of the samples that are walked; the others are hashed and listed all the same
    only: Container[str] | None = None,
    progress: Progress = silent,
    executor: Executor | None = None,
) -> tuple[Run, Summary]:
    """Walk every image against every model, and write the rows that are not there yet."""
    run, summary = Run(out), Summary()
    executor = executor or LocalExecutor(1)
    if isinstance(executor, LocalExecutor) and (gpus := several_gpus(spec.device)):
        executor = LocalExecutor(max(executor.width, len(gpus)), gpus)
    with writing(out):  # first of all: no one should wait for models to hear that nothing can be written
        collection = read_originals(spec)
        # If others walk, this process only has to know what they walk with.
        known = spec if executor.shares_memory else replace(spec, device="cpu")
        tested = load_tested(known, collection)
        setting = load_setting(known, collection)
        prepared = prepare(spec, collection, progress)
        before = run.spec() if (run.path / "spec.json").exists() else {}
        spec, setting, facts = calibrated(spec, setting, tested, collection, collection.samples, before)
        recorded = _recorded(spec, setting, collection, before) | facts
        begin_run(run, recorded, prepared, summary, same=("verb", "dataset", "classes", "seed"))
        chosen = tuple(sample for sample in collection.samples if only is None or sample.sample_id in only)
        walks = _Walks(spec, run, setting, tested, prepared, chosen, progress, executor)
        run.predictions.drop_ids(walks.incomplete())
        if in_rounds := getattr(setting.oracle, "every", 0):
            run.predictions.drop((pc.field("kind") == KIND) & (pc.field("status") == PENDING))
        summary.merge(walks.execute(walks.plan(), "walk"))
        baseline = spec.random_walk and spec.walk.direction != "random"
        # Also if none is asked for: random walks of images that have changed are dropped.
        todo = walks.plan(walks.lengths(), retry=baseline)
        if baseline:
            summary.merge(walks.execute(todo, "baseline"))
        if in_rounds:
            summary.notes += _close_round(run)
        summary.notes += view_notes(tested, setting.size, spec.walk.view)
        summary.notes += step_notes(facts, spec.walk, walks.ended())
        if spec.keep_images:
            write_manifest(provenance(run), run.path / "images")
    check_answered(run, [model.classifier.name for model in tested], ("ok", "rejected", PENDING))
    return run, summary


def _close_round(run: Run) -> list[str]:
    """Name the folder of the images that people are asked about now; return what to do, if walks wait."""
    people = run.path / PEOPLE
    rounds = len([*people.glob("round-*")])
    if (people / NEXT_ROUND).is_dir():
        rounds += 1
        (people / NEXT_ROUND).rename(people / f"round-{rounds}")
    walks = run.predictions.dataset()
    waiting = walks.count_rows(filter=(pc.field("status") == PENDING) & (pc.field("condition") == PERTURBED))
    if not waiting:
        return []
    folder = people / f"round-{rounds}"
    return [
        f"{waiting} walks wait for people: holdfast people review {folder}, then holdfast people review --export "
        f"into a folder of its own (round-{rounds}) below that of human:, then the same command again"
    ]


def _recorded(
    spec: PerturbSpec, setting: WalkSetting, collection: Collection, before: dict[str, Any]
) -> dict[str, Any]:
    """Return what spec.json holds: this command, and the cards and relations of earlier ones, whose walks stay."""
    cards, kin = before.get("oracle_cards", []), before.get("kinship", [])
    mine = [list(row) for row in card(setting.oracle)]
    return recorded_spec(
        spec, "perturb", collection, parameters=setting.parameters,
        oracle_cards=[*cards, *([] if mine in cards else [mine])],
        kinship=list(dict.fromkeys([*kin, *kin_warnings(spec)])),
    )  # fmt: skip


@dataclass(frozen=True)
class _Walks:
    """What the walks of one command share."""

    spec: PerturbSpec
    run: Run
    setting: WalkSetting
    tested: Sequence[Tested]
    prepared: Prepared
    samples: tuple[Sample, ...]
    progress: Progress
    executor: Executor

    def row_id(self, walk: PlannedWalk, condition: str) -> str:
        """Return the id of one row."""
        sample, model = walk.sample, self.tested[walk.model]
        key = walk_key(self.spec, self.prepared.collection.name, self.setting, sample, condition, model)
        crop = crop_of(model.classifier, self.setting.size, self.spec.walk.view)
        image = fingerprint([self.prepared.images[sample.sample_id], sample.label, *([crop] if crop else [])])
        return row_id(key, image=image, mask="", model=model.fingerprint)

    def plan(
        self, lengths: Callable[[PlannedWalk], int | None] | None = None, *, retry: bool = True
    ) -> Plan[PlannedWalk, str]:
        """Plan every sample against every model: walks, or random walks of these lengths."""
        walks = [PlannedWalk(place, sample) for place in range(len(self.tested)) for sample in self.samples]
        jobs = [Job(walk, WALK_CONDITIONS) for walk in walks]
        if lengths is not None:
            jobs = [Job(replace(walk, steps=lengths(walk), baseline=True), (RANDOM_WALK,)) for walk in walks]
        return plan(
            self.run.predictions,
            jobs,
            lambda job: [self.row_id(job.item, condition) for condition in job.parts],
            scope=self._scope(WALK_CONDITIONS if lengths is None else (RANDOM_WALK,)),
            retry=retry and self.spec.retry_errors,
            retried=("error", "skipped"),
            details={name: self.run.details(name) for name in ("walks", "frames", "latents")},
        )

    def _scope(self, conditions: Sequence[str]) -> Scope:
        """Return the scope: rows of the same setting, samples and models."""
        names = {sample.sample_id for sample in self.samples}
        planned = {condition: self.setting.parameters_json(condition) for condition in conditions}
        return Scope(
            (pc.field("kind") == KIND) & pc.field("model").isin([model.classifier.name for model in self.tested]),
            ("sample_id", "condition", "parameters"),
            lambda row: row["sample_id"] in names and planned.get(row["condition"]) == row["parameters"],
        )

    def execute(self, todo: Plan[PlannedWalk, str], step: str) -> Summary:
        """Walk; in this process, batches stay full from a model's first sample to its last."""
        known = WalkResources.of(self.setting, self.tested)
        frames = frozenset(sample.sample_id for sample in self.samples[: self.spec.frames])
        spread = self.samples[:: max(1, len(self.samples) // self.spec.pictures)] if self.spec.pictures else ()
        pictured = frozenset(sample.sample_id for sample in spread[: self.spec.pictures])
        worker = WalkWorker(self.spec, self.prepared.collection, self.run.path.absolute(), frames, known, pictured)
        alone = self.executor.shares_memory
        size = todo.count if alone else shard_size(todo.count, self.executor, self.spec.walk.batch_size)
        return execute(
            todo, worker, self.executor, step=step, size=size, known=known, samples=self.samples,
            count=partial(Summary.count, fine=("ok", "rejected", "skipped", PENDING)), progress=self.progress,
        )  # fmt: skip

    def lengths(self) -> Callable[[PlannedWalk], int | None]:
        """Return how many steps the validated walk of a random one went; None if there is no such walk."""
        rows = self.run.details("walks").rows(["row_id", "validated", "steps"]).to_pylist()
        steps = {row["row_id"]: row["steps"] for row in rows if row["validated"]}
        return lambda walk: steps.get(self.row_id(walk, PERTURBED))

    def ended(self) -> list[dict[str, Any]]:
        """Return why each walk of this command ended, and whether original and kept image are classified correctly."""
        walks = [PlannedWalk(place, sample) for place in range(len(self.tested)) for sample in self.samples]
        stops = self.run.details("walks").rows(["row_id", "stop"]).to_pylist()
        stop = {row["row_id"]: row["stop"] for row in stops}
        column = "correct_restricted" if self.setting.loss_space == "dataset" else "correct"
        answers = self.run.predictions.rows(["row_id", column]).to_pylist()
        right = {row["row_id"]: row[column] for row in answers}
        return [
            {"stop": stop[end], "before": right.get(self.row_id(walk, ORIGINAL)), "after": right.get(end)}
            for walk in walks
            if (end := self.row_id(walk, PERTURBED)) in stop
        ]

    def incomplete(self) -> set[str]:
        """Return finished walks that lack the image, latents or frames asked for now: they are walked again."""
        spec, details = self.spec, self.run.details
        rows = details("walks").rows(["row_id", "validated", "image"]).to_pylist()
        validated = {row["row_id"]: row["image"] for row in rows if row["validated"]}
        lacking: set[str] = set()
        if spec.keep_images:
            images = self.run.path / "images"
            lacking |= {walk for walk, image in validated.items() if not (image and (images / image).is_file())}
        if spec.keep_latents:
            lacking |= validated.keys() - details("latents").stored_ids()
        ids = [
            [self.row_id(PlannedWalk(place, sample), PERTURBED) for place in range(len(self.tested))]
            for sample in self.samples
        ]
        framed = set().union(*ids[: spec.frames])
        lacking |= (framed & {row["row_id"] for row in rows}) - details("frames").stored_ids()
        return lacking & set().union(*ids)
