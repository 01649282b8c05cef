"""All conditions that ``eval --fast`` makes, of a batch of images that have one size."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.fingerprint import generator
from holdfast.core.lazy import torch
from holdfast.core.types import ORIGINAL
from holdfast.scenarios.background import covering
from holdfast.scenarios.base.compositing import plan_tiles
from holdfast.scenarios.base.condition import Condition
from holdfast.scenarios.colour import draw_shift
from holdfast.scenarios.tensors import arithmetic, corruptions
from holdfast.scenarios.tensors.arithmetic import resize_area, resize_linear
from holdfast.scenarios.tensors.fused import Call, plain

if TYPE_CHECKING:
    from torch import Tensor

PIXELS = 128 * 375 * 500
"""About how many pixels are rendered at a time, under all conditions: enough to fill a GPU, in 4 GB."""

MOST = 128  # images rendered at a time


def at_once(height: int, width: int) -> int:
    """Return how many images of a size are rendered together."""
    return max(1, min(MOST, PIXELS // (height * width)))


def donor_backgrounds(donors: Tensor, donor_masks: Tensor | None, height: int, width: int) -> Tensor:
    """Return the backgrounds of ``random_background``: donors without objects, resized to cover, and cropped.

    Donors of several sizes: call it for each size, and give ``render_batch`` the results together and no masks.
    Returns NCHW uint8.
    Masks are true on the donors' objects; one without any (or None for all) leaves a donor as it is. They are best on
    the host, if each mask's tile is chosen.
    """
    cleared = donors if donor_masks is None else _without_objects(donors, donor_masks.cpu().numpy())
    (top, bottom), (left, right), shrinks = covering(donors.shape[2], donors.shape[3], height, width)
    middle = cleared[:, :, top:bottom, left:right]
    return resize_area(middle, height, width) if shrinks else resize_linear(middle, height, width)


def _without_objects(images: Tensor, masks: NDArray[np.bool_]) -> Tensor:
    """Return ``without_object`` for a batch.

    A mirrored tile is an image whose rows and columns are each looked up, so two short lists an image are all that
    the host sends.
    """
    count, height, width = masks.shape
    rows, columns = np.tile(np.arange(height), (count, 1)), np.tile(np.arange(width), (count, 1))
    in_rows, in_columns = np.zeros((count, height), np.bool_), np.zeros((count, width), np.bool_)
    for index, mask in enumerate(masks):
        plan = plan_tiles(mask) if mask.any() else None
        if plan is None:
            continue
        tile, (left, top, right, bottom) = plan
        rows[index, top:bottom] = _mirrored(np.arange(top, bottom), tile[1], tile[3])
        columns[index, left:right] = _mirrored(np.arange(left, right), tile[0], tile[2])
        in_rows[index, top:bottom], in_columns[index, left:right] = True, True
    of_rows, of_columns, where_rows, where_columns = (
        torch.from_numpy(part).to(images.device) for part in (rows, columns, in_rows, in_columns)
    )
    shape = images.shape
    looked_up = images.gather(2, of_rows[:, None, :, None].expand(shape))
    looked_up = looked_up.gather(3, of_columns[:, None, None, :].expand(shape))
    return torch.where((where_rows[:, :, None] & where_columns[:, None, :])[:, None], looked_up, images)


def _mirrored(places: NDArray[np.int64], start: int, stop: int) -> NDArray[np.int64]:
    """Return where places are in start .. stop, mirrored at its edges as often as needed, edges repeated."""
    length = stop - start
    turned = (places - start) % (2 * length)
    return start + np.minimum(turned, 2 * length - 1 - turned)


CHANNELS = {"red": 0, "green": 1, "blue": 2}
WHITE = (255, 255, 255)

ONLY: Mapping[str, Mapping[str, Any]] = {
    **{name: {"method": "channel"} for name in CHANNELS},
    "segmented": {"jpeg": 0},
    "random_background": {"placement": "kept"},
}
"""Parameters for which only one value is supported here; ``scenarios.render`` has the others."""


@dataclass
class _Batch:
    """Tensors that the conditions of a batch share."""

    images: Tensor
    inside: Tensor  # N1HW bool
    sample_ids: Sequence[str]
    seed: int
    donors: Tensor | None
    donor_masks: Tensor | None
    matte: tuple[int, int, int]
    call: Call
    shared: dict[Hashable, Tensor] = field(default_factory=dict)

    def memo(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        if key not in self.shared:
            self.shared[key] = make()
        return self.shared[key]

    def over(self, background: Tensor) -> Tensor:
        """Return the objects over another background, in place."""
        return self.call(arithmetic.over, self.images, self.inside, background)

    def within(self, changed: Tensor) -> Tensor:
        """Return the images with the objects of other ones."""
        return self.call(arithmetic.over, changed, self.inside, self.images)

    def backgrounds(self) -> Tensor:
        """Return what donors lend, in the images' size, without their own objects if masks show those."""
        donors, (height, width) = self.donors, self.images.shape[2:]
        assert donors is not None, "checked"
        return self.memo("donors", lambda: donor_backgrounds(donors, self.donor_masks, int(height), int(width)))

    def over_times(self, *factors: int) -> Tensor:
        """Return the images with each channel multiplied by a number outside the objects."""
        return self.call(arithmetic.over_times, self.images, self.inside, factors=factors)


