"""Vision-language models of random weights, saved as transformers saves them."""

from __future__ import annotations

from pathlib import Path

import torch

WORDS = (  # noqa: SIM905
    "what is the main object in this image ? choose from following list : , . fox whale cello cross disc square "
    "ice cream a"
).split()
TEMPLATE = (
    "{% for turn in messages %}{% for part in turn['content'] %}{% if part['type'] == 'image' %}IMAGE "
    "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}{% if add_generation_prompt %} [answer]{% endif %}"
)


def _tokenizer(special: list[str]):  # type: ignore[no-untyped-def]
    import tokenizers
    import transformers
    from tokenizers import models, pre_tokenizers

    words = ["[pad]", "[unk]", "[begin]", "[end]", *special, "[answer]", *dict.fromkeys(WORDS)]
    inner = tokenizers.Tokenizer(models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="[unk]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[pad]", unk_token="[unk]", bos_token="[begin]", eos_token="[end]",
        additional_special_tokens=[*special, "[answer]"],
    )  # fmt: skip
    return made, {word: at for at, word in enumerate(words)}


SIZES = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def save_llava(folder: Path, *, template: str | None = TEMPLATE.replace("IMAGE", "<image>"), seed: int = 0) -> Path:
    """CLIP's image tower, a projector and a Llama."""
    import transformers

    tokenizer, ids = _tokenizer(["<image>"])
    vision = transformers.CLIPVisionConfig(image_size=32, patch_size=8, projection_dim=16, **SIZES)
    text = transformers.LlamaConfig(
        vocab_size=len(ids), num_key_value_heads=2, max_position_embeddings=256, bos_token_id=2, eos_token_id=3,
        pad_token_id=0, **SIZES,
    )  # fmt: skip
    config = transformers.LlavaConfig(
        vision_config=vision, text_config=text, image_token_index=ids["<image>"], image_seq_length=16
    )
    torch.manual_seed(seed)
    model = transformers.LlavaForConditionalGeneration(config)
    model.generation_config.do_sample = True  # as published ones do; asking must not sample all the same
    model.generation_config.temperature = 5.0
    _loud(model).save_pretrained(folder)
    images = transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    transformers.LlavaProcessor(
        image_processor=images, tokenizer=tokenizer, patch_size=8, vision_feature_select_strategy="default",
        num_additional_image_tokens=1, chat_template=template, image_token="<image>",
    ).save_pretrained(folder)  # fmt: skip
    return folder


def save_qwen(folder: Path) -> Path:
    """Qwen2-VL: images of any shape, as many tokens as they have patches, positions in three directions."""
    import transformers

    special = ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    tokenizer, ids = _tokenizer(special)
    text = {
        "vocab_size": len(ids), "num_key_value_heads": 2, "max_position_embeddings": 512, "bos_token_id": 2,
        "eos_token_id": 3, "pad_token_id": 0,
        "rope_scaling": {"type": "mrope", "rope_type": "default", "mrope_section": [2, 3, 3]}, **SIZES,
    }  # fmt: skip
    vision = {
        "depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 2, "mlp_ratio": 1, "patch_size": 8,
        "spatial_merge_size": 2, "temporal_patch_size": 2, "in_channels": 3,
    }  # fmt: skip
    config = transformers.Qwen2VLConfig(
        text_config=text, vision_config=vision, image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"], vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"], tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(1)
    _loud(transformers.Qwen2VLForConditionalGeneration(config)).save_pretrained(folder)
    sizes = {"patch_size": 8, "merge_size": 2, "temporal_patch_size": 2, "min_pixels": 16 * 16, "max_pixels": 64 * 64}
    image_marks = "<|vision_start|><|image_pad|><|vision_end|>"
    transformers.Qwen2VLProcessor(
        image_processor=transformers.Qwen2VLImageProcessor(**sizes),
        tokenizer=tokenizer,
        video_processor=transformers.Qwen2VLVideoProcessor(**sizes),
        chat_template=TEMPLATE.replace("IMAGE", image_marks),
    ).save_pretrained(folder)
    return folder


def _loud(model):  # type: ignore[no-untyped-def]
    """Random weights say the same word to everything unless they are large."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(8)
    return model
