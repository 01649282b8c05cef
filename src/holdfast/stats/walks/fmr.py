"""The FMR family: how much accuracy survives counterfactuals that an oracle still accepts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd
from holdfast.stats.core.bootstrap import NO_ESTIMATE, RESAMPLES, Estimate, Floats, Z, codes, sums
from holdfast.stats.core.cells import wilson_at
from holdfast.stats.models.between import Between, in_ranks
from holdfast.stats.models.ranks import rank_ranges

COLUMNS = ("model", "label", "source_id", "right_original", "validated", "right_perturbed")
BASELINES = {"right_reconstruction": "reconstruction", "right_random_walk": "random_walk"}

NO_IMAGES = "no images"
NONE_VALIDATED = "the oracle accepted no image"
NONE_RIGHT = "no original was right"
NOT_MEASURED = "this baseline was not run"


@dataclass(frozen=True)
class Fmr:
    """FMR of one group of images, from counts. A value that would divide by zero is None and ``reason`` says why."""

    n: int  # images
    right: int  # right on the original
    validated: int  # images whose counterfactual the oracle accepted
    right_validated: int  # of those, right on the counterfactual
    standard_accuracy: float | None  # SA = right / n
    validation_rate: float | None  # VR = validated / n
    perturbed_accuracy: float | None  # PA = right_validated / validated
    fmr: float | None  # PA / SA
    fmr_low: float | None  # (right_validated / n) / SA, all rejected images wrong
    fmr_high: float | None  # ((right_validated + n − validated) / n) / SA, all rejected images right
    reason: str  # '' or why a value is missing


def from_counts(n: int, right: int, validated: int, right_validated: int) -> Fmr:
    """Return FMR and its bounds from four counts; see ``Fmr`` for the formulas."""
    if not (0 <= right <= n and 0 <= right_validated <= validated <= n):
        raise UserError(
            f"{right} right of {n} images and {right_validated} right of {validated} validated cannot be: "
            "a part is larger than its whole."
        )
    standard = right / n if n else None
    perturbed = right_validated / validated if validated else None
    reason = NO_IMAGES if not n else NONE_RIGHT if not right else NONE_VALIDATED if not validated else ""
    return Fmr(
        n,
        right,
        validated,
        right_validated,
        standard,
        validated / n if n else None,
        perturbed,
        perturbed / standard if perturbed is not None and standard else None,
        right_validated / right if right else None,
        (right_validated + n - validated) / right if right else None,
        reason,
    )


def recover_counts(n: int, *, standard_accuracy: str, validation_rate: str, fmr: str) -> list[Fmr]:
    """Return all counts of ``n`` images that print as these percentages ("92.30"); none: the row is impossible.

    A printed figure stands for all values that round to it, so the number of decimals matters. FMR may have been
    divided from the rounded PA and SA (as in the published table, whose crab is 19.08/96.00).
    """
    possible = []
    for right in _whole(n, standard_accuracy):
        for validated in _whole(n, validation_rate):
            for survived in range(validated + 1):
                candidate = from_counts(n, right, validated, survived)
                if candidate.fmr is not None and abs(100 * candidate.fmr - float(fmr)) <= _reach(
                    candidate, standard_accuracy, fmr
                ):
                    possible.append(candidate)
    return possible


def _reach(candidate: Fmr, standard_accuracy: str, fmr: str) -> float:
    """Return how far a printed FMR may be off: its own rounding, and that of PA and SA before the division."""
    assert candidate.perturbed_accuracy is not None
    assert candidate.standard_accuracy is not None
    half, half_standard = (0.5 * 10.0 ** -len(text.partition(".")[2]) for text in (fmr, standard_accuracy))
    highest = (100 * candidate.perturbed_accuracy + half) / (100 * candidate.standard_accuracy - half_standard)
    return 100 * (highest - candidate.perturbed_accuracy / candidate.standard_accuracy) + half + 1e-9


def _whole(n: int, printed: str) -> list[int]:
    """Return the counts of n images that print as this percentage."""
    half = 0.5 * 10.0 ** -len(printed.partition(".")[2])
    return [count for count in range(n + 1) if abs(count / n * 100 - float(printed)) <= half + 1e-9]


def fmr(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the whole family (docs/statistics/fmr.md), for every model pooled (label '') and per class.

    A row per model × label × measure with ``estimate`` = ``numerator`` / ``denominator``, its 95 % interval clustered
    on source, ``n``, and ``reason``: '' or why there is no value. ``fmr`` = PA / SA; ``fmr_low`` and ``fmr_high``: all
    rejected images wrong, or all right; ``fmr_algorithm1``: the published listing read literally; ``fmr_matched`` = PA
    / SA of the same validated images; ``reconstruction``, ``random_walk``: baselines, if those columns are there.
    What a rejected image's counterfactual was answered is ignored.
    """
    missing = [column for column in COLUMNS if column not in rows]
    if missing:
        raise UserError(f"FMR needs the columns {', '.join(COLUMNS)}; missing: {', '.join(missing)}.")
    table: list[dict[str, Any]] = []
    for model, group in rows.groupby("model", observed=True):
        table += [{"model": model, "label": "", **row} for row in measures(group)]
        for label, part in group.groupby("label", observed=True):
            table += [{"model": model, "label": label, **row} for row in measures(part)]
    return pd.DataFrame(table)


