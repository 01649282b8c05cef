"""``holdfast train``: networks × conditions × folds → models, curves and rows of the one table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.core.errors import SampleError, UserError
from holdfast.core.lazy import torch
from holdfast.core.names import Name
from holdfast.core.networks import resolve_device
from holdfast.core.schema import JOBS
from holdfast.core.system import physical_memory
from holdfast.core.types import Collection, LabelSpace, Sample
from holdfast.data.labels import map_labels
from holdfast.engine import Executor, LocalExecutor, core_count, share_of
from holdfast.models import local_dir, proof, python
from holdfast.models.torch_classifier import TorchClassifier
from holdfast.pipeline.donors import DonorPool
from holdfast.pipeline.files import check_apart
from holdfast.pipeline.jobs.execute import execute
from holdfast.pipeline.jobs.plan import Plan, plan
from holdfast.pipeline.jobs.progress import Progress, Summary, silent
from holdfast.pipeline.jobs.rows import Row, answer_each, answered, check_answered, outcome_rows
from holdfast.pipeline.painted import with_generated
from holdfast.pipeline.samples import begin_run, prepare, read, recorded_spec
from holdfast.pipeline.train import architectures
from holdfast.pipeline.train.architectures import Architecture
from holdfast.pipeline.train.fitting import Fit, trained_as
from holdfast.pipeline.train.on_device import DeviceTeam, can_make
from holdfast.pipeline.train.pictures import (
    InMemory,
    RenderedSource,
    Renderer,
    Showing,
    Source,
    Team,
    Tensors,
    tensors_of,
)
from holdfast.pipeline.train.plan import (
    GivenModel,
    ModelTest,
    TestedPicture,
    TrainingJob,
    TrainingJobs,
    TrainingTest,
    TrainSpec,
    check,
    conditions_of,
    ids_of,
    key_of,
    make_jobs,
    places_of,
    scenarios_text,
    scope_of,
    with_folds,
)
from holdfast.store import Run, read_json, write_json, write_table, writing
from holdfast.store.parts import damaged

_USUAL_MEMORY = 8 << 30  # bytes, of a machine that does not say how many it has
OF_MACHINE = 0.25  # share of a machine's memory that images may take, all workers on it together
TESTED = 256  # images that are tested at once: as many as a small memory holds at 224 pixels

Answers = Callable[[Tensors, Mapping[str, str]], Iterable[tuple[Sample, Row]]]
"""Returns the outcome columns for each image, given the images and the row id of each sample."""


@dataclass
class TrainingResources:
    """What a process holds: its device, who makes images, and the images of one condition by its name."""

    device: str
    team: Team
    held: dict[str, Tensors] = field(default_factory=dict)
    on_device: tuple[str, DeviceTeam] | None = None  # who makes the images of a condition on a GPU, and its name
    given: Sequence[Any] = ()  # models that are tested as they are

    def maker(self, spec: TrainSpec, trained_on: str, shown: Sequence[Showing]) -> DeviceTeam | None:
        """Return who makes a condition's images on this GPU; None if there is none, or it cannot make them."""
        if not self.device.startswith("cuda") or not can_make(shown):
            return None
        if self.on_device is None or self.on_device[0] != trained_on:
            if self.on_device is not None:
                self.on_device[1].close()
            processes = share_of(spec.renderers) if spec.renderers > 1 else core_count()
            self.on_device = trained_on, DeviceTeam(self.device, shown, spec.max_pixels, processes)
        return self.on_device[1]


