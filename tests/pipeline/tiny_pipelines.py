"""Pipelines of diffusers with random weights, for painting backgrounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tiny_diffusion import ddim, tiny_parts


def save_pipeline(folder: Path, kind: str) -> Path:
    """``inpaint``: one made for inpainting; ``text``: one that only makes images from text."""
    import diffusers

    if kind == "inpaint":
        parts = tiny_parts(in_channels=9, out_channels=4)
        made: Any = diffusers.StableDiffusionInpaintPipeline(scheduler=ddim(), **parts)
    else:
        parts = tiny_parts(time_cond_proj_dim=16)
        made = diffusers.LatentConsistencyModelPipeline(scheduler=diffusers.LCMScheduler(), **parts)
    made.save_pretrained(folder)
    return folder
