"""The same network knowing nothing: what Adebayo and others (2018) check maps against."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def shuffled(module: torch.nn.Module, *, seed: int = 0) -> list[torch.Tensor]:
    """The module's parameters, in their order, each with its values shuffled.

    All layers at once, the end of Adebayo's cascade. Shuffled rather than drawn anew: any architecture has weights of
    the right size then, whatever its own way of drawing them.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    made = []
    for parameter in module.parameters():
        order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
        made.append(parameter.detach().flatten()[order].view_as(parameter).clone())
    return made


@contextmanager
def randomised(module: torch.nn.Module, weights: list[torch.Tensor]) -> Iterator[None]:
    """The module with these weights, in place: some models reach their network by ways that a copy would not take."""
    own = [parameter.data for parameter in module.parameters()]
    try:
        for parameter, weight in zip(module.parameters(), weights, strict=True):
            parameter.data = weight
        yield
    finally:
        for parameter, weight in zip(module.parameters(), own, strict=True):
            parameter.data = weight
