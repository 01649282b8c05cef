"""Measures of an attribution map against a mask and another map, and the map drawn over its image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.lazy import torch
from holdfast.core.types import Image, Mask

Map = NDArray[np.float32]  # HW, ≥ 0


@dataclass(frozen=True)
class MapFocus:
    """How much of a map is on the object."""

    share: float  # of the map's sum on the mask, 0..1
    area: float  # of the image that the mask covers, 0..1: the share of a map that is the same everywhere
    # whether the map's maximum is on the mask, by most of its pixels if there are several (pointing game,
    # Zhang and others 2016)
    hit: bool

    @property
    def ratio(self) -> float:
        """The share of the map on the object over the object's share of the image: 1 means no preference."""
        return self.share / self.area


def look(heat: Map, mask: Mask) -> MapFocus | None:
    """Measure a map against a mask that is not empty; None for a map that is zero everywhere or not finite."""
    total = float(heat.sum(dtype=np.float64))
    if not np.isfinite(total) or total <= 0:
        return None
    share = float(heat[mask].sum(dtype=np.float64)) / total
    return MapFocus(min(share, 1.0), float(mask.mean()), bool(mask[heat == heat.max()].mean() > 0.5))


def rank_correlation(first_map: Map, second_map: Map) -> float:
    """Return Spearman's rank correlation of two maps over pixels; 0 if one is the same everywhere."""
    from scipy.stats import rankdata

    first, second = (rankdata(heat, axis=None) for heat in (first_map, second_map))
    first, second = first - first.mean(), second - second.mean()
    scale = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum() / scale) if scale > 0 else 0.0


def structural_similarity(first_map: Map, second_map: Map) -> float:
    """Return SSIM of two maps, each divided by its maximum."""
    from torchmetrics.functional.image import structural_similarity_index_measure

    first, second = (
        torch.from_numpy(heat / max(float(heat.max()), 1e-12))[None, None].float() for heat in (first_map, second_map)
    )
    return float(structural_similarity_index_measure(first, second, data_range=1.0))  # type: ignore[arg-type]


SIDE = 176  # pixels of the longer side
STRENGTH = 0.72


def overlay(picture: Image, heat: Map, mask: Mask, *, side: int = SIDE) -> Image:
    """Return the image, pale where the map is low, coloured where high, with the mask's edge white within black."""
    scale = side / max(picture.shape[:2])
    size = (max(1, round(picture.shape[1] * scale)), max(1, round(picture.shape[0] * scale)))
    how = cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC
    shown: Any = cv2.resize(picture, size, interpolation=how).astype(np.float32)
    # Single pixels, as integrated gradients mark them, would be too small to see.
    spread = cv2.GaussianBlur(np.asarray(heat, np.float32), (0, 0), max(heat.shape) / 60)
    peak = float(np.percentile(spread, 99.5)) or float(spread.max())
    level = np.clip(spread / max(peak, 1e-12), 0, 1).astype(np.float32)
    level = np.clip(cv2.resize(level, size, interpolation=cv2.INTER_LINEAR), 0, 1)
    colours = cv2.cvtColor(cv2.applyColorMap((level * 255).astype(np.uint8), cv2.COLORMAP_INFERNO), cv2.COLOR_BGR2RGB)
    grey = shown.mean(axis=2, keepdims=True) * 0.5 + shown * 0.5
    weight = STRENGTH * level[..., None]
    mixed = np.ascontiguousarray(np.clip(grey * (1 - weight) + colours * weight, 0, 255).astype(np.uint8))
    outline = cv2.resize(mask.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST)
    edges, _ = cv2.findContours(outline, cv2.RETR_LIST, cv2.CHAIN_APPROX_NONE)
    cv2.drawContours(mixed, edges, -1, (0, 0, 0), 2, cv2.LINE_AA)
    cv2.drawContours(mixed, edges, -1, (255, 255, 255), 1, cv2.LINE_AA)
    return np.asarray(mixed, np.uint8)