def supports(condition: Condition) -> bool:
    """Return whether ``eval --fast`` makes it in batches; corruptions only with a GPU, which makes them faster."""
    return renders(condition) and (condition.scenario not in corruptions.MAKERS or torch.cuda.is_available())


def renders(condition: Condition) -> bool:
    """Return whether ``render_batch`` can make it: the static group with hard edges, and the corruptions.

    Not here: feather, hues of the released colours, JPEG, moved and summed objects, donors of the same class
    (``pipeline.fast`` draws those of another).
    """
    settings = condition.parameters
    return (
        condition.scenario in _MAKERS
        and condition.definition.donor in ("", "other_class")
        and settings.get("feather", 0) == 0
        and all(settings.get(name, value) == value for name, value in ONLY.get(condition.scenario, {}).items())
    )


def render_batch(
    conditions: Sequence[Condition],  # Those of ``supports``, with all parameters settled (``parse_conditions``)
    images: Tensor,  # NCHW uint8 RGB
    masks: Tensor,  # NHW bool on the same device, true on the foreground
    *,
    sample_ids: Sequence[str],  # One for each image: with the seed they say what is drawn, as in the one-by-one path
    seed: int = 0,  # The run's
    # The i-th lends its background to the i-th image: NCHW uint8 of one size, which need not be the images', on their
    # device. Who lends to whom is the pool's choice. None if no condition asks for it. ``eval --fast``, detectors
    # and ``train`` give backgrounds here, objects removed and cut to size, and no masks: a maker sees nothing else.
    donors: Tensor | None = None,
    donor_masks: Tensor | None = None,  # See ``donor_backgrounds``
    matte: tuple[int, int, int] = WHITE,  # RGB under what is transparent
    call: Call = plain,  # How functions of ``arithmetic`` are called; see ``fused.proved_for``
) -> dict[Condition, Tensor]:
    """Return the images that ``scenarios.render`` makes, as a batch over the matte, on the images' device.

    The same bytes for the original, grey, the channels, cut-outs and backgrounds of the same size; within one of 255
    for hue, brightness, blur and resized donors, but for a pixel in a thousand at most (corruptions: see there).
    Returns condition → NCHW uint8, the original being ``images`` itself. Conditions that differ in a parameter may have
    the same name, so they themselves are the keys.
    """
    _check(conditions, images, masks, sample_ids, donors)
    batch = _Batch(images, masks[:, None], sample_ids, seed, donors, donor_masks, matte, call)
    return {condition: _MAKERS[condition.scenario](batch, condition) for condition in conditions}