@dataclass(frozen=True)
class _Share:
    """Among the images of ``whole``, the share that is ``part``: (images,) 0/1 each."""

    part: Floats
    whole: Floats
    clusters: tuple[NDArray[np.intp], int]
    nothing: str = NO_IMAGES

    @property
    def reason(self) -> str:
        """Return why there is no share, or ''."""
        return "" if self.whole.any() else self.nothing

    @property
    def value(self) -> float:
        return float(self.part.sum() / self.whole.sum()) if self.whole.any() else float("nan")

    def influence(self) -> Floats:
        """Return what each source adds to the share's deviation from the truth, (clusters,)."""
        code, count = self.clusters
        return np.bincount(code, (self.part - self.value * self.whole) / self.whole.sum(), count).astype(np.float64)

    def interval(self) -> tuple[float, float]:
        """Return Wilson's interval, with as many images as the clustering leaves: n ÷ design effect."""
        n, p = float(self.whole.sum()), self.value
        code, count = self.clusters
        repeated = count < len(code)
        naive = p * (1 - p) / n
        effect = max(float((self.influence() ** 2).sum()) / naive, 1.0) if repeated and naive > 0 else 1.0
        if repeated and naive == 0:  # all alike: nothing shows how alike repeats are, so sources count once
            effect = len(code) / count
        low, high = wilson_at(np.array(p * n / effect), np.array(n / effect), Z)
        return float(low), float(high)


