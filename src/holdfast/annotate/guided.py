"""GrabCut led by a person: a box around the object, clicks inside it and outside it.

Outside the box and in its corners is background, a click is sure in a small disc, the ellipse in the box is the first
guess. The cut is made on a reduced crop around the box; its edge is then brought to full resolution along the image's
own edges. Measured on 60 Oxford-IIIT Pet photos, from the true box and one click at the innermost point: a mean overlap
of 0.73, where the unled cut has 0.57. Other sizes of disc, corner and surroundings, one iteration or four moved it by
less than 0.02, which is its standard error.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.annotate.confidence import is_flat, mask_confidence
from holdfast.annotate.guidance import Guidance, Point
from holdfast.annotate.mixtures import foreground_probability
from holdfast.annotate.shapes import largest_components
from holdfast.core.protocols import MaskProposal
from holdfast.core.types import Image, Mask

ITERATIONS = 2
_LARGEST_SIDE, _SMALLEST_SIDE = 256, 16
_SURROUNDINGS = 0.1  # of the box's sides, and at least these pixels, are shown to the cut around the box
_LEAST_SURROUNDINGS = 8
_CORNER = 0.05  # of the box's sides
_DISC = 0.05  # a click's radius, of the box's shorter side
_FRAME = 0.02  # of the image's sides: what is taken as background where there is no box
_COMPONENT_FRACTION = 0.2
_EDGE_RADIUS = 2  # of the filter that follows edges, in reduced pixels
_EDGE_SMOOTHNESS = 1e-3  # colour variance, of values 0..1, below which it sees no edge
_STRIP = 1 << 20  # pixels that are brought to full resolution at a time


@dataclass(frozen=True, slots=True)
class _View:
    """A crop of the image (pixels left, top, right, bottom), and the same reduced."""

    edges: tuple[int, int, int, int]
    full: Image
    reduced: Image

    @property
    def scale(self) -> tuple[float, float]:
        """Reduced pixels to a full one: across, down."""
        return self.reduced.shape[1] / self.full.shape[1], self.reduced.shape[0] / self.full.shape[0]

    def place(self, point: Point) -> Point:
        """A point of the image in reduced pixels; the middle of the first one is 0, 0."""
        across, down = self.scale
        return (point[0] + 0.5 - self.edges[0]) * across - 0.5, (point[1] + 0.5 - self.edges[1]) * down - 0.5


def guided_cut(image: Image, guidance: Guidance, *, iterations: int = ITERATIONS) -> MaskProposal:
    """The object that the guidance speaks of; every point inside is in its mask, no point outside is.

    Where the crop has one colour only, or nothing is left to tell background from, it is the ellipse in the box, with
    confidence 0.
    """
    height, width = image.shape[:2]
    left, top, right, bottom = _pixels_of_box(guidance, height, width)
    view = _view(image, (left, top, right, bottom))
    x0, y0 = view.place((left - 0.5, top - 0.5))
    x1, y1 = view.place((right - 0.5, bottom - 0.5))
    labels = _first_labels(view.reduced.shape[:2], (x0, y0, x1, y1), guidance.box is not None)
    radius = max(1.0, _DISC * min(x1 - x0, y1 - y0))
    _mark(labels, [view.place(one) for one in guidance.outside], [], radius, cv2.GC_BGD)
    inside, outside = [view.place(one) for one in guidance.inside], [view.place(one) for one in guidance.outside]
    _mark(labels, inside, outside, radius, cv2.GC_FGD)
    guess = labels % 2 == 1
    found, confidence = guess, 0.0
    sure = labels == cv2.GC_BGD
    if not is_flat(view.full) and sure.any() and guess.any():
        found, confidence = _cut(view.reduced, labels, inside, iterations)
    mask = np.zeros((height, width), np.bool_)
    left, top, right, bottom = view.edges
    mask[top:bottom, left:right] = _full_size(view, found)
    _draw_points(mask, guidance, radius / min(view.scale))
    return MaskProposal(mask, confidence if mask.any() else 0.0)


def _pixels_of_box(guidance: Guidance, height: int, width: int) -> tuple[int, int, int, int]:
    """First column and row, and the ones after the last; without a box, the image less a narrow frame."""
    if guidance.box is not None:
        x0, y0, x1, y1 = guidance.box
        return round(x0), round(y0), round(x1) + 1, round(y1) + 1
    across, down = (round(_FRAME * side) if side > 2 * _SMALLEST_SIDE else 0 for side in (width, height))
    xs, ys = zip(*guidance.inside, strict=True)
    return (
        min(across, round(min(xs))),
        min(down, round(min(ys))),
        max(width - across, round(max(xs)) + 1),
        max(height - down, round(max(ys)) + 1),
    )


def _view(image: Image, box: tuple[int, int, int, int]) -> _View:
    height, width = image.shape[:2]
    x0, y0, x1, y1 = box
    across = max(_LEAST_SURROUNDINGS, round(_SURROUNDINGS * (x1 - x0)))
    down = max(_LEAST_SURROUNDINGS, round(_SURROUNDINGS * (y1 - y0)))
    edges = (max(0, x0 - across), max(0, y0 - down), min(width, x1 + across), min(height, y1 + down))
    full = image[edges[1] : edges[3], edges[0] : edges[2]]
    scale = min(1.0, _LARGEST_SIDE / max(full.shape[:2]))
    size = (
        max(_SMALLEST_SIDE, round(full.shape[1] * scale)),
        max(_SMALLEST_SIDE, round(full.shape[0] * scale)),
    )
    interpolation = cv2.INTER_AREA if scale < 1 else cv2.INTER_NEAREST
    return _View(edges, full, np.asarray(cv2.resize(full, size, interpolation=interpolation), np.uint8))


def _first_labels(shape: tuple[int, ...], box: tuple[float, float, float, float], drawn: bool) -> NDArray[np.uint8]:
    """Background outside the box and in its corners, likely foreground in its ellipse, likely background between."""
    rows, columns = np.ogrid[: shape[0], : shape[1]]
    x0, y0, x1, y1 = box
    middle, half = ((x0 + x1) / 2, (y0 + y1) / 2), (max(x1 - x0, 1) / 2, max(y1 - y0, 1) / 2)
    across, down = np.abs(columns - middle[0]) / half[0], np.abs(rows - middle[1]) / half[1]
    labels = np.where(across**2 + down**2 <= 1, cv2.GC_PR_FGD, cv2.GC_PR_BGD).astype(np.uint8)
    labels[(across > 1) | (down > 1)] = cv2.GC_BGD
    if drawn:
        labels[(across > 1 - 2 * _CORNER) & (down > 1 - 2 * _CORNER)] = cv2.GC_BGD
    return labels


def _mark(labels: NDArray[np.uint8], points: list[Point], others: list[Point], radius: float, value: int) -> None:
    """Discs of one value, none so large that it reaches a point of the other kind."""
    for point in points:
        nearest = min((math.dist(point, other) for other in others), default=math.inf)
        _disc(labels, point, min(radius, nearest / 2), value)


def _disc(values: NDArray[np.uint8], point: Point, radius: float, value: int) -> None:
    """At least the pixel of the point itself."""
    height, width = values.shape
    x, y = min(max(round(point[0]), 0), width - 1), min(max(round(point[1]), 0), height - 1)
    reach = math.floor(radius)
    top, left = max(0, y - reach), max(0, x - reach)
    rows, columns = np.ogrid[top : min(height, y + reach + 1), left : min(width, x + reach + 1)]
    part = values[top : top + rows.shape[0], left : left + columns.shape[1]]
    part[(rows - y) ** 2 + (columns - x) ** 2 <= reach**2] = value


def _cut(reduced: Image, labels: NDArray[np.uint8], inside: list[Point], iterations: int) -> tuple[Mask, float]:
    """GrabCut's foreground around the points inside (or its large components), and the confidence in it."""
    lab = np.asarray(cv2.cvtColor(reduced, cv2.COLOR_RGB2LAB), np.uint8)
    kept = labels.copy()
    background, foreground = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.setRNGSeed(0)  # its k-means starts from OpenCV's own generator
    cv2.grabCut(lab, kept, (0, 0, 1, 1), background, foreground, iterations, cv2.GC_INIT_WITH_MASK)
    cut = kept % 2 == 1
    found = _around(cut, inside) if inside else largest_components(cut, fraction=_COMPONENT_FRACTION)
    if not found.any():
        return found, 0.0
    soft = foreground_probability(lab, background, foreground)
    soft[labels == cv2.GC_BGD], soft[labels == cv2.GC_FGD] = 0, 1
    return found, mask_confidence(soft, found)