class TrainingWorker:
    """Trains and tests classifiers one after the other; the images of a condition serve all jobs that train on it."""

    fitting: type[Fit] = Fit
    masks = False  # whether networks learn where the object is
    name = "training"

    def __init__(self, spec: TrainSpec, collection: Collection, pool: DonorPool, run: Path, device: str) -> None:
        self.spec, self.collection, self.pool = spec, collection, pool
        self.run_path, self.device, self.classes = run, device, collection.classes
        self.watch: Callable[[int, int], None] | None = None  # called with (epochs done, epochs), in this process only

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "watch": None}

    @property
    def memory(self) -> int:
        """Return the bytes of images that may be held: as asked for, or a share of this machine's."""
        machine = physical_memory() or _USUAL_MEMORY
        return int(self.spec.memory * 2**30) or share_of(OF_MACHINE * machine)

    def load(self) -> TrainingResources:
        """Return resources without images, on the device of the machine that does the work."""
        device = resolve_device(self.device)
        if device.startswith("cuda:"):
            torch.cuda.set_device(torch.device(device))
        return TrainingResources(device, team_of(self.spec))

    def fingerprints(self, resources: TrainingResources) -> list[str]:
        """Return nothing: all weights are made here."""
        return []

    def run(self, resources: TrainingResources, jobs: Sequence[TrainingTest]) -> Iterator[Row]:
        """Train the network of each job, and yield the rows of its test; a failure stays with its job."""
        for job in jobs:
            (model,) = answer_each(lambda trainings: [self._trained(resources, trainings[0])], [job.item])
            if isinstance(model, SampleError):
                write_json(self._record(job.item), self._about(job.item) | {"status": "error", "error": str(model)})
                failed = {"status": "error", "error": f"{job.item.name} has no model: {model}"[:500]}
                for part, row_id in zip(job.parts, job.ids, strict=True):
                    yield self._row(job.item, (part.sample, part.rendered_as)) | {"row_id": row_id} | failed
                continue
            yield from self.tested(resources, job, model)

    def tested(self, resources: TrainingResources, job: ModelTest, model: Any) -> Iterator[Row]:
        """Show a model the images of its test, and yield their rows."""
        renderer = self._renderer(resources, self.tested_size(model), hashed=True)
        answers = self.answers(model)
        for _, alike in groupby(zip(job.parts, job.ids, strict=True), key=lambda pair: pair[0].condition):
            while pictures := list(islice(alike, TESTED)):  # a condition shows a sample once
                shown = {part.sample.sample_id: ((part.sample, part.rendered_as), row_id) for part, row_id in pictures}
                tensors = tensors_of(renderer, [own for own, _ in shown.values()], self.classes, masks=self.masks)
                rows: list[tuple[Sample, Row]] = [
                    (sample, {"status": status, "error": error}) for sample, status, error in tensors.failed
                ]
                rows += answers(tensors, {name: row_id for name, (_, row_id) in shown.items()}) if len(tensors) else ()
                for sample, row in rows:
                    own, row_id = shown[sample.sample_id]
                    yield self._row(job.item, own) | {"row_id": row_id} | row

    def _trained(self, resources: TrainingResources, job: TrainingJob) -> Any:
        """Return the model of a job, trained now or before."""
        facts = trained_as(self.run_path / "models" / job.folder, job.identity)
        try:
            if facts is None or not self._record(job).is_file():
                self._train(resources, job, facts)
            return self.model(resources, job)
        except UserError as error:  # such as a class without images: other jobs can still be trained
            raise SampleError(str(error)) from error

    def _train(self, resources: TrainingResources, job: TrainingJob, facts: dict[str, Any] | None) -> None:
        """Train the model of a job in its folder, unless its facts are there, and record the job."""
        source, samples, left_out = self._source(resources, job)
        places = places_of(samples, job, self.classes, self.spec)
        if facts is None:
            facts = self.fitting(
                self.spec, job, self.classes, source, places, self.run_path, resources.device, self.watch
            ).train()
        tested = sum(sample.fold == job.fold for sample in samples)
        known = {key: facts[key] for key in _FACTS}
        done = {"validation": facts["validation_accuracy"], "test_images": tested, "left_out": left_out}
        balance = json.dumps(facts["class_balance"], ensure_ascii=False)
        write_json(self._record(job), self._about(job) | known | done | {"class_balance": balance, "status": "ok"})

    def _source(self, resources: TrainingResources, job: TrainingJob) -> tuple[Source, Sequence[Sample], int]:
        """Return the images of a job's condition, their samples, and how many could not be made."""
        shown = job.trained_pictures(self.collection.samples, self.spec.seed)
        recipe = self.spec.settled()
        # With crops, an image is held somewhat larger, and every epoch takes another part of it.
        maker = resources.maker(self.spec, job.trained_on, shown)
        renderer = replace(self._renderer(resources, recipe.scaled or recipe.size), device=maker)
        if len(shown) * (4 if self.masks else 3) * renderer.size**2 > self.memory:
            place = {name: number for number, name in enumerate(self.classes)}
            labels = torch.tensor([place[sample.label] for sample, _ in shown])
            memory = self.memory if maker is None else maker.memory
            return RenderedSource(renderer, shown, labels, self.masks, memory), [sample for sample, _ in shown], 0
        if job.trained_on not in resources.held:
            # The others go first: two conditions need not fit at once.
            resources.held.clear()
            resources.held[job.trained_on] = tensors_of(renderer, shown, self.classes, masks=self.masks)
        held = resources.held[job.trained_on]
        pictures = held.images
        if held.masks is not None:
            pictures = torch.cat([pictures, held.masks[:, None].to(torch.uint8)], 1)
        return InMemory(pictures, held.labels).on(resources.device), held.samples, len(held.failed)

    def _renderer(self, resources: TrainingResources, size: int, *, hashed: bool = False) -> Renderer:
        spec = self.spec
        scaled = spec.settled().scaled
        return Renderer(
            self.pool, size, spec.seed, spec.max_pixels, spec.matte, hashed, scaled=scaled, team=resources.team
        )

    def model(self, resources: TrainingResources, job: TrainingJob) -> Any:
        """Load the trained model, to be tested."""
        folder, architecture = self.run_path / "models" / job.folder, job.architecture
        if architecture.library == "python":
            name = Name("python", architecture.architecture, str(folder / "model.safetensors"))
            return python.load(name, device=resources.device)
        return local_dir.load(Name("local-dir", str(folder)), device=resources.device)

    def tested_size(self, model: Any) -> int:
        """Return the width and height of the images that a model is tested on."""
        return int(model.preprocessing.size[0])

    def answers(self, model: Any) -> Answers:
        """Return how a model's answers to images become outcome columns."""
        label_map = map_labels(self.classes, {}, LabelSpace(tuple(self.classes)))
        flat = torch.from_numpy(np.stack(proof.flat_images(model))).permute(0, 3, 1, 2)
        proof.check_flat(model, model.predict_prepared(list(_as_loaded(flat, model))))

        def classified(pictures: Tensors, ids: Mapping[str, str]) -> Iterator[tuple[Sample, Row]]:
            def ask(places: Sequence[int]) -> list[Row]:
                probabilities = model.predict_prepared(list(_as_loaded(pictures.images[list(places)], model)))
                labels = [pictures.samples[place].label for place in places]
                return outcome_rows(probabilities, label_map, labels)

            for place, answer in enumerate(answer_each(ask, range(len(pictures)))):
                yield pictures.samples[place], dict(pictures.facts[place]) | answered(answer)

        return classified

    def _row(self, tested: TrainingJob | GivenModel, shown: Showing) -> Row:
        return key_of(self.spec, self.collection.name, tested, shown) | {"label": shown[0].label}

    def _record(self, job: TrainingJob) -> Path:
        return self.run_path / "jobs" / job.folder / "job.json"

    def _about(self, job: TrainingJob) -> dict[str, Any]:
        return {
            "job": job.name, "task": self.spec.task, "model": job.architecture.name, "trained_on": job.trained_on,
            "fold": job.fold, "seed": self.spec.seed,
        }  # fmt: skip


