"""``holdfast eval``: run every model on every image under every condition."""

from __future__ import annotations

import logging
import shlex
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow.compute as pc

from holdfast.core.errors import HoldfastError, UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.numbers import percent
from holdfast.core.types import ORIGINAL, Collection, Sample
from holdfast.engine import Executor, LocalExecutor
from holdfast.pipeline.classifiers import EvaluateSpec, Tested, check_attacks, know_models, load_models
from holdfast.pipeline.declaration import ATTACHED, attach
from holdfast.pipeline.evaluate.adaptation import adaptation_images
from holdfast.pipeline.evaluate.detection import detect_objects
from holdfast.pipeline.evaluate.detector_worker import asks_detectors
from holdfast.pipeline.evaluate.labels import evaluate_labels
from holdfast.pipeline.evaluate.worker import SAME_RUN, RunSetup, recorded_evaluation
from holdfast.pipeline.fast import OnePass
from holdfast.pipeline.generate.backgrounds import Painter, load_painter
from holdfast.pipeline.jobs.progress import Progress, Summary, silent
from holdfast.pipeline.jobs.rows import check_answered
from holdfast.pipeline.samples import begin_run, check_applicable, prepare, read
from holdfast.scenarios import Condition, parse_conditions
from holdfast.store import Run, writing

__all__ = ["EvaluateSpec", "evaluate"]

LOG = logging.getLogger(__name__)


def evaluate(
    spec: EvaluateSpec, out: Path, *, progress: Progress = silent, executor: Executor | None = None
) -> tuple[Run, Summary]:
    """Run every model on every sample under every condition, and write the rows that are not stored yet."""
    # Where the models are detectors and the data has boxes, objects are looked for; otherwise pictures are named.
    # ``executor`` says where; without it, on ``spec.workers`` processes of this machine. What ``spec.fast`` does in one
    # pass is done in this process, or by workers on other machines.
    executor = executor or LocalExecutor(spec.workers)
    conditions = parse_conditions(spec.scenarios, feather=spec.feather)
    if not spec.models:
        raise UserError("no model was named; --models a,b lists them (holdfast ls models)")
    groups = searched(conditions) if spec.search else []
    if spec.depth == "native" and spec.fast:
        raise UserError("--fast works with 8 bits; leave it out, or --depth native")
    if groups and spec.fast:
        raise UserError("--search asks what the last answers leave open, and --fast all at once: take one of them")
    _check_beside(spec.data, out)
    run, summary = Run(out), Summary()
    with writing(out):  # first: nobody should wait for models to hear that nothing can be written
        _check_not_mixed(run, spec)
        collection = read(spec)
        check_applicable(collection.samples or collection.empty, conditions)
        if unmasked := _missing_masks(spec, collection, conditions):
            LOG.warning("%s", unmasked.partition(": ")[0])  # before the work; what to do stands below its outcome
            summary.notes.append(unmasked)
        detectors, labels = asks_detectors(spec, collection), bool(collection.separator)
        if detectors and spec.depth == "native":
            raise UserError("--depth native is for classifiers; leave it out for detectors")
        if spec.protocol is not None and (detectors or labels):
            what, leave = ("classifiers", "detectors") if detectors else ("photos with one label", "several labels")
            raise UserError(f"a protocol is for {what}; leave out --protocol for {leave}")
        if detectors:
            summary = detect_objects(spec, collection, conditions, run, executor, progress)
        elif labels:
            summary = evaluate_labels(spec, collection, conditions, run, executor, progress)
        else:
            _evaluate_classes(spec, collection, conditions, groups, run, summary, executor, progress)
    check_answered(run, run.spec()["model_names"])
    summary.notes += _broken(run, detectors=detectors, labels=labels)
    return run, summary


