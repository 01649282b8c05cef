"""Statements that hold at any moment of stopping: confidence sequences for means of bounded values.

The method is the betting of Waudby-Smith and Ramdas (2024, "Estimating means of bounded random variables by betting").
A gambler bets that the mean lies above m; under "the mean is at most m" the expected capital never grows, so by Ville's
inequality it reaches 1/α with a chance of at most α, whenever one looks. The bets here are a fixed mixture, so the
capital depends on which values came, not on their order. docs/statistics/sequential.md has the design and its limits.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.types import ORIGINAL
from holdfast.stats.core.answers import Answers
from holdfast.stats.core.bootstrap import Codes, Floats, codes, sums
from holdfast.stats.effects.drops import NO_EFFECT, Effect
from holdfast.stats.effects.verdict import (
    NEEDED,
    NO_EXCESS,
    RANDOM,
    SAME,
    Excess,
    VerdictEvidence,
)

ALPHA = 0.025
"""Chance of each one-sided error over all looks together: the two sides of a 95 % interval."""

STAKES = np.array([0.95, 0.8, 0.6, 0.4, 0.25, 0.15, 0.08])
"""Shares of the largest bet that can be paid; the capital is split evenly over them.

The best share for n values with variance v is about the root of 8 / (n v), which is 0.16 for 1,000 photos of which a
third change: smaller bets are for more photos than people have.
"""


@dataclass(frozen=True)
class RunningInterval:
    """The mean of the values so far, and an interval that holds whenever one stops."""

    n: int
    mean: float
    low: float
    high: float


def log_capital(
    values: ArrayLike, mean: ArrayLike, *, least: float, most: float, above: bool, sizes: ArrayLike | None = None
) -> Floats:
    """Return the log of the gambler's capital after betting on the values, one element per ``mean``.

    Args:
        values: independent values between ``least`` and ``most``.
        mean: hypotheses about their mean, strictly between ``least`` and ``most``.
        least: the smallest possible value.
        most: the largest possible value.
        above: bet that the true mean is larger than ``mean``; else that it is smaller.
        sizes: how many photos each value is the mean of; the bet on a value is in proportion. None: one each.
    """
    share: ArrayLike = 1.0
    if sizes is None:
        distinct, counts = np.unique(np.asarray(values, np.float64), return_counts=True)
    else:
        largest = np.max(np.asarray(sizes, np.float64), initial=1.0)
        both = np.stack([np.asarray(values, np.float64), np.asarray(sizes, np.float64) / largest])
        (distinct, share), counts = np.unique(both, axis=1, return_counts=True)
    hypotheses = np.asarray(mean, np.float64)[..., None, None]
    payoff = (distinct - least) / (hypotheses - least) if above else (most - distinct) / (most - hypotheses)
    stakes = STAKES[:, None] * share
    with np.errstate(divide="ignore"):
        logs = (np.log(np.maximum(1 - stakes + stakes * payoff, 0.0)) * counts).sum(axis=-1)
    peak = logs.max(axis=-1, keepdims=True)
    return np.asarray(np.log(np.exp(logs - peak).mean(axis=-1)) + peak[..., 0])


def running_interval(
    values: ArrayLike, *, least: float = -1.0, most: float = 1.0, alpha: float = ALPHA, before: RunningInterval | None
) -> RunningInterval:
    """Return the interval of the mean after the values so far, cut with the interval of an earlier look.

    Args:
        values: all values so far: independent, with one mean, or in rounds that hold every class equally often.
        least: the smallest possible value.
        most: the largest possible value.
        alpha: chance that the true mean ever lies below the interval, and that it ever lies above.
        before: the interval of the look before; None at the first.
    """
    array = np.asarray(values, np.float64)
    low, high = (before.low, before.high) if before else (least, most)
    if not len(array):
        return RunningInterval(0, float("nan"), low, high)
    wanted = -np.log(alpha)
    grid = np.linspace(least, most, 4001)[1:-1]
    # The capital falls with the hypothesis (rises, for the other side), so each side has one border.
    excluded = log_capital(array, grid, least=least, most=most, above=True) >= wanted
    low = max(low, float(grid[excluded][-1])) if excluded.any() else low
    excluded = log_capital(array, grid, least=least, most=most, above=False) >= wanted
    high = min(high, float(grid[excluded][0])) if excluded.any() else high
    return RunningInterval(len(array), float(array.mean()), low, high)


@dataclass
class SequentialEvidence:
    """Keeps the running intervals that a verdict rests on, look after look.

    ``paired`` photos count one by one where every round holds all classes equally often. Where photos come in pairs of
    a class (``by_pairs``), the two photos of a pair are not independent, and their mean counts as one value.

    Attributes:
        classes: of the dataset.
        chance: accuracy of a model that guesses: 1 / classes, or the share of the largest class.
        by_pairs: whether the two photos of a pair count as one value.
    """

    classes: Collection[str]
    chance: float
    by_pairs: bool = False
    _before: dict[str, RunningInterval] = field(default_factory=dict)

    def look(self, answers: Answers, pair_of: dict[str, int] | None = None) -> VerdictEvidence:
        """Return the evidence after all answers so far; the intervals never widen from look to look.

        Args:
            answers: of the model, over all rounds so far.
            pair_of: photo → number of its pair, where photos come in pairs.
        """
        under = {name: answers.under(name) for name in NEEDED}
        known = np.array([*(name in self.classes for name in answers.donor_labels), False])
        classed = under[RANDOM] & known[answers.donor_label]
        pairs = np.arange(len(answers.sources))
        if self.by_pairs and pair_of is not None:
            pairs = codes(np.array([pair_of[name] for name in answers.sources], np.intp))[0]
        right, captured = answers.right, answers.captured

        def effect(
            name: str, first: NDArray[np.bool_], second: NDArray[np.bool_], hits: tuple[Floats, Floats]
        ) -> Effect:
            return self._effect(name, answers, pairs, (first, second), hits)

        return VerdictEvidence(
            missing=tuple(name for name in NEEDED if not under[name].any()),
            background=effect("background", under[SAME], under[RANDOM], (right, right)),
            object=effect("object", under[SAME], classed, (captured, captured)),
            paste=effect("paste", under[ORIGINAL], under[SAME], (right, right)),
            capture=effect("capture", classed, classed, (captured, answers.captured_before)),
            original=self._excess("original", answers, pairs, under[ORIGINAL]),
            pasted=self._excess("pasted", answers, pairs, under[SAME]),
            replaced=self._excess("replaced", answers, pairs, under[RANDOM]),
            only_background=NO_EXCESS,
            silhouette=NO_EXCESS,
        )

    def _effect(
        self,
        name: str,
        answers: Answers,
        pairs: Codes,
        sides: tuple[NDArray[np.bool_], NDArray[np.bool_]],
        hits: tuple[Floats, Floats],
    ) -> Effect:
        count = len(answers.sources)
        shares = []
        for side, hit in zip(sides, hits, strict=True):
            rows = sums(answers.source[side], answers.n[side], count)
            right = sums(answers.source[side], hit[side], count)
            shares.append(np.divide(right, rows, out=np.full(count, np.nan), where=rows > 0))
        both = ~np.isnan(shares[0] + shares[1])
        if not both.any():
            return NO_EFFECT
        first, second = shares[0][both], shares[1][both]
        interval = self._interval(name, first - second, pairs[both], -1.0)
        nan = float("nan")
        changed = first - second
        return Effect(
            int(both.sum()), float(first.mean()), float(second.mean()), float(changed.mean()), interval.low,
            interval.high, int((changed > 0).sum()), int((changed < 0).sum()), nan,
        )  # fmt: skip

    def _excess(self, name: str, answers: Answers, pairs: Codes, side: NDArray[np.bool_]) -> Excess:
        count = len(answers.sources)
        rows = sums(answers.source[side], answers.n[side], count)
        right = sums(answers.source[side], answers.right_restricted[side], count)
        shown = rows > 0
        if not shown.any():
            return NO_EXCESS
        share = right[shown] / rows[shown]
        interval = self._interval(name, share, pairs[shown], 0.0)
        return Excess(
            int(shown.sum()), float(share.mean()), self.chance, float(share.mean()) - self.chance,
            interval.low - self.chance, interval.high - self.chance, float("nan"),
        )  # fmt: skip

    def _interval(self, name: str, values: Floats, pairs: Codes, least: float) -> RunningInterval:
        unit, units = codes(pairs)
        means = sums(unit, values, units) / sums(unit, np.ones(len(values)), units)
        self._before[name] = running_interval(means, least=least, most=1.0, before=self._before.get(name))
        return self._before[name]
