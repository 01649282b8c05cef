"""Ties between labels and what is known of images: could a model read the label off something else than the object?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from holdfast.core.lazy import pd
from holdfast.stats.core.grid import holm

COLUMNS = ["attribute", "values", "n", "v", "p", "p_holm", "tied", "readable", "chance"]
_PERMUTATIONS = 2000
LEVEL = 0.05


def ties(labels: Sequence[str], attributes: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Return how closely each attribute goes with the label, closest first; a value per image and attribute.

    Columns: ``v`` is Cramér's V with Bergsma's correction for chance (0 none, 1 each value has one label); ``p`` of the
    permutation test of χ², which is exact whatever the counts, and ``p_holm`` corrected for the number of attributes;
    ``tied``: p_holm ≤ ``LEVEL``, so that attributes that have nothing to do with the label give a false alarm in at
    most that share of datasets; ``readable``: the share of images whose label the attribute alone predicts, by the
    commonest label among the other images of the same value; ``chance``: the share of the commonest label of all.
    """
    label_codes, label_names = pd.factorize(np.asarray(labels, object), sort=True)
    rng = np.random.default_rng(0)
    # Enough permutations for the smallest p to stay below the level after the correction.
    permutations = max(_PERMUTATIONS, 40 * len(attributes))
    rows = []
    for name, values in attributes.items():
        codes, names = pd.factorize(np.asarray(values, object), sort=True)
        table = contingency(codes, label_codes, len(names), len(label_names))
        if min(table.shape) < 2:
            continue
        v, p = cramers_v(table), permutation_p(table, permutations, rng)
        rows.append((name, len(names), len(codes), v, p, p, False, _told(table), table.sum(axis=0).max() / len(codes)))
    frame = pd.DataFrame(rows, columns=COLUMNS)
    frame["p_holm"] = holm(frame["p"].to_numpy(np.float64))
    frame["tied"] = frame["p_holm"] <= LEVEL
    return frame.sort_values(["p_holm", "v"], ascending=[True, False], kind="stable", ignore_index=True)


def contingency(rows: NDArray[np.intp], columns: NDArray[np.intp], height: int, width: int) -> NDArray[np.int64]:
    """Return how often each pair of codes occurs."""
    return np.bincount(rows * width + columns, minlength=height * width).reshape(height, width).astype(np.int64)


def cramers_v(table: NDArray[np.int64]) -> float:
    """Return Cramér's V with the correction for small samples of Bergsma (2013)."""
    n, (height, width) = table.sum(), table.shape
    excess = max(0.0, float(_chi_squared(table[None])[0]) / n - (height - 1) * (width - 1) / (n - 1))
    sides = [side - (side - 1) ** 2 / (n - 1) for side in (height, width)]
    return float(np.sqrt(excess / max(min(sides) - 1, 1e-12)))


def permutation_p(table: NDArray[np.int64], permutations: int, rng: np.random.Generator) -> float:
    """Return how often shuffled labels give a χ² as large: tables with the same margins are drawn (Patefield 1981)."""
    from scipy.stats import random_table

    drawn = random_table(table.sum(axis=1), table.sum(axis=0)).rvs(permutations, random_state=rng)
    larger = _chi_squared(drawn.astype(np.int64)) >= _chi_squared(table[None])[0] - 1e-9
    return float((1 + larger.sum()) / (1 + permutations))


def _chi_squared(tables: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return χ² of each table, (tables,)."""
    expected = tables[0].sum(axis=1)[:, None] * tables[0].sum(axis=0)[None, :] / tables[0].sum()
    return np.asarray(((tables - expected) ** 2 / expected).sum(axis=(1, 2)), np.float64)


def _told(table: NDArray[np.int64]) -> float:
    """Return the share of images that the commonest label of the *other* images in the same row names rightly."""
    right = 0.0
    for row in table:
        for label in np.flatnonzero(row):
            others = row.copy()
            others[label] -= 1
            best = others == others.max()
            right += row[label] * float(best[label]) / best.sum() if others.max() else 0.0
    return right / float(table.sum())
