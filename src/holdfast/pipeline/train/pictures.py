"""Images of a scenario, made on the fly and held as small uint8 tensors: the same that ``synth`` and ``eval`` make.

They follow from the sample, the condition and the seed, and are resized last. Nothing of it is written to the disk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import cv2
import numpy as np
import PIL.Image
from numpy.typing import NDArray

from holdfast.core.errors import HoldfastError
from holdfast.core.fingerprint import array_sha256
from holdfast.core.lazy import torch
from holdfast.core.types import DEFAULT_MAX_PIXELS, ORIGINAL, Image, Mask, Sample
from holdfast.engine import Processes, core_count
from holdfast.pipeline.donors import DonorPool
from holdfast.pipeline.samples import over_matte, render_conditions, stored_conditions
from holdfast.scenarios import Condition

WHITE = (255, 255, 255)
DONOR_COLUMNS = ("donor_id", "donor_label", "donor_unmasked")
AHEAD = 4  # batches that are rendered while the model works on an earlier one, if images do not fit into memory
FEW = 256  # images for which it is not worth starting processes
CHUNK = 8  # images that a process makes at a time: they travel through a pipe, and a batch is to keep many at work
Showing = tuple[Sample, Condition]  # A sample, and what is to be made of it


def showing(samples: Sequence[Sample], condition: Condition) -> list[Showing]:
    """Return the samples that show a condition, each with what to make of it."""
    stored = stored_conditions(samples)
    if condition.scenario in stored:
        as_it_is = Condition(ORIGINAL)
        return [(sample, as_it_is) for sample in samples if sample.condition == condition.scenario]
    return [(sample, condition) for sample in samples if sample.condition == ORIGINAL]


@dataclass(frozen=True)
class TrainingPicture:
    """One sample under one condition: CHW uint8, ``size`` × ``size``, where the object is (HW bool), and facts."""

    image: Any  # an array, a tensor where a device has made it, or None; the mask likewise
    mask: Any = None
    status: str = "ok"
    error: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)


Submit = Callable[[Sequence[Showing]], Future[list[TrainingPicture]]]
Asked = tuple["Renderer", Sequence[Showing]]


class Team:
    """Who makes images: processes that stay for those to come, or threads, if there are few cores or images."""

    def __init__(self, processes: int = 1) -> None:
        self.processes = processes
        self._started: tuple[DonorPool, Processes[Asked, list[TrainingPicture]]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"processes": self.processes, "_started": None}

    @contextmanager
    def at_work(self, renderer: Renderer, count: int) -> Iterator[tuple[Submit, int, int]]:
        """Yield how to submit images, to how many workers, and how many images each gets at once."""
        if self.processes < 3 or (self._started is None and count < FEW):
            with ThreadPoolExecutor(core_count()) as threads:
                yield lambda shown: threads.submit(lambda: [renderer(showing) for showing in shown]), core_count(), 1
            return
        if self._started is None or self._started[0] is not renderer.pool:
            self._started = renderer.pool, Processes(_Lent(renderer.pool), self.processes)
        processes, light = self._started[1], replace(renderer, pool=DonorPool([]), team=Team())
        try:
            yield lambda shown: processes.submit((light, shown)), self.processes, CHUNK
        except BrokenProcessPool as error:
            self._started = None
            raise HoldfastError(
                "a process that makes images was killed (out of memory?); run the same command again with "
                "--retry-errors and fewer --renderers"
            ) from error


class Maker(Protocol):
    """Makes images as a renderer says (``on_device.DeviceTeam``)."""

    def rendered(self, renderer: Renderer, groups: Iterable[Sequence[Showing]]) -> Iterator[list[TrainingPicture]]:
        """Yield the images of each group in order."""
        ...


@dataclass(frozen=True)
class Renderer:
    """How images are made."""

    pool: DonorPool  # who lends backgrounds
    size: int  # pixels of the square they are made to
    seed: int = 0  # with the sample's id and the condition all their randomness
    max_pixels: int = DEFAULT_MAX_PIXELS  # larger images are refused
    matte: tuple[int, int, int] = WHITE  # behind transparent images
    hashed: bool = False  # whether facts hold the hash of the image before it is resized, as ``eval`` records it
    masked: bool = True  # whether images come with where the object is
    scaled: int = 0  # pixels of the shorter side, of which the middle square is taken; 0: squeezed, aspect not kept
    team: Team = field(default_factory=Team)  # who makes them if there are many
    device: Maker | None = None  # who makes them instead, on a device

    def __call__(self, shown: Showing) -> TrainingPicture:
        """Render one; what goes wrong with it is its status and error."""
        sample, condition = shown
        (rendering,) = render_conditions(sample, [condition], self.pool, seed=self.seed, max_pixels=self.max_pixels)
        if rendering.rendered is None:
            return TrainingPicture(None, status=rendering.status, error=rendering.error)
        image = over_matte(rendering.rendered.image, self.matte)
        # An image that was itself pasted together says whose background it has.
        details = {**getattr(sample.image, "details", {}), **rendering.rendered.details}
        facts: dict[str, Any] = {name: details.get(name) for name in DONOR_COLUMNS}
        if self.hashed:
            facts["image_sha256"] = array_sha256(image)
        mask = _resized_mask(rendering.rendered.mask, self.size, self.scaled) if self.masked else None
        fitting = cropped(image, self.size, self.scaled) if self.scaled else resized(image, self.size)
        # Colours one after the other already here, so that no one who collects images has to turn them.
        return TrainingPicture(np.ascontiguousarray(fitting.transpose(2, 0, 1)), mask, facts=facts)

    def rendered(self, groups: Iterable[Sequence[Showing]], count: int) -> Iterator[list[TrainingPicture]]:
        """Yield the images of each group in order, some groups ahead; ``count`` is the most images there may be."""
        if self.device is not None:
            yield from self.device.rendered(self, groups)
            return
        with self.team.at_work(self, count) as (submit, workers, chunk):
            waiting: deque[list[Future[list[TrainingPicture]]]] = deque()
            for group in groups:
                waiting.append([submit(group[start : start + chunk]) for start in range(0, len(group), chunk)])
                if len(waiting) > AHEAD and (sum(map(len, waiting)) > 2 * workers or len(waiting) > 4 * AHEAD):
                    yield [picture for future in waiting.popleft() for picture in future.result()]
            while waiting:
                yield [picture for future in waiting.popleft() for picture in future.result()]


@dataclass(frozen=True)
class _Lent:
    """What a process holds: who lends backgrounds, which is large; all else comes with the images to make."""

    pool: DonorPool

    def __call__(self, asked: Asked) -> list[TrainingPicture]:
        renderer = replace(asked[0], pool=self.pool)
        return [renderer(showing) for showing in asked[1]]


def resized(image: Image, size: int) -> Image:
    """Return an image squeezed to a square by Pillow's bilinear filter, as timm's ``squash`` does."""
    if image.shape[:2] == (size, size):
        return image
    return np.asarray(PIL.Image.fromarray(image).resize((size, size), PIL.Image.Resampling.BILINEAR))


def cropped(image: Image, size: int, scaled: int) -> Image:
    """Return the middle square of an image whose shorter side has ``scaled`` pixels, as timm's ``center`` does."""
    height, width, top, left = crop_place(image.shape[:2], size, scaled)
    larger = np.asarray(PIL.Image.fromarray(image).resize((width, height), PIL.Image.Resampling.BILINEAR))
    return larger[top : top + size, left : left + size]


