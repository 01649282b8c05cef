"""Layers of a network whose output is a grid of positions, grids of features, and layers made random again."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.lazy import torch
from holdfast.core.names import unknown
from holdfast.core.protocols import Classifier, DifferentiableClassifier

COARSE = 4  # cells a side below which a grid is passed over for an earlier one, if there is any
MAX_PREFIX = 16  # class and register tokens before those of the image
_INSIDE_ATTENTION = re.compile(r"(^|\.)[^.]*(attn|attention)[^.]*\.", re.IGNORECASE)
_ENCODERS = ("encoder", "backbone")


@dataclass(frozen=True)
class FeatureGrid:
    """Layout of a layer's output: ``channels_first`` NCHW, ``channels_last`` NHWC, ``tokens`` (n, prefix + h·w, C)."""

    layout: str
    height: int
    width: int
    prefix: int = 0

    def features(self, output: torch.Tensor) -> torch.Tensor:
        """Return an output as NCHW, without the tokens that have no position."""
        if self.layout == "tokens":
            places = output[:, self.prefix :].transpose(1, 2)
            return places.reshape(len(output), -1, self.height, self.width)
        return output if self.layout == "channels_first" else output.permute(0, 3, 1, 2)


def find_layer(network: ExplainedNetwork, batch: torch.Tensor, targets: Sequence[torch.Tensor], name: str = "") -> str:
    """Find the layer for Grad-CAM: the last one with positions that the score depends on.

    After the last block of a transformer with a class token, no other token matters any more; so the search goes
    back until gradients reach places. In a network that scores every pixel, only its encoder is searched: what comes
    after leads back to the image's grid, up to the answer itself.
    """
    module = _module(network)
    if name:
        if name not in dict(module.named_modules()):
            raise unknown(f"layer of {network.name}", name, [layer for layer, _ in module.named_modules() if layer])
        return name
    size = (int(batch.shape[-2]), int(batch.shape[-1]))
    with watched(network) as outputs:
        score = network.score(batch.detach().requires_grad_(), *targets)
    grids = [(layer, output, grid_of(output, size, module)) for layer, output in outputs]
    candidates = [(layer, output, grid) for layer, output, grid in grids if grid is not None]
    if network.dense:
        inner = [entry for entry in candidates if any(part in _ENCODERS for part in entry[0].split("."))]
        coarsest = min((grid.height for _, _, grid in candidates), default=0)
        candidates = inner or [entry for entry in candidates if entry[2].height == coarsest]
    tensors = [output for _, output, _ in candidates]
    gradients = torch.autograd.grad(score.sum(), tensors, allow_unused=True) if candidates else ()
    reached = [
        (layer, grid)
        for (layer, _, grid), gradient in zip(candidates, gradients, strict=True)
        if gradient is not None and bool(grid.features(gradient).abs().amax() > 0)
    ]
    if not reached:
        raise UserError(f"Grad-CAM finds no layer of {network.name} with places in it; name one: gradcam?layer=NAME")
    fine = [layer for layer, grid in reached if min(grid.height, grid.width) >= COARSE]
    return fine[-1] if fine else reached[-1][0]


