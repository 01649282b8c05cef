"""Networks with shuffled weights, the check of Adebayo and others (2018) for attribution maps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.explain.networks import ExplainedNetwork

if TYPE_CHECKING:
    import torch

DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Of Adebayo's cascade: which share of the layers is shuffled, from the answer down; 0 is the last layer alone."""


def shuffled(module: torch.nn.Module, *, seed: int = 0) -> list[torch.Tensor]:
    """Return the module's parameters, in their order, each with its values shuffled.

    All of them, the end of Adebayo's cascade; ``stages`` says which come first. Shuffled rather than drawn anew: any
    architecture has weights of the right size then, whatever its own way of drawing them.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    weights = []
    for parameter in module.parameters():
        order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
        weights.append(parameter.detach().flatten()[order].view_as(parameter).clone())
    return weights


def stages(network: ExplainedNetwork, batch: torch.Tensor, targets: Sequence[torch.Tensor]) -> list[frozenset[int]]:
    """Return, for every depth of ``DEPTHS``, the indices of the parameters that are shuffled by then.

    Layers are taken as they are used, the last one first; what belongs to a whole network (positions, a class token)
    with its beginning. What the score does not depend on, such as an auxiliary head, waits for the end.
    """
    assert network.module is not None
    used = _used(network, batch, targets)
    called = {id(module) for module in used}
    places = {id(parameter): place for place, parameter in enumerate(network.module.parameters())}
    layers: list[set[int]] = []
    taken: set[int] = set()
    for module in used:
        # A layer may hold others that are never called themselves, as attention does its last projection.
        inner = [part for part in module.modules() if part is module or id(part) not in called]
        own = {places[id(parameter)] for holder in inner for parameter in holder.parameters(recurse=False)} - taken
        if own:
            layers.append(own)
            taken |= own
    counts = [max(1, math.ceil(depth * len(layers))) for depth in DEPTHS[:-1]]
    first = [frozenset(place for layer in layers[:count] for place in layer) for count in counts]
    return [*first, frozenset(places.values())]


def _used(network: ExplainedNetwork, batch: torch.Tensor, targets: Sequence[torch.Tensor]) -> list[torch.nn.Module]:
    """Return the modules with weights that the score depends on, the one that ran last first."""
    import torch

    assert network.module is not None
    clock = itertools.count()
    began: dict[int, int] = {}
    outputs: list[tuple[torch.nn.Module, torch.Tensor]] = []

    def begin(module: torch.nn.Module, _: Any) -> None:
        began[id(module)] = next(clock)

    def end(module: torch.nn.Module, _: Any, output: Any) -> None:
        first = output[0] if isinstance(output, tuple) and output else output
        if torch.is_tensor(first) and first.requires_grad:
            outputs.append((module, first))

    holders = [part for part in network.module.modules() if next(part.parameters(recurse=False), None) is not None]
    handles = [part.register_forward_pre_hook(begin) for part in holders]
    handles += [part.register_forward_hook(end) for part in holders]
    try:
        with torch.enable_grad():
            score = network.score(batch.detach().to(network.device).requires_grad_(), *targets)
    finally:
        for handle in handles:
            handle.remove()
    tensors = [output for _, output in outputs]
    gradients = torch.autograd.grad(score.sum(), tensors, allow_unused=True) if outputs else ()
    pairs = zip(outputs, gradients, strict=True)
    reached = {id(module): module for (module, _), gradient in pairs if gradient is not None}
    return sorted(reached.values(), key=lambda module: -began[id(module)])


@contextmanager
def randomised(
    module: torch.nn.Module, weights: list[torch.Tensor], only: Collection[int] | None = None
) -> Iterator[None]:
    """Put these weights into the module for a while; in place, since some models hold other references to it.

    Args:
        module: whose weights come back afterwards.
        weights: for its parameters, in their order.
        only: the places that are changed; None: all.
    """
    own = [parameter.data for parameter in module.parameters()]
    try:
        for place, (parameter, weight) in enumerate(zip(module.parameters(), weights, strict=True)):
            if only is None or place in only:
                parameter.data = weight
        yield
    finally:
        for parameter, weight in zip(module.parameters(), own, strict=True):
            parameter.data = weight
