"""How far apart two pictures are to the eye: colour, and the features of a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import cv2
import numpy as np

from holdfast.core.protocols import Oracle
from holdfast.core.types import Image

FeatureDistance = Callable[[Sequence[Image], Sequence[Image]], list[float]]


def colour_shift(first_image: Image, other: Image) -> float:
    """Return the mean CIE76 difference between two images of one size; 2.3 is just noticeable."""
    first, second = (cv2.cvtColor(image.astype(np.float32) / 255, cv2.COLOR_RGB2LAB) for image in (first_image, other))
    return float(np.linalg.norm(first - second, axis=2).mean())


def feature_distance(oracle: Oracle, size: int) -> FeatureDistance | None:
    """Return a function for distances in an oracle's features, 0..2; None where it has no network.

    LPIPS without its fitted weights: at the last convolution of each resolution (of a transformer, its last norm over
    tokens, too) one less the cosine of the two feature vectors, averaged over places and then over layers. Of an
    ensemble the first member looks.
    """
    import torch

    members = getattr(oracle, "members", None)
    classifier = getattr(members[0] if members else oracle, "classifier", None)
    module = getattr(classifier, "_module", None)
    if classifier is None or not isinstance(module, torch.nn.Module):
        return None
    chosen = _last_maps(module, classifier, size)
    if not chosen:
        return None

    def features(images: Sequence[Image]) -> list[torch.Tensor]:
        caught: dict[int, torch.Tensor] = {}
        hooks = [layer.register_forward_hook(_catcher(caught, place)) for place, layer in enumerate(chosen)]
        try:
            with torch.no_grad():
                classifier.logits(_batch(images, classifier.device))
        finally:
            for hook in hooks:
                hook.remove()
        return [torch.nn.functional.normalize(caught[place].float(), dim=1) for place in range(len(chosen))]

    def distances(first: Sequence[Image], second: Sequence[Image]) -> list[float]:
        if not first:
            return []
        apart = [
            (1 - (feature * other).sum(1)).flatten(1).mean(1)
            for feature, other in zip(features(first), features(second), strict=True)
        ]
        mean: list[float] = torch.stack(apart).mean(0).clamp(min=0).tolist()
        return mean

    return distances


def _last_maps(module: Any, classifier: Any, size: int) -> list[Any]:
    """Return the layers whose output is the last of its resolution, found with one grey picture."""
    import torch

    last: dict[tuple[int, ...], Any] = {}

    def note(layer: Any, inputs: Any, output: Any) -> None:
        # One value a channel, which is what pooling leaves, is no map.
        if output.ndim == 4 and output.shape[-1] > 1 and isinstance(layer, torch.nn.Conv2d):
            last[tuple(output.shape[-2:])] = layer
        elif output.ndim == 3 and output.shape[1] > 1 and isinstance(layer, torch.nn.LayerNorm):
            last[tuple(output.shape[1:2])] = layer

    leaves = [layer for layer in module.modules() if isinstance(layer, torch.nn.Conv2d | torch.nn.LayerNorm)]
    hooks = [layer.register_forward_hook(note) for layer in leaves]
    try:
        with torch.no_grad():
            classifier.logits(torch.full((1, 3, size, size), 0.5, device=classifier.device))
    finally:
        for hook in hooks:
            hook.remove()
    return list(last.values())


def _catcher(caught: dict[int, Any], place: int) -> Callable[[Any, Any, Any], None]:
    def catch(layer: Any, inputs: Any, output: Any) -> None:
        # Convolutions answer NCHW, norms over tokens (images, tokens, channels).
        caught[place] = output if output.ndim == 4 else output.transpose(1, 2)

    return catch


def _batch(images: Sequence[Image], device: str) -> Any:
    import torch

    return torch.from_numpy(np.stack(images)).to(device).permute(0, 3, 1, 2).float() / 255