_FACTS = ("epochs", "best_epoch", "train_images", "validation_images", "pieces", "device", "seconds")


def team_of(spec: TrainSpec) -> Team:
    """Return as many processes that make images as a specification asks for; this machine's share of them."""
    return Team(share_of(spec.renderers) if spec.renderers else core_count())


def _as_loaded(images: torch.Tensor, classifier: TorchClassifier) -> torch.Tensor:
    """Return images exactly as the model's own preparation makes them."""
    mean, std = (
        torch.tensor(values).view(-1, 1, 1) for values in (classifier.preprocessing.mean, classifier.preprocessing.std)
    )
    return images.float().div_(255).sub_(mean).div_(std)


SAME = (
    "verb", "dataset", "classes", "seed", "folds", "train_split", "validation", "trained_by", "balance",
    "early_stopping", "matte", "feather",
)  # fmt: skip
"""What must not change when a run is continued; networks and scenarios may be added."""


@dataclass(frozen=True)
class TrainingKind:
    """What is trained."""

    verb: str  # of the command line
    # from the name of a network, the size of images and whether it is pretrained to an architecture
    resolve: Callable[..., Architecture]
    # the untrained network of an architecture, for a number of classes, a size of images and a seed
    build: Callable[..., Any]
    worker: type[TrainingWorker]  # trains and tests
    # the images of a specification, each with its fold
    read: Callable[[Any], Collection] = lambda spec: with_folds(read(spec), spec)
    details: str = ""  # the table below details/ that its rows have, if any
    paints: bool = True  # whether generated backgrounds are painted here; else ``read`` has seen to it


