"""Statements that hold at any moment of stopping: confidence sequences for means of bounded values.

The method is the betting of Waudby-Smith and Ramdas (2024, "Estimating means of bounded random variables by betting").
A gambler bets that the mean lies above m; under "the mean is at most m" the expected capital never grows, so by Ville's
inequality it reaches 1/α with a chance of at most α, whenever one looks. The bets here are a fixed mixture, so the
capital depends on which values came, not on their order. docs/statistics/sample-size.md has the design and its limits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.lazy import pd
from holdfast.core.numbers import number, span
from holdfast.stats.core.answers import Answers, from_counts
from holdfast.stats.core.bootstrap import Floats
from holdfast.stats.core.reduce import Counts, Outcome
from holdfast.stats.effects.drops import NO_EFFECT, Effect
from holdfast.stats.effects.verdict import (
    MARGIN,
    NEEDED,
    NO_EXCESS,
    Cells,
    Excess,
    Hits,
    VerdictEvidence,
    gathered,
    verdict_row,
    with_copies,
)
from holdfast.stats.models.gate import COLUMNS, Gate, named_model, paired_conditions, with_verdicts

ALPHA = 0.025  # Chance of each one-sided error over all looks together: the two sides of a 95 % interval

STAKES = np.array([0.95, 0.8, 0.6, 0.4, 0.25, 0.15, 0.08])
"""Shares of the largest bet that can be paid; the capital is split evenly over them.

The best share for n values with variance v is about the root of 8 / (n v), which is 0.16 for 1,000 images of which a
third change: smaller bets are for more images than people have.
"""


@dataclass(frozen=True)
class RunningInterval:
    """The mean of the values so far, and an interval that holds whenever one stops."""

    n: int
    mean: float
    low: float
    high: float


def log_capital(values: ArrayLike, mean: ArrayLike, *, least: float, most: float, above: bool) -> Floats:
    """Return the log of the gambler's capital after betting on the values, one element per ``mean``.

    ``values``: independent values between ``least`` and ``most``. ``mean``: hypotheses about their mean, strictly
    between ``least`` and ``most``. ``above``: bet that the true mean is larger than ``mean``; else that it is smaller.
    """
    distinct, counts = np.unique(np.asarray(values, np.float64), return_counts=True)
    hypotheses = np.asarray(mean, np.float64)[..., None, None]
    payoff = (distinct - least) / (hypotheses - least) if above else (most - distinct) / (most - hypotheses)
    stakes = STAKES[:, None]
    with np.errstate(divide="ignore"):
        logs = (np.log(np.maximum(1 - stakes + stakes * payoff, 0.0)) * counts).sum(axis=-1)
    peak = logs.max(axis=-1, keepdims=True)
    return np.asarray(np.log(np.exp(logs - peak).mean(axis=-1)) + peak[..., 0])


def running_interval(
    values: ArrayLike, *, least: float = -1.0, most: float = 1.0, alpha: float = ALPHA, before: RunningInterval | None
) -> RunningInterval:
    """Return the interval of the mean after the values so far, cut with the interval of an earlier look.

    ``values``: all values so far: independent, with one mean, or in rounds that hold every class equally often.
    ``before``: the interval of the look before; None at the first.
    """
    array = np.asarray(values, np.float64)
    low, high = (before.low, before.high) if before else (least, most)
    if not len(array):
        return RunningInterval(0, float("nan"), low, high)
    low = max(low, _border(array, least, most, alpha, above=True))
    high = min(high, _border(array, least, most, alpha, above=False))
    return RunningInterval(len(array), float(array.mean()), low, high)


def _border(values: Floats, least: float, most: float, alpha: float, *, above: bool) -> float:
    """Return the innermost of 3,999 hypotheses that one side excludes, or the end of the range if none is.

    The capital falls as hypotheses come nearer to the values, so every 64th of them shows where to look closely.
    """
    grid = np.linspace(least, most, 4001)[1:-1] if above else np.linspace(least, most, 4001)[-2:0:-1]
    border = least if above else most
    for step in (64, 1):
        tried = grid[::step]
        excluded = int((log_capital(values, tried, least=least, most=most, above=above) >= -np.log(alpha)).sum())
        if not excluded:
            return border
        border = float(tried[excluded - 1])
        grid = grid[(excluded - 1) * step :][:step]
    return border


@dataclass
class SequentialEvidence:
    """Keeps the running intervals that a verdict rests on, look after look.

    Every round holds each class equally often. If images have no answer, as many are left out of the other classes
    of that round, so that this stays true.

    ``contradiction``: whether an interval became empty, which says that images are not what the method assumes.
    """

    classes: Collection[str]  # of the dataset
    place: Mapping[str, tuple[int, str]]  # image → the number of its round and its class
    left_out: int = 0  # images of the background effect that were left out at the last look
    contradiction: bool = False
    _before: dict[str, RunningInterval] = field(default_factory=dict)

    def look(self, answers: Answers) -> VerdictEvidence:
        """Return the evidence after all answers so far, of one model; intervals never widen from look to look."""
        return gathered(answers, self.classes, partial(self._effect, answers), partial(self._excess, answers))

    def _effect(self, answers: Answers, name: str, first: Cells, second: Cells, hits: Hits = None) -> Effect:
        ours, theirs = hits or (answers.right, answers.right)
        before, after = answers.shares(first, ours), answers.shares(second, theirs)
        kept = self._evenly(answers.sources, ~np.isnan(before + after))
        if name == "background":
            self.left_out = int((~np.isnan(before + after) & ~kept).sum())
        if not kept.any():
            return NO_EFFECT
        before, after = before[kept], after[kept]
        interval = self._interval(name, before - after, -1.0)
        return Effect(
            int(kept.sum()), float(before.mean()), float(after.mean()), interval.mean, interval.low, interval.high,
            int((before > after).sum()), int((before < after).sum()), float("nan"),
        )  # fmt: skip

    def _excess(self, answers: Answers, condition: str) -> Excess:
        """Return the accuracy above guessing, which is one in the number of classes, as all are equally often there."""
        shares = answers.shares(answers.under(condition), answers.right_restricted)
        kept = self._evenly(answers.sources, ~np.isnan(shares))
        if condition not in NEEDED or not kept.any():
            return NO_EXCESS
        chance = 1 / len({label for _, label in self.place.values()})
        interval = self._interval(condition, shares[kept], 0.0)
        return Excess(
            int(kept.sum()), interval.mean, chance, interval.mean - chance, interval.low - chance,
            interval.high - chance, float("nan"),
        )  # fmt: skip

    def _evenly(self, sources: Sequence[str], answered: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which images count: of each round as many of every class as its worst class has answers."""
        members: dict[int, dict[str, list[int]]] = {}
        for place, source in enumerate(sources):
            if answered[place] and source in self.place:
                number, label = self.place[source]
                members.setdefault(number, {}).setdefault(label, []).append(place)
        classes = {label for _, label in self.place.values()}
        kept = np.zeros(len(sources), np.bool_)
        for by_class in members.values():
            fewest = min(len(by_class.get(label, ())) for label in classes)
            for places in by_class.values():
                kept[places[:fewest]] = True
        return kept

    def _interval(self, name: str, values: Floats, least: float) -> RunningInterval:
        interval = running_interval(values, least=least, most=1.0, before=self._before.get(name))
        self._before[name] = interval
        if interval.low > interval.high:
            self.contradiction = True
            return RunningInterval(interval.n, interval.mean, least, 1.0)
        return interval


