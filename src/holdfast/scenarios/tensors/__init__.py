"""The scenarios that ``eval --fast`` makes, as batched tensor code on any device: the same images as OpenCV's."""

from holdfast.scenarios.tensors.arithmetic import on_device
from holdfast.scenarios.tensors.batches import (
    Compiled,
    at_once,
    compile_for,
    donor_backgrounds,
    rainbow_shifts,
    render_batch,
    supports,
)

__all__ = [
    "Compiled", "at_once", "compile_for", "donor_backgrounds", "on_device", "rainbow_shifts", "render_batch",
    "supports",
]  # fmt: skip
