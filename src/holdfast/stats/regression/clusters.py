"""Errors of the regression that take photos, and the photos that lend backgrounds, for the independent units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from holdfast.stats.core.bootstrap import Floats
from holdfast.stats.core.grid import own_cells
from holdfast.stats.core.reduce import Counts, Outcome, right_column

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

PHOTO, DONOR = "source_id", "donor_id"


def photo_rows(counts: Counts, *, outcome: Outcome = "full", conditions: Sequence[str] | None = None) -> pd.DataFrame:
    """Return answers per model × condition × label × photo × donor: ``n`` and ``right``, of the cells of the fit."""
    cells = own_cells(counts, conditions)
    cells = cells[~cells["condition"].isin(list(counts.same_images))]
    keys = ["model", "condition", "label", PHOTO, DONOR]
    frame = cells[[key for key in keys if key in cells]].astype(str)
    frame[DONOR] = cells[DONOR].astype(object).where(cells[DONOR].notna(), "").astype(str) if DONOR in cells else ""
    return frame.assign(n=cells["n"].astype(float), right=cells[right_column(outcome)].astype(float))


def cluster_errors(
    cells: pd.DataFrame, weights: Floats, fitted: Floats, photos: pd.DataFrame
) -> tuple[Floats, Floats, str]:
    """Return the standard error and degrees of freedom of each coefficient, and the names of the clusters.

    A coefficient is Σ weight × accuracy over cells, so a photo adds Σ weight × (right − n × fitted) / n of the cell.
    The variance is Σ over photos of the square of that (Liang and Zeger), two-way with donors where backgrounds were
    lent: V(photo) + V(donor) − V(photo × donor), at least the larger of the first two; times G / (G − 1). Degrees of
    freedom: (Σ h)² / Σ h² − 1 with h = Σ weight² of the photo's answers, so that ten photos of a class count as ten.

    ``cells``: the cells of the fit, with ``model``, ``condition`` and ``label``. ``weights``: (terms, cells) how much
    each cell's accuracy moves each coefficient. ``fitted``: (cells,) fitted accuracies. ``photos``: from
    ``photo_rows``.
    """
    from scipy import sparse

    keys = ["model", "condition", "label"]
    rows = photos.merge(cells[keys].astype(str).assign(cell=np.arange(len(cells))), on=keys)
    cell, n = rows["cell"].to_numpy(np.intp), rows["n"].to_numpy(np.float64)
    size = np.bincount(cell, n, len(cells))
    excess = (rows["right"].to_numpy(np.float64) - n * fitted[cell]) / size[cell]

    def summed(codes: NDArray[np.intp], values: Floats, by: Floats) -> Floats:
        matrix = sparse.csr_matrix((values, (codes, cell)), shape=(int(codes.max()) + 1, len(cells)))
        return np.asarray(matrix @ by.T)

    photo = _codes(rows[PHOTO])
    lent = rows[DONOR].to_numpy(object) != ""
    donor = _codes(rows[DONOR].where(lent, "photo " + rows[PHOTO].astype(str)))
    both = _codes(rows[PHOTO].astype(str) + "\0" + rows[DONOR])
    by_photo = _variance(summed(photo, excess, weights))
    variance, names, clusters = by_photo, "photo", [photo]
    if lent.any():
        by_donor = _variance(summed(donor, excess, weights))
        two_way = by_photo + by_donor - _variance(summed(both, excess, weights))
        variance, names, clusters = (
            np.maximum(np.maximum(by_photo, by_donor), two_way),
            "photo and donor",
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
    import pandas as pd

    return np.asarray(pd.factorize(names)[0], np.intp)
