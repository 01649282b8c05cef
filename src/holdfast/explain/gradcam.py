"""Grad-CAM (Selvaraju and others 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.core.errors import UserError
from holdfast.explain.layers import find_layer, grid_of, watched
from holdfast.explain.networks import Network

if TYPE_CHECKING:
    import torch


def gradcam(network: Network, batch: torch.Tensor, targets: Sequence[torch.Tensor], *, layer: str = "") -> torch.Tensor:
    """Maps, (n, height, width) ≥ 0 on the CPU: channels of a layer, weighted by the mean gradient of the score.

    Written here rather than taken from captum because tokens and channels-last layers have to become a grid first;
    on a plain convolutional network the two agree to rounding.

    Args:
        network: with layers and gradients.
        batch: RGB NCHW in 0..1, at the model's input size.
        targets: of ``network.score``.
        layer: by its name in the network; found where it is empty (``layers.find_layer``).
    """
    import torch

    batch = batch.to(network.device)
    targets = [one.to(network.device) for one in targets]
    name = layer or find_layer(network, batch[:1], [one[:1] for one in targets])
    size = (int(batch.shape[-2]), int(batch.shape[-1]))
    with watched(network, name) as outputs, torch.enable_grad():
        score = network.score(batch.detach().requires_grad_(), *targets)
    assert network.module is not None
    grids = [(output, grid) for _, output in outputs if (grid := grid_of(output, size, network.module)) is not None]
    if not grids:
        raise UserError(f"the layer {name} of {network.name} has no grid of places; name another: gradcam?layer=NAME")
    output, grid = grids[-1]  # one that is used several times: its last use
    (gradient,) = torch.autograd.grad(score.sum(), [output], allow_unused=True)
    if gradient is None:
        raise UserError(f"the answer of {network.name} does not depend on its layer {name}; name another")
    features, slopes = grid.features(output), grid.features(gradient)
    coarse = (slopes.mean((2, 3), keepdim=True) * features).sum(1, keepdim=True).relu()
    whole = torch.nn.functional.interpolate(coarse, size, mode="bilinear", align_corners=False)
    return whole[:, 0].detach().float().cpu()
