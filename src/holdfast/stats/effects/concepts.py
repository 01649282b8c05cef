"""Which kinds of background cost accuracy: attributes of the donors, regressed on the predictions before them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.lazy import pd, scipy_special
from holdfast.stats.core.bootstrap import CHANGE, Estimate, Floats, codes, sums, t_quantile
from holdfast.stats.core.grid import holm

COLUMNS = ["model", "condition", "source_id", "donor_id", "label", "correct", "status"]
CONDITION = "random_background"
FEWEST = 5  # donors with an attribute, and without it
LEVEL = 0.05
_SHUFFLES = 200


def background_concepts(rows: pd.DataFrame, concepts: pd.DataFrame, *, seed: int = 0) -> pd.DataFrame:
    """Return what each attribute of backgrounds costs each model, the most expensive first.

    Args:
        rows: rows of the one table, with ``COLUMNS``.
        concepts: a row per donor, named by its id, and a column per attribute: 1 if it has it, 0 if not, NaN if that is
            unknown.
        seed: of the shuffles behind ``chance``.

    Returns:
        ``model``, ``concept``, ``images`` and ``donors`` with it, ``accuracy`` with it, ``others`` (without it),
        ``difference`` between the two within classes with ``low`` and ``high`` (95 %), ``p``, ``p_holm`` (over the
        attributes of a model), ``chance`` (the size of the difference after shuffling the attribute over the
        donors, 95 % quantile) and ``stands_out`` (p_holm ≤ ``LEVEL``, and a difference beyond ``chance``).
    """
    lent = rows[(rows["status"].astype(str) == "ok") & (rows["condition"].astype(str) == CONDITION)]
    lent = lent[lent["donor_id"].isin(concepts.index) & lent["correct"].notna()].astype({"model": str, "label": str})
    parts = [
        part for model, own in lent.groupby("model", sort=True) for part in _of_model(str(model), own, concepts, seed)
    ]
    table = pd.DataFrame(parts, columns=[
        "model", "concept", "images", "donors", "accuracy", "others", "difference", "low", "high", "p", "p_holm",
        "chance", "stands_out",
    ])  # fmt: skip
    return table.sort_values(["model", "difference"], ignore_index=True)


def _of_model(model: str, own: pd.DataFrame, concepts: pd.DataFrame, seed: int) -> Iterator[dict[str, Any]]:
    donor, donors = codes(own["donor_id"].astype(str))
    values = concepts.loc[sorted(own["donor_id"].astype(str).unique())].astype(float)
    counted = [name for name in values if min((values[name] == 1).sum(), (values[name] == 0).sum()) >= FEWEST]
    right, label = own["correct"].to_numpy(float), codes(own["label"])[0]
    image = codes(own["source_id"].astype(str))[0]
    rows: list[dict[str, Any]] = []
    for name in counted:
        of_donor = values[name].to_numpy()
        has = of_donor[donor]
        known = ~np.isnan(has)
        effect = regressed(right[known], has[known], label[known], image[known], donor[known])
        rows.append({
            "model": model, "concept": name, "images": int((has == 1).sum()), "donors": int((of_donor == 1).sum()),
            "accuracy": right[has == 1].mean(), "others": right[has == 0].mean(), **effect,
        })  # fmt: skip
    rng = np.random.default_rng(seed)
    orders = [rng.permutation(donors)[donor] for _ in range(_SHUFFLES)]
    corrected = holm(np.array([row["p"] for row in rows]))
    for row, p in zip(rows, corrected, strict=True):
        of_donor = values[row["concept"]].to_numpy()
        chance = float(np.nanquantile([abs(slope(right, of_donor[order], label)[0]) for order in orders], 0.95))
        beyond = bool(p <= LEVEL and abs(row["difference"]) > chance)
        yield row | {"p_holm": float(p), "chance": chance, "stands_out": beyond}


def slope(right: Floats, has: Floats, label: NDArray[np.intp]) -> tuple[float, Floats, Floats]:
    """Return the difference that an attribute makes within classes, the attribute without class means, and residuals.

    The coefficient of right ~ attribute + class, by ordinary least squares.
    """
    kept = ~np.isnan(has)
    size = np.maximum(np.bincount(label[kept], minlength=int(label.max()) + 1), 1)
    x, y = (
        (each - sums(label[kept], each, len(size))[label[kept]] / size[label[kept]])
        for each in (has[kept], right[kept])
    )
    spread = float(x @ x)
    difference = float(x @ y) / spread if spread > 1e-9 else float("nan")
    return difference, x, y - difference * x


def regressed(
    right: Floats, has: Floats, label: NDArray[np.intp], image: NDArray[np.intp], donor: NDArray[np.intp]
) -> dict[str, float]:
    """Return the difference that an attribute makes within classes, with its interval and p.

    The variance is two-way over donors and images, never below that of either, times n / (n − classes − 1). A cluster's
    score is divided by the share of the attribute's variance that all others have (jackknife). Degrees of freedom:
    (Σ h)² / Σ h² − 1, h the variance of the attribute within a donor.
    """
    difference, x, residual = slope(right, has, label)
    if np.isnan(difference):
        return {"difference": difference, "low": difference, "high": difference, "p": difference}
    both = codes(image * np.intp(donor.max() + 1) + donor)[0]
    spent, variances = float(x @ x), []
    for cluster in (donor, image, both):
        number, count = codes(cluster)
        weight = sums(number, x * x, count) / spent
        variances.append(
            float(np.square(sums(number, x * residual, count) / spent / np.maximum(1 - weight, 0.05)).sum())
        )
        if cluster is donor:
            freedom = max(1 / float(np.square(weight).sum()) - 1, 1.0)
    variance = max(variances[0], variances[1], variances[0] + variances[1] - variances[2])
    error = (variance * len(x) / max(len(x) - len(np.unique(label)) - 1, 1)) ** 0.5
    reach = t_quantile(freedom) * error
    estimate = Estimate(difference, difference - reach, difference + reach).within(CHANGE)
    p = 2 * float(scipy_special.stdtr(freedom, -abs(difference) / error)) if error > 0 else float(difference == 0)
    return {"difference": difference, "low": estimate.low, "high": estimate.high, "p": p}
