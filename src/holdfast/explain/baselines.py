"""What a picture is compared with: the colour of "nothing"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.registry import unknown

if TYPE_CHECKING:
    import torch

BASELINES = ("mean", "black", "grey", "white", "blur")


def baseline(batch: torch.Tensor, kind: str) -> torch.Tensor:
    """Pictures NCHW in 0..1 that show nothing: each one's mean colour, one colour for all, or a strong blur.

    A fixed colour is blind to objects of that colour, so the mean is the default of all methods.
    """
    import torch

    flat = {"black": 0.0, "grey": 0.5, "white": 1.0}
    if kind in flat:
        return torch.full_like(batch, flat[kind])
    if kind == "mean":
        return batch.mean((2, 3), keepdim=True).expand_as(batch).contiguous()
    if kind != "blur":
        raise unknown("baseline", kind, BASELINES)
    small = torch.nn.functional.interpolate(batch, (4, 4), mode="area")
    return torch.nn.functional.interpolate(small, batch.shape[-2:], mode="bilinear", align_corners=False)
