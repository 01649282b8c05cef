"""Residuals of the regression: what plots and tests need, and errors that take images and donors for the units."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.lazy import pd, scipy_sparse, scipy_stats
from holdfast.stats.core.bootstrap import Floats
from holdfast.stats.core.grid import own_cells
from holdfast.stats.core.reduce import Counts, Outcome, right_column

PHOTO, DONOR = "source_id", "donor_id"


def photo_rows(counts: Counts, *, outcome: Outcome = "full") -> pd.DataFrame:
    """Return answers per model × condition × label × image × donor: ``n`` and ``right``, of the cells of the fit."""
    cells = own_cells(counts)
    cells = cells[~cells["condition"].isin(list(counts.same_images))]
    keys = ["model", "condition", "label", PHOTO, DONOR]
    frame = cells[[key for key in keys if key in cells]].astype(str)
    frame[DONOR] = cells[DONOR].astype(object).where(cells[DONOR].notna(), "").astype(str) if DONOR in cells else ""
    return frame.assign(n=cells["n"].astype(float), right=cells[right_column(outcome)].astype(float))


def cluster_errors(
    cells: pd.DataFrame, weights: Floats, fitted: Floats, photos: pd.DataFrame
) -> tuple[Floats, Floats, str]:
    """Return the standard error and degrees of freedom of each coefficient, and the names of the clusters.

    A coefficient is Σ weight × accuracy over cells, so an image adds Σ weight × (right − n × fitted) / n of the cell.
    The variance is Liang and Zeger's over images, two-way with donors if backgrounds were lent, at least the larger
    of both; times G / (G − 1). Degrees of freedom: (Σ h)² / Σ h² − 1 with h = Σ weight² of the image's answers.
    """
    keys = ["model", "condition", "label"]
    rows = photos.merge(cells[keys].astype(str).assign(cell=np.arange(len(cells))), on=keys)
    cell, n = rows["cell"].to_numpy(np.intp), rows["n"].to_numpy(np.float64)
    size = np.bincount(cell, n, len(cells))
    excess = (rows["right"].to_numpy(np.float64) - n * fitted[cell]) / size[cell]

    def summed(codes: NDArray[np.intp], values: Floats, by: Floats) -> Floats:
        matrix = scipy_sparse.csr_matrix((values, (codes, cell)), shape=(int(codes.max()) + 1, len(cells)))
        return np.asarray(matrix @ by.T)

    photo = _codes(rows[PHOTO])
    lent = rows[DONOR].to_numpy(object) != ""
    donor = _codes(rows[DONOR].where(lent, "image " + rows[PHOTO].astype(str)))
    both = _codes(rows[PHOTO].astype(str) + "\0" + rows[DONOR])
    by_photo = _variance(summed(photo, excess, weights))
    variance, names, clusters = by_photo, "photo", [photo]
    if lent.any():
        by_donor = _variance(summed(donor, excess, weights))
        two_way = by_photo + by_donor - _variance(summed(both, excess, weights))
        variance, names, clusters = (
            np.maximum(np.maximum(by_photo, by_donor), two_way),
            "image and donor",
            [photo, donor],
        )
    spread = [summed(codes, (n / size[cell]) ** 2, weights**2) for codes in clusters]
    freedom = np.min(
        [parts.sum(axis=0) ** 2 / np.maximum((parts**2).sum(axis=0), 1e-300) - 1 for parts in spread], axis=0
    )
    return np.sqrt(variance), np.maximum(freedom, 1.0), names


def _variance(sums: Floats) -> Floats:
    groups = len(sums)
    return np.asarray((sums**2).sum(axis=0) * groups / max(groups - 1, 1))


def _codes(names: Any) -> NDArray[np.intp]:
    return np.asarray(pd.factorize(names)[0], np.intp)


RESIDUALS = ["model", "condition", "label", "fitted", "residual", "absolute", "quantile", "order"]
NORMALITY = ["test", "statistic", "p", "passed", "reason"]
_SHAPIRO_LIMIT = 5000  # above it, SciPy's p-value is not accurate
_NORMALITY_LEAST = 8  # fewest residuals that the test of skewness takes


def residual_table(place: pd.DataFrame, fitted: Floats, residual: Floats, deviation: float) -> pd.DataFrame:
    """Return what the four plots need: residuals, their size, normal quantiles, and the order of rows.

    ``quantile`` is that of a normal with this standard ``deviation`` at (rank − 0.5)/N.
    """
    position = (scipy_stats.rankdata(residual, method="ordinal") - 0.5) / len(residual)
    columns = {
        "fitted": fitted,
        "residual": residual,
        "absolute": np.abs(residual),
        "quantile": deviation * scipy_stats.norm.ppf(position),
        "order": np.arange(1, len(residual) + 1),
    }
    return place.assign(**columns)[RESIDUALS]


def normality(residuals: Floats) -> pd.DataFrame:
    """Return four tests of normality: ``test``, ``statistic``, ``p``, ``passed`` (p ≥ .05), ``reason``."""
    from statsmodels.stats.diagnostic import lilliefors, normal_ad

    tests = {
        "D'Agostino–Pearson": scipy_stats.normaltest,
        "Anderson–Darling": normal_ad,
        "Shapiro–Wilk": scipy_stats.shapiro,
        "Kolmogorov–Smirnov (Lilliefors)": lilliefors,
    }
    rows = []
    for name, test in tests.items():
        reason = ""
        if len(residuals) < _NORMALITY_LEAST:
            reason = f"needs at least {_NORMALITY_LEAST} cells"
        elif np.ptp(residuals) <= 1e-12:
            reason = "the residuals are all the same"
        elif name == "Shapiro–Wilk" and len(residuals) > _SHAPIRO_LIMIT:
            reason = f"not accurate above {_SHAPIRO_LIMIT} cells"
        statistic, p = (np.nan, np.nan) if reason else test(residuals)
        rows.append((name, float(statistic), float(p), bool(p >= 0.05), reason))
    return pd.DataFrame(rows, columns=NORMALITY)
