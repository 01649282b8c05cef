"""The scenarios' arithmetic in kernels of our own on a GPU, if they are proved to make the same images."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import first_line, out_of_memory
from holdfast.core.lazy import torch
from holdfast.scenarios.base.condition import Condition
from holdfast.scenarios.tensors import arithmetic

if TYPE_CHECKING:
    from torch import Tensor

Call = Callable[..., "Tensor"]
"""Calls a function of ``arithmetic`` with images, other tensors and constants: ``plain``, or ``fused``."""

LOG = logging.getLogger(__name__)

APART = 1e-3
"""How many values may differ by more than one from plain ones."""


def plain(function: Callable[..., Tensor], *tensors: Tensor, **fixed: Any) -> Tensor:
    """Return what the function returns."""
    return function(*tensors, **fixed)


def by_kernel(function: Callable[..., Tensor], *tensors: Tensor, **fixed: Any) -> Tensor:
    """Return what the function's kernel returns, if it has one; raise whatever that raises."""
    return _kernels().get(function, function)(*tensors, **fixed)


def fused(function: Callable[..., Tensor], *tensors: Tensor, **fixed: Any) -> Tensor:
    """Do what ``by_kernel`` does, and from the first failure of a kernel on what ``plain`` does in its place."""
    if function in _FAILED:
        return function(*tensors, **fixed)
    try:
        return by_kernel(function, *tensors, **fixed)
    except Exception as error:  # at one size, say; a lack of memory is for the caller
        if out_of_memory(error):
            raise
        LOG.warning("the kernel of %s failed and is not used again: %s", function.__name__, first_line(error))
        _FAILED.add(function)
        return function(*tensors, **fixed)


_FAILED: set[Callable[..., Tensor]] = set()


def proved_for(
    render: Callable[..., dict[Condition, Tensor]], conditions: Sequence[Condition], shape: Sequence[int], device: str
) -> tuple[Call, str]:
    """Return how to make some conditions of batches NCHW fastest, and why not with kernels if they cannot be used.

    Both ways make two images of the batch's height and width first.
    """
    reason = unlike(render, conditions, shape, device)
    return (plain, reason) if reason else (fused, "")


def unlike(
    render: Callable[..., dict[Condition, Tensor]], conditions: Sequence[Condition], shape: Sequence[int], device: str
) -> str:
    """Return how the images that kernels make differ from plain ones, or why there are none; "" if they are equal."""
    few = (min(2, shape[0]), *shape[1:])
    rng = torch.Generator().manual_seed(0)
    images = (torch.randint(0, 256, few, generator=rng) * torch.linspace(0.2, 1, shape[3])).to(device, torch.uint8)
    masks = (torch.rand((few[0], *shape[2:]), generator=rng) < 0.5).to(device)
    names = [str(number) for number in range(few[0])]
    try:
        with torch.no_grad():
            slow, fast = (
                render(conditions, images, masks, sample_ids=names, donors=images.flip(3).contiguous(), call=call)
                for call in (plain, by_kernel)
            )
            for condition in conditions:
                apart = (slow[condition].short() - fast[condition].short()).abs()
                if (share := (apart > 1).double().mean().item()) > APART:
                    return f"{condition.name} would differ in {share:.2%} of all values"
    except Exception as error:  # a compiler fails in many ways, and none of them is a reason to have no images
        return first_line(error)
    return ""


@cache
def _kernels() -> Mapping[Callable[..., Tensor], Callable[..., Tensor]]:
    from holdfast.scenarios.tensors import kernels

    byte = torch.uint8

    def descend(images: Tensor, *, levels: int, kernel: tuple[int, ...]) -> Tensor:
        work, sizes = images, []
        for _ in range(levels):
            sizes.append((work.shape[2], work.shape[3]))
            work = kernels.along(work, arithmetic.BINOMIAL, 2, step=2)
            work = kernels.along(work, arithmetic.BINOMIAL, 3, step=2, bits=8)
        work = kernels.along(kernels.along(work, kernel, 3), kernel, 2, bits=16, kind=torch.int32 if levels else byte)
        for height, width in reversed(sizes):
            work = kernels.doubled(work, height, width, byte if (height, width) == sizes[0] else torch.int32)
        return work

    def brighten(
        images: Tensor, *, kernel: tuple[int, ...], image_weight: float, blur_weight: float, offset: float
    ) -> Tensor:
        mixed = images, image_weight, blur_weight, offset
        return kernels.along(kernels.along(images, kernel, 3), kernel, 2, bits=16, mixed=mixed, kind=byte)

    return {
        arithmetic.descend: descend,
        arithmetic.brighten: brighten,
        arithmetic.turn_hue: kernels.turn_hue,
        arithmetic.over: lambda images, inside, others: kernels.composed(images, inside, kernels.OTHERS, others),
        arithmetic.over_grey: lambda images, inside: kernels.composed(images, inside, kernels.GREY),
        arithmetic.over_colour: lambda images, inside, *, colour: kernels.composed(
            images, inside, kernels.COLOUR, numbers=colour
        ),
        arithmetic.over_times: lambda images, inside, *, factors: kernels.composed(
            images, inside, kernels.TIMES, numbers=factors
        ),
    }
