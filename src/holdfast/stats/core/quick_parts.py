"""Classes and photos of one model's rows, in milliseconds: what a board shows beside scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from holdfast.stats.core.bootstrap import Floats
from holdfast.stats.core.cells import wilson_at
from holdfast.stats.core.quick import Rows, Z
from holdfast.stats.core.quick_score import Design

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ClassAccuracies:
    """Accuracy of every class under every condition, (conditions, classes); NaN where ``n`` is 0."""

    conditions: list[str]
    classes: list[str]
    n: Floats
    accuracy: Floats
    low: Floats
    high: Floats


def class_accuracies(rows: Rows) -> ClassAccuracies:
    """As ``cells.accuracy``: Wilson's interval, on an effective number where a photo has several rows."""
    shape = (len(rows.conditions), len(rows.labels))
    cell = rows.condition * np.intp(shape[1]) + rows.label
    size = shape[0] * shape[1]
    n = np.bincount(cell, minlength=size).astype(np.float64)
    right = np.bincount(cell, rows.right, size)
    share = np.divide(right, n, out=np.full(size, np.nan), where=n > 0)
    pairs, photo = np.unique(cell * np.intp(len(rows.sources)) + rows.source, return_inverse=True)
    of_photo = pairs // len(rows.sources)
    photos = np.bincount(of_photo, minlength=size)
    effect = np.ones(size)
    if (n > photos).any():
        strayed = np.bincount(photo, rows.right - share[cell])
        variance = np.bincount(of_photo, strayed**2, size) * photos / np.maximum(photos - 1, 1)
        expected = np.nan_to_num(n * share * (1 - share))
        several = np.divide(n, photos, out=np.ones(size), where=photos > 0)
        ratio = np.divide(variance, expected, out=several.copy(), where=expected > 0)
        effect = np.where(n > photos, np.where(expected > 0, np.maximum(ratio, 1.0), several), 1.0)
    low, high = np.full(size, np.nan), np.full(size, np.nan)
    there = n > 0
    low[there], high[there] = wilson_at(share[there] * (n / effect)[there], (n / effect)[there], Z)
    return ClassAccuracies(rows.conditions, rows.labels, *(one.reshape(shape) for one in (n, share, low, high)))


def score_influence(design: Design) -> dict[str, Floats]:
    """What each photo adds to the deviation of a score from the truth, (photos,), to first order."""
    moved = design.influence[:, :1]
    score = np.zeros(len(moved))
    for part in (design.cross, design.inner):
        if part:
            gap = design.accuracy[part] - design.accuracy[0]
            score -= 2 * ((design.influence[:, part] - moved) @ gap) / len(part)
    return {
        "robustness_score": score,
        "accuracy": design.influence[:, 0],
        "mean_accuracy": design.influence[:, design.cross].mean(axis=1),
    }


def pooled_influence(rows: Rows) -> Floats:
    """(sources,) the same for the accuracy over all rows, every class alike."""
    n = np.bincount(rows.label, minlength=len(rows.labels)).astype(np.float64)
    share = np.bincount(rows.label, rows.right, len(n)) / np.maximum(n, 1)
    noise = (rows.right - share[rows.label]) / (n[rows.label] * (n > 0).sum())
    return np.bincount(rows.source, noise, len(rows.sources)).astype(np.float64)


def walk_influence(walks: pd.DataFrame) -> tuple[list[str], dict[str, Floats]]:
    """The same for walks: sources, and (sources,) for FMR and its parts; empty where there is no FMR."""
    from holdfast.stats.walks.fmr_ranking import fmr_influence

    right, validated = (walks[name].to_numpy(np.float64) for name in ("right_original", "validated"))
    sources, code = np.unique(walks["source_id"].to_numpy(str), return_inverse=True)
    if not right.any() or not validated.any():
        return list(sources), {}
    survived = validated * np.nan_to_num(walks["right_perturbed"].to_numpy(np.float64))
    parts = {
        "standard_accuracy": (right - right.mean()) / len(right),
        "perturbed_accuracy": (survived - survived.sum() / validated.sum() * validated) / validated.sum(),
        "validation_rate": (validated - validated.mean()) / len(validated),
    }
    summed = {name: np.bincount(code, one, len(sources)).astype(np.float64) for name, one in parts.items()}
    return list(sources), {"fmr": fmr_influence(walks)} | summed
