"""Draw an attribution map over its picture, with the mask outlined."""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np

from holdfast.core.types import Image, Mask
from holdfast.explain.measures import Map

SIDE = 176
"""Pixels of the longer side."""

STRENGTH = 0.72


def overlay(picture: Image, heat: Map, mask: Mask, *, side: int = SIDE) -> Image:
    """Return the picture, pale where the map is low and coloured where it is high, with the mask's edge.

    The edge is white within black, so that it shows on any colour.
    """
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
