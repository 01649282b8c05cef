"""Images × models, each walked as far as an oracle agrees → the one table: planning, resuming, baselines."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from holdfast.core.types import Collection, Sample
from holdfast.engine import Executor
from holdfast.oracle import card
from holdfast.pipeline.evaluate.models import Tested
from holdfast.pipeline.jobs.environment import environment
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.jobs.retry import drop_errors
from holdfast.pipeline.jobs.sharding import elsewhere, seeing, shard_size
from holdfast.pipeline.jobs.summary import Summary
from holdfast.pipeline.samples import prepare, sample_batches
from holdfast.pipeline.specs import WalkOptions
from holdfast.pipeline.walk.distances import feature_distance
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
    NO_WALK,
    PERTURBED,
    RANDOM_WALK,
    WALK_CONDITIONS,
    FinishedWalk,
    WalkRecorder,
    WalkTables,
)
from holdfast.pipeline.walk.worker import Part, WalkShard, WalkWorker
from holdfast.store import Run, writing

__all__ = ["PerturbSpec", "WalkOptions", "perturb"]


@dataclass
class _Work:
    """What the passes over models share."""

    spec: PerturbSpec
    setting: WalkSetting
    recorder: WalkRecorder
    run: Run
    samples: tuple[Sample, ...]
    walking: WalkWorker
    progress: Progress
    summary: Summary = field(default_factory=Summary)

    def walks(
        self,
        model: int,
        jobs: Sequence[tuple[Sample, int | None]],
        *,
        baseline: bool = False,
        stored: frozenset[str] = frozenset(),
    ) -> WalkShard:
        """Return the shard of samples that a model still owes."""
        images = {one.sample_id: self.recorder.prepared.images[one.sample_id] for one, _ in jobs}
        return WalkShard(model, tuple(jobs), images, baseline, stored)


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
    run = Run(out)
    with writing(out):  # first of all: nobody should wait for models to hear that nothing can be written
        collection = read_originals(spec)
        # Where others walk, this process only has to know what they walk with.
        known = replace(spec, device="cpu") if elsewhere(executor) else spec
        tested = load_tested(known, collection)
        setting = load_setting(known, collection)
        prepared = prepare(spec, collection, progress)
        run.begin(_recorded(spec, setting, collection, run), same=("verb", "dataset", "classes", "seed"))
        run.write_environment(environment())
        run.write_samples(sample_batches(prepared))
        recorder = WalkRecorder(spec, prepared, setting, run, feature_distance(setting.oracle, setting.size))
        chosen = tuple(one for one in collection.samples if only is None or one.sample_id in only)
        frames = frozenset(one.sample_id for one in chosen[: spec.frames])
        work = _Work(spec, setting, recorder, run, chosen, WalkWorker(spec, recorder, tested, frames), progress)
        for problem in collection.problems:
            work.summary.add(problem.sample_id, problem.message)
        if spec.retry_errors:
            planned = (
                recorder.row_id(one, name, model)
                for model in tested
                for one in chosen
                for name in (*WALK_CONDITIONS, RANDOM_WALK)
            )
            drop_errors(run.predictions, planned, statuses=("error", "skipped"))
        _clear(work, tested)
        _walk_all(work, tested, executor)
        if spec.random_walk and spec.walk.direction != "random":
            _baseline(work, tested, executor)
        if spec.keep_images:
            write_manifest(provenance(run), run.path / "images")
    return run, work.summary


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


def _clear(work: _Work, tested: Sequence[Tested]) -> None:
    """Drop rows that a planned one replaces, those that lack what is asked for now, and details without a row."""
    predictions, details = work.run.predictions, work.recorder.details
    if predictions.paths():
        predictions.drop_ids(_superseded(work, tested) | _incomplete(work, tested))
    kept = predictions.stored_ids()
    for parts in details.all():
        parts.drop_ids(parts.stored_ids() - kept)


def _superseded(work: _Work, tested: Sequence[Tested]) -> set[str]:
    """Return stored rows that stand for a planned one: the image, its label or the model has changed since."""
    models = {model.classifier.name: model for model in tested}
    samples = {sample.sample_id: sample for sample in work.samples}
    conditions = (*WALK_CONDITIONS, RANDOM_WALK)
    planned = {condition: work.setting.parameters_json(condition) for condition in conditions}
    columns = ["row_id", "sample_id", "condition", "parameters", "model"]
    here = (pc.field("kind") == KIND) & pc.field("model").isin(list(models))
    return {
        row["row_id"]
        for row in work.run.predictions.dataset().to_table(columns, here).to_pylist()
        if row["sample_id"] in samples
        and planned.get(row["condition"]) == row["parameters"]
        and row["row_id"] != work.recorder.row_id(samples[row["sample_id"]], row["condition"], models[row["model"]])
    }


def _incomplete(work: _Work, tested: Sequence[Tested]) -> set[str]:
    """Return finished walks that lack the image, latents or frames asked for now: they are walked again."""
    spec, details = work.spec, work.recorder.details
    walks = details.walks.rows(["row_id", "validated", "image"]).to_pylist()
    images = work.run.path / "images"
    lacking: set[str] = set()
    if spec.keep_images:
        lacking |= {
            row["row_id"]
            for row in walks
            if row["validated"] and not (row["image"] and (images / row["image"]).is_file())
        }
    if spec.keep_latents:
        lacking |= {row["row_id"] for row in walks if row["validated"]} - details.latents.stored_ids()
    framed = {work.recorder.row_id(one, PERTURBED, model) for model in tested for one in work.samples[: spec.frames]}
    lacking |= (framed & {row["row_id"] for row in walks}) - details.frames.stored_ids()
    ours = {work.recorder.row_id(one, PERTURBED, model) for model in tested for one in work.samples}
    return lacking & ours


def _walk_all(work: _Work, tested: Sequence[Tested], executor: Executor | None) -> None:
    """Walk against every model."""
    stored = work.recorder.stored = work.run.predictions.stored_ids()
    owed = []
    for place, model in enumerate(tested):
        ids = {
            one.sample_id: [work.recorder.row_id(one, name, model) for name in WALK_CONDITIONS] for one in work.samples
        }
        missing = [one for one in work.samples if not stored.issuperset(ids[one.sample_id])]
        there = frozenset(row for one in missing for row in ids[one.sample_id] if row in stored)
        owed.append(work.walks(place, [(one, None) for one in missing], stored=there))
        work.summary.already += sum(row in stored for rows in ids.values() for row in rows)
    total, done = sum(len(one.jobs) for one in owed), 0
    work.progress("walk", 0, total)
    for samples, part in _parts(work, owed, executor):
        work.summary.merge(part)
        done += samples
        work.progress("walk", done, total)


def _baseline(work: _Work, tested: Sequence[Tested], executor: Executor | None) -> None:
    """Walk in a random direction, as far as the validated walks went."""
    stored = work.run.predictions.stored_ids()
    details = WalkTables.of(work.run.path)
    lengths = {
        row["row_id"]: row["steps"]
        for row in details.walks.rows(["row_id", "validated", "steps"]).to_pylist()
        if row["validated"]
    }
    jobs: list[list[tuple[Sample, int | None]]] = []
    for model in tested:
        ids = {one.sample_id: work.recorder.row_id(one, RANDOM_WALK, model) for one in work.samples}
        missing = [one for one in work.samples if ids[one.sample_id] not in stored]
        work.summary.already += len(ids) - len(missing)
        walked = {one.sample_id: work.recorder.row_id(one, PERTURBED, model) for one in missing}
        jobs.append([(one, lengths.get(walked[one.sample_id])) for one in missing])
    total, done = sum(map(len, jobs)), 0
    work.progress("baseline", 0, total)
    for model, mine in zip(tested, jobs, strict=True):
        alone = [FinishedWalk(one, error=NO_WALK, status="skipped") for one, steps in mine if steps is None]
        if alone:
            work.summary.rows += len(work.recorder.write(model, alone, [RANDOM_WALK]))
            done += len(alone)
            work.progress("baseline", done, total)
    owed = [
        work.walks(place, [job for job in mine if job[1] is not None], baseline=True) for place, mine in enumerate(jobs)
    ]
    for samples, part in _parts(work, owed, executor):
        work.summary.merge(part)
        done += samples
        work.progress("baseline", done, total)


def _parts(work: _Work, owed: Sequence[WalkShard], executor: Executor | None) -> Iterator[Part]:
    """Walk them here, batches full from the first sample of a model to its last, or elsewhere in shards."""
    if elsewhere(executor):
        size = shard_size(sum(len(one.jobs) for one in owed), executor, work.spec.walk.batch_size)
        samples = [job[0] for one in owed for job in one.jobs[:1]]
        walking = seeing(work.walking, samples, executor)
        yield from executor.map(walking, [shard for one in owed for shard in one.cut(size)])
        return
    for one in owed:
        yield from work.walking.parts(one)
