"""OpenCV's GrabCut, started from a centred box: everything outside the box is background; or led by a person."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.annotate.confidence import (
    Box,
    Guidance,
    Point,
    checked_guidance,
    is_flat,
    largest_components,
    mask_confidence,
    nothing,
    numbers,
    spelled,
)
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name
from holdfast.core.protocols import MaskProposal
from holdfast.core.types import Image, Mask


def foreground_probability(
    image: Image, background: NDArray[np.float64], foreground: NDArray[np.float64]
) -> NDArray[np.float32]:
    """Return the probability, 0..1, that each pixel's colour comes from the foreground's colour model."""
    colours = image.reshape(-1, 3).astype(np.float64)
    difference = _log_likelihood(background, colours) - _log_likelihood(foreground, colours)
    probability = 1 / (1 + np.exp(np.clip(difference, -50, 50)))
    return probability.reshape(image.shape[:2]).astype(np.float32)


def _log_likelihood(model: NDArray[np.float64], colours: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the log likelihood of colours (n, 3) under OpenCV's Gaussian mixture (one row of 65 numbers)."""
    weights, means, covariances = model[0, :5], model[0, 5:20].reshape(5, 3), model[0, 20:].reshape(5, 3, 3)
    total = np.full(len(colours), -1e3)  # a floor, so that colours neither model knows count as undecided
    for weight, mean, covariance in zip(weights, means, covariances, strict=True):
        if weight <= 0:
            continue
        regular = covariance + 0.01 * np.eye(3)
        offset = colours - mean
        distance = np.einsum("ni,ij,nj->n", offset, np.linalg.inv(regular), offset, optimize=True)
        total = np.logaddexp(total, np.log(weight) - 0.5 * (distance + np.linalg.slogdet(regular)[1]))
    return total


ITERATIONS = 2
_LARGEST_SIDE, _SMALLEST_SIDE = 256, 16
_SURROUNDINGS = 0.1  # of the box's sides, and at least these pixels, are shown to the cut around the box
_LEAST_SURROUNDINGS = 8
_CORNER = 0.05  # of the box's sides
_DISC = 0.05  # a click's radius, of the box's shorter side
_FRAME = 0.02  # of the image's sides: what is taken as background if there is no box
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
        """The number of reduced pixels per full pixel: across, down."""
        return self.reduced.shape[1] / self.full.shape[1], self.reduced.shape[0] / self.full.shape[0]

    def place(self, point: Point) -> Point:
        """Return a point of the image in reduced pixels; the middle of the first pixel is 0, 0."""
        across, down = self.scale
        return (point[0] + 0.5 - self.edges[0]) * across - 0.5, (point[1] + 0.5 - self.edges[1]) * down - 0.5


def guided_cut(image: Image, guidance: Guidance) -> MaskProposal:
    """Return the mask that the guidance marks, with all points inside, none outside; an ellipse has confidence 0."""
    height, width = image.shape[:2]
    left, top, right, bottom = _pixels_of_box(guidance, height, width)
    view = _view(image, (left, top, right, bottom))
    x0, y0 = view.place((left - 0.5, top - 0.5))
    x1, y1 = view.place((right - 0.5, bottom - 0.5))
    labels = _first_labels(view.reduced.shape[:2], (x0, y0, x1, y1), guidance.box is not None)
    radius = max(1.0, _DISC * min(x1 - x0, y1 - y0))
    _mark(labels, [view.place(point) for point in guidance.outside], [], radius, cv2.GC_BGD)
    inside, outside = ([view.place(point) for point in part] for part in (guidance.inside, guidance.outside))
    _mark(labels, inside, outside, radius, cv2.GC_FGD)
    guess = labels % 2 == 1
    reduced_mask, confidence = guess, 0.0
    sure = labels == cv2.GC_BGD
    if not is_flat(view.full) and sure.any() and guess.any():
        reduced_mask, confidence = _cut(view.reduced, labels, inside)
    mask = np.zeros((height, width), np.bool_)
    left, top, right, bottom = view.edges
    mask[top:bottom, left:right] = _full_size(view, reduced_mask)
    values, radius = mask.view(np.uint8), radius / min(view.scale)
    _mark(values, list(guidance.outside), list(guidance.inside), radius, 0)
    _mark(values, list(guidance.inside), list(guidance.outside), radius, 1)
    return MaskProposal(mask, confidence if mask.any() else 0.0)


