"""Pipelines of diffusers with random weights, small enough to make an image in milliseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

WORDS = ["[pad]", "[unk]", "[begin]", "[end]", "a", "an", "disc", "cross", "square", "in", "the", "snow", "sea"]


def _tokenizer() -> Any:
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
        model_max_length=20,
    )  # fmt: skip


def save_pipeline(folder: Path, kind: str) -> Path:
    """``inpaint``: one made for inpainting; ``text``: one that only makes pictures from text."""
    import diffusers
    import transformers

    torch.manual_seed(0)
    blocks = {"block_out_channels": (8, 16), "norm_num_groups": 4}
    text = transformers.CLIPTextConfig(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=20, bos_token_id=2, eos_token_id=3, pad_token_id=0, projection_dim=16,
    )  # fmt: skip
    unet = diffusers.UNet2DConditionModel(
        sample_size=16, in_channels=9 if kind == "inpaint" else 4, out_channels=4, layers_per_block=1,
        cross_attention_dim=16, attention_head_dim=2, time_cond_proj_dim=16 if kind == "text" else None,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        **blocks,
    )  # fmt: skip
    vae = diffusers.AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4,
        **blocks,
    )  # fmt: skip
    parts: dict[str, Any] = {
        "vae": vae, "unet": unet, "text_encoder": transformers.CLIPTextModel(text), "tokenizer": _tokenizer(),
        "safety_checker": None, "feature_extractor": None, "requires_safety_checker": False,
    }  # fmt: skip
    if kind == "inpaint":
        scheduler = diffusers.DDIMScheduler(num_train_timesteps=100, steps_offset=1, clip_sample=False)
        made: Any = diffusers.StableDiffusionInpaintPipeline(scheduler=scheduler, **parts)
    else:
        made = diffusers.LatentConsistencyModelPipeline(scheduler=diffusers.LCMScheduler(), **parts)
    made.save_pretrained(folder)
    return folder
