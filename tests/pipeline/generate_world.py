"""Generators to make pools with: a toy that paints a prompt's colour, and a tiny Stable Diffusion of random weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from holdfast.core.fingerprint import fingerprint
from tiny_diffusion import ddim, tiny_parts


class Toy:
    """A colour that follows from prompt and seed; black or failing if a test says so."""

    name = "toy:"

    def __init__(self, weights: str = "1") -> None:
        self.fingerprint = fingerprint(weights)
        self.calls: list[int] = []
        self.black_seeds: set[int] = set()
        self.broken_prompts: set[str] = set()

    def generate(self, prompts: Sequence[str], seeds: Sequence[int]) -> list[np.ndarray]:
        self.calls.append(len(prompts))
        if self.broken_prompts & set(prompts):
            raise ValueError("this prompt is too much for me\nand a second line")
        made = []
        for prompt, seed in zip(prompts, seeds, strict=True):
            colour = np.frombuffer(bytes.fromhex(fingerprint([prompt, seed])[:6]), np.uint8)
            image = np.broadcast_to(colour | 1, (8, 12, 3)).copy()
            made.append(image * np.uint8(seed not in self.black_seeds))
        return made


LENGTH = 12


def tiny_pipeline(folder: Path, *, flags: bool | None = None) -> Path:
    """A Stable Diffusion pipeline that makes images of 32 px; ``flags``: its safety checker refuses all, or none."""
    import diffusers
    import transformers
    from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker

    parts = tiny_parts(length=LENGTH)
    if flags is not None:
        vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                  "image_size": 32, "patch_size": 16, "projection_dim": 16}  # fmt: skip
        checker = StableDiffusionSafetyChecker(transformers.CLIPConfig(vision_config=vision, projection_dim=16))
        checker.concept_embeds_weights.data.fill_(-2.0 if flags else 2.0)  # cosines are above, or below
        checker.special_care_embeds_weights.data.fill_(2.0)
        size = {"height": 32, "width": 32}
        processor = transformers.CLIPImageProcessor(size=size, crop_size=size)
        parts |= {"safety_checker": checker, "feature_extractor": processor, "requires_safety_checker": True}
    diffusers.StableDiffusionPipeline(scheduler=ddim(), **parts).save_pretrained(folder)
    return folder
