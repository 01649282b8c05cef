"""Seeded, stratified splits and folds of a collection's samples.

All renderings of one photo (``source_id``) stay together. Who goes where depends on the seed, the ids and the labels,
never on the order of the samples. A source whose samples bear several labels counts for its most frequent one (of
equally frequent ones, the alphabetically first).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal
from itertools import chain

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import seed_from
from holdfast.core.types import Sample

TRAIN, TEST = "train", "test"


def stratified_split(samples: Sequence[Sample], *, test_fraction: float = 0.2, seed: int = 0) -> tuple[Sample, ...]:
    """Return the samples, in their order, with ``split`` set to ``train`` or ``test``.

    Of a class with n sources, n × ``test_fraction`` go to test, rounded to the nearest whole number, halves up; but at
    least one and at most n − 1 where n is two or more, so that such a class is in both. A single source is for
    training.
    """
    if not 0 < test_fraction < 1:
        raise UserError(f"the test fraction must lie between 0 and 1, not at {test_fraction}")
    tested: set[str] = set()
    for sources in _shuffled_by_class(samples, "split", seed).values():
        wanted = int((len(sources) * Decimal(str(test_fraction))).to_integral_value(ROUND_HALF_UP))
        tested.update(sources[: min(max(wanted, 1), len(sources) - 1)])
    return tuple(replace(sample, split=TEST if sample.source_id in tested else TRAIN) for sample in samples)


def stratified_folds(samples: Sequence[Sample], *, folds: int, seed: int = 0) -> tuple[Sample, ...]:
    """Return the samples, in their order, with ``fold`` set to 0 … folds − 1.

    Each class is spread evenly: its numbers of sources in two folds differ by at most one, and so do the folds'
    totals. A class with fewer sources than folds is an error, as it would be missing from some.
    """
    if folds < 2:
        raise UserError(f"cross-validation needs at least 2 folds, not {folds}")
    by_class = _shuffled_by_class(samples, "fold", seed)
    scarce = [f"{label} ({len(sources)})" for label, sources in by_class.items() if len(sources) < folds]
    if scarce:
        raise UserError(f"{folds} folds need at least {folds} photos of each class; too few of {', '.join(scarce)}")
    # Dealt like cards, class after class, so that the remainders of the classes do not all fall to the first folds.
    dealt = {source: place % folds for place, source in enumerate(chain.from_iterable(by_class.values()))}
    return tuple(replace(sample, fold=dealt[sample.source_id]) for sample in samples)


def _shuffled_by_class(samples: Iterable[Sample], purpose: str, seed: int) -> dict[str, list[str]]:
    """Return the sources of each class in an order drawn from the seed; classes in alphabetical order."""
    labels: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for sample in samples:
        labels[sample.source_id][sample.label] += 1
    by_class: defaultdict[str, list[str]] = defaultdict(list)
    for source, counts in labels.items():
        by_class[min(counts, key=lambda label: (-counts[label], label))].append(source)
    return {
        label: sorted(by_class[label], key=lambda source: (seed_from(purpose, seed, source), source))
        for label in sorted(by_class)
    }
