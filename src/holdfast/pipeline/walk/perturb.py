"""``holdfast perturb``: walk images against models as far as an oracle agrees, and write rows of the one table."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from holdfast.core.fingerprint import fingerprint
from holdfast.core.schema import row_id
from holdfast.core.types import Collection, Sample
from holdfast.engine import Executor, LocalExecutor
from holdfast.oracle import card
from holdfast.pipeline.classifiers import Tested
from holdfast.pipeline.jobs.execute import execute, shard_size
from holdfast.pipeline.jobs.plan import Job, Plan, Scope, plan
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.jobs.summary import Summary
from holdfast.pipeline.samples import Prepared, begin_run, prepare
from holdfast.pipeline.specs import WalkOptions
from holdfast.pipeline.walk.publish import provenance, write_manifest
from holdfast.pipeline.walk.resources import (
    PerturbSpec,
    WalkSetting,
    kin_warnings,
    load_setting,
    load_tested,
    read_originals,
)
from holdfast.pipeline.walk.rows import (
    KIND,
    PERTURBED,
    RANDOM_WALK,
    WALK_CONDITIONS,
    PlannedWalk,
    WalkJob,
    WalkTables,
    walk_key,
)
from holdfast.pipeline.walk.worker import WalkResources, WalkWorker
from holdfast.store import Run, writing

__all__ = ["PerturbSpec", "WalkOptions", "perturb"]


def perturb(
    spec: PerturbSpec,
    out: Path,
    *,
    only: Container[str] | None = None,
    progress: Progress = silent,
    executor: Executor | None = None,
) -> tuple[Run, Summary]:
    """Walk every image against every model, and write the rows that are not there yet.

    Args:
        spec: what to do.
        out: the run directory.
        only: names of the samples that are walked; the others are hashed and listed all the same.
        progress: told how far it is.
        executor: who walks; None: this process.
    """
    run, summary = Run(out), Summary()
    executor = executor or LocalExecutor(1)
    with writing(out):  # first of all: nobody should wait for models to hear that nothing can be written
        collection = read_originals(spec)
        # Where others walk, this process only has to know what they walk with.
        known = spec if executor.shares_memory else replace(spec, device="cpu")
        tested = load_tested(known, collection)
        setting = load_setting(known, collection)
        prepared = prepare(spec, collection, progress)
        recorded = _recorded(spec, setting, collection, run)
        begin_run(run, recorded, prepared, summary, same=("verb", "dataset", "classes", "seed"))
        chosen = tuple(sample for sample in collection.samples if only is None or sample.sample_id in only)
        walks = _Walks(spec, run, setting, tested, prepared, chosen, progress, executor)
        run.predictions.drop_ids(walks.incomplete())
        summary.merge(walks.execute(walks.plan(), "walk"))
        baseline = spec.random_walk and spec.walk.direction != "random"
        # Also where none is asked for: random walks of images that have changed are dropped.
        todo = walks.plan(walks.lengths(), retry=baseline)
        if baseline:
            summary.merge(walks.execute(todo, "baseline"))
        if spec.keep_images:
            write_manifest(provenance(run), run.path / "images")
    return run, summary


def _recorded(spec: PerturbSpec, setting: WalkSetting, collection: Collection, run: Run) -> dict[str, Any]:
    """Return what spec.json holds: this command, and the cards and relations of earlier ones, whose walks stay."""
    before = run.spec() if (run.path / "spec.json").exists() else {}
    cards, kin = before.get("oracle_cards", []), before.get("kinship", [])
    mine = [list(row) for row in card(setting.oracle).rows()]
    return asdict(spec) | {
        "verb": "perturb",
        "dataset": collection.name,
        "classes": list(collection.classes),
        "parameters": setting.parameters,
        "oracle_cards": [*cards, *([] if mine in cards else [mine])],
        "kinship": list(dict.fromkeys([*kin, *kin_warnings(spec)])),
    }


@dataclass(frozen=True)
class WalkJobs:
    """Every sample against every model: walks, or random walks where lengths are given."""

    samples: Sequence[Sample]
    models: int
    lengths: Callable[[PlannedWalk], int | None] | None = None

    def __len__(self) -> int:
        return self.models * len(self.samples)

    def __iter__(self) -> Iterator[WalkJob]:
        for place in range(self.models):
            for sample in self.samples:
                walk = PlannedWalk(place, sample, baseline=self.lengths is not None)
                if self.lengths is None:
                    yield Job(walk, WALK_CONDITIONS)
                else:
                    yield Job(replace(walk, steps=self.lengths(walk)), (RANDOM_WALK,))


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
        image = fingerprint([self.prepared.images[sample.sample_id], sample.label])
        return row_id(key, image=image, mask="", model=model.fingerprint)

    def plan(
        self, lengths: Callable[[PlannedWalk], int | None] | None = None, *, retry: bool = True
    ) -> Plan[PlannedWalk, str]:
        """Plan the walks, or random walks of these lengths."""
        return plan(
            self.run.predictions,
            WalkJobs(self.samples, len(self.tested), lengths),
            lambda job: [self.row_id(job.item, condition) for condition in job.parts],
            scope=self._scope(WALK_CONDITIONS if lengths is None else (RANDOM_WALK,)),
            retry=retry and self.spec.retry_errors,
            retried=("error", "skipped"),
            details=WalkTables.of(self.run.path).by_name(),
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
            count=partial(Summary.count, fine=("ok", "rejected", "skipped")), progress=self.progress,
        )  # fmt: skip

    def lengths(self) -> Callable[[PlannedWalk], int | None]:
        """Return how many steps the validated walk of a random one went; None where there is no such walk."""
        rows = WalkTables.of(self.run.path).walks.rows(["row_id", "validated", "steps"]).to_pylist()
        steps = {row["row_id"]: row["steps"] for row in rows if row["validated"]}
        return lambda walk: steps.get(self.row_id(walk, PERTURBED))

    def incomplete(self) -> set[str]:
        """Return finished walks that lack the image, latents or frames asked for now: they are walked again."""
        spec, details = self.spec, WalkTables.of(self.run.path)
        rows = details.walks.rows(["row_id", "validated", "image"]).to_pylist()
        images = self.run.path / "images"
        validated = {row["row_id"]: row["image"] for row in rows if row["validated"]}
        lacking: set[str] = set()
        if spec.keep_images:
            lacking |= {walk for walk, image in validated.items() if not (image and (images / image).is_file())}
        if spec.keep_latents:
            lacking |= validated.keys() - details.latents.stored_ids()
        ids = [
            [self.row_id(PlannedWalk(place, sample), PERTURBED) for place in range(len(self.tested))]
            for sample in self.samples
        ]
        framed = set().union(*ids[: spec.frames])
        lacking |= (framed & {row["row_id"] for row in rows}) - details.frames.stored_ids()
        return lacking & set().union(*ids)