def crop_place(shape: tuple[int, ...], size: int, scaled: int) -> tuple[int, int, int, int]:
    """Return height and width to resize to, and where the middle square begins."""
    shorter = min(shape)
    height, width = (scaled if side == shorter else int(scaled * side / shorter) for side in shape)
    return height, width, round((height - size) / 2), round((width - size) / 2)


def _resized_mask(mask: Mask | None, size: int, scaled: int = 0) -> Mask | None:
    if mask is not None and scaled:
        height, width, top, left = crop_place(mask.shape, size, scaled)
        larger = cv2.resize(mask.view(np.uint8), (width, height), interpolation=cv2.INTER_NEAREST_EXACT)
        return np.ascontiguousarray(larger[top : top + size, left : left + size]).astype(np.bool_)
    if mask is None or mask.shape == (size, size):
        return mask
    small: NDArray[np.uint8] = cv2.resize(mask.view(np.uint8), (size, size), interpolation=cv2.INTER_NEAREST_EXACT)  # type: ignore[assignment]
    return small.astype(np.bool_)


@dataclass(frozen=True)
class Tensors:
    """A condition of some samples in memory."""

    images: torch.Tensor  # NCHW uint8
    labels: torch.Tensor  # places in the classes
    masks: torch.Tensor | None  # NHW bool, where the object is in the image; None if they were not asked for
    samples: tuple[Sample, ...]  # whose they are
    facts: tuple[Mapping[str, Any], ...]  # of each: donors, the hash of the image before resizing
    failed: tuple[tuple[Sample, str, str], ...]  # samples that could not be rendered, with status and error

    def __len__(self) -> int:
        return len(self.labels)


