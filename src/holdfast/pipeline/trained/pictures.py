"""Images of a scenario, made on the fly and held as small uint8 tensors: the same that ``synth`` and ``eval`` make.

They follow from the sample, the condition and the seed, and are resized last. Nothing of it is written to the disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import PIL.Image
from numpy.typing import NDArray

from holdfast.core.fingerprint import array_sha256
from holdfast.core.types import DEFAULT_MAX_PIXELS, ORIGINAL, Image, Mask, Sample
from holdfast.engine import core_count
from holdfast.pipeline.donors import DonorPool
from holdfast.pipeline.samples import over_matte, render_conditions, stored_conditions
from holdfast.scenarios import Condition

if TYPE_CHECKING:
    import torch

WHITE = (255, 255, 255)
DETAILS = ("donor_id", "donor_label", "donor_unmasked")
AHEAD = 4
"""Batches that are rendered while the model works on an earlier one, where images do not fit into memory."""

Showing = tuple[Sample, Condition]
"""A sample, and what is to be made of it."""


def showing(samples: Sequence[Sample], condition: Condition) -> list[Showing]:
    """The samples that show a condition, with what to make of each: its originals, or images that show it already."""
    stored = stored_conditions(samples)
    if condition.scenario in stored:
        as_it_is = Condition(ORIGINAL)
        return [(sample, as_it_is) for sample in samples if sample.condition == condition.scenario]
    return [(sample, condition) for sample in samples if sample.condition == ORIGINAL]


@dataclass(frozen=True)
class Picture:
    """One sample under one condition: HWC uint8, ``size`` × ``size``, where the object is (HW bool), and facts."""

    image: Image | None
    mask: Mask | None = None
    status: str = "ok"
    error: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Renderer:
    """How pictures are made.

    Attributes:
        pool: who lends backgrounds.
        size: pixels of the square they are resized to, aspect not kept.
        seed: with the sample's id and the condition all their randomness.
        max_pixels: larger images are refused.
        matte: behind transparent pictures.
        hashed: whether facts hold the hash of the picture before it is resized, as ``eval`` records it.
    """

    pool: DonorPool
    size: int
    seed: int = 0
    max_pixels: int = DEFAULT_MAX_PIXELS
    matte: tuple[int, int, int] = WHITE
    hashed: bool = False

    def __call__(self, shown: Showing) -> Picture:
        """Render one; what goes wrong with it is its status and error."""
        sample, condition = shown
        (made,) = render_conditions(sample, [condition], self.pool, seed=self.seed, max_pixels=self.max_pixels)
        if made.rendered is None:
            return Picture(None, status=made.status, error=made.error)
        image = over_matte(made.rendered.image, self.matte)
        facts: dict[str, Any] = {name: made.rendered.details.get(name) for name in DETAILS}
        if self.hashed:
            facts["image_sha256"] = array_sha256(image)
        return Picture(resized(image, self.size), _resized_mask(made.rendered.mask, self.size), facts=facts)


def resized(image: Image, size: int) -> Image:
    """Squeezed to a square by Pillow's bilinear filter, as timm's ``squash`` does it for a trained model."""
    if image.shape[:2] == (size, size):
        return image
    return np.asarray(PIL.Image.fromarray(image).resize((size, size), PIL.Image.Resampling.BILINEAR))


def _resized_mask(mask: Mask | None, size: int) -> Mask | None:
    if mask is None or mask.shape == (size, size):
        return mask
    small: NDArray[np.uint8] = cv2.resize(mask.view(np.uint8), (size, size), interpolation=cv2.INTER_NEAREST_EXACT)  # type: ignore[assignment]
    return small.astype(np.bool_)


@dataclass(frozen=True)
class Tensors:
    """A condition of some samples in memory.

    Attributes:
        images: NCHW uint8.
        labels: places in the classes.
        masks: NHW bool, where the object is in the picture; None where they were not asked for.
        samples: whose they are.
        facts: of each: donors, the hash of the picture before resizing.
        failed: samples that could not be rendered, with status and error.
    """

    images: torch.Tensor
    labels: torch.Tensor
    masks: torch.Tensor | None
    samples: tuple[Sample, ...]
    facts: tuple[Mapping[str, Any], ...]
    failed: tuple[tuple[Sample, str, str], ...]

    def __len__(self) -> int:
        return len(self.labels)


def scenario_tensors(
    samples: Sequence[Sample],
    condition: Condition,
    size: int,
    *,
    classes: Sequence[str],
    pool: DonorPool,
    seed: int = 0,
    max_pixels: int = DEFAULT_MAX_PIXELS,
    matte: tuple[int, int, int] = WHITE,
    hashed: bool = False,
    masks: bool = False,
) -> Tensors:
    """The samples under one condition, rendered by all cores.

    Args:
        samples: originals, or images that show the condition already.
        condition: what to make of the originals.
        size: pixels of the square pictures.
        classes: what labels are places in.
        pool: who lends backgrounds, ``pipeline.samples.prepare`` has it.
        seed: of the rendering.
        max_pixels: larger images are refused.
        matte: behind transparent pictures.
        hashed: put the hash of each picture as ``eval`` records it into the facts.
        masks: keep where the object is; a sample whose picture has no mask then counts as failed.
    """
    renderer = Renderer(pool, size, seed, max_pixels, matte, hashed)
    return tensors_of(renderer, showing(samples, condition), classes, masks=masks)


def tensors_of(renderer: Renderer, shown: Sequence[Showing], classes: Sequence[str], *, masks: bool = False) -> Tensors:
    """``scenario_tensors`` for samples with what is to be made of each."""
    import torch

    place = {name: number for number, name in enumerate(classes)}
    size = renderer.size
    images = torch.empty((len(shown), 3, size, size), dtype=torch.uint8)
    where = torch.empty((len(shown), size, size), dtype=torch.bool) if masks else None
    kept: list[Sample] = []
    facts: list[Mapping[str, Any]] = []
    failed: list[tuple[Sample, str, str]] = []
    with ThreadPoolExecutor(core_count()) as threads:
        for (sample, _), made in zip(shown, threads.map(renderer, shown), strict=True):
            if made.image is not None and where is not None and made.mask is None:
                made = replace(made, image=None, status="skipped", error="this image has no mask")
            if made.image is None:
                failed.append((sample, made.status, made.error))
                continue
            images[len(kept)] = torch.from_numpy(np.ascontiguousarray(made.image.transpose(2, 0, 1)))
            if where is not None and made.mask is not None:
                where[len(kept)] = torch.from_numpy(np.ascontiguousarray(made.mask))
            kept.append(sample)
            facts.append(made.facts)
    if failed:  # a view would keep the whole of it
        images = images[: len(kept)].clone()
        where = where[: len(kept)].clone() if where is not None else None
    labels = torch.tensor([place[sample.label] for sample in kept], dtype=torch.int64)
    return Tensors(images, labels, where, tuple(kept), tuple(facts), tuple(failed))


Batch = tuple[Any, Any]
"""Images NCHW uint8 and labels."""


@dataclass(frozen=True)
class InMemory:
    """Pictures that lie on a device."""

    images: torch.Tensor
    labels: torch.Tensor

    def batches(self, orders: Iterable[torch.Tensor]) -> Iterator[Batch]:
        """The pictures of each order of places."""
        for order in orders:
            order = order.to(self.images.device)
            yield self.images[order], self.labels[order]


@dataclass(frozen=True)
class Rendered:
    """Pictures that are made anew in every epoch, a few batches ahead, because they do not fit into memory."""

    renderer: Renderer
    shown: Sequence[Showing]
    labels: torch.Tensor

    def batches(self, orders: Iterable[torch.Tensor]) -> Iterator[Batch]:
        """The pictures of each order of places; those that cannot be rendered are left out."""
        import torch

        waiting: deque[list[Future[tuple[NDArray[np.uint8] | None, int]]]] = deque()

        def ready() -> Batch | None:
            made = [future.result() for future in waiting.popleft()]
            good = [(image, place) for image, place in made if image is not None]
            if not good:
                return None
            images = torch.from_numpy(np.stack([image for image, _ in good]))
            return images, self.labels[[place for _, place in good]]

        with ThreadPoolExecutor(core_count()) as threads:
            for order in orders:
                waiting.append([threads.submit(self._one, place) for place in order.tolist()])
                if len(waiting) > AHEAD and (batch := ready()) is not None:
                    yield batch
            while waiting:
                if (batch := ready()) is not None:
                    yield batch

    def _one(self, place: int) -> tuple[NDArray[np.uint8] | None, int]:
        made = self.renderer(self.shown[place]).image
        return (None if made is None else np.ascontiguousarray(made.transpose(2, 0, 1))), place


Source = InMemory | Rendered


def bytes_of(count: int, size: int) -> int:
    """Of so many pictures as tensors."""
    return count * 3 * size * size
