"""The scenarios that ``eval --fast`` makes, as batched tensor code on any device: the same images as OpenCV's."""

from holdfast.scenarios.tensors.arithmetic import on_device
from holdfast.scenarios.tensors.batches import at_once, donor_backgrounds, rainbow_shifts, render_batch, supports
from holdfast.scenarios.tensors.fused import Call, plain, proved_for

__all__ = [
    "Call", "at_once", "donor_backgrounds", "on_device", "plain", "proved_for", "rainbow_shifts", "render_batch",
    "supports",
]  # fmt: skip
