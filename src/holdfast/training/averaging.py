"""Averaged weights that follow a model in training."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch.optim.swa_utils import AveragedModel


def averaging(averaged: AveragedModel, model: torch.nn.Module, keep: float) -> Callable[[], None]:
    """A function that has the average keep a share ``keep`` of itself and take the rest from the model, buffers too.

    The first call takes the model as it is. ``AveragedModel.update_parameters`` does the same and makes the host wait
    for the device each time.
    """
    import torch

    def members(module: torch.nn.Module, *, floats: bool) -> list[torch.Tensor]:
        every = itertools.chain(module.parameters(), module.buffers())
        return [one.detach() for one in every if one.is_floating_point() == floats]

    numbers, counts = ((members(averaged.module, floats=one), members(model, floats=one)) for one in (True, False))

    def update() -> None:
        begun = bool(averaged.n_averaged > 0)  # lies on the CPU
        if begun:
            torch._foreach_lerp_(*numbers, 1 - keep)
        else:
            torch._foreach_copy_(*numbers)
        if counts[0]:  # of batches, in batch norms
            torch._foreach_copy_(*counts)
        averaged.n_averaged += 1

    return update