def measures(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the family of one group of images: what ``fmr`` gives for each, without model and label."""
    clusters = codes(rows["source_id"].astype(str))
    original = rows["right_original"].to_numpy(np.float64)
    validated = rows["validated"].to_numpy(np.float64)
    survived: Floats = validated * np.nan_to_num(rows["right_perturbed"].astype("float64").to_numpy(np.float64))
    everything: Floats = np.ones(len(rows))

    def share(part: Floats, whole: Floats = everything, nothing: str = NONE_VALIDATED) -> _Share:
        return _Share(part, whole, clusters, nothing)

    standard, perturbed = share(original), share(survived, validated)
    rejected = 1 - validated
    ratios = {
        "fmr": (perturbed, standard),
        "fmr_low": (share(survived), standard),
        "fmr_high": (share(survived + rejected), standard),
        "fmr_algorithm1": (share(survived + rejected * original), standard),
        "fmr_matched": (perturbed, share(original * validated, validated)),
    }
    shares = {"standard_accuracy": standard, "perturbed_accuracy": perturbed, "validation_rate": share(validated)}
    for column, name in BASELINES.items():
        if column in rows:
            known = np.asarray(rows[column].notna(), np.float64)
            shares[name] = share(
                np.nan_to_num(rows[column].astype("float64").to_numpy(np.float64)), known, NOT_MEASURED
            )
            ratios[f"{name}_ratio"] = (shares[name], standard)
    table = []
    for name, own in shares.items():
        estimate = NO_ESTIMATE if own.reason else Estimate(own.value, *own.interval())
        table.append(_row(name, own, estimate, own.reason))
    for name, (upper, lower) in ratios.items():
        reason = upper.reason or lower.reason or ("" if lower.value > 0 else NONE_RIGHT)
        estimate = NO_ESTIMATE if reason else Estimate(upper.value / lower.value, *ratio_interval(upper, lower))
        table.append(_row(name, upper, estimate, reason))
    return table


def _row(measure: str, share: _Share, estimate: Estimate, reason: str) -> dict[str, Any]:
    counts = {"numerator": int(share.part.sum()), "denominator": int(share.whole.sum()), "n": len(share.part)}
    return {"measure": measure, **estimate.row("estimate", ""), **counts, "reason": reason}


def ratio_interval(upper: _Share, lower: _Share) -> tuple[float, float]:
    """Return the 95 % interval of a ratio of two correlated shares.

    The method of variance estimates recovery (Donner and Zou 2012): each share's Wilson limits, joined with the
    correlation of the two estimates. Unlike resampling it stays honest when a class has few or no survivors.
    """
    (low_1, high_1), (low_2, high_2) = upper.interval(), lower.interval()
    top, bottom = upper.value, lower.value
    first, second = upper.influence(), lower.influence()
    scale = np.sqrt((first**2).sum() * (second**2).sum())
    correlation = float((first * second).sum() / scale) if scale > 0 else 0.0
    low = _limit(top, bottom, low_1, high_2, correlation * (top - low_1) * (high_2 - bottom), -1)
    high = _limit(top, bottom, high_1, low_2, correlation * (high_1 - top) * (bottom - low_2), +1)
    return max(low, 0.0), high


def _limit(top: float, bottom: float, edge_1: float, edge_2: float, joint: float, sign: int) -> float:
    """Return the ratio at which the distance to both edges is used up: a root of a quadratic."""
    product = top * bottom - joint
    a, c = edge_2 * (2 * bottom - edge_2), edge_1 * (2 * top - edge_1)
    root = np.sqrt(max(product**2 - a * c, 0.0))
    if a <= 0:
        return float("inf") if sign > 0 else 0.0
    return float((product + sign * root) / a)


RANKS = ["model", "fmr", "low", "high", "rank", "rank_low", "rank_high", "n"]


def fmr_ranking(images: pd.DataFrame, *, resamples: int = RESAMPLES, seed: int = 0) -> Between:
    """Return the models by FMR, highest first; those that cannot be distinguished share their ranks.

    Over the images that every model answered, paired on the source image: two models are distinguished by max-t over
    all pairs in resamples of images (on the linearised ratio), if the closed-form interval of the difference agrees,
    which stays honest when few counterfactuals survive. Models without an FMR are left out.
    """
    models = sorted(images["model"].unique())
    together = images.groupby("sample_id")["model"].nunique()
    shared = images[images["sample_id"].isin(together.index[together == len(models)])]
    if shared.empty or len(models) < 2:
        reason = "There is one model only." if len(models) == 1 else "No image was walked for every model."
        return Between(pd.DataFrame(columns=RANKS), reason, reason)
    family = fmr(shared)
    table = family[(family["label"] == "") & (family["measure"] == "fmr") & (family["reason"] == "")]
    if len(table) < 2:
        reason = "Fewer than two models have an FMR."
        return Between(pd.DataFrame(columns=RANKS), reason, reason)
    parts = np.stack([fmr_influence(shared[shared["model"] == name]) for name in table["model"]], axis=1)
    estimate, low, high = (table[name].to_numpy(np.float64) for name in ("estimate", "low", "high"))
    ranks = rank_ranges(estimate, low, high, parts, resamples=resamples, seed=seed)
    values = {name: table[name].to_numpy() for name in ("model", "low", "high", "n")}
    return in_ranks({**values, "fmr": estimate}, ranks, RANKS)


def fmr_influence(images: pd.DataFrame) -> Floats:
    """Return what each image adds to the deviation of the FMR from the truth, (sources,)."""
    code, count = codes(images["source_id"].astype(str))
    return sums(code, influences(images)["fmr"], count)


def influences(images: pd.DataFrame) -> dict[str, Floats]:
    """Return what each image adds to the deviation of SA, VR, PA and FMR from the truth, (images,) each."""
    right, validated = (images[name].to_numpy(np.float64) for name in ("right_original", "validated"))
    survived = validated * images["right_perturbed"].astype("float64").fillna(0).to_numpy()
    standard, perturbed = right.mean(), survived.sum() / max(validated.sum(), 1)
    upper = (survived - perturbed * validated) / max(validated.sum(), 1)
    lower = (right - standard) / len(right)
    with np.errstate(invalid="ignore", divide="ignore"):  # no original is right: there is no FMR
        ratio = (upper - perturbed / standard * lower) / standard
    rate = (validated - validated.mean()) / len(validated)
    return {"standard_accuracy": lower, "validation_rate": rate, "perturbed_accuracy": upper, "fmr": ratio}
