"""The release gate: is the new model no worse than the old one, condition by condition, photo by photo?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from holdfast.core.errors import UserError
from holdfast.stats.core.bootstrap import Floats
from holdfast.stats.core.grid import Grid, grid, holm
from holdfast.stats.core.reduce import Counts, Outcome

if TYPE_CHECKING:
    import pandas as pd

Verdict = Literal["passed", "failed", "undecided"]

POWER = 0.8
"""How sure the decision is to come with the number of photos that is asked for, if the difference stays as observed."""

MOST_PHOTOS = 10_000_000
"""Beyond this the answer is not a number of photos but "no number would"."""

COLUMNS = [
    "condition", "old", "new", "difference", "low", "high", "n", "better", "worse", "unanswered", "p_pass", "p_fail",
    "verdict", "more_photos", "sentence",
]  # fmt: skip


@dataclass(frozen=True)
class Gate:
    """The verdict.

    Attributes:
        verdict: passed where every condition passed, failed where one failed, else undecided.
        conditions: a row per condition: accuracies ``old`` and ``new`` on the ``n`` paired photos, their
            ``difference`` new − old, ``low`` and ``high`` (one-sided 95 % bounds each), photos that became ``better``
            and ``worse``, photos the new model alone left ``unanswered`` (counted as wrong), ``p_pass`` (against "worse
            than the margin"), ``p_fail`` (against "within the margin", Holm over conditions), ``verdict``,
            ``more_photos`` (that would decide it, NaN where decided or where no number would) and a ``sentence``.
        margin: the loss that is tolerated, 0..1.
        more_photos: the largest number asked for by an undecided condition, NaN where there is none.
        sentence: all of it in one.
    """

    verdict: Verdict
    conditions: pd.DataFrame
    margin: float
    more_photos: float
    sentence: str


@dataclass(frozen=True)
class _Paired:
    """Differences new − old of the photos of one condition, −1..1, and their accuracies."""

    differences: Floats
    old: float
    new: float
    unanswered: int


def check_floor(estimate: float, low: float, high: float, floor: float) -> Verdict:
    """Whether a number holds a floor: passed where its whole interval does, failed where none of it does.

    The point itself never decides: an estimate above the floor whose interval reaches below is undecided. So is one
    without an interval.
    """
    if any(math.isnan(value) for value in (estimate, low, high)):
        return "undecided"
    if low >= floor:
        return "passed"
    return "failed" if high < floor else "undecided"


def gate(
    old: Counts,
    new: Counts,
    *,
    margin: float = 0.02,
    old_model: str | None = None,
    new_model: str | None = None,
    outcome: Outcome = "full",
    conditions: Sequence[str] | None = None,
    level: float = 0.95,
) -> Gate:
    """Paired non-inferiority of new against old, per condition.

    A condition passes where the one-sided lower bound of new − old lies above −margin, fails where the upper bound
    lies below −margin, and is undecided between. All conditions have to pass, which is an intersection–union test:
    each at 5 % keeps the chance of passing a model that is worse than the margin anywhere at 5 %, without correction.
    One failure is enough to fail, which is a union: failing is Holm-corrected over the conditions.

    Bounds are those of Tango's score test for paired proportions (photos that became better or worse), which stays
    honest where hardly any photo changed; where a photo has several rows a condition, of a t-test of the photos'
    differences with half a photo better and half a photo worse added.

    Args:
        old: counts of the old run.
        new: counts of the new run, on the same photos; may be the same object with another model.
        margin: tolerated loss of accuracy, 0..1.
        old_model: which of the old run's models; may be left out where there is one.
        new_model: which of the new run's models.
        outcome: which right answers count.
        conditions: which; by default all of the old run that leave the object in.
        level: of the one-sided bounds.
    """
    import pandas as pd

    if not 0 <= margin < 1:
        raise UserError(f"A margin is a share of accuracy from 0 to 1, not {margin}.")
    before = grid(old, outcome=outcome, conditions=conditions)
    after = grid(new, outcome=outcome, conditions=[name for name in before.conditions if name in new.conditions])
    ours, theirs = _only(before, old, old_model, "old"), _only(after, new, new_model, "new")
    if len(after.sources) and not set(before.sources) & set(after.sources):
        raise UserError("The two runs have no photo in common: compare runs on the same data.")
    rows = []
    for name in before.conditions:
        pairs = _paired(before, after, ours, theirs, name, _errors(new, theirs, name))
        rows.append(_row(name, pairs, margin, level, len(before.conditions)))
    table = pd.DataFrame(rows)
    table["p_fail"] = holm(table["p_fail"].to_numpy(np.float64))
    table["verdict"] = [_verdict(p, q, 1 - level) for p, q in zip(table["p_pass"], table["p_fail"], strict=True)]
    table.loc[table["verdict"] != "undecided", "more_photos"] = np.nan
    table["sentence"] = [_sentence(row, margin) for row in table.to_dict("records")]
    return _overall(table[COLUMNS], margin)


def _only(laid: Grid, counts: Counts, model: str | None, which: str) -> str:
    """The model meant; one that failed on every photo has no answers and is there all the same."""
    models = sorted({*laid.models, *counts.trouble["model"].astype(str)})
    if model is None and len(models) == 1:
        return str(models[0])
    if model in models:
        return str(model)
    if not models:
        raise UserError(f"The {which} run has no answers: evaluate first.")
    wanted = f"has no model {model!r}" if model is not None else "has several models, so one has to be named"
    raise UserError(f"The {which} run {wanted}: {', '.join(models)}.")


def _paired(before: Grid, after: Grid, ours: str, theirs: str, condition: str, errors: int) -> _Paired | None:
    """Photos that both answered, and those that only the new model failed on; None where there is none.

    Rows that the old model has and the new one has not count as wrong, at most as many as the new model has errors:
    crashing is no way through the gate. (Others were not run. Where only some of the missing rows are errors, they
    are taken to be those that the old model got right.)
    """
    (old_n, old_right), (n, right) = (_column(before, ours, condition), _column(after, theirs, condition))
    place = {source: number for number, source in enumerate(after.sources)}
    at = np.array([place.get(source, len(place)) for source in before.sources], np.intp)
    n, right = np.append(n, 0.0)[at], np.append(right, 0.0)[at]
    old = np.divide(old_right, old_n, out=np.zeros_like(old_n), where=old_n > 0)
    missing = np.maximum(old_n - n, 0.0)
    order = np.lexsort((n > 0, -old))
    lost = np.zeros_like(n)
    lost[order] = np.clip(errors - (np.cumsum(missing[order]) - missing[order]), 0, missing[order])
    both = (old_n > 0) & (n + lost > 0)
    if not both.any():
        return None
    new = right[both] / (n + lost)[both]
    return _Paired(new - old[both], float(old[both].mean()), float(new.mean()), int((lost > 0).sum()))


def _column(laid: Grid, model: str, condition: str) -> tuple[Floats, Floats]:
    """Rows and right answers of each photo; 0 where the model never answered under the condition."""
    if model not in laid.models or condition not in laid.conditions:
        return np.zeros(len(laid.sources)), np.zeros(len(laid.sources))
    where = (slice(None), laid.models.index(model), laid.conditions.index(condition))
    return laid.n[where], laid.right[where]


def _errors(counts: Counts, model: str, condition: str) -> int:
    trouble = counts.trouble
    hit = (trouble["model"] == model) & (trouble["condition"] == condition) & (trouble["status"] == "error")
    return int(trouble.loc[hit, "n"].sum())


def _row(condition: str, pairs: _Paired | None, margin: float, level: float, family: int) -> dict[str, object]:
    from scipy import stats

    nan = float("nan")
    if pairs is None:
        return dict.fromkeys(COLUMNS, nan) | {"condition": condition, "n": 0, "better": 0, "worse": 0, "unanswered": 0}
    low, high = bounds(pairs.differences, level=level)
    above = statistic(pairs.differences, -margin)
    freedom = max(len(pairs.differences) - 1, 1)
    return {
        "condition": condition,
        "old": pairs.old,
        "new": pairs.new,
        "difference": float(pairs.differences.mean()),
        "low": low,
        "high": high,
        "n": len(pairs.differences),
        "better": int((pairs.differences > 0).sum()),
        "worse": int((pairs.differences < 0).sum()),
        "unanswered": pairs.unanswered,
        "p_pass": float(stats.t.sf(above, freedom)),
        "p_fail": float(stats.t.cdf(above, freedom)),
        "more_photos": more_photos(pairs.differences, margin=margin, level=level, family=family),
    }


def statistic(differences: Floats, null: float) -> float:
    """How many standard errors the mean difference lies above ``null``.

    Differences of −1, 0 and 1 (photos that became worse, stayed, became better) give Tango's score statistic; others,
    from photos with several rows, a t-statistic with half a photo better and half a photo worse added, so that photos
    which all agree do not pass for certainty.
    """
    n = len(differences)
    if np.isin(differences, (-1.0, 0.0, 1.0)).all():
        return score(float((differences > 0).sum()), float((differences < 0).sum()), n, null)
    mean = float(differences.sum()) / (n + 1)
    variance = (float((differences**2).sum()) + 1) / (n + 1) - mean**2
    return (mean - null) / math.sqrt(variance / n)


def score(better: float, worse: float, n: float, null: float) -> float:
    """Tango's score statistic of paired proportions for the hypothesis that the difference is δ = ``null``.

    z = (b − c − nδ) / √(n (2q + δ(1 − δ))) with b photos better, c worse, and q the share of worse photos most likely
    under the hypothesis: q = (√(B² − 8nC) − B)/(4n), B = −b − c + (2n − b + c)δ, C = −cδ(1 − δ).
    """
    linear = -better - worse + (2 * n - better + worse) * null
    constant = -worse * null * (1 - null)
    q = (math.sqrt(max(linear**2 - 8 * n * constant, 0.0)) - linear) / (4 * n)
    variance = n * (2 * q + null * (1 - null))
    distance = better - worse - n * null
    if variance <= 1e-12 * n:
        return 0.0 if abs(distance) < 1e-9 * n else math.copysign(math.inf, distance)
    return distance / math.sqrt(variance)


def bounds(differences: Floats, *, level: float = 0.95) -> tuple[float, float]:
    """One-sided lower and upper bound of the mean difference, −1..1: the nulls that the statistic just rejects.

    The statistic is held against t with photos − 1 degrees of freedom.
    """
    from scipy.optimize import brentq

    limit = _limit(len(differences), 1 - level)
    ends = (-1 + 1e-9, 1 - 1e-9)

    def solve(target: float) -> float:
        def gap(null: float) -> float:
            return float(np.clip(statistic(differences, null), -1e6, 1e6)) - target

        if gap(ends[0]) <= 0:
            return -1.0
        return 1.0 if gap(ends[1]) >= 0 else float(brentq(gap, *ends, xtol=1e-10))

    return solve(limit), solve(-limit)


def _limit(n: int, alpha: float) -> float:
    from scipy import stats

    return float(stats.t.isf(alpha, max(n - 1, 1)))


def more_photos(differences: Floats, *, margin: float, level: float = 0.95, family: int = 1) -> float:
    """How many photos more would decide, in 8 of 10 cases, if better and worse photos keep their shares.

    The statistic grows with the root of the number of photos, so n' = n ((t_level + z_0.8) / statistic)². Failing
    has to hold out over a ``family`` of conditions. NaN where the difference is just the margin: none would do.
    """
    from scipy import stats

    n = len(differences)
    z = statistic(differences, -margin)
    if not math.isfinite(z):
        return 1.0
    alpha = (1 - level) / (family if z < 0 else 1)
    wanted = _limit(n, alpha) + float(stats.norm.ppf(POWER))
    needed = n * (wanted / z) ** 2 if abs(z) > 1e-9 else math.inf
    return max(1.0, math.ceil(needed) - n) if needed < MOST_PHOTOS else float("nan")


def _verdict(p_pass: float, p_fail: float, alpha: float) -> Verdict:
    if p_pass <= alpha:
        return "passed"
    return "failed" if p_fail <= alpha else "undecided"


def _sentence(row: Mapping[Any, Any], margin: float) -> str:
    name, n = row["condition"], row["n"]
    if not n:
        return f"{name}: no photo was answered by both, so nothing can be said."
    change = f"{100 * row['difference']:+.1f} points on {n} photos"
    reach = f"at least {100 * row['low']:+.1f} and at most {100 * row['high']:+.1f}"
    lost = f"; {row['unanswered']} photos only the new model failed on count as wrong" if row["unanswered"] else ""
    more = float(row["more_photos"])
    if row["verdict"] == "passed":
        end = f"no worse than {100 * margin:g} points"
    elif row["verdict"] == "failed":
        end = f"worse than the {100 * margin:g} points allowed"
    else:
        end = "undecided; " + (
            "the difference is the margin itself, so no number of photos would decide"
            if math.isnan(more)
            else f"about {more:.0f} more photos would decide"
        )
    return f"{name}: {change} ({reach}){lost}: {end}."


def _overall(table: pd.DataFrame, margin: float) -> Gate:
    verdicts = list(table["verdict"])
    open_ones = table[table["verdict"] == "undecided"]
    more = float(open_ones["more_photos"].max()) if len(open_ones) else float("nan")
    allowed = f"{100 * margin:g} points"
    if "failed" in verdicts:
        names = ", ".join(table.loc[table["verdict"] == "failed", "condition"])
        return Gate("failed", table, margin, more, f"Failed: more than {allowed} lost under {names}.")
    if verdicts and not len(open_ones):
        return Gate("passed", table, margin, more, f"Passed: no more than {allowed} lost under any condition.")
    ask = "" if math.isnan(more) else f"; about {more:.0f} more photos would decide"
    names = ", ".join(open_ones["condition"]) or "no condition both runs have"
    return Gate("undecided", table, margin, more, f"Undecided under {names}{ask}.")
