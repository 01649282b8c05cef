"""What a process does with the jobs it is given: pictures once for all of them, training, and the rows of the test."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.core.errors import HoldfastError, first_line, raise_machine_trouble
from holdfast.core.files import safe_part
from holdfast.core.names import Name
from holdfast.core.schema import PREDICTIONS, SCHEMA_VERSION
from holdfast.core.types import LabelSpace
from holdfast.data.labels import map_labels, outcomes
from holdfast.engine import core_count, share_of
from holdfast.models import local_dir, python
from holdfast.models.torch_classifier import TorchClassifier, resolve_device
from holdfast.pipeline.jobs.summary import Summary
from holdfast.pipeline.samples import Prepared
from holdfast.pipeline.train.fitting import Fit, on_device, places_of, trained_as
from holdfast.pipeline.train.pictures import (
    RenderedSource,
    Renderer,
    Showing,
    Source,
    Team,
    Tensors,
    bytes_of,
    showing,
    tensors_of,
)
from holdfast.pipeline.train.plan import TrainingJob, TrainSpec, ids_of, key_of, tested_on
from holdfast.scenarios import Condition
from holdfast.store import write_json, write_table

if TYPE_CHECKING:
    import torch

OF_MACHINE = 0.25
"""Share of a machine's memory that pictures may take, all workers on it together."""

TESTED = 256
"""Pictures that are tested at once: as many as a small memory holds at 224 pixels."""


@dataclass(frozen=True)
class OwedJob:
    """A job and the conditions, by their names in the table, whose rows are not there yet."""

    job: TrainingJob
    conditions: tuple[tuple[str, Condition], ...]


