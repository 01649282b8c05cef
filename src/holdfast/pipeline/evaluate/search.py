"""``eval --search``: find the severity at which each image first fails with fewer answers than all severities take.

Bisection takes answers to be monotone: wrong from one severity on. So a part of the images, drawn by seed and name, is
asked at every severity: they say how many images come back (``stats.effects.failure_point``). Images that a model does
not recognise as they are have no failure point, and are not asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow.compute as pc

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.numbers import percent
from holdfast.core.types import ORIGINAL, Sample
from holdfast.pipeline.evaluate.evaluating import Evaluating
from holdfast.scenarios import Condition
from holdfast.store import Run

AUDITED = 4
"""An image in so many is asked at every severity."""

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
        raise UserError("--search looks for failures of images that a model recognises: name original, too")
    return groups


def next_severity(right: Mapping[int, bool], count: int) -> int | None:
    """Return the place (0 is the weakest) to ask next; None if the first failure is pinned between two answers."""
    low = max((place for place, hit in right.items() if hit), default=-1)
    high = min((place for place, hit in right.items() if not hit), default=count)
    return None if high - low <= 1 else (low + high) // 2


def search(setup: Evaluating, groups: Sequence[Sequence[Condition]]) -> None:
    """Make the rows that pin the first failure of each image under each scenario; note how many answers that took."""
    counts = [_search_scenario(setup, levels) for levels in groups]
    if counts:
        asked, every = (sum(numbers) for numbers in zip(*counts, strict=True))
        setup.summary.notes.append(
            f"search: {asked:,} of the {every:,} answers that all severities take ({percent(asked / every, 0)})"
        )


def _search_scenario(setup: Evaluating, levels: Sequence[Condition]) -> tuple[int, int]:
    """Search the conditions of one scenario, weakest first; return how many answers, and how many all would be.

    The originals are answered already.
    """
    run, whole, models = setup.run, setup.prepared.collection, [each.model.name for each in setup.tested]
    samples = [sample for sample in whole.samples if sample.condition == ORIGINAL]

    def make(photos: Sequence[Sample], conditions: Sequence[Condition], positions: Sequence[int]) -> None:
        setup.make(conditions, step="search", positions=positions, samples=photos)

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
