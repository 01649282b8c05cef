"""Integrated gradients (Sundararajan, Taly and Yan 2017), by captum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.core.errors import UserError
from holdfast.explain.baselines import baseline as make_baseline
from holdfast.explain.networks import Network

if TYPE_CHECKING:
    import torch

STEPS = 32


def integrated_gradients(
    network: Network,
    batch: torch.Tensor,
    targets: Sequence[torch.Tensor],
    *,
    steps: int = STEPS,
    baseline: str = "mean",
) -> torch.Tensor:
    """Maps, (n, height, width) ≥ 0 on the CPU: what speaks for the target, summed over channels; the rest is 0.

    Args:
        network: with gradients.
        batch: RGB NCHW in 0..1, at the model's input size.
        targets: of ``network.score``.
        steps: between the baseline and the picture.
        baseline: one of ``baselines.BASELINES``.
    """
    return signed(network, batch, targets, steps=steps, baseline=baseline).sum(1).relu()


def signed(
    network: Network, batch: torch.Tensor, targets: Sequence[torch.Tensor], *, steps: int, baseline: str
) -> torch.Tensor:
    """The attribution of every value, NCHW on the CPU; a picture's sum is score(picture) − score(baseline)."""
    from captum.attr import IntegratedGradients

    if not network.differentiable:
        raise UserError(f"integrated gradients follow gradients, and {network.name} has none; try occlusion")
    batch = batch.to(network.device)
    given = tuple(one.to(network.device) for one in targets)
    made = IntegratedGradients(network.score, multiply_by_inputs=True).attribute(
        batch,
        baselines=make_baseline(batch, baseline),
        additional_forward_args=given,
        n_steps=steps,
        internal_batch_size=max(len(batch), 16),
    )
    values: torch.Tensor = made.detach().float().cpu()
    return values
