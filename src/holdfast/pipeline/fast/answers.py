"""Turn probabilities into outcome columns, on the device: a few numbers per row go to the host, not a thousand.

The rules are those of ``data.labels.outcomes``, with tensors; ties go to the lower index there, too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.core.lazy import torch
from holdfast.data.labels import NOT_PROBABILITIES, TOPK, LabelMap

BEST, CONFIDENCE, RESTRICTED, SHARE, OF_LABEL, WITHIN, USABLE, POSITIVE, TOP = range(9)
WIDTH = TOP + TOPK  # numbers per row, all in float32: places among outputs are whole numbers below 2²⁴


@dataclass(frozen=True)
class Groups:
    """A label map as tensors: the outputs that belong to a class, in the order of classes, and the class of each."""

    order: torch.Tensor
    owner: torch.Tensor
    classes: int
    single: bool  # each class has one output

    @classmethod
    def of(cls, labels: LabelMap, device: str) -> Groups:
        """Return the tensors of a label map."""
        order = [output for own in labels.members for output in own]
        owner = [position for position, own in enumerate(labels.members) for _ in own]
        count = len(labels.members)
        return cls(torch.tensor(order, device=device), torch.tensor(owner, device=device), count, len(order) == count)


def pack(probabilities: torch.Tensor, groups: Groups, truth: torch.Tensor) -> torch.Tensor:
    """Pack the outcome of each row into ``WIDTH`` numbers."""
    usable = (probabilities.amin(1) >= 0) & (probabilities.amax(1) <= 1.001)
    scores = torch.where(usable[:, None], probabilities, probabilities.new_zeros(()))
    of_classes = scores[:, groups.order]
    if groups.single:
        best, total, distinct = of_classes, of_classes, scores
    else:
        owner = groups.owner.expand(len(scores), -1)
        empty = scores.new_zeros((len(scores), groups.classes))
        best = empty.scatter_reduce(1, owner, of_classes, "amax")
        total = empty.index_add(1, groups.owner, of_classes)
        # Of a class's outputs, only the best is listed among the top ones; of equal ones, the first.
        places = groups.order.expand(len(scores), -1)
        first = torch.full_like(empty, scores.shape[1], dtype=torch.int64).scatter_reduce(
            1, owner, places.masked_fill(of_classes != best.gather(1, owner), scores.shape[1]), "amin"
        )
        distinct = scores.clone()
        distinct[:, groups.order] = of_classes.masked_fill(places != first.gather(1, owner), 0)
    values, places = distinct.sort(stable=True, dim=1, descending=True)
    kept = min(TOPK, scores.shape[1])
    restricted = _first_largest(best)
    within = best.gather(1, restricted) > 0
    whole = total.sum(1, keepdim=True)
    share = torch.where(within, total.gather(1, restricted) / whole, whole.new_zeros(()))
    packed = scores.new_zeros((len(scores), WIDTH))
    packed[:, BEST], packed[:, CONFIDENCE] = places[:, 0].float(), values[:, 0]
    packed[:, RESTRICTED], packed[:, SHARE] = restricted[:, 0].float(), share[:, 0]
    packed[:, OF_LABEL] = total.gather(1, truth[:, None])[:, 0]
    packed[:, WITHIN], packed[:, USABLE] = within[:, 0].float(), usable.float()
    packed[:, POSITIVE] = (values[:, :kept] > 0).sum(1).float()
    packed[:, TOP : TOP + kept] = places[:, :kept].float()
    return packed


def _first_largest(values: torch.Tensor) -> torch.Tensor:
    """Return the first place at which each row is largest: (n, 1). ``argmax`` promises no order."""
    places = torch.arange(values.shape[1], device=values.device)
    return torch.where(values == values.amax(1, keepdim=True), places, values.shape[1]).amin(1, keepdim=True)


def columns(packed: NDArray[np.float32], labels: LabelMap, truth: NDArray[np.int64]) -> dict[str, pa.Array]:
    """Return the outcome columns of rows that ``pack`` has packed."""
    whole = packed[:, [BEST, RESTRICTED, *range(TOP, WIDTH)]].astype(np.int32)
    usable, within = packed[:, USABLE] > 0, packed[:, WITHIN] > 0
    answered = packed[:, CONFIDENCE] > 0
    owner = np.full(len(labels.outputs), -1)
    for position, own in enumerate(labels.members):
        owner[list(own)] = position
    outputs, classes = pa.array(labels.outputs, pa.string()), pa.array(labels.classes, pa.string())
    positive = np.where(usable, packed[:, POSITIVE].astype(np.int32), 0)
    listed = np.arange(TOPK) < positive[:, None]
    offsets = pa.array(np.concatenate([[0], np.cumsum(positive)]).astype(np.int32), mask=np.append(~usable, False))
    numbers = {
        name: pa.array(packed[:, place], pa.float32(), mask=~usable)
        for name, place in (
            ("confidence", CONFIDENCE), ("confidence_restricted", SHARE), ("probability_of_label", OF_LABEL)
        )
    }  # fmt: skip
    return numbers | {
        "prediction": _named(whole[:, 0], ~usable | ~answered, outputs),
        "correct": pa.array(answered & (owner[whole[:, 0]] == truth), mask=~usable),
        "prediction_restricted": _named(whole[:, 1], ~usable | ~within, classes),
        "correct_restricted": pa.array(within & (whole[:, 1] == truth), mask=~usable),
        "topk": pa.ListArray.from_arrays(offsets, outputs.take(pa.array(whole[:, 2:][listed]))),
        "status": _named((~usable).astype(np.int32), None, pa.array(["ok", "error"])),
        "error": pa.array(np.full(len(packed), NOT_PROBABILITIES, object), pa.string(), mask=usable),
    }


def _named(codes: NDArray[np.int32], unknown: NDArray[np.bool_] | None, names: pa.Array) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32(), mask=unknown), names)