CLASSIFIERS = TrainingKind("train", architectures.resolve, architectures.build, TrainingWorker)


def train(
    spec: TrainSpec,
    out: Path,
    *,
    progress: Progress = silent,
    kind: TrainingKind = CLASSIFIERS,
    executor: Executor | None = None,
) -> tuple[Run, Summary]:
    """Train what is not trained yet, test what is not tested yet, and write models, curves and rows."""
    check(spec)
    recipe = spec.settled()
    run, summary = Run(out), Summary()
    executor = executor or LocalExecutor(spec.workers)
    with writing(out):
        collection = kind.read(spec)
        check_apart(collection.samples, out)
        conditions = conditions_of(spec, collection)
        painted: dict[str, Any] = {}
        if kind.paints:
            collection, painted = with_generated(
                spec, collection, list(conditions.values()), run.path, summary=summary, progress=progress
            )
        # A user who plans for other machines need not have their GPU.
        device = resolve_device(spec.device) if isinstance(executor, LocalExecutor) else spec.device
        networks, sizes = _networks(spec, kind, len(collection.classes))
        before = run.spec().get("model_parameters", {}) if (run.path / "spec.json").is_file() else {}
        prepared = prepare(spec, collection, progress)
        recorded = recorded_spec(
            spec, kind.verb, collection, models=[network.name for network in networks], trained_by=asdict(recipe),
            scenarios=scenarios_text(spec), model_parameters=before | sizes, **painted,
        )  # fmt: skip
        begin_run(run, recorded, prepared, summary, same=SAME)
        jobs = TrainingJobs(make_jobs(spec, prepared, conditions, networks), prepared.collection.samples)
        todo = plan(
            run.predictions, jobs, lambda job: ids_of(spec, prepared, job), retry=spec.retry_errors,
            scope=scope_of(spec, collection.name, jobs), progress=progress,
            details={kind.details: run.details(kind.details)} if kind.details else None,
        )  # fmt: skip
        worker = kind.worker(spec, prepared.collection, prepared.pool, run.path.absolute(), device)
        summary.merge(_execute(todo, worker, executor, run, progress))
        write_jobs(run)
    check_answered(run, [network.name for network in networks])
    return run, summary


def _networks(spec: TrainSpec, kind: TrainingKind, classes: int) -> tuple[list[Architecture], dict[str, int]]:
    """Return the architectures, and name → number of parameters; UserError if one cannot be built."""
    size = spec.settled().size
    networks = [kind.resolve(name, size=size, pretrained=spec.pretrained) for name in spec.architectures]
    names = [network.name for network in networks]
    if len(set(names)) < len(names):
        raise UserError(f"two of the architectures have one name: {', '.join(names)}")
    sizes = {}
    for network in networks:
        module = kind.build(network, classes, size, seed=spec.seed)
        sizes[network.name] = sum(parameter.numel() for parameter in module.parameters())
    return networks, sizes


def _execute(
    todo: Plan[TrainingJob, TestedPicture], worker: TrainingWorker, executor: Executor, run: Run, progress: Progress
) -> Summary:
    """Train and test; after every shard, ``jobs.parquet`` lists the trainings that have ended."""
    workers = min(executor.width, max(1, todo.count))
    if isinstance(executor, LocalExecutor):  # a single job is done in this process
        executor = LocalExecutor(workers)
    if executor.shares_memory:
        worker.watch = lambda done, total: progress("epochs", done, total)
    # The folds of a network share images: they stay together, as long as every worker has some.
    folds = worker.spec.folds
    size = folds if workers > 1 and todo.count >= 2 * workers * folds else 1

    def recorded(step: str, done: int, total: int) -> None:
        progress(step, done, total)
        write_jobs(run)

    return execute(
        todo, worker, executor, step="train", size=size, samples=worker.collection.samples,
        donors=worker.pool.samples, progress=recorded,
    )  # fmt: skip


def write_jobs(run: Run) -> None:
    """Write ``jobs.parquet`` from what each job left."""
    records = [_record(file) for file in sorted((run.path / "jobs").rglob("job.json"))]
    if records:
        write_table(run.path / "jobs.parquet", pa.concat_tables(records))


def _record(file: Path) -> pa.Table:
    try:
        return pa.Table.from_pylist([read_json(file)], schema=JOBS)
    except (pa.ArrowException, TypeError) as error:
        raise damaged(file, error) from error
