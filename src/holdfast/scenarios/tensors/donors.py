"""Backgrounds of a batch: donors without their objects, resized to the pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from holdfast.scenarios.background import covering
from holdfast.scenarios.tensors.arithmetic import resize_area, resize_linear
from holdfast.scenarios.tiles import plan_tiles

if TYPE_CHECKING:
    from torch import Tensor


def donor_backgrounds(donors: Tensor, donor_masks: Tensor | None, height: int, width: int) -> Tensor:
    """Return the backgrounds of ``random_background``: donors without objects, resized to cover, and cropped.

    Donors of several sizes: call it for each size, and give ``render_batch`` the results together and no masks.

    Args:
        donors: NCHW uint8, of one size.
        donor_masks: NHW bool, true on the donors' objects; one without any (or None for all) leaves a donor as it is.
            Best on the host, where each mask's tile is chosen: on a GPU it has to be fetched first.
        height: Of the pictures.
        width: Of the pictures.

    Returns:
        NCHW uint8.
    """
    cleared = donors if donor_masks is None else _without_objects(donors, donor_masks.cpu().numpy())
    (top, bottom), (left, right), shrinks = covering(donors.shape[2], donors.shape[3], height, width)
    middle = cleared[:, :, top:bottom, left:right]
    return resize_area(middle, height, width) if shrinks else resize_linear(middle, height, width)


def _without_objects(images: Tensor, masks: NDArray[np.bool_]) -> Tensor:
    """Return ``tiles.without_object`` for a batch.

    A mirrored tile is a picture whose rows and columns are each looked up, so two short lists an image are all that
    the host sends.
    """
    import torch

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
    """Return where places lie in start .. stop, mirrored at its edges as often as needed, edges repeated."""
    length = stop - start
    turned = (places - start) % (2 * length)
    return start + np.minimum(turned, 2 * length - 1 - turned)