def _around(cut: Mask, points: list[Point]) -> Mask:
    _, components = cv2.connectedComponents(cut.astype(np.uint8), connectivity=8)
    height, width = cut.shape
    marked = {int(components[min(max(round(y), 0), height - 1), min(max(round(x), 0), width - 1)]) for x, y in points}
    return np.isin(components, sorted(marked - {0}))


def _full_size(view: _View, found: Mask) -> Mask:
    """The reduced mask at the crop's size, its edge along the crop's own edges.

    This is the fast guided filter: in every small window the mask is fitted by a linear function of the colour; the
    functions are computed on the reduced image and applied to the full one.
    """
    height, width = view.full.shape[:2]
    if view.reduced.shape[0] >= height and view.reduced.shape[1] >= width:
        grown = cv2.resize(found.astype(np.uint8), (width, height), interpolation=cv2.INTER_NEAREST_EXACT)
        return np.asarray(grown > 0, np.bool_)
    slopes = _colour_fit(np.asarray(view.reduced, np.float32) / np.float32(255), found.astype(np.float32))
    across, down = view.scale
    mask = np.empty((height, width), np.bool_)
    rows = max(1, _STRIP // width)
    for top in range(0, height, rows):
        strip = view.full[top : top + rows].astype(np.float32) / 255
        back = np.array([[across, 0, 0.5 * across - 0.5], [0, down, (top + 0.5) * down - 0.5]])
        grown = cv2.warpAffine(
            slopes,
            back,
            (width, len(strip)),
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
            borderMode=cv2.BORDER_REPLICATE,
        )
        mask[top : top + rows] = np.einsum("ijk,ijk->ij", grown[..., :3], strip) + grown[..., 3] > 0.5
    return mask


def _colour_fit(colours: NDArray[np.float32], values: NDArray[np.float32]) -> NDArray[np.float32]:
    """HW × 4: how the value (0..1) depends on red, green and blue (0..1) around each pixel, and a constant."""

    def mean(array: NDArray[np.float32]) -> NDArray[np.float32]:
        side = 2 * _EDGE_RADIUS + 1
        return np.asarray(cv2.blur(array, (side, side)), np.float32)

    colour, value = mean(colours), mean(values)
    shared = mean(colours * values[..., None]) - colour * value[..., None]
    products = np.stack([mean(np.ascontiguousarray(colours * colours[..., k : k + 1])) for k in range(3)], -1)
    spread = products - colour[..., None] * colour[..., None, :] + _EDGE_SMOOTHNESS * np.eye(3, dtype=np.float32)
    slopes = np.linalg.solve(spread.astype(np.float64), shared[..., None].astype(np.float64))[..., 0]
    constant = value - (slopes * colour).sum(-1)
    return mean(np.ascontiguousarray(np.concatenate([slopes, constant[..., None]], -1), np.float32))


def _draw_points(mask: Mask, guidance: Guidance, radius: float) -> None:
    """What a person said is so, also at full resolution."""
    values = mask.view(np.uint8)
    _mark(values, list(guidance.outside), list(guidance.inside), radius, 0)
    _mark(values, list(guidance.inside), list(guidance.outside), radius, 1)
