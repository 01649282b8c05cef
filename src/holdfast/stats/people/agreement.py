"""How far raters agree beyond chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd, scipy_stats
from holdfast.stats.core.bootstrap import NO_ESTIMATE, Floats

FEW_ITEMS = 2
EDGE = 1e-12
STEP = 1e-4  # of an item's weight, for slopes

Scale = Literal["nominal", "ordinal", "interval"]  # Whether ratings are names, ranks, or numbers whose distances count


Prepare = Callable[["pd.DataFrame"], tuple[Floats, str]]  # ratings → a row of summands per item, or why there is none
Statistic = Callable[[Floats], Floats]  # sums of such rows, (n, summands) → (n,)


def agreement(ratings: pd.DataFrame, *, ordered: bool = False) -> pd.DataFrame:
    """Return every measure that the ratings allow, with 95 % intervals over items.

    docs/statistics/fmr.md has the formulas. A row per measure: ``estimate``, ``low``, ``high``, ``n`` (items
    used), ``raters``, ``reason`` ('' or why there is no value). ``ratings``: a row per item, a column per rater,
    missing if a rater did not see the item; for raters that change from item to item (crowds), columns are just
    "first rating", "second rating", …
    """
    rows = []
    measures: list[tuple[str, Prepare, Statistic]] = [
        ("percent_agreement", _pair_sums, _percent),
        ("cohen_kappa", _cohen_sums, _cohen),
        ("fleiss_kappa", _fleiss_sums, _fleiss),
        ("krippendorff_alpha", _pair_sums, _alpha),
    ]
    if ordered:
        values = _values(ratings)
        measures.append(("krippendorff_alpha_ordinal", _coincidences, _scaled_alpha(values, "ordinal")))
        measures.append(("krippendorff_alpha_interval", _coincidences, _scaled_alpha(values, "interval")))
    for name, prepare, statistic in measures:
        sums, reason = prepare(ratings)
        estimate = NO_ESTIMATE
        if not reason:
            estimate = estimate._replace(value=float(statistic(sums.sum(axis=0, keepdims=True))[0]))
            known = np.isfinite(estimate.value)
            reason = "" if known else "only one category was used, so chance agreement is complete"
        if not reason and len(sums) >= FEW_ITEMS:
            low, high = _interval(ratings, prepare, statistic, estimate.value)
            estimate = estimate._replace(low=max(low, 0.0 if name == "percent_agreement" else -1.0), high=high)
        row = {"measure": name, **estimate.row("estimate", ""), "n": len(sums)}
        rows.append(row | {"raters": ratings.shape[1], "reason": reason})
    return pd.DataFrame(rows)


def _interval(ratings: pd.DataFrame, prepare: Prepare, statistic: Statistic, value: float) -> tuple[float, float]:
    """Return the 95 % interval of a measure: linearised, with Student's t.

    The lower end is of the root of 1 − measure, the upper end of its logarithm, as fits counts of few disagreements. It
    joins the interval of the items themselves with that of the items and two imagined ones, of which one agrees and
    one does not: items that all agree leave open how often others would not.
    """
    sums, _ = prepare(pd.concat([ratings, _imagined(ratings)], ignore_index=True))
    n = len(sums) - 4
    low, high = _linearised(statistic, sums, np.r_[np.ones(n), np.full(4, 0.5)], n - 1)
    if value > 1 - EDGE:
        return low, 1.0
    _, own_high = _linearised(statistic, sums[:n], np.ones(n), n - 1)
    return min(low, value), max(high, own_high, value)


def _linearised(statistic: Statistic, sums: Floats, weights: Floats, freedom: int) -> tuple[float, float]:
    """Return the interval from the weighted contributions of the items to log(1 − measure)."""

    def logs(rows: Floats) -> Floats:
        return np.log(np.maximum(1 - statistic(rows), EDGE))

    total = weights @ sums
    middle = logs(total[None])[0]
    slopes = (logs(total + STEP * sums) - middle) / STEP
    slopes -= np.average(slopes, weights=weights)
    count = weights.sum()
    reach = scipy_stats.t.ppf(0.975, freedom) * np.sqrt((weights * slopes**2).sum() * count / (count - 1))
    return float(1 - np.exp(middle) * (1 + reach / 2) ** 2), float(1 - np.exp(middle - reach))


def _imagined(ratings: pd.DataFrame) -> pd.DataFrame:
    """Return four items to count half each: two that agree and two that do not, in the two commonest categories."""
    per_item = ratings.notna().sum(axis=1)
    size = int(per_item[per_item >= 2].median())
    common = ratings.stack().value_counts(sort=True).index[:2].tolist()
    first, second = common[0], common[-1]
    more, less = -(-size // 2), size // 2
    rows = [[first] * size, [second] * size, [first] * more + [second] * less, [second] * more + [first] * less]
    return pd.DataFrame([row + [None] * (ratings.shape[1] - size) for row in rows], columns=ratings.columns)


def percent_agreement(ratings: pd.DataFrame) -> float:
    """Return the share of rater pairs that agree, mean over items; see ``agreement``."""
    return _single(ratings, _pair_sums, _percent)


def cohen_kappa(ratings: pd.DataFrame) -> float:
    """Return Cohen's κ of the two columns; see ``agreement``."""
    return _single(ratings, _cohen_sums, _cohen)


def fleiss_kappa(ratings: pd.DataFrame) -> float:
    """Return Fleiss' κ; see ``agreement``."""
    return _single(ratings, _fleiss_sums, _fleiss)


def krippendorff_alpha(ratings: pd.DataFrame, scale: Scale = "nominal") -> float:
    """Return Krippendorff's α; see ``agreement``. Ratings on an ordinal or interval scale are numbers."""
    if scale == "nominal":
        return _single(ratings, _pair_sums, _alpha)
    return _single(ratings, _coincidences, _scaled_alpha(_values(ratings), scale))


