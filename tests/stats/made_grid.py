"""Counts with known truth, straight from arrays: photos × models × conditions."""

from __future__ import annotations

import numpy as np
import pandas as pd

from holdfast.stats.core.grid import AnswerGrid
from holdfast.stats.core.reduce import Counts


def counts_of(
    right: np.ndarray, *, classes: int = 1, n: np.ndarray | None = None, errors: dict | None = None
) -> Counts:
    """Counts of ``right`` (photos, models, conditions), NaN for no answer; photo s has class s modulo ``classes``.

    Models are ``m00`` …, conditions ``original``, ``c1`` …; ``errors`` maps (model, condition) to failed rows.
    """
    photos, models, conditions = right.shape
    s, m, c = (index.reshape(-1) for index in np.indices(right.shape))
    names = ["original", *(f"c{i}" for i in range(1, conditions))]
    rows = np.ones(right.shape, int) if n is None else n
    answered = ~np.isnan(right.reshape(-1))
    hits = np.nan_to_num(right).astype(int).reshape(-1)
    cells = pd.DataFrame(
        {
            "model": np.array([f"m{i:02}" for i in range(models)], object)[m],
            "trained_on": "",
            "kind": "static",
            "condition": np.array(names, object)[c],
            "label": np.array([f"class{i}" for i in range(classes)], object)[s % classes],
            "source_id": np.array([f"photo{i:05}" for i in range(photos)], object)[s],
            "n": rows.reshape(-1),
            "right": hits,
            "right_restricted": hits,
        }
    )[answered].reset_index(drop=True)
    trouble = pd.DataFrame(
        [(model, condition, "error", "broken", count, "x") for (model, condition), count in (errors or {}).items()],
        columns=["model", "condition", "status", "error", "n", "example"],
    )
    empty = pd.DataFrame()
    return Counts(
        cells, empty, empty, trouble, {}, sorted(cells["model"].unique()), names, sorted(cells["label"].unique())
    )


def grid_of(right: np.ndarray, *, classes: int = 1) -> AnswerGrid:
    """The same as a grid, without the way through tables: for simulations."""
    photos, models, conditions = right.shape
    names = ["original", *(f"c{i}" for i in range(1, conditions))]
    n = (~np.isnan(right)).astype(float)
    sources = np.array([f"photo{i:05}" for i in range(photos)], object)
    return AnswerGrid(
        np.nan_to_num(right), n, np.arange(photos) % classes, sources, [f"m{i:02}" for i in range(models)], names
    )


def clustered(logits: np.ndarray, photos: int, spread: float, rng: np.random.Generator) -> np.ndarray:
    """Right answers (photos, models, conditions): ``logits`` (models, conditions) plus an effect of each photo.

    Photo effects move along the quantiles of the answers, so that every cell keeps its own marginal probability: the
    answers share a normal copula with correlation spread²/(1 + spread²).
    """
    from scipy.stats import norm

    shared = spread * rng.normal(size=(photos, 1, 1)) + rng.normal(size=(photos, *logits.shape))
    return (norm.cdf(shared / np.sqrt(1 + spread**2)) < 1 / (1 + np.exp(-logits))).astype(float)
