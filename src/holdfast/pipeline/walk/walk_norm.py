"""Group normalisation for compiled steps on channels-last images.

Torch's compiler reduces a group's channels and pixels in one sweep, which jumps through memory where the channels lie
side by side. Here every channel is reduced by itself, neighbours together, and the mean and variance of a group
follow from its channels' exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch.overrides import TorchFunctionMode


def group_norm(
    batch: torch.Tensor,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """``torch.nn.functional.group_norm``; computed in float32, answers in the batch's type."""
    import torch

    count, channels = batch.shape[:2]
    variance, mean = torch.var_mean(batch.float().flatten(2), dim=2, correction=0)
    means = mean.view(count, num_groups, -1)
    # The mean of the channels' variances and the variance of their means.
    within = variance.view(count, num_groups, -1).mean(2) + means.var(2, correction=0)
    scale = (within + eps).rsqrt().repeat_interleave(channels // num_groups, dim=1)
    shift = -means.mean(2).repeat_interleave(channels // num_groups, dim=1) * scale
    if weight is not None:
        scale, shift = scale * weight, shift * weight
    if bias is not None:
        shift = shift + bias
    each = (count, channels, *[1] * (batch.ndim - 2))
    return (batch.float() * scale.view(each) + shift.view(each)).to(batch.dtype)


def by_channel() -> TorchFunctionMode:
    """While this holds, group normalisation is computed so."""
    import torch.nn.functional
    from torch.overrides import TorchFunctionMode

    class ByChannel(TorchFunctionMode):
        def __torch_function__(
            self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            if function is torch.nn.functional.group_norm:
                return group_norm(*args, **(kwargs or {}))
            return function(*args, **(kwargs or {}))

    return ByChannel()