def _broken(run: Run, *, detectors: bool, labels: bool) -> list[str]:
    """Return a sentence for each model whose answers to unchanged photos look like those of a broken one."""
    from holdfast.stats.core.reduce import reduce
    from holdfast.stats.effects import sanity
    from holdfast.stats.effects.verdict_words import not_judged

    original = pc.field("condition") == ORIGINAL
    if detectors:
        return sanity.sentences(sanity.broken_detectors(run.details("objects").dataset().to_table(filter=original)))
    unchanged = run.predictions.dataset().filter(original)
    return sanity.sentences(sanity.broken_labels(unchanged.to_table()) if labels else not_judged(reduce(unchanged)))


def _evaluate_classes(
    spec: EvaluateSpec,
    collection: Collection,
    conditions: Sequence[Condition],
    groups: Sequence[Sequence[Condition]],  # the severities of each condition that ``--search`` looks through
    run: Run,
    summary: Summary,
    executor: Executor,
    progress: Progress,
) -> None:
    """Make the rows of classifiers that are not stored yet."""
    fast = OnePass(spec, collection, conditions, run, executor) if spec.fast else None
    beside, over = ThreadPoolExecutor(1), threading.Event()

    def reported(step: str, done: int, total: int) -> None:
        if over.is_set():
            raise HoldfastError("nobody waits for these hashes any more")
        progress(step, done, total)

    try:
        # Files are hashed while networks are loaded.
        hashing = beside.submit(prepare, spec, collection, reported) if fast is not None else None
        tested = _models(spec, collection, conditions, executor, fast)
        painter = load_painter(spec, collection, conditions)
        prepared = prepare(spec, collection, progress) if hashing is None else hashing.result()
        adaptation = adaptation_images(spec, prepared, tested)
        tested = [adaptation.identified(model) for model in tested] if adaptation else tested
        painted = {"painter": painter.record()} if painter else {}
        recorded = recorded_evaluation(spec, collection, tested, run, **painted)
        begin_run(run, recorded, prepared, summary, same=SAME_RUN)
        if spec.protocol is not None or (run.path / ATTACHED).is_file():
            identities = {model.classifier.name: model.fingerprint for model in tested}
            summary.notes.append(attach(run, spec, prepared, identities))
        setup = RunSetup(spec, prepared, tested, run, summary, progress, executor, fast=fast, adaptation=adaptation)
        looked_for = {condition for levels in groups for condition in levels}
        _make_rows(setup, [each for each in conditions if each not in looked_for], painter)
        search(setup, groups)
    finally:
        over.set()
        beside.shutdown(wait=False)
        if fast is not None:
            fast.close()
    if summary.already:
        summary.notes += [
            f"{model.classifier.name}: stored answers were kept, and Holdfast cannot see whether its weights have "
            "changed since; name a new version with ?name=…, or give the object an attribute fingerprint"
            for model in tested if not getattr(model.classifier, "versioned", True)
        ]  # fmt: skip


def _missing_masks(spec: EvaluateSpec, collection: Collection, conditions: Sequence[Condition]) -> str:
    """Return how many photos have no mask, what that costs and what to do; empty where no condition needs one."""
    masked = sum(condition.definition.needs_mask for condition in conditions)
    count = sum(sample.mask is None and sample.condition == ORIGINAL for sample in collection.samples)
    if not masked or not count:
        return ""
    are = "is" if masked == 1 else "are"
    return (
        f"{count} of {len(collection.samples)} photos have no mask, so {masked} of {len(conditions)} conditions {are} "
        f"skipped for them: make masks first (holdfast mask {shlex.quote(spec.data)} --out masks), then give this "
        "command again with --masks masks"
    )


def _models(
    spec: EvaluateSpec,
    collection: Collection,
    conditions: Sequence[Condition],
    executor: Executor,
    fast: OnePass | None,
) -> list[Tested]:
    """Return the models: loaded where this process asks them, else only what a plan needs to know."""
    here = executor.shares_memory or (fast is not None and not executor.remote)
    if not here and not any(condition.definition.paints for condition in conditions):
        return know_models(spec, collection, conditions, fast.try_out if fast is not None else None)
    tested = load_models(spec, collection)
    check_attacks(conditions, tested)
    return [fast.try_out(model) for model in tested] if fast is not None else tested


