"""Generators to make pools with: a toy that paints a prompt's colour, and a tiny Stable Diffusion of random weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.core.fingerprint import fingerprint


class Toy:
    """A colour that follows from prompt and seed; black or failing where a test says so."""

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


WORDS = ("[pad]", "[unk]", "[begin]", "[end]", "a", "fox", "whale", "in", "the", "snow", "sea", "made", "of", "wool")
LENGTH = 12


def tiny_tokenizer() -> Any:
    import tokenizers
    import transformers
    from tokenizers import models, pre_tokenizers, processors

    inner = tokenizers.Tokenizer(models.WordLevel({word: at for at, word in enumerate(WORDS)}, unk_token="[unk]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="[begin] $A [end]", special_tokens=[("[begin]", 2), ("[end]", 3)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[pad]", unk_token="[unk]", bos_token="[begin]", eos_token="[end]",
        model_max_length=LENGTH,
    )  # fmt: skip


def tiny_pipeline(folder: Path, *, flags: bool | None = None) -> Path:
    """A Stable Diffusion pipeline that makes images of 32 px; ``flags``: its safety checker refuses all, or none."""
    import diffusers
    import transformers
    from diffusers.pipelines.stable_diffusion.safety_checker import StableDiffusionSafetyChecker

    torch.manual_seed(0)
    blocks = {"block_out_channels": (8, 16), "norm_num_groups": 4}
    unet = diffusers.UNet2DConditionModel(
        sample_size=16, layers_per_block=1, cross_attention_dim=16, attention_head_dim=2,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        **blocks,
    )  # fmt: skip
    vae = diffusers.AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4,
        **blocks,
    )  # fmt: skip
    text = transformers.CLIPTextConfig(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=LENGTH, bos_token_id=2, eos_token_id=3, pad_token_id=0, projection_dim=16,
    )  # fmt: skip
    checker = None
    if flags is not None:
        vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2,
                  "image_size": 32, "patch_size": 16, "projection_dim": 16}  # fmt: skip
        checker = StableDiffusionSafetyChecker(transformers.CLIPConfig(vision_config=vision, projection_dim=16))
        checker.concept_embeds_weights.data.fill_(-2.0 if flags else 2.0)  # cosines are above, or below
        checker.special_care_embeds_weights.data.fill_(2.0)
    size = {"height": 32, "width": 32}
    pipeline = diffusers.StableDiffusionPipeline(
        vae=vae, text_encoder=transformers.CLIPTextModel(text), tokenizer=tiny_tokenizer(), unet=unet,
        scheduler=diffusers.DDIMScheduler(num_train_timesteps=100, steps_offset=1, clip_sample=False),
        safety_checker=checker,
        feature_extractor=checker and transformers.CLIPImageProcessor(size=size, crop_size=size),
        requires_safety_checker=checker is not None,
    )  # fmt: skip
    pipeline.save_pretrained(folder)
    return folder