@contextmanager
def watched(network: ExplainedNetwork, only: str = "") -> Iterator[list[tuple[str, torch.Tensor]]]:
    """Record outputs of layers in order, by name; of one layer, or of all that may hold features."""
    outputs: list[tuple[str, torch.Tensor]] = []

    def keep(name: str) -> Any:
        def hook(_: torch.nn.Module, __: Any, output: Any) -> None:
            if isinstance(output, tuple) and output and torch.is_tensor(output[0]):
                output = output[0]  # transformers' blocks
            if torch.is_tensor(output) and output.requires_grad:
                outputs.append((name, output))

        return hook

    projection = torch.nn.Linear  # between features: queries, hidden layers of MLPs
    chosen = [
        (name, module)
        for name, module in _module(network).named_modules()
        if (
            name == only if only else name and not _INSIDE_ATTENTION.search(name) and not isinstance(module, projection)
        )
    ]
    handles = [module.register_forward_hook(keep(name)) for name, module in chosen]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def grid_of(output: torch.Tensor, size: tuple[int, int], module: torch.nn.Module) -> FeatureGrid | None:
    """Return the layout of an output for an image of this size and proportions; None if it has no positions."""
    shape = tuple(output.shape)
    if len(shape) == 4:
        for layout, (height, width) in (("channels_first", shape[2:]), ("channels_last", shape[1:3])):
            if height > 1 and width > 1 and _fits(height, width, size):
                return FeatureGrid(layout, height, width)
    if len(shape) == 3:
        known: list[Any] = [part.num_prefix_tokens for part in module.modules() if hasattr(part, "num_prefix_tokens")]
        for prefix in (int(known[0]),) if known else range(MAX_PREFIX + 1):
            places = shape[1] - prefix
            height = round((places * size[0] / size[1]) ** 0.5) if places > 1 else 0
            if height > 1 and places % height == 0 and _fits(height, places // height, size):
                return FeatureGrid("tokens", height, places // height, prefix)
    return None


def _fits(height: int, width: int, size: tuple[int, int]) -> bool:
    """Return whether the strides agree except for rounding up at the edges."""
    if height > size[0] or width > size[1]:
        return False
    stride = max(size[0] / height, size[1] / width)
    return abs(size[0] / stride - height) < 1 and abs(size[1] / stride - width) < 1


def _module(network: ExplainedNetwork) -> torch.nn.Module:
    if network.module is None or not network.differentiable:
        raise UserError(
            f"Grad-CAM needs a network's layers and gradients, and {network.name} shows none; try occlusion"
        )
    return network.module


DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Of Adebayo's cascade: which share of the layers is shuffled, from the answer down; 0 is the last layer alone."""


def shuffled(module: torch.nn.Module, *, seed: int = 0) -> list[torch.Tensor]:
    """Return the module's parameters, each with its values shuffled, as suits any architecture (Adebayo's cascade)."""
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
    """Put these weights (``only`` some places, or all) into the module for a while, in place."""
    own = [parameter.data for parameter in module.parameters()]
    try:
        for place, (parameter, weight) in enumerate(zip(module.parameters(), weights, strict=True)):
            if only is None or place in only:
                parameter.data = weight
        yield
    finally:
        for parameter, weight in zip(module.parameters(), own, strict=True):
            parameter.data = weight


Score = Callable[..., "torch.Tensor"]


@dataclass(frozen=True)
class ExplainedNetwork:
    """A model that can be explained."""

    name: str  # for messages
    # RGB batch NCHW in 0..1, at the model's input size, and the targets, tensors whose first axis is the images
    # → the scores that are explained, (n,)
    score: Score
    device: str = "cpu"  # where batches go
    module: torch.nn.Module | None = None  # the network itself, for its layers and weights; None for a black box
    differentiable: bool = True  # whether gradients pass the score
    dense: bool = False  # whether it scores every pixel, so that its last layer is the answer itself


def of_classifier(classifier: Classifier) -> ExplainedNetwork:
    """Wrap a classifier: targets are output indices, (n,), scored by their logit, or by probability for a black box."""

    def black_box(batch: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        pictures = (batch * 255).round().clamp(0, 255).to("cpu", torch.uint8).permute(0, 2, 3, 1).numpy()
        answers = classifier.predict([np.ascontiguousarray(picture) for picture in pictures])
        return torch.from_numpy(np.asarray(answers, np.float32)).gather(1, targets.cpu()[:, None])[:, 0]

    if not isinstance(classifier, DifferentiableClassifier):
        return ExplainedNetwork(classifier.name, black_box, differentiable=False)

    def score(batch: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = classifier.logits(batch).gather(1, targets[:, None])[:, 0]
        return answer

    return ExplainedNetwork(classifier.name, score, classifier.device, getattr(classifier, "module", None))


def of_segmenter(segmenter: Any) -> ExplainedNetwork:
    """Wrap a segmenter with ``logits`` (RGB batch NCHW in 0..1 → (n, labels, h, w)) and ``module``.

    Its targets are places of labels, (n,), and regions, (n, height, width) 0..1. The score is the mean of the label's
    logits over the region (Vinogradova, Dibrov and Myers 2020).
    """

    def score(batch: torch.Tensor, targets: torch.Tensor, regions: torch.Tensor) -> torch.Tensor:
        planes = segmenter.logits(batch)
        chosen = planes[torch.arange(len(planes), device=planes.device), targets]
        weight = torch.nn.functional.interpolate(regions[:, None].to(chosen), chosen.shape[-2:], mode="area")[:, 0]
        answer: torch.Tensor = (chosen * weight).sum((1, 2)) / weight.sum((1, 2)).clamp_min(1e-9)
        return answer

    return ExplainedNetwork(segmenter.name, score, segmenter.device, segmenter.module, dense=True)
