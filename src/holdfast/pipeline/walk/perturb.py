"""Images × models, each walked as far as an oracle agrees → the one table: planning, resuming, baselines."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import chain
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
class _ModelPasses:
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
        images = {sample.sample_id: self.recorder.prepared.images[sample.sample_id] for sample, _ in jobs}
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
        chosen = tuple(sample for sample in collection.samples if only is None or sample.sample_id in only)
        frames = frozenset(sample.sample_id for sample in chosen[: spec.frames])
        work = _ModelPasses(spec, setting, recorder, run, chosen, WalkWorker(spec, recorder, tested, frames), progress)
        for problem in collection.problems:
            work.summary.add(problem.sample_id, problem.message)
        if spec.retry_errors:
            planned = (
                recorder.row_id(sample, name, model)
                for model in tested
                for sample in chosen
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


def _clear(work: _ModelPasses, tested: Sequence[Tested]) -> None:
    """Drop rows that a planned one replaces, those that lack what is asked for now, and details without a row."""
    predictions, details = work.run.predictions, work.recorder.details
    if predictions.paths():
        predictions.drop_ids(_superseded(work, tested) | _incomplete(work, tested))
    kept = predictions.stored_ids()
    for parts in details.all():
        parts.drop_ids(parts.stored_ids() - kept)


def _superseded(work: _ModelPasses, tested: Sequence[Tested]) -> set[str]:
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


def _incomplete(work: _ModelPasses, tested: Sequence[Tested]) -> set[str]:
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
    ids = {
        sample.sample_id: {work.recorder.row_id(sample, PERTURBED, model) for model in tested}
        for sample in work.samples
    }
    framed = set().union(*(ids[sample.sample_id] for sample in work.samples[: spec.frames]))
    lacking |= (framed & {row["row_id"] for row in walks}) - details.frames.stored_ids()
    return lacking & set().union(*ids.values())


def _walk_all(work: _ModelPasses, tested: Sequence[Tested], executor: Executor | None) -> None:
    """Walk against every model."""
    stored = work.recorder.stored = work.run.predictions.stored_ids()
    owed = []
    for place, model in enumerate(tested):
        ids = {
            sample.sample_id: [work.recorder.row_id(sample, name, model) for name in WALK_CONDITIONS]
            for sample in work.samples
        }
        missing = [sample for sample in work.samples if not stored.issuperset(ids[sample.sample_id])]
        kept = frozenset(row for sample in missing for row in ids[sample.sample_id] if row in stored)
        owed.append(work.walks(place, [(sample, None) for sample in missing], stored=kept))
        work.summary.already += sum(row in stored for rows in ids.values() for row in rows)
    _walk_shards(work, owed, "walk", 0, executor)


def _baseline(work: _ModelPasses, tested: Sequence[Tested], executor: Executor | None) -> None:
    """Walk in a random direction, as far as the validated walks went."""
    stored = work.run.predictions.stored_ids()
    lengths = {
        row["row_id"]: row["steps"]
        for row in WalkTables.of(work.run.path).walks.rows(["row_id", "validated", "steps"]).to_pylist()
        if row["validated"]
    }
    owed, unwalked = [], 0
    for place, model in enumerate(tested):
        row_id = partial(work.recorder.row_id, model=model)
        missing = [sample for sample in work.samples if row_id(sample, RANDOM_WALK) not in stored]
        work.summary.already += len(work.samples) - len(missing)
        jobs = [(sample, lengths.get(row_id(sample, PERTURBED))) for sample in missing]
        skipped = [FinishedWalk(sample, error=NO_WALK, status="skipped") for sample, steps in jobs if steps is None]
        if skipped:
            work.summary.rows += len(work.recorder.write(model, skipped, [RANDOM_WALK]))
            unwalked += len(skipped)
        owed.append(work.walks(place, [job for job in jobs if job[1] is not None], baseline=True))
    _walk_shards(work, owed, "baseline", unwalked, executor)


def _walk_shards(
    work: _ModelPasses, owed: Sequence[WalkShard], step: str, done: int, executor: Executor | None
) -> None:
    """Walk what each model owes; ``done`` samples of this step need no walk.

    In this process, batches stay full from a model's first sample to its last; elsewhere, samples are cut into shards.
    """
    count = sum(len(shard.jobs) for shard in owed)
    parts: Iterable[Part]
    if elsewhere(executor):
        size = shard_size(count, executor, work.spec.walk.batch_size)
        samples = [job[0] for shard in owed for job in shard.jobs[:1]]
        shards = [part for shard in owed for part in shard.cut(size)]
        parts = executor.map(seeing(work.walking, samples, executor), shards)
    else:
        parts = chain.from_iterable(map(work.walking.parts, owed))
    total = count + done
    work.progress(step, 0, total)
    for samples_done, summary in parts:
        work.summary.merge(summary)
        done += samples_done
        work.progress(step, done, total)
