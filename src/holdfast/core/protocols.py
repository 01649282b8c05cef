"""Protocols of plugins, and the objects and boxes that detectors are asked about.

The pipeline validates, clips, batches and records; a plugin does only its own part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from holdfast.core.types import Donor, Image, LabelSpace, Mask, MaskSource, Rendered


class Context(Protocol):
    """What a scenario may ask for other than its own image and mask."""

    label: str

    def donor(self, *, same_class: bool, draw: int = 0) -> Donor:
        """Return another image of the collection or of ``--backgrounds``; raises SampleError if there is none.

        Every scenario that asks with the same ``same_class`` gets the same donor for an image: they stay comparable.
        From 1 on, ``draw`` is a place in a list that all images share; an image skips donors that are not for it.
        """

    def shared(self, number: int) -> Donor:
        """Return the background with this number, from 1; it is the same for every image."""

    def paint(self, image: Image, mask: Mask) -> Rendered:
        """Return the image in surroundings that ``--generator`` made, of the same size, and facts worth recording.

        What the mask marks may have changed; SampleError when nothing came out. Conditions of one image share it.
        """

    def style(self) -> Donor:
        """Return an image of ``--styles``, or a donor of another class; SampleError if there is none."""

    def stylise(self, image: Image, style: Image, strength: float) -> Image:
        """Return the image with the style's texture, from 0 (none) to 1; SampleError without ``--stylist``."""

    def fill(self, image: Image, mask: Mask) -> Image | None:
        """Return the image with the object and a thin rim painted over by ``--fill``; None without it.

        Every other pixel is kept.
        """

    def target(self, mask: Mask) -> tuple[str, Mask]:
        """Return the name and the pixels of the object that conditions about one object are about.

        The same for all of them; '' and ``mask`` itself if the dataset has no separate objects.
        """

    def memo(self, key: object, make: Callable[[], Any]) -> Any:
        """Return ``make()``, computed once for this source image and shared by its conditions (a blurred copy, say)."""


