"""Parts of Stable Diffusion pipelines with random weights, small enough to make an image in milliseconds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

WORDS = (
    "[pad]", "[unk]", "[begin]", "[end]", "a", "fox", "whale", "in", "the", "snow", "sea", "made", "of", "wool", "an",
    "disc", "cross", "square",
)  # fmt: skip
_BLOCKS = {"block_out_channels": (8, 16), "norm_num_groups": 4}


def tiny_tokenizer(length: int = 20) -> Any:
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
        model_max_length=length,
    )  # fmt: skip


def text_config(length: int = 20) -> Any:
    import transformers

    return transformers.CLIPTextConfig(
        vocab_size=len(WORDS), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        max_position_embeddings=length, bos_token_id=2, eos_token_id=3, pad_token_id=0, projection_dim=16,
    )  # fmt: skip


def tiny_parts(*, length: int = 20, **unet: Any) -> dict[str, Any]:
    """All that a pipeline of 32 px needs but a scheduler, without a safety checker; ``unet``: options of the UNet."""
    import diffusers
    import transformers

    torch.manual_seed(0)
    return {
        "unet": diffusers.UNet2DConditionModel(
            sample_size=16, layers_per_block=1, cross_attention_dim=16, attention_head_dim=2,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), **unet, **_BLOCKS,
        ),
        "vae": diffusers.AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * 2, up_block_types=("UpDecoderBlock2D",) * 2,
            latent_channels=4, **_BLOCKS,
        ),
        "text_encoder": transformers.CLIPTextModel(text_config(length)),
        "tokenizer": tiny_tokenizer(length),
        "safety_checker": None,
        "feature_extractor": None,
        "requires_safety_checker": False,
    }  # fmt: skip


def ddim() -> Any:
    """A scheduler for them."""
    import diffusers

    return diffusers.DDIMScheduler(num_train_timesteps=100, steps_offset=1, clip_sample=False)


def save_sdxl(folder: Path) -> Any:
    """Stable Diffusion XL's own parts, small: two towers, and sizes and crops that condition the UNet; returns them."""
    import diffusers
    import transformers

    config = text_config()
    config.hidden_act, config.projection_dim = "gelu", 16
    parts = {key: part for key, part in tiny_parts().items() if "checker" not in key}
    parts["unet"] = diffusers.UNet2DConditionModel(
        sample_size=16, layers_per_block=1, cross_attention_dim=32, attention_head_dim=(2, 4),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        block_out_channels=(8, 16), norm_num_groups=4, use_linear_projection=True, transformer_layers_per_block=(1, 2),
        addition_embed_type="text_time", addition_time_embed_dim=8, projection_class_embeddings_input_dim=6 * 8 + 16,
    )  # fmt: skip
    second = {"text_encoder_2": transformers.CLIPTextModelWithProjection(config), "tokenizer_2": tiny_tokenizer()}
    pipeline = diffusers.StableDiffusionXLPipeline(
        scheduler=ddim(), image_encoder=None, add_watermarker=False, **parts, **second
    )
    pipeline.save_pretrained(folder)
    return pipeline