def tensors_of(renderer: Renderer, shown: Sequence[Showing], classes: Sequence[str], *, masks: bool = False) -> Tensors:
    """Return samples rendered under their conditions; with ``masks``, an image without a mask counts as failed."""
    place = {name: number for number, name in enumerate(classes)}
    size = renderer.size
    images = torch.empty((len(shown), 3, size, size), dtype=torch.uint8)
    where = torch.empty((len(shown), size, size), dtype=torch.bool) if masks else None
    # Filled by NumPy: torch copies an image with as many threads as there are cores, and these wait for each other
    # while every core is busy with the next images, ten milliseconds each time.
    image_at, mask_at = images.numpy(), where.numpy() if where is not None else None
    kept: list[Sample] = []
    facts: list[Mapping[str, Any]] = []
    failed: list[tuple[Sample, str, str]] = []
    groups = (shown[start : start + CHUNK] for start in range(0, len(shown), CHUNK))
    pictures = (picture for group in replace(renderer, masked=masks).rendered(groups, len(shown)) for picture in group)
    for (sample, _), picture in zip(shown, pictures, strict=True):
        if picture.image is not None and masks and picture.mask is None:
            picture = replace(picture, image=None, status="skipped", error="this image has no mask")
        if picture.image is None:
            failed.append((sample, picture.status, picture.error))
            continue
        image_at[len(kept)] = _on_host(picture.image)
        if mask_at is not None:
            mask_at[len(kept)] = _on_host(picture.mask)
        kept.append(sample)
        facts.append(picture.facts)
    if failed:  # a view would keep the whole of it
        images = images[: len(kept)].clone()
        where = where[: len(kept)].clone() if where is not None else None
    labels = torch.tensor([place[sample.label] for sample in kept], dtype=torch.int64)
    return Tensors(images, labels, where, tuple(kept), tuple(facts), tuple(failed))


def _on_host(picture: Any) -> Any:
    return picture.cpu().numpy() if isinstance(picture, torch.Tensor) else picture


Batch = tuple[Any, Any]  # images NCHW uint8 and labels
ON_DEVICE = 0.2  # share of a GPU's free memory that images may take; larger sets stay in the machine's memory


@dataclass(frozen=True)
class InMemory:
    """Images that are on a device."""

    images: torch.Tensor
    labels: torch.Tensor

    def on(self, device: str) -> InMemory:
        """Return the images on a GPU, if they take little of its memory; else where they are."""
        if device.startswith("cuda"):
            free, _ = torch.cuda.mem_get_info(torch.device(device))
            if self.images.nbytes <= ON_DEVICE * free:
                return InMemory(self.images.to(device), self.labels.to(device))
        return self

    def batches(self, orders: Iterable[torch.Tensor]) -> Iterator[Batch]:
        """Yield the images of each order of places."""
        for order in orders:
            order = order.to(self.images.device, non_blocking=True)  # else the host waits for every step before it
            yield self.images[order], self.labels[order]


@dataclass(frozen=True)
class RenderedSource:
    """Images that do not all fit into memory: those that do are kept, the others are made again in every epoch."""

    renderer: Renderer
    shown: Sequence[Showing]
    labels: torch.Tensor
    masks: bool = False  # where the object is becomes a fourth channel; what has no mask is left out
    memory: int = 0  # bytes of images that are kept where they were made
    kept: dict[int, torch.Tensor] = field(default_factory=dict)  # by place

    def batches(self, orders: Iterable[torch.Tensor]) -> Iterator[Batch]:
        """Yield the images of each order of places; those that cannot be rendered are left out."""
        taken: deque[tuple[list[int], list[int]]] = deque()  # the places of a batch, and of those that are made for it

        def groups() -> Iterator[list[Showing]]:
            for order in orders:
                places = order.tolist()
                taken.append((places, [place for place in places if place not in self.kept]))
                yield [self.shown[place] for place in taken[-1][1]]

        for rendered in replace(self.renderer, masked=self.masks).rendered(groups(), len(self.shown)):
            places, new = taken.popleft()
            pictures = {place: self.kept[place] for place in places if place in self.kept}
            for picture, place in zip(rendered, new, strict=True):
                if (channels := self._channels(picture)) is not None:
                    pictures[place] = channels
                    if (len(self.kept) + 1) * channels.nbytes <= self.memory:
                        self.kept[place] = channels
            if good := [place for place in places if place in pictures]:
                yield torch.stack([pictures[place] for place in good]), self.labels[good]

    def _channels(self, picture: TrainingPicture) -> torch.Tensor | None:
        if picture.image is None or (self.masks and picture.mask is None):
            return None
        image, mask = torch.as_tensor(picture.image), picture.mask
        return image if mask is None else torch.cat([image, torch.as_tensor(mask)[None].to(torch.uint8)])


Source = InMemory | RenderedSource
