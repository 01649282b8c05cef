"""Occlusion (Zeiler and Fergus 2014), by captum: cover a window, see what is lost. Needs answers only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.core.errors import UserError
from holdfast.explain.baselines import baseline as make_baseline
from holdfast.explain.networks import Network

if TYPE_CHECKING:
    import torch

PARTS = 7
"""Windows that fit beside each other across a picture, where no size is given."""


def occlusion(
    network: Network,
    batch: torch.Tensor,
    targets: Sequence[torch.Tensor],
    *,
    window: int = 0,
    stride: int = 0,
    baseline: str = "mean",
) -> torch.Tensor:
    """Maps, (n, height, width) ≥ 0 on the CPU: the mean loss of score over the windows that cover a pixel.

    Args:
        network: any; a black box is asked for its answers.
        batch: RGB NCHW in 0..1.
        targets: of ``network.score``.
        window: side of the square in pixels; 0: a seventh of the shorter side.
        stride: from one window to the next; 0: half a window.
        baseline: what stands in the window, one of ``baselines.BASELINES``.
    """
    import torch
    from captum.attr import Occlusion

    height, width = int(batch.shape[-2]), int(batch.shape[-1])
    window = window or max(1, min(height, width) // PARTS)
    stride = stride or max(1, window // 2)
    if window > min(height, width) or stride > window:
        raise UserError(
            f"occlusion takes a window of at most {min(height, width)} pixels here and a stride of at most the window, "
            f"not {window} and {stride}"
        )
    batch = batch.to(network.device)
    given = tuple(one.to(network.device) for one in targets)
    with torch.no_grad():
        made = Occlusion(network.score).attribute(
            batch,
            sliding_window_shapes=(batch.shape[1], window, window),
            strides=(batch.shape[1], stride, stride),
            baselines=make_baseline(batch, baseline),
            additional_forward_args=given,
            perturbations_per_eval=max(1, 64 // len(batch)),
        )
    # A window covers all channels at once, so every channel says the same.
    values: torch.Tensor = made[:, 0].detach().float().cpu().relu()
    return values
