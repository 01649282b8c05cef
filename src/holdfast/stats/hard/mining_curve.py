"""How a hard set depends on the number of surrogates: every subset, a saturating curve, and one surrogate left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.core.lazy import pd
from holdfast.stats.core.bootstrap import RESAMPLES, Floats, estimated, ratio, resampled_sums
from holdfast.stats.hard.mining import share, shared

MOST_SUBSETS = 1_000  # Subsets of one size; of more, so many are drawn at random
FEWEST_POINTS = 3  # A curve of three parameters through fewer is not a finding

_RATES = np.geomspace(0.02, 8, 400)  # neighbours are 1.5 % apart, which is finer than any data here resolves


@dataclass(frozen=True)
class Curve:
    """a + b·exp(−c·k), fitted by least squares with a between 0 and 1."""

    floor: float  # a, what is left with any number of surrogates; ``floor_low`` and ``floor_high`` its 95 % interval
    fall: float  # b
    rate: float  # c
    error: float  # root mean square of what the curve misses
    floor_low: float = float("nan")
    floor_high: float = float("nan")

    def at(self, k: ArrayLike) -> Floats:
        """Return the curve's value for k surrogates."""
        return np.asarray(self.floor + self.fall * np.exp(-self.rate * np.asarray(k, np.float64)))


def fit_curve(k: ArrayLike, values: ArrayLike, draws: ArrayLike | None = None) -> Curve | None:
    """Return the best curve through accuracies at k = 1, 2, …; None through fewer than three points.

    For every c of a fine grid, a and b follow in closed form, so there is no start to choose and nothing to diverge.
    ``draws`` are resampled accuracies, (resamples, len(k)): each is fitted too, for the floor's interval.
    """
    x, y = np.asarray(k, np.float64), np.asarray(values, np.float64)
    known = np.isfinite(y)
    x, y = x[known], y[known]
    if len(x) < FEWEST_POINTS:
        return None
    (floor, fall, rate, error) = (float(values_of_best[0]) for values_of_best in _best(x, y[None]))
    low = high = float("nan")
    if draws is not None:
        table = np.asarray(draws, np.float64)[:, known]
        table = table[np.isfinite(table).all(axis=1)]
        if len(table):
            _, low, high = estimated(floor, _best(x, table)[0])
    return Curve(floor, fall, rate, error, low, high)