@runtime_checkable
class Classifier(Protocol):
    """A model under test. It owns all of its preprocessing.

    ``fingerprint`` changes whenever the weights, the preprocessing or the outputs do.
    """

    name: str
    labels: LabelSpace
    fingerprint: str

    def predict(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Return probabilities, (n, labels), for RGB images of any sizes. Batching must not change them."""


class ImageEncoder(Protocol):
    """A model that returns an embedding of each image. ``fingerprint`` changes whenever the embeddings could."""

    name: str
    fingerprint: str

    def predict(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Return the embeddings, (n, width), of RGB images of any sizes. Batching must not change them."""


@runtime_checkable
class StagedClassifier(Classifier, Protocol):
    """A classifier whose preprocessing can run in other threads while the model computes."""

    def prepare(self, image: Image) -> Any:
        """Return one image, preprocessed; safe to call from several threads."""

    def predict_prepared(self, prepared: Sequence[Any]) -> NDArray[np.float32]:
        """Return what ``predict`` would for images that went through ``prepare``."""


@runtime_checkable
class DifferentiableClassifier(Classifier, Protocol):
    """A classifier whose logits can be differentiated."""

    device: str

    def logits(self, batch: Any) -> Any:
        """Return logits (n, labels) of an RGB tensor NCHW in 0..1 of any size; gradients reach the batch."""


@runtime_checkable
class Segmenter(Protocol):
    """A model that gives every pixel a class. ``fingerprint`` changes whenever its answers could."""

    name: str
    labels: LabelSpace
    fingerprint: str

    def segment(self, images: Sequence[Image]) -> list[NDArray[np.uint8]]:
        """Return a class map, HW, for each RGB image of any size: places in ``labels``, so at most 256 of them."""


class Refusal(str):
    """An answer that a server marks as a refusal in a field of its own, whatever its words are."""

    __slots__ = ()


@runtime_checkable
class VisionLanguageModel(Protocol):
    """A model that answers questions about images in words. ``fingerprint`` changes whenever its answers could."""

    name: str
    fingerprint: str

    def answer(self, images: Sequence[Image], questions: Sequence[str]) -> list[str]:
        """Return one answer each, always the likeliest words (greedy); batching must not change them.

        Raises SampleError if one of them cannot be answered. One that has an attribute ``concurrency`` is asked one
        question at a time, so many at once.
        """


@dataclass(frozen=True, slots=True)
class MaskProposal:
    """An automatic mask and how far to trust it, 0..1."""

    mask: Mask
    confidence: float


class Annotator(Protocol):
    """A mask maker. ``fingerprint`` changes whenever its masks could."""

    name: str
    fingerprint: str

    def propose(self, image: Image) -> MaskProposal:
        """Return the foreground of an RGB image of any size."""


@runtime_checkable
class GuidedAnnotator(Protocol):
    """A mask maker that a person leads with a box and points. ``fingerprint`` changes whenever its masks could.

    Pixel coordinates: x to the right, y down, the middle of the first pixel at 0, 0.
    """

    name: str
    fingerprint: str

    def embed(self, image: Image) -> Any:
        """Compute what all guidance on one RGB image shares; the caller keeps it and does not change it."""

    def guided(
        self,
        embedding: Any,
        *,
        box: tuple[float, float, float, float] | None = None,
        inside: Sequence[tuple[float, float]] = (),
        outside: Sequence[tuple[float, float]] = (),
    ) -> MaskProposal:
        """Return the object in the box (x0, y0, x1, y1), or at the points inside; never the points outside.

        The mask has the image's size. UserError if the guidance makes no sense: neither box nor a point inside, or
        some of it not in the image.
        """


@runtime_checkable
class LatentGenerator(Protocol):
    """Images to a latent and back, differentiable. ``fingerprint`` changes whenever its images could."""

    name: str
    fingerprint: str

    def encode(self, batch: Any) -> Any:
        """Return the latent tensor of an RGB tensor NCHW in 0..1; its first axis counts the images."""

    def decode(self, latent: Any, original: Any = None) -> Any:
        """Return the RGB tensor NCHW in 0..1 of a latent tensor; gradients reach the latent.

        ``original`` is the batch that was encoded, for generators that change an image rather than make one.
        """


@runtime_checkable
class TextToImage(Protocol):
    """Prompts to images. An image depends on its own prompt and seed, never on its neighbours."""

    name: str
    fingerprint: str

    def generate(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[Image]:
        """Return one RGB image per prompt."""


@runtime_checkable
class Inpainter(Protocol):
    """New surroundings for what a mask marks."""

    name: str
    fingerprint: str

    def inpaint(
        self, prompts: Sequence[str], seeds: Sequence[int], images: Sequence[Image], masks: Sequence[Mask]
    ) -> list[Image]:
        """Return one RGB image each, of the input's size; pixels in the mask are the input's, bit for bit."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an oracle says of an image and the class it should show.

    Attributes:
        accepted: whether the image still shows the class.
        score: the oracle's probability of the class, 0..1.
        margin: ``score`` less the probability of the likeliest other class, -1..1.
        saw: the class it took the image for.
        reason: '' or, in a few words, why it rejected.
    """

    accepted: bool
    score: float
    margin: float
    saw: str
    reason: str = ""


@runtime_checkable
class Oracle(Protocol):
    """Who decides whether an image still shows its class. ``classes`` are the dataset's, in its order.

    One that has a method ``knows(images, labels) -> list[bool]`` can say nothing of the other images (people, who
    judged some); those are then left out rather than counted as rejected.
    """

    name: str
    fingerprint: str
    classes: tuple[str, ...]

    def judge(self, images: Sequence[Image], labels: Sequence[str]) -> list[Verdict]:
        """Return one verdict per RGB image of any size; batching must not change it."""


@runtime_checkable
class TensorOracle(Oracle, Protocol):
    """An oracle that judges a batch on its device, so that a walk need not copy it."""

    def judge_batch(self, batch: Any, labels: Any) -> tuple[Any, Any, Any, Any]:
        """Judge an RGB tensor NCHW in 0..1 and places in ``classes``: accepted, score, margin, place of what it saw."""


FOUND_IOU = 0.5  # IoU from which on a prediction stands for an object
MOST_PREDICTIONS = 300  # predictions that are kept of one image, the best first
LEAST_SCORE = 0.01  # predictions of a lower score are not kept
MOST_OBJECTS = 10_000  # objects of one image; an image with more is an error

SMALL, LARGE = 32**2, 96**2
"""Areas in pixels: small objects lie below the first, large ones from the second on, as in COCO."""

Boxes = NDArray[np.floating[Any]]
"""(n, 4): x1, y1, x2, y2 in pixels; x to the right, y down, the corner of the first pixel at 0, 0."""


@dataclass(frozen=True, slots=True)
class TrueObject:
    """One object of an image."""

    object_id: str  # unique in its image
    label: str  # its class
    box: tuple[float, float, float, float]  # x1, y1, x2, y2 in pixels
    mask: MaskSource | None = None  # its pixels, or None if only the box is known
    area: float = 0.0  # in pixels; 0 stands for the box's area
    crowd: bool = False  # whether the box holds a group that no one counted
    mask_made: bool = False  # whether an annotator made the mask from the box
    problem: str = ""  # why the annotation cannot be used, or ''

    def pixels(self, height: int, width: int) -> Mask:
        """Return the object's pixels, HW bool: its mask, or its whole box if there is none."""
        if self.mask is not None:
            return self.mask.load(height, width)
        mask = np.zeros((height, width), np.bool_)
        x1, y1, x2, y2 = self.box
        mask[math.floor(y1) : math.ceil(y2), math.floor(x1) : math.ceil(x2)] = True
        return mask


@runtime_checkable
class ObjectsSource(Protocol):
    """The objects of one image: small, picklable, masks not decoded yet."""

    def fingerprint(self) -> str:
        """Return a hash of all boxes, labels and masks. Raises SampleError if they cannot be read."""

    def load(self, height: int, width: int) -> tuple[TrueObject, ...]:
        """Return the objects of an image of this size; unusable ones have a ``problem``."""


@dataclass(frozen=True, slots=True)
class Detections:
    """What a detector answers for one image: boxes in its pixels, scores 0..1, places in the detector's labels."""

    boxes: Boxes
    scores: NDArray[np.float32]
    labels: NDArray[np.int64]
    masks: tuple[Mask, ...] = field(default=(), repr=False)

    def __len__(self) -> int:
        return len(self.scores)


@runtime_checkable
class Detector(Protocol):
    """A model that finds objects. It owns all of its preprocessing.

    ``fingerprint`` changes whenever the weights, the preprocessing or the outputs do.
    """

    name: str
    labels: LabelSpace
    fingerprint: str

    def detect(self, images: Sequence[Image]) -> list[Detections]:
        """Return the objects of each RGB image of any size. Batching must not change them."""


def size_class(area: float) -> str:
    """Return small, medium or large for an area in pixels."""
    return "small" if area < SMALL else "medium" if area < LARGE else "large"


def as_array(value: Any, dtype: Any = None) -> NDArray[Any]:
    """Return an array of NumPy; a tensor may be on a GPU or want gradients."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value, dtype)


def box_areas(boxes: Boxes) -> NDArray[np.float64]:
    """Return the area of each box; 0 if it is empty or turned inside out."""
    sides = np.maximum(np.asarray(boxes, np.float64)[:, 2:] - np.asarray(boxes, np.float64)[:, :2], 0)
    return np.asarray(sides[:, 0] * sides[:, 1])


def box_overlaps(boxes: Boxes, others: Boxes, *, crowd: Sequence[bool] | NDArray[np.bool_] = ()) -> NDArray[np.float64]:
    """Return the IoU of every box with every other, (n, m).

    If an other is a crowd, the overlap is the share of the box that is on it, as in COCO.
    """
    a, b = np.asarray(boxes, np.float64).reshape(-1, 4), np.asarray(others, np.float64).reshape(-1, 4)
    sides = np.minimum(a[:, None, 2:], b[None, :, 2:]) - np.maximum(a[:, None, :2], b[None, :, :2])
    both = np.prod(np.maximum(sides, 0), axis=2)
    areas: NDArray[np.float64] = box_areas(a)[:, np.newaxis]
    whole: NDArray[np.float64] = areas + box_areas(b)[np.newaxis] - both
    if len(crowd):
        whole = np.where(np.asarray(crowd, np.bool_)[None], areas, whole)
    return np.asarray(np.divide(both, whole, out=np.zeros_like(both), where=whole > 0))