def rainbow_shifts(condition: Condition, sample_ids: Sequence[str], seed: int) -> list[int]:
    """Return the shift of each image's hue, which ``scenarios.render`` records in its details."""
    low, high = int(condition.parameters["shift_low"]), int(condition.parameters["shift_high"])
    keys = (condition.scenario, condition.variant, condition.parameters_json)
    return [draw_shift(generator(seed, sample_id, *keys), low, high) for sample_id in sample_ids]


def _check(
    conditions: Sequence[Condition], images: Tensor, masks: Tensor, sample_ids: Sequence[str], donors: Tensor | None
) -> None:
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
        raise ValueError(f"images must be NCHW uint8 RGB, not {images.dtype} of shape {tuple(images.shape)}")
    if masks.dtype != torch.bool or masks.shape != (images.shape[0], *images.shape[2:]):
        raise ValueError(f"masks must be NHW bool of the images' size, not {masks.dtype} of shape {tuple(masks.shape)}")
    if len(sample_ids) != len(images):
        raise ValueError(f"{len(images)} images have {len(sample_ids)} sample_ids")
    for condition in conditions:
        if not renders(condition):
            raise ValueError(f"{condition.name} with {condition.parameters_json} is not made in batches; see supports")
        if condition.definition.donor and (donors is None or len(donors) != len(images)):
            raise ValueError(f"{condition.name} takes as many donors as images")


def _blurred(batch: _Batch, condition: Condition) -> Tensor:
    sigma, radius = float(condition.parameters["sigma"]), int(condition.parameters["radius"])
    fixed = arithmetic.descent(sigma, radius, *batch.images.shape[2:])
    return batch.memo(("blur", *fixed.values()), lambda: batch.call(arithmetic.descend, batch.images, **fixed))


def _bright(batch: _Batch, condition: Condition) -> Tensor:
    settings = condition.parameters
    fixed: dict[str, Any] = {name: float(settings[name]) for name in ("image_weight", "blur_weight", "offset")}
    fixed["kernel"] = arithmetic.gaussian_kernel(2 * int(settings["radius"]) + 1, 0.0)
    return batch.memo(("bright", *fixed.values()), lambda: batch.call(arithmetic.brighten, batch.images, **fixed))


def _channel(batch: _Batch, condition: Condition) -> Tensor:
    return batch.over_times(*(int(channel == CHANNELS[condition.scenario]) for channel in range(3)))


def _rainbow(batch: _Batch, condition: Condition) -> Tensor:
    shifts = rainbow_shifts(condition, batch.sample_ids, batch.seed)
    shift = arithmetic.on_device(shifts, batch.images.device)
    return batch.over(batch.call(arithmetic.turn_hue, batch.images, shift, wrap=int(condition.parameters["wrap"])))


def _transparent(batch: _Batch, _: Condition) -> Tensor:
    return batch.call(arithmetic.over_colour, batch.images, batch.inside, colour=tuple(batch.matte))


def _corrupted(batch: _Batch, condition: Condition) -> Tensor:
    draws = corruptions.Draws(condition, batch.sample_ids, batch.seed, batch.images.device)
    return corruptions.corrupt(condition, batch.images, draws)


_MAKERS: Mapping[str, Callable[[_Batch, Condition], Tensor]] = {
    ORIGINAL: lambda batch, _: batch.images,
    "blur_background": lambda batch, condition: batch.over(_blurred(batch, condition)),
    "blur_object": lambda batch, condition: batch.within(_blurred(batch, condition)),
    "grey": lambda batch, _: batch.call(arithmetic.over_grey, batch.images, batch.inside),
    **dict.fromkeys(CHANNELS, _channel),
    "rainbow": _rainbow,
    "bright_background": lambda batch, condition: batch.over(_bright(batch, condition)),
    "bright_object": lambda batch, condition: batch.within(_bright(batch, condition)),
    "segmented": lambda batch, _: batch.over_times(0, 0, 0),
    "transparent": _transparent,
    "random_background": lambda batch, _: batch.over(batch.backgrounds()),
    **dict.fromkeys(corruptions.MAKERS, _corrupted),
}