def _make_rows(setup: RunSetup, conditions: list[Condition], painter: Painter | None) -> None:
    """Make all rows that are owed: originals first where their accuracy is checked, painted backgrounds last."""
    plain = [condition for condition in conditions if not condition.definition.paints]
    renderings = True
    if setup.spec.expect_accuracy is not None:
        clean = [condition for condition in plain if condition.scenario == ORIGINAL]
        setup.make_rows(clean or parse_conditions(ORIGINAL), step="clean")
        _check_accuracy(setup.run, setup.spec.expect_accuracy, [model.classifier.name for model in setup.tested])
        plain = [condition for condition in plain if condition.scenario != ORIGINAL]
        renderings = False  # stored renderings were taken as they are, with the originals
    if plain:
        setup.make_rows(plain, step="eval", renderings=renderings)
    if painter is not None:
        painter.unread(setup.prepared.collection.samples, setup.summary)
        painting = [condition for condition in conditions if condition.definition.paints]
        setup.make_rows(painting, step="paint", painter=painter)


def _check_beside(data: str, out: Path) -> None:
    """Raise a UserError where a run would be written among the photos of a folder."""
    folder, root = Path(data).expanduser().resolve(), Path(out).resolve()
    if folder.is_dir() and (root == folder or root.is_relative_to(folder / "images")):
        raise UserError(f"{out} holds the photos; choose another --out for the run")


def _check_not_mixed(run: Run, spec: EvaluateSpec) -> None:
    """Raise a UserError where exact and fast answers would be stored in one table."""
    if (run.path / "spec.json").exists() and bool(run.spec().get("fast")) != spec.fast:
        before, now = ("exact", "--fast") if spec.fast else ("--fast", "exact")
        raise UserError(
            f"{run.path} holds a run of {before} answers, which do not mix with {now} ones; choose another --out"
        )


def _check_accuracy(run: Run, expected: float, models: Sequence[str]) -> None:
    """Raise a UserError where clean accuracy is off by more than sampling explains: something is set up wrongly."""
    from scipy.stats import binomtest

    table = run.rows(["model", "condition", "status", "correct"])
    clean = table.filter(pc.field("condition") == ORIGINAL).filter(pc.field("status") == "ok")
    for model in models:
        right = clean.filter(pc.field("model") == model)["correct"].to_pylist()
        if not right:
            raise UserError(f"{model} answered for no original image, so --expect-accuracy cannot be checked")
        if binomtest(sum(right), len(right), expected).pvalue < 0.01:
            raise UserError(
                f"{model} is right on {sum(right)} of {len(right)} originals ({percent(sum(right) / len(right))}), "
                f"which sampling does not explain if {percent(expected)} is expected: check its preprocessing "
                "and --labels"
            )


# --search: find the severity at which each photo first fails with fewer answers than all severities take. Bisection
# takes answers to be monotone: wrong from one severity on. So a part of the photos, drawn by seed and name, is asked at
# every severity: they say how many photos come back (``stats.effects.failure_point``). Photos that a model does not
# recognise as they are have no failure point, and are not asked.

AUDITED = 4
"""A photo in so many is asked at every severity."""

LEAST_SEVERITIES = 3


def searched(conditions: Sequence[Condition]) -> list[list[Condition]]:
    """Return the conditions of each scenario that is named at three severities or more, weakest first."""
    grouped: dict[str, dict[int, Condition]] = {}
    for condition in conditions:
        if condition.variant.startswith("severity_"):
            grouped.setdefault(condition.scenario, {})[int(condition.variant.removeprefix("severity_"))] = condition
    groups = [[levels[key] for key in sorted(levels)] for levels in grouped.values() if len(levels) >= LEAST_SEVERITIES]
    if not groups:
        raise UserError("--search needs a scenario at three severities or more: --scenarios original,fog@1,fog@2,fog@3")
    if not any(condition.scenario == ORIGINAL for condition in conditions):
        raise UserError("--search looks for failures of photos that a model recognises: name original, too")
    return groups


