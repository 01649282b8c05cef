"""``torchvision:ARCHITECTURE[@WEIGHTS-OR-FILE]``: detectors (Faster and Mask R-CNN, RetinaNet, FCOS, SSD)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name, checked
from holdfast.core.networks import resolve_device, weights_sha256
from holdfast.core.protocols import LEAST_SCORE
from holdfast.core.types import Image, LabelSpace
from holdfast.models import checkpoint, label_spaces
from holdfast.models.detectors.batched import Answer, BatchedDetector, PlacedImage
from holdfast.models.options import display_name, existing_file
from holdfast.models.torch_classifier import exact
from holdfast.models.torchvision import pretrained, weight_choices

SURE = 0.5
"""Chance from which on a pixel belongs to a mask, as in torchvision's own examples."""


class TorchvisionDetector(BatchedDetector):
    """A ``Detector`` around one of torchvision's modules, which prepare images and take out double boxes themselves."""

    takes_tensors = True

    def __init__(self, name: str, module: torch.nn.Module, labels: LabelSpace, architecture: str, device: str) -> None:
        self.name, self.labels, self.device = name, labels, resolve_device(device)
        for part in (module, getattr(module, "roi_heads", None)):
            if hasattr(part, "score_thresh"):
                part.score_thresh = LEAST_SCORE  # type: ignore[union-attr]  # the run has its own threshold
        self.fingerprint = fingerprint(
            {"architecture": architecture, "weights": weights_sha256(module), "labels": labels, "least": LEAST_SCORE}
        )
        self._module = module.float().eval().requires_grad_(False).to(self.device)

    def prepare(self, image: Image) -> tuple[Any, PlacedImage]:
        """Return the image itself: the module resizes and normalises."""
        return np.ascontiguousarray(image), PlacedImage(*image.shape[:2])

    def ask(self, batch: list[Any]) -> list[Answer]:
        """Return the boxes of images of one shape."""
        with torch.inference_mode(), exact():
            tensors = [torch.from_numpy(image).to(self.device).permute(2, 0, 1).float() / 255 for image in batch]
            return _parts(self._module(tensors))

    def ask_tensors(self, pictures: Any) -> tuple[list[Answer], PlacedImage]:
        """Return the boxes of images NCHW uint8."""
        return _parts(self._module(list(pictures.float() / 255))), PlacedImage(*pictures.shape[2:])


def _parts(answers: Sequence[Mapping[str, torch.Tensor]]) -> list[Answer]:
    """Return boxes, scores, labels and masks (of Mask R-CNN) of each image on the host."""
    counts = [len(answer["scores"]) for answer in answers]
    fetched = [torch.cat([answer[name] for answer in answers]).cpu() for name in ("boxes", "scores", "labels")]
    boxes, scores, labels = (torch.split(part, counts) for part in fetched)
    parts: list[Answer] = list(zip(boxes, scores, labels, strict=True))
    if "masks" not in answers[0]:
        return parts
    masks = [(answer["masks"][:, 0] >= SURE).cpu() for answer in answers]
    return [(*part, own) for part, own in zip(parts, masks, strict=True)]


def load(name: Name, *, device: str) -> TorchvisionDetector:
    """Load a detector with torchvision's weights (the default ones without a tag), or with those of a file.

    A file (safetensors or a state dict) needs ``labels=FILE``: the classes in order, without the background, which is
    output 0. Option: ``labels``.
    """
    options = checked(name, {"labels": str, "task": str})
    architecture, _, tag = name.whole.partition("@")
    choices = weight_choices(architecture, "detection")
    if tag in ("", *choices.__members__):
        weights = choices[tag] if tag else choices.DEFAULT
        labels = LabelSpace(tuple(weights.meta["categories"]))
        module = pretrained(architecture, weights)
        shown = display_name(name, f"{architecture}@{tag}" if tag else architecture)
    else:
        file = existing_file(tag, what="checkpoint")
        if "labels" not in options:
            raise UserError(f"torchvision:{architecture}@{Path(tag).name} needs ?labels=FILE, one class a line")
        labels = LabelSpace(("__background__", *label_spaces.read_names(options["labels"])))
        module = build(architecture, len(labels))
        state, _ = checkpoint.read_state(file)
        shown = display_name(name, f"{architecture}@{file.name}")
        checkpoint.fill(module, state, f"torchvision/{architecture}", shown)
    return TorchvisionDetector(shown, module, labels, f"torchvision/{architecture}", device)


def build(architecture: str, outputs: int) -> Any:
    """Build the module without trained weights; output 0 is the background."""
    import torchvision.models

    return torchvision.models.get_model(architecture, weights=None, weights_backbone=None, num_classes=outputs)
