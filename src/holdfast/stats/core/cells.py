"""Accuracies with intervals: per class, over all classes, the worst class and the worst group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import ArrayLike

from holdfast.core.errors import UserError
from holdfast.stats.core.bootstrap import Floats, cluster_variance
from holdfast.stats.core.reduce import Counts, Outcome, right_column

if TYPE_CHECKING:
    import pandas as pd

Average = Literal["macro", "micro"]
"""Every class weighs the same, or every photo does."""

KEYS = ["model", "trained_on", "condition"]

GROUP_MINIMUM = 5
"""Photos a group (class × class of the background) needs before it can be called the worst."""


def wilson(right: ArrayLike, n: ArrayLike, level: float = 0.95) -> tuple[Floats, Floats]:
    """Wilson's score interval of a share, element by element; NaN where ``n`` is 0.

    (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n) with p = right / n. Counts may be fractional: an effective
    number of photos.
    """
    return wilson_at(np.asarray(right, np.float64), np.asarray(n, np.float64), _quantile(level))


def wilson_at(hits: Floats, total: Floats, z: Floats | float) -> tuple[Floats, Floats]:
    """The same with the quantile given."""
    with np.errstate(invalid="ignore", divide="ignore"):
        share = hits / total
        centre = (share + z**2 / (2 * total)) / (1 + z**2 / total)
        half = z * np.sqrt(share * (1 - share) / total + z**2 / (4 * total**2)) / (1 + z**2 / total)
    # at 0 and at n the bound is exactly 0 and 1; rounding must not leave it at 1e-17
    low = np.where(hits == 0, 0.0, np.clip(centre - half, 0, 1))
    high = np.where(hits == total, 1.0, np.clip(centre + half, 0, 1))
    return np.where(total > 0, low, np.nan), np.where(total > 0, high, np.nan)


def stratified(right: ArrayLike, n: ArrayLike, level: float = 0.95) -> tuple[float, float]:
    """The interval of a mean of class accuracies (macro accuracy), one count per class.

    Wilson's interval for the mean of the class accuracies on an effective number of photos m: with z²/K pseudo photos
    added to each of the K classes, half of them right, m = p̃(1 − p̃) / V and V = Σ p̃_k (1 − p̃_k) / (ñ_k − 1) / K²
    (ñ_k / 2 in place of ñ_k − 1 where that is larger). The quantile is that of t with Satterthwaite's degrees of
    freedom, because a few small classes may make up most of V. With all classes at 0 % or 100 % the interval keeps a
    width, where a bootstrap would have none.
    """
    low, high = stratified_rows(np.asarray(right, np.float64)[None, :], np.asarray(n, np.float64)[None, :], level)
    return float(low[0]), float(high[0])


def stratified_rows(right: Floats, n: Floats, level: float = 0.95) -> tuple[Floats, Floats]:
    """The same for many means at once, (means, classes); of each only the classes of which ``n`` is not 0."""
    from scipy.special import stdtrit

    there = n > 0
    classes = there.sum(axis=1)
    pseudo = (_quantile(level) ** 2 / classes)[:, None]
    larger = np.where(there, n + pseudo, 1.0)
    share = np.where(there, (right + pseudo / 2) / larger, 0.0)
    variances = share * (1 - share) / np.maximum(larger - 1, larger / 2)
    freedom = variances.sum(axis=1) ** 2 / (variances**2 / np.maximum(n - 1, 0.5)).sum(axis=1)
    mean = share.sum(axis=1) / classes
    effective = mean * (1 - mean) / (variances.sum(axis=1) / classes**2)
    plain = np.divide(right, n, out=np.zeros_like(n), where=there).sum(axis=1) / classes
    return wilson_at(plain * effective, effective, stdtrit(freedom, (1 + level) / 2))


def accuracy(counts: Counts, *, outcome: Outcome = "full") -> pd.DataFrame:
    """Accuracy per model × trained_on × condition × class.

    Columns: ``n`` rows, ``right`` of them, ``accuracy`` = right / n, and Wilson's 95 % interval ``low``, ``high``.
    Where a photo has several rows (several pastes of it, say), the interval is that of the smaller, effective number
    n / (design effect).
    """
    column = right_column(outcome)
    keys = [*KEYS, "label"]
    frame = ordered(counts, counts.cells.groupby(keys, observed=True)[["n", column]].sum().reset_index())
    frame = frame.rename(columns={column: "right"})
    frame["accuracy"] = frame["right"] / frame["n"]
    frame["low"], frame["high"] = wilson(frame["right"], frame["n"])
    for index, rows in _repeated(counts.cells, keys).items():
        here = (frame[keys].astype(str) == list(index)).all(axis=1)
        size = rows["n"].sum() / design_effect(rows, column, by_class=False, donors=False)
        low, high = wilson(rows[column].sum() / rows["n"].sum() * size, size)
        frame.loc[here, ["low", "high"]] = [float(low), float(high)]
    return frame


def summary(
    counts: Counts,
    *,
    outcome: Outcome = "full",
    average: Average = "macro",
    clusters: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Accuracy per model × trained_on × condition.

    Columns: ``n`` rows; ``accuracy`` with ``low`` and ``high`` (95 %): macro is the mean of the class accuracies with
    the ``stratified`` interval, micro the share of right answers with Wilson's; rows that depend on each other
    (several of one photo, one background under several photos, one prompt pair) count as n / (design effect).
    ``worst_class`` with its accuracy and a simultaneous interval (Wilson at level 1 − 0.05/K, because the worst of K
    was picked by looking). ``worst_group`` and ``worst_group_donor``: class and background class with the lowest
    accuracy among those with ≥ 5 photos; empty where no background was borrowed.

    Args:
        counts: from ``reduce``.
        outcome: which answers count as right.
        average: macro or micro.
        clusters: source_id → cluster, for photos that are not independent (the prompt pair of a generated image).
    """
    import pandas as pd

    column = right_column(outcome)
    rows = []
    for key, group in counts.cells.groupby(KEYS, observed=True):
        by_class = group.groupby("label", observed=True)[["n", column]].sum()
        n, right = by_class["n"].to_numpy(float), by_class[column].to_numpy(float)
        effect = design_effect(group, column, by_class=average == "macro", clusters=clusters)
        if average == "macro":
            value = float(np.mean(right / n))
            low, high = stratified(right / effect, n / effect)
        else:
            value = float(right.sum() / n.sum())
            low, high = (float(bound) for bound in wilson(right.sum() / effect, n.sum() / effect))
        row = dict(zip(KEYS, key, strict=True)) | {"n": int(n.sum()), "accuracy": value, "low": low, "high": high}
        rows.append(row | _worst_class(by_class.index.astype(str).to_numpy(), right, n) | _worst_group(group, column))
    return ordered(counts, pd.DataFrame(rows))