class TrainingWorker:
    """Trains and tests jobs one after the other; the pictures of a condition serve all jobs that train on it.

    Travels to other processes without what it holds.
    """

    fitting: type[Fit] = Fit

    def __init__(self, spec: TrainSpec, prepared: Prepared, run: Path, device: str, watch: Any = None) -> None:
        self.spec = spec
        self.prepared = prepared
        self.run = run
        self.device = device
        self.classes = prepared.collection.classes
        self._watch = watch
        self._held: OrderedDict[str, Tensors] = OrderedDict()
        self._team: Team | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_watch": None, "_held": OrderedDict(), "_team": None}

    @property
    def memory(self) -> int:
        """Return the bytes of pictures that may be held: as asked for, or a share of this machine's."""
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return int(self.spec.memory * 2**30) or share_of(OF_MACHINE * machine)

    def __call__(self, jobs: Sequence[OwedJob]) -> tuple[int, Summary]:
        """Do these jobs and write models, curves and rows; return how many jobs, and what they made."""
        import torch

        self.device = resolve_device(self.device)  # that of the machine which does the work
        if self.device.startswith("cuda:"):
            torch.cuda.set_device(torch.device(self.device))
        summary = Summary()
        for owed in jobs:
            summary.merge(self._do(owed))
        return len(jobs), summary

    def _do(self, owed: OwedJob) -> Summary:
        """Train, then test under each condition that is owed; a failure stays with its job."""
        job, summary = owed.job, Summary()
        model: Any = None
        message = ""
        try:
            self._model(job)
            model = self._load(job)
        except Exception as error:
            message = _reason(error)
            write_json(self._record(job), self._about(job) | {"status": "error", "error": message})
        for name, condition in owed.conditions:
            try:
                rows = list(self._rows(job, condition, model)) if model else self._failed(owed, name, message)
            except Exception as error:
                rows = self._failed(owed, name, _reason(error))
            self._write(job, name, rows)
            summary.count(rows if model else [row | {"sample_id": job.name} for row in rows])
        return summary

    def _failed(self, owed: OwedJob, name: str, message: str) -> list[dict[str, Any]]:
        """Return every row that a job owes under a condition, with the reason why there is no answer."""
        job = owed.job
        shown = tested_on(job, dict(owed.conditions)[name], self.prepared.collection.samples)
        ids = ids_of(self.spec, self.prepared, job, shown)
        failed = {"status": "error", "error": message}
        return [self._row(job, showing, identity) | failed for showing, identity in zip(shown, ids, strict=True)]

    def _model(self, job: TrainingJob) -> None:
        """Find or train the model of a job, in its folder."""
        facts = trained_as(self.run / "models" / job.folder, job.identity)
        if facts is not None and self._record(job).is_file():
            return
        source, samples, left_out = self._source(job)
        places = places_of(samples, job, self.classes, self.spec)
        fitting = self.fitting(self.spec, job, self.classes, source, places, self.run, self.device, self._watch)
        facts = facts or fitting.train()
        tested = sum(sample.fold == job.fold for sample in samples)
        known = {key: facts[key] for key in _FACTS}
        done = {"validation": facts["validation_accuracy"], "test_images": tested, "left_out": left_out}
        balance = json.dumps(facts["class_balance"], ensure_ascii=False)
        write_json(self._record(job), self._about(job) | known | done | {"class_balance": balance, "status": "ok"})

    def _source(self, job: TrainingJob) -> tuple[Source, Sequence[Any], int]:
        """Return the pictures of a job's condition, their samples, and how many could not be made."""
        import torch

        size = self.spec.settled().size
        shown = showing(self.prepared.collection.samples, job.condition)
        renderer = self._renderer(size)
        if bytes_of(len(shown), size) > self.memory:
            place = {name: number for number, name in enumerate(self.classes)}
            labels = torch.tensor([place[sample.label] for sample, _ in shown])
            return RenderedSource(renderer, shown, labels), [sample for sample, _ in shown], 0
        if job.trained_on not in self._held:
            # The others go first: two conditions need not fit at once.
            self._held.clear()
            self._held[job.trained_on] = tensors_of(renderer, shown, self.classes)
        held = self._held[job.trained_on]
        return on_device(held.images, held.labels, self.device), held.samples, len(held.failed)

    def _renderer(self, size: int, *, hashed: bool = False) -> Renderer:
        spec = self.spec
        self._team = self._team or Team(share_of(spec.renderers) if spec.renderers else core_count())
        return Renderer(self.prepared.pool, size, spec.seed, spec.max_pixels, spec.matte, hashed, team=self._team)

    def _load(self, job: TrainingJob) -> Any:
        """Load the trained model, to be tested."""
        folder, architecture = self.run / "models" / job.folder, job.architecture
        if architecture.library == "python":
            name = Name("python", architecture.architecture, str(folder / "model.safetensors"))
            return python.load(name, device=self.device)
        return local_dir.load(Name("local-dir", str(folder)), device=self.device)

    def _rows(self, job: TrainingJob, condition: Condition, classifier: TorchClassifier) -> Iterator[dict[str, Any]]:
        """Yield the rows of a model's test on its fold under one condition."""
        shown = tested_on(job, condition, self.prepared.collection.samples)
        ids = dict(
            zip((sample.sample_id for sample, _ in shown), ids_of(self.spec, self.prepared, job, shown), strict=True)
        )
        made_of = {sample.sample_id: rendered_as for sample, rendered_as in shown}
        space = LabelSpace(tuple(self.classes))
        label_map = map_labels(self.classes, {}, space)
        renderer = self._renderer(classifier.preprocessing.size[0], hashed=True)
        for start in range(0, len(shown), TESTED):
            pictures = tensors_of(renderer, shown[start : start + TESTED], self.classes)
            for sample, status, error in pictures.failed:
                row = self._row(job, (sample, made_of[sample.sample_id]), ids[sample.sample_id])
                yield row | {"status": status, "error": error}
            if not len(pictures):
                continue
            probabilities = classifier.predict_prepared(list(_as_loaded(pictures.images, classifier)))
            columns = outcomes(probabilities, label_map, [sample.label for sample in pictures.samples])
            for place, sample in enumerate(pictures.samples):
                row = self._row(job, (sample, made_of[sample.sample_id]), ids[sample.sample_id])
                outcome = {name: values[place] for name, values in columns.items()}
                yield row | dict(pictures.facts[place]) | outcome

    def _row(self, job: TrainingJob, shown: Showing, identity: str) -> dict[str, Any]:
        key = key_of(self.spec, self.prepared.collection.name, job, shown)
        known = {"row_id": identity, "run_id": self.run.resolve().name, "schema_version": SCHEMA_VERSION}
        return key | {"label": shown[0].label} | known

    def _write(self, job: TrainingJob, condition: str, rows: list[dict[str, Any]]) -> None:
        # A file a job and condition: writing it again replaces what was measured before something changed.
        file = self.run / "predictions" / f"part-{job.name}--{safe_part(condition)}.parquet"
        write_table(file, pa.Table.from_pylist(rows, schema=PREDICTIONS))

    def _record(self, job: TrainingJob) -> Path:
        return self.run / "jobs" / job.folder / "job.json"

    def _about(self, job: TrainingJob) -> dict[str, Any]:
        return {
            "job": job.name, "task": self.spec.task, "model": job.architecture.name, "trained_on": job.trained_on,
            "fold": job.fold, "seed": self.spec.seed,
        }  # fmt: skip


_FACTS = ("epochs", "best_epoch", "train_images", "validation_images", "pieces", "device", "seconds")


def _reason(error: Exception) -> str:
    """Return why a job has no answers; raise trouble of the machine, for which no job is to blame."""
    raise_machine_trouble(error)
    message = str(error) if isinstance(error, HoldfastError) else f"{type(error).__name__}: {first_line(error)}"
    return message[:500]


def _as_loaded(images: torch.Tensor, classifier: TorchClassifier) -> torch.Tensor:
    """Return pictures exactly as the model's own preparation makes them."""
    import torch

    mean, std = (
        torch.tensor(values).view(-1, 1, 1) for values in (classifier.preprocessing.mean, classifier.preprocessing.std)
    )
    return images.float().div_(255).sub_(mean).div_(std)