def _best(x: Floats, tables: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return for each row of values the a (cut to 0..1), b, c and error of its best curve."""
    count = len(tables)
    smallest = np.full(count, np.inf)
    best = np.zeros((3, count))
    middle = tables.mean(axis=1)
    for rate in _RATES:
        shape = np.exp(-rate * x)
        about = shape - shape.mean()
        free = middle - (tables @ about) / (about @ about) * shape.mean()
        floor = np.clip(free, 0, 1)
        fall = (tables - floor[:, None]) @ shape / (shape @ shape)  # for a given floor; for a free one the same as ever
        squares = np.square(tables - floor[:, None] - fall[:, None] * shape).sum(axis=1)
        better = squares < smallest
        smallest[better] = squares[better]
        best[:, better] = np.stack([floor, fall, np.full(count, rate)])[:, better]
    return best[0], best[1], best[2], np.sqrt(smallest / len(x))


def subset_accuracies(
    images: pd.DataFrame,
    failed: pd.DataFrame,
    surrogates: Sequence[str],
    target: str,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> tuple[pd.DataFrame, pd.DataFrame, Floats]:
    """Return a target's accuracy on the sets mined with 1 … K surrogates, every subset of them.

    Among all K! orders every subset of size k comes first equally often: so the mean over subsets is the mean over
    orders. Returned: subsets, a summary per k, and resampled means. The summary has the mean accuracy with its interval
    from resampled prompts, and its ``spread`` over subsets.
    """
    wrong = failed[list(surrogates)].to_numpy(bool)
    right = ~failed[target].to_numpy(bool)
    rows, summary, draws = [], [], []
    rng = np.random.default_rng(seed)
    for k in range(1, len(surrogates) + 1):
        chosen = _subsets(len(surrogates), k, rng)
        inside = np.stack([wrong[:, list(subset)].all(axis=1) for subset in chosen], axis=1)
        n, hits = inside.sum(axis=0), (inside & right[:, None]).sum(axis=0)
        accuracy = ratio(hits, n)
        names = ["+".join(surrogates[place] for place in subset) for subset in chosen]
        rows += [(target, k, name, int(m), value) for name, m, value in zip(names, n, accuracy, strict=True)]
        drawn = _resampled_mean(inside, right, images["prompt_id"], resamples, seed)
        draws.append(drawn)
        summary.append({"target": target, "k": k} | _summary(accuracy, n, drawn))
        if summary[-1]["low"] == summary[-1]["high"]:  # all right or all wrong: resamples then know no doubt
            some = inside.any(axis=1)
            whole = share(right[some], images["prompt_id"].to_numpy()[some])
            summary[-1] |= {"low": whole["low"], "high": whole["high"]}
    columns = ["target", "k", "surrogates", "n", "accuracy"]
    return pd.DataFrame(rows, columns=columns), pd.DataFrame(summary), np.stack(draws, axis=1)


def _subsets(total: int, k: int, rng: np.random.Generator) -> list[tuple[int, ...]]:
    if comb(total, k) <= MOST_SUBSETS:
        return list(combinations(range(total), k))
    drawn = {tuple(sorted(rng.choice(total, k, replace=False).tolist())) for _ in range(MOST_SUBSETS)}
    return sorted(drawn)


def _resampled_mean(
    inside: NDArray[np.bool_], right: NDArray[np.bool_], prompts: Any, resamples: int, seed: int
) -> Floats:
    """Return the mean accuracy over subsets in resamples of prompts, (resamples,); NaN if no subset has an image."""
    if not inside.any():
        return np.full(resamples, np.nan)
    columns = np.concatenate([inside, inside & right[:, None]], axis=1)
    sums = resampled_sums(columns, np.asarray(prompts), resamples=resamples, seed=seed)
    n, hits = np.split(sums, 2, axis=1)
    accuracy = np.divide(hits, n, out=np.zeros_like(n), where=n > 0)
    return ratio(accuracy.sum(axis=1), (n > 0).sum(axis=1))


def _summary(accuracy: Floats, n: NDArray[Any], drawn: Floats) -> dict[str, Any]:
    known = accuracy[np.isfinite(accuracy)]
    row: dict[str, Any] = {"subsets": len(known), "images": float(n.mean())}
    if not len(known):
        return row | dict.fromkeys(("estimate", "low", "high", "spread", "lowest", "highest"), float("nan"))
    row |= estimated(known.mean(), drawn).row("estimate", "")
    return row | {"spread": float(known.std()), "lowest": float(known.min()), "highest": float(known.max())}


def stand_in_curve(images: pd.DataFrame, failed: pd.DataFrame, surrogates: Sequence[str]) -> pd.DataFrame:
    """Return the mean accuracy of a surrogate on sets mined with 1 … K − 1 others, over all surrogates.

    Each surrogate in turn stands in for a target, so that k can be chosen without asking the targets anything.
    Columns: ``k``, ``estimate``, ``images`` (mean number).
    """
    parts = []
    for own in surrogates:
        others = [name for name in surrogates if name != own]
        parts.append(subset_accuracies(images, failed, others, own, resamples=2)[0])
    together = pd.concat(parts).groupby("k")
    return pd.DataFrame({"estimate": together["accuracy"].mean(), "images": together["n"].mean()}).reset_index()


def choose_k(curve: Curve | None, most: int, *, fall: float = 0.01) -> int:
    """Return the least number of surrogates, from 2 on, after which one more lowers the curve by less than ``fall``.

    All of them if the curve still falls faster, or where there is no curve.
    """
    if curve is None:
        return most
    for k in range(2, most):
        if float(curve.at(k) - curve.at(k + 1)) < fall:
            return k
    return most


def choose_m(
    images: pd.DataFrame, failed: pd.DataFrame, surrogates: Sequence[str], *, least: int
) -> tuple[int, pd.DataFrame]:
    """Return the largest m, from 2 on, with enough valid images that m surrogates fail; and counts per m."""
    rows = []
    for m in range(1, len(surrogates) + 1):
        hard = shared(failed, surrogates, m)
        rows.append({"m": m, "images": int(hard.sum()), "valid": int((hard & images["valid"]).sum())})
    frame = pd.DataFrame(rows)
    enough = frame[(frame["m"] >= 2) & (frame["valid"] >= least)]
    return (int(enough["m"].max()) if len(enough) else 2), frame


def leave_one_out(
    images: pd.DataFrame,
    failed: pd.DataFrame,
    surrogates: Sequence[str],
    targets: Sequence[str],
    at_least: int,
) -> pd.DataFrame:
    """Return the accuracy on the set that the other surrogates leave, for none and each surrogate left out.

    Columns: ``left_out``, ``n``, ``jaccard`` with the set of all, ``model`` (the one left out, or a target), ``role``,
    ``prompts``, ``estimate`` (its accuracy on that set), ``low``, ``high``. If m was all, it is all of the others.
    """
    whole = shared(failed, surrogates, at_least)
    rows = []
    for out in ("", *surrogates):
        others = [name for name in surrogates if name != out]
        hard = shared(failed, others, min(at_least, len(others)))
        union = int((hard | whole).sum())
        facts = {"left_out": out, "jaccard": int((hard & whole).sum()) / union if union else np.nan}
        for model in ([out] if out else []) + list(targets):
            role = "left out" if model == out else "target"
            measured = share(~failed.loc[hard, model], images.loc[hard, "prompt_id"])
            rows.append(facts | {"model": model, "role": role} | measured)
    return pd.DataFrame(rows)
