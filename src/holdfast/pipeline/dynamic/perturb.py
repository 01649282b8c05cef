"""Images × models, each walked as far as an oracle agrees → the one table: planning, resuming, baselines."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Container, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from holdfast.core.errors import HoldfastError, SampleError, UserError
from holdfast.core.types import ORIGINAL, Collection, Sample
from holdfast.engine import core_count
from holdfast.oracle import card
from holdfast.pipeline.dynamic.distances import feature_distance
from holdfast.pipeline.dynamic.publish import provenance, write_manifest
from holdfast.pipeline.dynamic.rows import (
    KIND,
    NO_WALK,
    PERTURBED,
    RANDOM_WALK,
    WALKED,
    Details,
    Finished,
    Recorder,
)
from holdfast.pipeline.dynamic.setting import (
    PerturbSpec,
    Setting,
    kin_warnings,
    load_setting,
    load_tested,
    read_originals,
    square,
)
from holdfast.pipeline.dynamic.walk import Walked, Walker, WalkOptions, under_test, walk
from holdfast.pipeline.environment import environment
from holdfast.pipeline.evaluation import Tested
from holdfast.pipeline.progress import Progress, silent
from holdfast.pipeline.samples import prepare, samples_table
from holdfast.pipeline.summary import Summary
from holdfast.store import Run, writing

__all__ = ["PerturbSpec", "WalkOptions", "perturb"]

_SECONDS_A_PART = 20.0
"""What a kill may cost at most, besides the walks that are under way."""


@dataclass
class _Work:
    """What the passes over models share."""

    spec: PerturbSpec
    setting: Setting
    recorder: Recorder
    run: Run
    samples: tuple[Sample, ...]
    classes: dict[str, int]
    progress: Progress
    summary: Summary = field(default_factory=Summary)


def perturb(
    spec: PerturbSpec, out: Path, *, only: Container[str] | None = None, progress: Progress = silent
) -> tuple[Run, Summary]:
    """Walk every image against every model, and write the rows that are not there yet.

    Args:
        spec: what to do.
        out: the run directory.
        only: names of the samples that are walked; the others are hashed and listed all the same.
        progress: told how far it is.
    """
    run = Run(out)
    with writing(out):  # first of all: nobody should wait for models to hear that nothing can be written
        collection = read_originals(spec)
        tested = load_tested(spec, collection)
        setting = load_setting(spec, collection)
        prepared = prepare(spec, collection, progress)
        run.begin(_recorded(spec, setting, collection, run), same=("verb", "dataset", "classes", "seed"))
        run.write_environment(environment())
        run.write_samples(samples_table(prepared))
        recorder = Recorder(spec, prepared, setting, run, feature_distance(setting.oracle, setting.size))
        places = {name: place for place, name in enumerate(collection.classes)}
        chosen = tuple(one for one in collection.samples if only is None or one.sample_id in only)
        work = _Work(spec, setting, recorder, run, chosen, places, progress)
        for problem in collection.problems:
            work.summary.add(problem.sample_id, problem.message)
        if spec.retry_errors:
            mine = [setting.parameters_json(name) for name in (ORIGINAL, PERTURBED)]
            run.predictions.drop((pc.field("status").isin(["error", "skipped"])) & pc.field("parameters").isin(mine))
        _clear(work, tested)
        _walk_all(work, tested)
        if spec.random_walk and spec.walk.direction != "random":
            _baseline(work, tested)
        if spec.keep_images:
            write_manifest(provenance(run), run.path / "images")
    return run, work.summary


def _recorded(spec: PerturbSpec, setting: Setting, collection: Collection, run: Run) -> dict[str, Any]:
    """What spec.json holds: this command; and of the commands before it, whose walks stay, the cards and relations."""
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
    """Stored rows that stand for a planned one, measured before the image, its label or the model changed."""
    models = {model.classifier.name: model for model in tested}
    samples = {sample.sample_id: sample for sample in work.samples}
    conditions = (*WALKED, RANDOM_WALK)
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
    """Finished walks without the image, the latents or the frames that are wanted now: they are walked again."""
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


def _walk_all(work: _Work, tested: Sequence[Tested]) -> None:
    """The walks against the models."""
    stored = work.recorder.stored = work.run.predictions.stored_ids()
    owed = {}
    for model in tested:
        ids = {one.sample_id: [work.recorder.row_id(one, name, model) for name in WALKED] for one in work.samples}
        owed[model.classifier.name] = [one for one in work.samples if not stored.issuperset(ids[one.sample_id])]
        work.summary.already += sum(row in stored for rows in ids.values() for row in rows)
    total, done = sum(map(len, owed.values())), 0
    work.progress("walk", 0, total)
    for model in tested:
        jobs = [(sample, None) for sample in owed[model.classifier.name]]
        for rows in _walks(work, model, jobs, work.spec.walk, WALKED):
            done += len({row["sample_id"] for row in rows})
            work.progress("walk", done, total)


def _baseline(work: _Work, tested: Sequence[Tested]) -> None:
    """Walks as long as the validated ones, in a random direction."""
    stored = work.run.predictions.stored_ids()
    details = Details.of(work.run.path)
    lengths = {
        row["row_id"]: row["steps"]
        for row in details.walks.rows(["row_id", "validated", "steps"]).to_pylist()
        if row["validated"]
    }
    jobs: dict[str, list[tuple[Sample, int | None]]] = {}
    for model in tested:
        ids = {one.sample_id: work.recorder.row_id(one, RANDOM_WALK, model) for one in work.samples}
        missing = [one for one in work.samples if ids[one.sample_id] not in stored]
        work.summary.already += len(ids) - len(missing)
        walked = {one.sample_id: work.recorder.row_id(one, PERTURBED, model) for one in missing}
        jobs[model.classifier.name] = [(one, lengths.get(walked[one.sample_id])) for one in missing]
    total, done = sum(map(len, jobs.values())), 0
    work.progress("baseline", 0, total)
    options = replace(work.spec.walk, direction="random", stop_when_fooled=False)
    for model in tested:
        mine = jobs[model.classifier.name]
        alone = [Finished(one, error=NO_WALK, status="skipped") for one, steps in mine if steps is None]
        if alone:
            work.summary.rows += len(work.recorder.write(model, alone, [RANDOM_WALK]))
            done += len(alone)
            work.progress("baseline", done, total)
        for rows in _walks(work, model, [job for job in mine if job[1] is not None], options, [RANDOM_WALK]):
            done += len(rows)
            work.progress("baseline", done, total)


def _walks(
    work: _Work,
    model: Tested,
    jobs: Sequence[tuple[Sample, int | None]],
    options: WalkOptions,
    conditions: Sequence[str],
) -> Iterator[list[dict[str, Any]]]:
    """Walk these samples and write what is finished, part by part; yields the rows of each."""
    if not jobs:
        return
    on_the_way: dict[str, tuple[Walker, Finished]] = {}
    finished: list[Finished] = []
    written = time.monotonic()
    for walked in _surviving(work, model, _walkers(work, jobs, on_the_way, finished), on_the_way, finished, options):
        one = on_the_way.pop(walked.key)[1]
        one.walked = walked
        finished.append(one)
        if len(finished) >= 4 * options.batch_size or time.monotonic() - written > _SECONDS_A_PART:
            yield _write(work, model, finished, conditions)
            finished.clear()
            written = time.monotonic()
    if finished:
        yield _write(work, model, finished, conditions)


def _surviving(
    work: _Work,
    model: Tested,
    walkers: Iterator[Walker],
    on_the_way: dict[str, tuple[Walker, Finished]],
    finished: list[Finished],
    options: WalkOptions,
) -> Iterator[Walked]:
    """The walks; where model, generator or oracle fails, those under way walk alone, to find the image it is about."""
    import torch

    main = options.direction == work.spec.walk.direction
    tested = under_test(model.classifier, model.labels, work.setting.loss_space)

    def walked(some: Iterable[Walker]) -> Iterator[Walked]:
        return walk(
            some,
            work.setting.generator,
            tested,
            work.setting.oracle,
            options,
            mask=work.setting.mask,
            frames={one.sample_id for one in work.samples[: work.spec.frames]} if main else (),
            latents=work.spec.keep_latents and main,
        )

    while True:
        try:
            yield from walked(walkers)
            return
        except (HoldfastError, torch.OutOfMemoryError) as error:
            if isinstance(error, HoldfastError):
                raise
            raise UserError(
                f"memory runs out with {options.batch_size} walks at a time; try a smaller --batch-size"
            ) from error
        except Exception:
            alone = [walker for walker, _ in on_the_way.values()]
        for walker in alone:
            try:
                yield from walked([walker])
            except Exception as error:
                one = on_the_way.pop(walker.key)[1]
                one.error = f"{type(error).__name__}: {error}"[:500]
                finished.append(one)


def _write(work: _Work, model: Tested, finished: Sequence[Finished], conditions: Sequence[str]) -> list[dict[str, Any]]:
    rows = work.recorder.write(model, finished, conditions)
    work.summary.rows += len(rows)
    for row in rows:
        if row["status"] == "error":
            work.summary.add(row["sample_id"], f"{row['condition']}: {row['error']}")
    return rows


def _walkers(
    work: _Work,
    jobs: Sequence[tuple[Sample, int | None]],
    on_the_way: dict[str, tuple[Walker, Finished]],
    finished: list[Finished],
) -> Iterator[Walker]:
    """Images, decoded a little ahead in threads; those that cannot be read are finished before they start."""

    def decoded(sample: Sample) -> Any:
        return square(sample.image.load(max_pixels=work.spec.max_pixels), work.setting.size)

    ahead = 2 * core_count()
    queue: deque[tuple[Sample, int | None, Future[Any]]] = deque()
    waiting = iter(jobs)
    with ThreadPoolExecutor(core_count()) as threads:
        while True:
            queue.extend(
                (sample, steps, threads.submit(decoded, sample))
                for sample, steps in itertools.islice(waiting, ahead - len(queue))
            )
            if not queue:
                return
            sample, steps, future = queue.popleft()
            try:
                image = future.result()
            except SampleError as error:
                finished.append(Finished(sample, error=str(error)))
                continue
            budget = work.spec.walk.steps if steps is None else steps
            seed = work.recorder.seed(sample)
            walker = Walker(sample.sample_id, image, work.classes[sample.label], seed, steps)
            on_the_way[sample.sample_id] = walker, Finished(sample, image, budget=budget)
            yield walker