RoundPlan = Sequence[Sequence[str]]
"""The images of each round that was asked."""


def sequential_looks(counts: Counts, model: str, rounds: RoundPlan, *, outcome: Outcome) -> list[VerdictEvidence]:
    """Return what was known of a model after each of its rounds."""
    answers = from_counts(counts, model, outcome=outcome)
    number = {source: place for place, photos in enumerate(rounds) for source in photos}
    label = {
        answers.sources[photo]: answers.labels[code] for photo, code in zip(answers.source, answers.label, strict=True)
    }
    sequence = SequentialEvidence(
        counts.classes, {name: (number[name], label[name]) for name in label if name in number}
    )
    asked = np.array([number.get(source, len(rounds)) for source in answers.sources])[answers.source]
    return [sequence.look(answers.part(asked <= place)) for place in range(len(rounds))]


def sequential_verdicts(counts: Counts, rounds: Mapping[str, RoundPlan], *, outcome: Outcome = "full") -> pd.DataFrame:
    """Return the rows of ``what_it_holds`` for models that were asked in rounds, by intervals that hold at any stop."""
    rows = [
        verdict_row(model, "", sequential_looks(counts, model, rounds[model], outcome=outcome)[-1])
        for model in counts.models
        if model in rounds
    ]
    return with_copies(pd.DataFrame(rows), counts.copies)