def _single(ratings: pd.DataFrame, prepare: Prepare, statistic: Statistic) -> float:
    sums, reason = prepare(ratings)
    if reason:
        raise UserError(f"There is no agreement to compute: {reason}.")
    return float(statistic(sums.sum(axis=0, keepdims=True))[0])


def _tally(ratings: pd.DataFrame) -> Floats:
    """Return (items, categories): how often each was chosen."""
    category, names = pd.factorize(ratings.to_numpy(object).reshape(-1), use_na_sentinel=True)
    items = np.repeat(np.arange(len(ratings)), ratings.shape[1])
    tally = np.zeros((len(ratings), len(names)))
    np.add.at(tally, (items[category >= 0], category[category >= 0]), 1.0)
    return tally


def _pair_sums(ratings: pd.DataFrame) -> tuple[Floats, str]:
    """Return per item with two ratings or more: 1, P_i, agreeing coincidences m_i·P_i, ratings per category."""
    tally = _tally(ratings)
    tally = tally[tally.sum(axis=1) >= 2]
    if not len(tally):
        return np.zeros((0, 3)), "no item was rated twice"
    size = tally.sum(axis=1)
    share = (tally * (tally - 1)).sum(axis=1) / (size * (size - 1))
    return np.column_stack([np.ones(len(tally)), share, size * share, tally]), ""


def _percent(sums: Floats) -> Floats:
    return np.asarray(sums[:, 1] / np.maximum(sums[:, 0], 1))


def _alpha(sums: Floats) -> Floats:
    totals = sums[:, 3:]
    n = totals.sum(axis=1)
    observed = n - sums[:, 2]
    expected = (n**2 - (totals**2).sum(axis=1)) / np.maximum(n - 1, 1)
    return _one_minus(observed, expected)


def _values(ratings: pd.DataFrame) -> Floats:
    """Return the distinct ratings as numbers, in order."""
    numbers = ratings.to_numpy(np.float64).reshape(-1)
    return np.unique(numbers[~np.isnan(numbers)])


def _coincidences(ratings: pd.DataFrame) -> tuple[Floats, str]:
    """Return per item how often values c and k meet, (n_c n_k − [c = k] n_c) / (m − 1), flattened."""
    numbers, values = ratings.to_numpy(np.float64), _values(ratings)
    tally = np.array([(numbers == value).sum(axis=1) for value in values], np.float64).reshape(len(values), -1).T
    tally = tally[tally.sum(axis=1) >= 2]
    if not len(tally):
        return np.zeros((0, len(values) ** 2)), "no item was rated twice"
    pairs = tally[:, :, None] * tally[:, None, :]
    pairs[:, range(len(values)), range(len(values))] -= tally
    return (pairs / (tally.sum(axis=1) - 1)[:, None, None]).reshape(len(tally), -1), ""


def _scaled_alpha(values: Floats, scale: Scale) -> Callable[[Floats], Floats]:
    """Return α from summed coincidences. A value's rank is the middle of the places that its ratings take."""

    def alpha(sums: Floats) -> Floats:
        met = sums.reshape(len(sums), len(values), len(values))
        totals = met.sum(axis=2)
        place = np.cumsum(totals, axis=1) - totals / 2 if scale == "ordinal" else np.broadcast_to(values, totals.shape)
        apart = (place[:, :, None] - place[:, None, :]) ** 2
        n = totals.sum(axis=1)
        expected = (totals[:, :, None] * totals[:, None, :] * apart).sum(axis=(1, 2)) / np.maximum(n - 1, 1)
        return _one_minus((met * apart).sum(axis=(1, 2)), expected)

    return alpha


def _fleiss_sums(ratings: pd.DataFrame) -> tuple[Floats, str]:
    tally = _tally(ratings)
    size = tally.sum(axis=1)
    if not len(size) or size.min() != size.max() or size.min() < 2:
        return np.zeros((0, 3)), "Fleiss' kappa needs every item rated equally often, at least twice"
    return _pair_sums(ratings)


def _fleiss(sums: Floats) -> Floats:
    shares = sums[:, 3:] / sums[:, 3:].sum(axis=1, keepdims=True)
    return _one_minus(1 - _percent(sums), 1 - (shares**2).sum(axis=1))


def _cohen_sums(ratings: pd.DataFrame) -> tuple[Floats, str]:
    """Return per item that both rated: 1, agreed, the first rater's choice one-hot, the second's."""
    if ratings.shape[1] != 2:
        return np.zeros((0, 2)), "Cohen's kappa compares two raters"
    both = ratings.dropna()
    if not len(both):
        return np.zeros((0, 2)), "no item was rated by both"
    names = sorted({str(value) for value in both.to_numpy(object).reshape(-1)})
    hot = [np.array([[str(value) == name for name in names] for value in both[column]]) for column in both]
    agreed = (hot[0] & hot[1]).any(axis=1)
    return np.column_stack([np.ones(len(both)), agreed, hot[0], hot[1]]).astype(np.float64), ""


def _cohen(sums: Floats) -> Floats:
    n = sums[:, 0]
    categories = (sums.shape[1] - 2) // 2
    first, second = sums[:, 2 : 2 + categories], sums[:, 2 + categories :]
    by_chance = (first * second).sum(axis=1) / n**2
    return _one_minus(1 - sums[:, 1] / n, 1 - by_chance)


def _one_minus(observed: Floats, expected: Floats) -> Floats:
    """Return 1 − observed / expected disagreement; NaN if no disagreement can be expected."""
    possible = expected > 1e-12
    return np.where(possible, 1 - observed / np.where(possible, expected, 1.0), np.nan)
