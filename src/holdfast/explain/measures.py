"""Measures of an attribution map against a mask, and of two maps against each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.core.types import Mask

Map = NDArray[np.float32]
"""HW, ≥ 0."""


@dataclass(frozen=True)
class MapFocus:
    """How much of a map lies on the object.

    Attributes:
        share: of the map's sum on the mask, 0..1.
        area: of the picture that the mask covers, 0..1: the share of a map that is the same everywhere.
        hit: whether the map's maximum is on the mask, by most of its pixels where there are several (pointing game,
            Zhang and others 2016).
    """

    share: float
    area: float
    hit: bool

    @property
    def ratio(self) -> float:
        """The share of the map on the object over the object's share of the picture: 1 is no preference."""
        return self.share / self.area


def look(heat: Map, mask: Mask) -> MapFocus | None:
    """Measure a map against a mask that is not empty; None for a map that is zero everywhere or not finite."""
    total = float(heat.sum(dtype=np.float64))
    if not np.isfinite(total) or total <= 0:
        return None
    share = float(heat[mask].sum(dtype=np.float64)) / total
    return MapFocus(min(share, 1.0), float(mask.mean()), bool(mask[heat == heat.max()].mean() > 0.5))


def rank_correlation(first_map: Map, second_map: Map) -> float:
    """Return Spearman's rank correlation of two maps over pixels; 0 where one is the same everywhere."""
    from scipy.stats import rankdata

    first, second = (rankdata(heat, axis=None) for heat in (first_map, second_map))
    first, second = first - first.mean(), second - second.mean()
    scale = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum() / scale) if scale > 0 else 0.0


def structural_similarity(first_map: Map, second_map: Map) -> float:
    """Return SSIM of two maps, each divided by its maximum."""
    import torch
    from torchmetrics.functional.image import structural_similarity_index_measure

    first, second = (
        torch.from_numpy(heat / max(float(heat.max()), 1e-12))[None, None].float() for heat in (first_map, second_map)
    )
    return float(structural_similarity_index_measure(first, second, data_range=1.0))  # type: ignore[arg-type]