def next_severity(right: Mapping[int, bool], count: int) -> int | None:
    """Return the place (0 is the weakest) to ask next; None where the first failure is pinned between two answers."""
    low = max((place for place, hit in right.items() if hit), default=-1)
    high = min((place for place, hit in right.items() if not hit), default=count)
    return None if high - low <= 1 else (low + high) // 2


def search(setup: RunSetup, groups: Sequence[Sequence[Condition]]) -> None:
    """Make the rows that pin the first failure of each photo under each scenario; note how many answers that took."""
    counts = [_search_scenario(setup, levels) for levels in groups]
    if counts:
        asked, every = (sum(numbers) for numbers in zip(*counts, strict=True))
        setup.summary.notes.append(
            f"search: {asked:,} of the {every:,} answers that all severities take ({percent(asked / every, 0)})"
        )


def _search_scenario(setup: RunSetup, levels: Sequence[Condition]) -> tuple[int, int]:
    """Search the conditions of one scenario, weakest first; return how many answers, and how many all would be.

    The originals are answered already.
    """
    run, whole, models = setup.run, setup.prepared.collection, [model.classifier.name for model in setup.tested]
    samples = [sample for sample in whole.samples if sample.condition == ORIGINAL]

    def make(photos: Sequence[Sample], conditions: Sequence[Condition], positions: Sequence[int]) -> None:
        part = replace(setup.prepared, collection=replace(whole, samples=tuple(photos)))
        replace(setup, prepared=part).make_rows(conditions, step="search", positions=tuple(positions))

    digest = {sample.sample_id: fingerprint([setup.spec.seed, "audited", sample.sample_id]) for sample in samples}
    audited = [sample for sample in samples if int(digest[sample.sample_id][:8], 16) % AUDITED == 0]
    make(audited, levels, range(len(models)))
    known = {(model, sample.sample_id) for model in models for sample in audited}
    recognised = _right(run, models, ORIGINAL, "")
    asked = len(audited) * len(models) * len(levels)
    before: set[tuple[str, str, int]] = set()
    while True:
        answers: dict[tuple[str, str], dict[int, bool]] = {}
        for number, level in enumerate(levels):
            for key, hit in _right(run, models, level.scenario, level.variant).items():
                answers.setdefault(key, {})[number] = hit
        wanted: dict[tuple[int, int], list[Sample]] = {}
        for position, model in enumerate(models):
            for sample in samples:
                key = (model, sample.sample_id)
                place = None if key in known else next_severity(answers.get(key, {}), len(levels))
                # What was asked and has no answer (no mask, an error) is not asked again.
                if recognised.get(key) and place is not None and (*key, place) not in before:
                    wanted.setdefault((place, position), []).append(sample)
                    before.add((*key, place))
        if not wanted:
            return asked, len(samples) * len(models) * len(levels)
        for (number, position), some in wanted.items():
            make(some, [levels[number]], [position])
            asked += len(some)


def _right(run: Run, models: Sequence[str], scenario: str, variant: str) -> dict[tuple[str, str], bool]:
    """Return (model, sample) → whether its answer is right, over all outputs."""
    rows = (pc.field("condition") == scenario) & pc.field("model").isin(list(models)) & (pc.field("status") == "ok")
    if variant:
        rows &= pc.field("variant") == variant
    table = run.predictions.dataset().to_table(columns=["model", "sample_id", "correct"], filter=rows)
    names, ids, hits = (table[column].to_pylist() for column in table.column_names)
    return {(str(model), str(sample)): bool(hit) for model, sample, hit in zip(names, ids, hits, strict=True)}