def _pixels_of_box(guidance: Guidance, height: int, width: int) -> tuple[int, int, int, int]:
    """Return first column and row, and those after the last; without a box, the image less a narrow frame."""
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
    size = (max(_SMALLEST_SIDE, round(full.shape[1] * scale)), max(_SMALLEST_SIDE, round(full.shape[0] * scale)))
    interpolation = cv2.INTER_AREA if scale < 1 else cv2.INTER_NEAREST
    return _View(edges, full, np.asarray(cv2.resize(full, size, interpolation=interpolation), np.uint8))


def _first_labels(shape: tuple[int, ...], box: tuple[float, float, float, float], drawn: bool) -> NDArray[np.uint8]:
    """Label the box's outside and corners as background, its ellipse as likely foreground, the rest as unlikely."""
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
    """Draw discs of one value, none so large that it reaches a point of the other kind."""
    height, width = labels.shape
    for point in points:
        nearest = min((math.dist(point, other) for other in others), default=math.inf)
        x, y = min(max(round(point[0]), 0), width - 1), min(max(round(point[1]), 0), height - 1)
        reach = math.floor(min(radius, nearest / 2))
        top, left = max(0, y - reach), max(0, x - reach)
        rows, columns = np.ogrid[top : min(height, y + reach + 1), left : min(width, x + reach + 1)]
        part = labels[top : top + rows.shape[0], left : left + columns.shape[1]]
        part[(rows - y) ** 2 + (columns - x) ** 2 <= reach**2] = value


def _cut(reduced: Image, labels: NDArray[np.uint8], inside: list[Point]) -> tuple[Mask, float]:
    """Return GrabCut's foreground around the points inside (or its large components), and the confidence in it."""
    lab = np.asarray(cv2.cvtColor(reduced, cv2.COLOR_RGB2LAB), np.uint8)
    kept = labels.copy()
    background, foreground = np.zeros((1, 65)), np.zeros((1, 65))
    cv2.setRNGSeed(0)  # its k-means starts from OpenCV's own generator
    cv2.grabCut(lab, kept, (0, 0, 1, 1), background, foreground, ITERATIONS, cv2.GC_INIT_WITH_MASK)
    cut = kept % 2 == 1
    mask = _around(cut, inside) if inside else largest_components(cut, fraction=_COMPONENT_FRACTION)
    if not mask.any():
        return mask, 0.0
    soft = foreground_probability(lab, background, foreground)
    soft[labels == cv2.GC_BGD], soft[labels == cv2.GC_FGD] = 0, 1
    return mask, mask_confidence(soft, mask)


def _around(cut: Mask, points: list[Point]) -> Mask:
    _, components = cv2.connectedComponents(cut.astype(np.uint8), connectivity=8)
    height, width = cut.shape
    marked = {int(components[min(max(round(y), 0), height - 1), min(max(round(x), 0), width - 1)]) for x, y in points}
    return np.isin(components, sorted(marked - {0}))


