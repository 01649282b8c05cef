"""Images for training, made on a device: processes decode, and a batch is rendered and resized at once.

What is drawn, and who lends a background, is as in ``pictures``; values may be off by one, as in ``eval --fast``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import cv2
import numpy as np

from holdfast.core.lazy import torch
from holdfast.models.torch_classifier import Geometry
from holdfast.pipeline.fast import decoding
from holdfast.pipeline.fast.device_pass import sizes_of, unit_size
from holdfast.pipeline.fast.flow import Uploads, channels_first
from holdfast.pipeline.fast.networks import see
from holdfast.pipeline.train.pictures import DONOR_COLUMNS, Renderer, Showing, TrainingPicture, crop_place
from holdfast.scenarios import Condition
from holdfast.scenarios.tensors import at_once, on_device, render_batch
from holdfast.scenarios.tensors.batches import renders

KEPT = 0.4  # share of a GPU's free memory for images that are kept from one epoch to the next


def can_make(shown: Sequence[Showing]) -> bool:
    """Return whether a device makes all these images."""
    return all(map(renders, {condition for _, condition in shown}))


class DeviceTeam:
    """Makes the images of some conditions on one device; its processes stay until it is closed."""

    def __init__(self, device: str, shown: Sequence[Showing], max_pixels: int, processes: int) -> None:
        self.conditions = list(dict.fromkeys(condition for _, condition in shown))
        self.uploads, self._device = Uploads(device), device
        self._unit = unit_size(sizes_of([sample for sample, _ in shown]))
        self._decoder = decoding.Decoder(self.conditions, max_pixels)
        cuda = device.startswith("cuda")
        self._crew = decoding.Crew(self._decoder, processes=processes, gpu=cuda) if processes else None

    @property
    def memory(self) -> int:
        """Return the bytes of images that may stay on a GPU."""
        return int(KEPT * torch.cuda.mem_get_info(torch.device(self._device))[0])

    def close(self) -> None:
        """End the processes."""
        self.uploads.finish()
        if self._crew is not None:
            self._crew.close()

    def rendered(self, renderer: Renderer, groups: Iterable[Sequence[Showing]]) -> Iterator[list[TrainingPicture]]:
        """Yield the images of each group in order, as tensors on the device."""
        under_way: deque[tuple[decoding.Unit, bool]] = deque()  # units, and whether each is the last of its group
        arrival = decoding.Arrival(self._units(renderer, groups, under_way), self._decoder, self._crew)
        try:
            batch = _DecodedGroup(self, renderer)
            for facts, decoded, release in arrival:
                unit, last = under_way.popleft()
                batch.add(unit, facts, decoded)
                self.uploads.release(release)
                if last:
                    yield batch.pictures()
                    batch = _DecodedGroup(self, renderer)
        finally:
            arrival.close()

    def _units(
        self, renderer: Renderer, groups: Iterable[Sequence[Showing]], under_way: deque[tuple[decoding.Unit, bool]]
    ) -> Iterator[decoding.Unit]:
        """Yield the units to decode, made when they are asked for, and put each into ``under_way``."""
        place_of = {condition: place for place, condition in enumerate(self.conditions)}
        for group in groups:
            for start in range(0, max(1, len(group)), self._unit):  # a group may be empty
                wanted = [(sample, [place_of[condition]]) for sample, condition in group[start : start + self._unit]]
                unit = decoding.unit_of(start, wanted, self.conditions, renderer.pool, renderer.seed)
                under_way.append((unit, start + self._unit >= len(group)))
                yield unit


class _DecodedGroup:
    """The decoded images of one group, on the device, by size."""

    def __init__(self, team: DeviceTeam, renderer: Renderer) -> None:
        self._team, self._renderer = team, renderer
        self._shown: list[Showing] = []
        self._pictures: dict[int, TrainingPicture] = {}  # by place; those that failed first
        self._facts: dict[int, dict[str, Any]] = {}
        self._unmasked: set[int] = set()  # places of images without a mask, or with nothing in it
        self._by_size: dict[tuple[int, int], list[tuple[list[int], list[torch.Tensor]]]] = {}

    def add(self, unit: decoding.Unit, facts: decoding.Facts, decoded: Sequence[decoding.Group]) -> None:
        """Take the decoded images of a unit."""
        first, renderer = len(self._shown), self._renderer
        decoding.settle(facts, unit, decoded, self._team.conditions, renderer.pool, renderer.seed)
        self._shown += [(order.sample, self._team.conditions[order.conditions[0]]) for order in unit.orders]
        for place, _, status, reason in facts.failed:
            self._pictures[first + place] = TrainingPicture(None, status=status, error=reason)
        self._facts |= {first + place: details for place, details in facts.donors.items()}
        for group in decoded:
            if renderer.masked:  # looked at here: the device would have to be waited for
                masked = zip(group.places, group.masks, strict=True)
                self._unmasked |= {first + place for place, mask in masked if not mask.any()}
            size = int(group.images.shape[1]), int(group.images.shape[2])
            moved = self._team.uploads.move((group.images, group.masks, group.backgrounds))
            self._by_size.setdefault(size, []).append(([first + place for place in group.places], moved))

    def pictures(self) -> list[TrainingPicture]:
        """Render and resize everything, and return it in order."""
        for size, parts in self._by_size.items():
            places = [place for some, _ in parts for place in some]
            tensors = [torch.cat(alike) for alike in zip(*(moved for _, moved in parts), strict=True)]
            for condition in dict.fromkeys(self._shown[place][1] for place in places):
                alike = [at for at, place in enumerate(places) if self._shown[place][1] == condition]
                step = at_once(*size)
                for some in (alike[start : start + step] for start in range(0, len(alike), step)):
                    chosen = on_device(some, tensors[0].device)
                    part = tensors if len(some) == len(places) else [tensor[chosen] for tensor in tensors]
                    self._render(condition, [places[at] for at in some], *part)
        return [self._pictures[place] for place in range(len(self._shown))]

    def _render(
        self,
        condition: Condition,
        places: Sequence[int],
        images: torch.Tensor,
        masks: torch.Tensor,
        backgrounds: torch.Tensor,
    ) -> None:
        renderer = self._renderer
        ids = [self._shown[place][0].sample_id for place in places]
        with torch.no_grad():
            rendered = render_batch(
                [condition], channels_first(images), masks, sample_ids=ids, seed=renderer.seed,
                donors=channels_first(backgrounds), matte=renderer.matte,
            )[condition]  # fmt: skip
            square = (renderer.size, renderer.size)
            small = see(rendered, Geometry(renderer.scaled or square, square, "bilinear"), crops_centre=False)
            objects: Sequence[Any] = _objects(masks, renderer) if renderer.masked else [None] * len(places)
        for place, image, mask in zip(places, small, objects, strict=True):
            if place not in self._pictures:
                mask = None if place in self._unmasked else mask
                details = {**getattr(self._shown[place][0].image, "details", {}), **self._facts.get(place, {})}
                facts = {name: details.get(name) for name in DONOR_COLUMNS}
                self._pictures[place] = TrainingPicture(image, mask, facts=facts)


def _objects(masks: torch.Tensor, renderer: Renderer) -> Sequence[Any]:
    """Return where the objects are in the images as they are seen."""
    height, width, top, left = renderer.size, renderer.size, 0, 0
    if renderer.scaled:
        height, width, top, left = crop_place(tuple(masks.shape[1:]), renderer.size, renderer.scaled)
    rows = _nearest(masks.shape[1], height)[top : top + renderer.size]
    columns = _nearest(masks.shape[2], width)[left : left + renderer.size]
    return list(masks[:, on_device(rows, masks.device)][:, :, on_device(columns, masks.device)])


def _nearest(source: int, target: int) -> list[int]:
    """Return which of ``source`` pixels OpenCV takes for each of ``target`` pixels."""
    line = np.arange(source, dtype=np.float32)[None]
    taken: list[int] = cv2.resize(line, (target, 1), interpolation=cv2.INTER_NEAREST_EXACT)[0].astype(int).tolist()
    return taken
