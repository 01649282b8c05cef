"""Small SAM and SAM 2 of random weights, saved as transformers saves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SIDE = 64


def write_sam(folder: Path) -> Path:
    import transformers

    config = transformers.SamConfig(
        vision_config={
            "hidden_size": 16,
            "output_channels": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": SIDE,
            "patch_size": 8,
            "window_size": 4,
            "global_attn_indexes": [1],
            "num_pos_feats": 8,
            "mlp_dim": 32,
            "initializer_range": 0.2,
        },
        prompt_encoder_config={"hidden_size": 16, "image_size": SIDE, "patch_size": 8, "mask_input_channels": 4},
        mask_decoder_config=_decoder(),
    )
    model = _made(transformers.SamModel, config)
    processor = transformers.SamProcessor(
        transformers.SamImageProcessor(
            size={"longest_edge": SIDE},
            pad_size={"height": SIDE, "width": SIDE},
            mask_size={"longest_edge": SIDE // 2},
            mask_pad_size={"height": SIDE // 2, "width": SIDE // 2},
        )
    )
    return _saved(folder, model, processor)


def write_sam2(folder: Path, *, video: bool = False) -> Path:
    """``video``: with the configuration that the published weights have, which name the model for videos."""
    import transformers

    vision = {
        "model_type": "sam2_vision_model",
        "backbone_config": {
            "model_type": "sam2_hiera_det_model",
            "hidden_size": 8,
            "image_size": [SIDE, SIDE],
            "window_positional_embedding_background_size": [4, 4],
            "blocks_per_stage": [1, 1, 2, 1],
            "embed_dim_per_stage": [8, 16, 32, 64],
            "num_attention_heads_per_stage": [1, 2, 2, 2],
            "window_size_per_stage": [4, 4, 4, 4],
            "global_attention_blocks": [3],
        },
        "backbone_channel_list": [64, 32, 16, 8],
        "backbone_feature_sizes": [[SIDE // 4] * 2, [SIDE // 8] * 2, [SIDE // 16] * 2],
        "fpn_hidden_size": 16,
    }
    prompt = {"hidden_size": 16, "image_size": SIDE, "patch_size": 16, "mask_input_channels": 4}
    parts: dict[str, Any] = {
        "vision_config": vision,
        "prompt_encoder_config": prompt,
        "mask_decoder_config": _decoder(),
    }
    model = _made(transformers.Sam2Model, transformers.Sam2Config(**parts))
    processor = transformers.Sam2Processor(
        transformers.Sam2ImageProcessor(
            size={"height": SIDE, "width": SIDE}, mask_size={"height": SIDE // 4, "width": SIDE // 4}
        )
    )
    _saved(folder, model, processor)
    if video:
        path = folder / "config.json"
        path.write_text(path.read_text().replace('"model_type": "sam2"', '"model_type": "sam2_video"'))
    return folder


def _decoder() -> dict[str, Any]:
    return {
        "hidden_size": 16,
        "mlp_dim": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "iou_head_hidden_dim": 16,
    }


def _made(kind: Any, config: Any) -> Any:
    """Random weights; with these sizes the masks change with the image and with the prompt."""
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = kind(config).eval()
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                torch.nn.init.zeros_(parameter)
            elif "norm" in name:
                torch.nn.init.ones_(parameter)
            else:
                torch.nn.init.normal_(parameter, std=0.1 if name.startswith("vision") else 0.2)
    return model


def _saved(folder: Path, model: Any, processor: Any) -> Path:
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