def _full_size(view: _View, reduced_mask: Mask) -> Mask:
    """Enlarge the reduced mask to the crop by the fast guided filter, so that its edge follows the image's edges."""
    height, width = view.full.shape[:2]
    if view.reduced.shape[0] >= height and view.reduced.shape[1] >= width:
        grown = cv2.resize(reduced_mask.astype(np.uint8), (width, height), interpolation=cv2.INTER_NEAREST_EXACT)
        return np.asarray(grown > 0, np.bool_)
    slopes = _colour_fit(np.asarray(view.reduced, np.float32) / np.float32(255), reduced_mask.astype(np.float32))
    across, down = view.scale
    mask = np.empty((height, width), np.bool_)
    rows = max(1, _STRIP // width)
    for top in range(0, height, rows):
        strip = view.full[top : top + rows].astype(np.float32) / 255
        back = np.array([[across, 0, 0.5 * across - 0.5], [0, down, (top + 0.5) * down - 0.5]])
        size, way = (width, len(strip)), cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        grown = cv2.warpAffine(slopes, back, size, flags=way, borderMode=cv2.BORDER_REPLICATE)
        mask[top : top + rows] = np.einsum("ijk,ijk->ij", grown[..., :3], strip) + grown[..., 3] > 0.5
    return mask


def _colour_fit(colours: NDArray[np.float32], values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Fit the value (0..1) by red, green, blue and a constant around each pixel; return the coefficients, HW × 4."""

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


# Chosen on 40 Oxford-IIIT Pet images, by mean overlap: a margin of 0.02 gave 0.60, 0.1 gave 0.48; five iterations or a
# working side of 400 instead of 256 gained less than 0.01, the larger side at nearly three times the time.
_DEFAULTS: dict[str, int | float] = {"margin": 0.02, "iterations": 3}


@dataclass
class GrabCut:
    """GrabCut as a mask maker; ``margin`` is the share of width and height left outside the box on each side."""

    name: str
    fingerprint: str
    margin: float
    iterations: int

    def propose(self, image: Image) -> MaskProposal:
        """Return the components of GrabCut's foreground that are at least a fifth as large as its largest."""
        if is_flat(image):
            return nothing(image)
        height, width = image.shape[:2]
        # The colour models need samples: tiny images are enlarged, each side by itself, as large ones are reduced.
        scale = min(1.0, _LARGEST_SIDE / max(height, width))
        size = (max(_SMALLEST_SIDE, round(width * scale)), max(_SMALLEST_SIDE, round(height * scale)))
        interpolation = cv2.INTER_AREA if scale < 1 else cv2.INTER_NEAREST
        working = np.asarray(cv2.resize(image, size, interpolation=interpolation), np.uint8)
        labels, background, foreground = self._cut(working)
        components = largest_components(labels == cv2.GC_PR_FGD, fraction=_COMPONENT_FRACTION)
        if not components.any():
            return nothing(image)
        soft = foreground_probability(working, background, foreground)
        mask = cv2.resize(components.astype(np.float32), (width, height), interpolation=cv2.INTER_LINEAR) > 0.5
        return MaskProposal(mask, mask_confidence(soft, components) if mask.any() else 0.0)

    def embed(self, image: Image) -> Image:
        """Return the image itself: everything GrabCut computes depends on the guidance."""
        return image

    def guided(
        self, embedding: Image, *, box: Box | None = None, inside: Sequence[Point] = (), outside: Sequence[Point] = ()
    ) -> MaskProposal:
        """Return the mask of the object that box and points mark; ``margin`` and ``iterations`` are not used."""
        height, width = embedding.shape[:2]
        return guided_cut(embedding, checked_guidance(height, width, box, inside, outside))

    def _cut(self, image: Image) -> tuple[NDArray[np.uint8], NDArray[np.float64], NDArray[np.float64]]:
        height, width = image.shape[:2]
        across, down = max(1, round(width * self.margin)), max(1, round(height * self.margin))
        box = (across, down, width - 2 * across, height - 2 * down)
        labels = np.zeros((height, width), np.uint8)
        background, foreground = np.zeros((1, 65)), np.zeros((1, 65))
        cv2.setRNGSeed(0)  # its k-means starts from OpenCV's own generator
        cv2.grabCut(image, labels, box, background, foreground, self.iterations, cv2.GC_INIT_WITH_RECT)
        return labels, background, foreground


def load(name: Name) -> GrabCut:
    """Load ``grabcut`` or ``grabcut?margin=0.1&iterations=5``."""
    options = numbers(name, _DEFAULTS, {"margin": (0, 0.45), "iterations": (1, 50)})
    identity = fingerprint(["grabcut", 1, options, cv2.__version__])
    return GrabCut(spelled("grabcut", options, _DEFAULTS), identity, options["margin"], options["iterations"])