def simulated_decisions(
    effect: float, changed: float, photos: Sequence[int], *, margin: float = MARGIN, runs: int = 10_000, seed: int = 0
) -> tuple[float, float, float]:
    """Return how often a check answers yes and no about the background, and how many images it takes on average.

    ``effect``: the true one. ``changed``: share of images whose answer changes with the background. ``photos``: of each
    round. The model is taken to recognise originals and pasted objects. No model is asked: images are drawn at random.
    """
    shares = [(changed + effect) / 2, (changed - effect) / 2, 1 - changed]
    rng = np.random.default_rng([seed, len(photos)])
    seen = np.stack([rng.multinomial(count, shares, runs) for count in photos], axis=1).cumsum(axis=1)
    values = np.array([1.0, -1.0, 0.0])
    ends = []
    for payoff in ((values + 1) / (margin + 1), (1 - values) / (1 - margin)):
        logs = seen @ np.log(1 - STAKES + STAKES * payoff[:, None])
        peak = logs.max(axis=-1)
        over = np.log(np.exp(logs - peak[..., None]).mean(axis=-1)) + peak >= -np.log(ALPHA)
        ends.append(np.where(over.any(axis=1), over.argmax(axis=1), len(photos)))
    yes, no = ends
    last = np.minimum(np.minimum(yes, no), len(photos) - 1)
    return float((yes < no).mean()), float((no < yes).mean()), float(np.cumsum(photos)[last].mean())


def sequential_gate(
    old: Counts,
    new: Counts,
    *,
    margin: float = 0.02,
    old_model: str | None = None,
    new_model: str | None = None,
    outcome: Outcome = "full",
    conditions: Sequence[str] | None = None,
    level: float = 0.95,
    in_rounds: bool = False,
) -> Gate:
    """Test paired non-inferiority of new against old on the images so far; more may be added and looked at again.

    A condition passes once the capital of a gambler who bets that new − old lies above −margin has reached 20 (at
    95 %), and fails once that of the opposite gambler has (Holm over the conditions). Images must come in random order,
    or in batches that hold every class equally often. Conditions that borrow backgrounds are left out, because their
    images share donors, and new images change who lends; not so if both runs asked in the same rounds, in which no
    background is lent twice: ``in_rounds`` says that both are of ``check --stop when-decided``, with the same rounds as
    far as both went. Other arguments are those of ``stats.models.gate.gate``.
    """
    rows, borrowing = [], []
    paired = paired_conditions(old, new, margin, old_model, new_model, outcome, conditions)
    for name, pairs in paired.items():
        if pairs is not None and pairs.differences.donors and not in_rounds:
            borrowing.append(name)
            continue
        row: dict[str, object] = dict.fromkeys(COLUMNS, float("nan")) | {"condition": name, "n": 0, "donors": 0}
        if pairs is not None:
            tested = _tested(pairs.differences.photos, margin, 1 - level)
            row |= pairs.numbers() | {"donors": 0}
            row |= dict(zip(("p_pass", "p_fail", "low", "high"), tested, strict=True))
        rows.append(row)
    table = with_verdicts(rows, level)
    table["sentence"] = [
        f"{row['condition']}: {number(100 * row['difference'], 1, sign=True)} points on {row['n']} images so far "
        f"({span(row['low'], row['high'], sign=True)}): {row['verdict']}."
        if row["n"]
        else f"{row['condition']}: no image was answered by both, so nothing can be said."
        for row in table.to_dict("records")
    ]
    models = named_model(old.models, old_model, "old"), named_model(new.models, new_model, "new")
    return replace(_overall(table, borrowing, margin, level), models=models)


def _overall(table: pd.DataFrame, borrowing: Sequence[str], margin: float, level: float) -> Gate:
    allowed = f"{100 * margin:g} points"
    failed, left = (list(table.loc[table["verdict"] == name, "condition"]) for name in ("failed", "undecided"))
    verdict: Literal["passed", "failed", "undecided"] = "failed" if failed else "undecided" if left else "passed"
    if failed:
        text = f"Failed: more than {allowed} lost under {', '.join(failed)}."
    elif left or not len(table):
        verdict = "undecided"
        text = f"Undecided under {', '.join(left) or 'no condition both runs have'}: add images and look again."
    else:
        text = f"Passed: no more than {allowed} lost under any condition."
    errs = f"It errs in at most {100 * (1 - level):.2g} % of cases, however often one looks."
    if borrowing:
        errs += (
            f" Left out, because their images share backgrounds: {', '.join(borrowing)}. Compare them without "
            "--sequential, or ask both models in rounds (holdfast check --stop when-decided): there none is lent twice."
        )
    return Gate(verdict, table, margin, float("nan"), f"{text} {errs}")


def _tested(photos: Floats, margin: float, alpha: float) -> tuple[float, float, float, float]:
    """Return p-values for passing and failing that hold whenever one stops, and one-sided bounds of the difference."""
    above, below = (log_capital(photos, -margin, least=-1, most=1, above=side) for side in (True, False))
    interval = running_interval(photos, alpha=alpha, before=None)
    return min(1.0, float(np.exp(-above))), min(1.0, float(np.exp(-below))), interval.low, interval.high
