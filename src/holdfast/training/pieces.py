"""Batches cut into pieces whose gradients add up."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any


def pieces_of(batch: Any, count: int) -> Iterable[tuple[Any, float]]:
    """The parts of a batch with the share of it that each is."""
    if count == 1:
        return [(batch, 1.0)]
    whole = length(batch)
    edges = [whole * place // count for place in range(count + 1)]
    return [(_cut(batch, slice(low, high)), (high - low) / whole) for low, high in itertools.pairwise(edges)]


def length(batch: Any) -> int:
    """How many images a batch has; 1 where it cannot be cut."""
    import torch

    if isinstance(batch, torch.Tensor):
        return len(batch) if batch.ndim else 1
    members = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (tuple, list)) else ()
    return max((length(member) for member in members), default=1)


def _cut(batch: Any, part: slice) -> Any:
    import torch

    if isinstance(batch, torch.Tensor):
        return batch[part] if batch.ndim else batch
    if isinstance(batch, Mapping):
        return {name: _cut(member, part) for name, member in batch.items()}
    if isinstance(batch, (tuple, list)):
        return type(batch)(_cut(member, part) for member in batch)
    return batch