def design_effect(
    rows: pd.DataFrame,
    column: str,
    *,
    by_class: bool,
    donors: bool = True,
    clusters: Mapping[str, str] | None = None,
) -> float:
    """How many times larger the variance of an accuracy is than that of as many independent rows; at least 1.

    The cluster variance (two-way over photo and donor) over the binomial one. Where the binomial variance is 0 (all
    right or all wrong), the number of rows per photo: the most it could be.
    """
    source = cluster_of(rows["source_id"], clusters)
    donor = rows["donor_id"]
    donors = donors and bool(donor.notna().any())
    if clusters is None and not donors and rows["n"].max() == 1 and source.is_unique:
        return 1.0
    totals = (
        rows.groupby("label", observed=True)[["n", column]].transform("sum") if by_class else rows[["n", column]].sum()
    )
    share = totals[column] / totals["n"]
    residuals = rows[column] - share * rows["n"]
    expected = float((rows["n"] * share * (1 - share)).sum())
    if expected <= 0:
        return float(rows["n"].sum() / source.nunique())
    lender = donor.astype(str).fillna("of " + rows["source_id"].astype(str)) if donors else None
    few = min(source.nunique(), donor.nunique() if donors else len(rows))
    variance = cluster_variance(residuals, source, lender) * few / max(few - 1, 1)
    return max(variance / expected, 1.0)


def cluster_of(source: pd.Series, clusters: Mapping[str, str] | None) -> pd.Series:
    """The cluster of each photo: itself, unless a mapping says otherwise."""
    if clusters is None:
        return source
    mapped = source.map(dict(clusters))
    if mapped.isna().any():
        raise UserError(f"clusters has no entry for the photo {source[mapped.isna()].iloc[0]!r}; name one for each")
    return mapped


def ordered(counts: Counts, frame: pd.DataFrame) -> pd.DataFrame:
    """Keys as text, rows by model and then by condition in the order asked for."""
    for key in [*KEYS, "label"]:
        if key in frame:
            frame[key] = frame[key].astype(str)
    if frame.empty:
        return frame
    position = {condition: number for number, condition in enumerate(counts.conditions)}
    by = [key for key in ("model", "trained_on", "condition", "label") if key in frame]
    frame = frame.sort_values(by, key=lambda one: one.map(position) if one.name == "condition" else one)
    return frame.reset_index(drop=True)


def _quantile(level: float) -> float:
    from scipy.special import ndtri

    if not 0 < level < 1:
        raise UserError(f"a confidence level lies between 0 and 1, {level} does not")
    return float(ndtri((1 + level) / 2))


def _repeated(cells: pd.DataFrame, keys: list[str]) -> dict[tuple[str, ...], pd.DataFrame]:
    """The groups in which some photo has several rows."""
    many = cells.assign(photos=cells["source_id"]).groupby(keys, observed=True)
    sizes = many.agg(n=("n", "sum"), photos=("photos", "nunique"))
    wanted = sizes.index[sizes["n"] > sizes["photos"]]
    return {tuple(str(part) for part in key): many.get_group(key) for key in wanted}


def _worst_class(labels: np.ndarray, right: Floats, n: Floats) -> dict[str, object]:
    # among equals the class with the most photos: the one we know best
    worst = int(np.lexsort((-n, right / n))[0])
    low, high = wilson(right[worst], n[worst], 1 - 0.05 / len(n))
    return {
        "worst_class": str(labels[worst]),
        "worst_class_accuracy": float(right[worst] / n[worst]),
        "worst_class_low": float(low),
        "worst_class_high": float(high),
    }


def _worst_group(rows: pd.DataFrame, column: str) -> dict[str, object]:
    groups = rows[rows["donor_label"].notna()].groupby(["label", "donor_label"], observed=True)[["n", column]].sum()
    groups = groups[groups["n"] >= GROUP_MINIMUM]
    if groups.empty:
        nothing = float("nan")
        return {"worst_group": "", "worst_group_donor": "", "worst_group_n": 0, "worst_group_accuracy": nothing,
                "worst_group_low": nothing, "worst_group_high": nothing}  # fmt: skip
    n, right = groups["n"].to_numpy(float), groups[column].to_numpy(float)
    worst = int(np.lexsort((-n, right / n))[0])
    low, high = wilson(right[worst], n[worst], 1 - 0.05 / len(n))
    label, donor = groups.index[worst]
    return {
        "worst_group": str(label),
        "worst_group_donor": str(donor),
        "worst_group_n": int(n[worst]),
        "worst_group_accuracy": float(right[worst] / n[worst]),
        "worst_group_low": float(low),
        "worst_group_high": float(high),
    }
