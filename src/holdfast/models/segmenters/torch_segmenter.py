"""A ``Segmenter`` around a torch module, whatever library it comes from."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.lazy import torch
from holdfast.core.networks import resolve_device, weights_sha256
from holdfast.core.types import Image, LabelSpace
from holdfast.models import label_spaces
from holdfast.models.local_dir import LOADING, MAX_SIDE
from holdfast.models.options import PREPROCESSING, preprocessing_overrides
from holdfast.models.torch_classifier import exact

OPTIONS = {"labels": str, **{key: PREPROCESSING[key] for key in ("size", "mean", "std")}}
"""Options of every segmenter."""

MAX_CONFIG = 1_000_000
"""Bytes of a segmenter's configuration."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """How a segmenter's image is prepared: resized to ``input_size`` (height, width) and normalised."""

    input_size: tuple[int, int] = (256, 256)
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)


class TorchSegmenter:
    """A ``Segmenter`` around a module that maps a normalised batch to scores, (n, labels, height, width)."""

    def __init__(
        self,
        name: str,
        module: torch.nn.Module,
        labels: LabelSpace,
        preparation: Preparation,
        *,
        architecture: str,
        device: str = "auto",
        batch_size: int = 16,
    ) -> None:
        self.name = name
        self.labels = labels
        self.preparation = preparation
        self.batch_size = batch_size
        self.device = resolve_device(device)
        self.fingerprint = fingerprint(
            {
                "architecture": architecture,
                "weights": weights_sha256(module),
                "preparation": asdict(preparation),
                "labels": labels,
            }
        )
        self._module = module.float().eval().requires_grad_(False).to(self.device)

    def segment(self, images: Sequence[Image]) -> list[NDArray[np.uint8]]:
        """Return a class map, HW, of places in ``labels``, for every RGB image of any size."""
        maps: list[NDArray[np.uint8]] = []
        for start in range(0, len(images), self.batch_size):
            several = images[start : start + self.batch_size]
            scores = self._scores(np.stack([prepared_image(image, self.preparation) for image in several]))
            maps += [class_map(plane, image.shape[:2]) for plane, image in zip(scores, several, strict=True)]
        return maps

    @property
    def module(self) -> torch.nn.Module:
        """Return the module that computes the scores of a prepared batch."""
        return self._module

    def shown(self, image: Image) -> Image:
        """Return the image as the network sees it, before normalisation: HWC uint8 RGB of its input size."""
        normal = prepared_image(image, self.preparation).transpose(1, 2, 0)
        numbers = normal * np.asarray(self.preparation.std) + np.asarray(self.preparation.mean)
        return np.ascontiguousarray((numbers * 255).round().clip(0, 255).astype(np.uint8))

    def logits(self, batch: torch.Tensor) -> torch.Tensor:
        """Return scores, (n, labels, height, width), of an RGB batch NCHW in 0..1 of the input size, with gradients."""
        batch = batch.to(self.device)
        mean, std = (
            torch.tensor(values, dtype=batch.dtype, device=batch.device).view(-1, 1, 1)
            for values in (self.preparation.mean, self.preparation.std)
        )
        scores: torch.Tensor = self._module((batch - mean) / std)
        return scores

    def _scores(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        with torch.inference_mode(), exact():
            scores = self._module(torch.from_numpy(batch).to(self.device))
            if scores.ndim != 4 or scores.shape[1] != len(self.labels):
                raise UserError(f"{self.name} answers with shape {tuple(scores.shape)}, not {len(self.labels)} labels")
            answer: NDArray[np.float32] = scores.float().cpu().numpy()
        return answer


def prepared_image(image: Image, preparation: Preparation) -> NDArray[np.float32]:
    """Return an RGB image of any size as CHW float32, resized and normalised."""
    if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or image.size == 0:
        raise SampleError(f"models see RGB images (height, width, 3) of uint8, not {image.shape} of {image.dtype}")
    height, width = preparation.input_size
    numbers: NDArray[Any] = image.astype(np.float32) / 255
    shrinks = image.shape[0] > height or image.shape[1] > width
    numbers = cv2.resize(numbers, (width, height), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
    normal = (numbers - np.asarray(preparation.mean)) / np.asarray(preparation.std)
    return np.ascontiguousarray(normal.transpose(2, 0, 1), np.float32)


def class_map(scores: NDArray[np.float32], size: tuple[int, ...]) -> NDArray[np.uint8]:
    """Return the best class of every pixel. Scores are resized, not classes, so that edges stay smooth."""
    height, width = size
    if scores.shape[1:] == (height, width):
        return np.asarray(scores.argmax(0), np.uint8)
    shrinks = height < scores.shape[1] or width < scores.shape[2]
    how = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    best = np.full((height, width), -np.inf, np.float32)
    answer = np.zeros((height, width), np.uint8)
    for index, plane in enumerate(scores):  # one class at a time: a hundred planes of an image would not fit in memory
        larger = cv2.resize(plane, (width, height), interpolation=how)
        better = larger > best
        best[better], answer[better] = larger[better], index
    return answer


def prepared_as(shown: str, facts: Mapping[str, Any], options: Mapping[str, Any]) -> Preparation:
    """Return how images are prepared: as the model's facts say, changed by ``size``, ``mean`` and ``std``."""
    known = {key: tuple(facts[key]) for key in ("input_size", "mean", "std") if key in facts}
    if not all(isinstance(side, int) and 0 < side <= MAX_SIDE for side in known.get("input_size", ())):
        raise UserError(f"{shown} asks for images of {known['input_size']} pixels; at most {MAX_SIDE} are allowed")
    changes = preprocessing_overrides(options)
    if "input_size" in changes:
        changes["input_size"] = changes["input_size"][1:]
    return Preparation(**{**known, **changes})


def assembled(
    shown: str,
    module: torch.nn.Module,
    classes: Sequence[str] | int,  # their names, or how many there are
    facts: Mapping[str, Any],  # what ``holdfast segment`` or a library says of the network
    options: Mapping[str, Any],
    *,
    architecture: str,
    device: str,
) -> TorchSegmenter:
    """Return the segmenter of a network with weights; names of classes are those of ``?labels=``, or its own."""
    names = facts.get("label_names") if isinstance(classes, int) else classes
    own = LabelSpace(tuple(names)) if names else None
    count = classes if isinstance(classes, int) else len(classes)
    labels = label_spaces.from_option(options.get("labels"), count, own)
    return TorchSegmenter(
        shown, module, labels, prepared_as(shown, facts, options), architecture=architecture, device=device
    )


def read_config(file: Path) -> dict[str, Any]:
    """Read a segmenter's ``config.json``; a UserError if it is none, or asks for more than its own weights."""
    if not file.is_file():
        raise UserError(f"there is no segmenter's configuration at {str(file)!r}")
    if file.stat().st_size > MAX_CONFIG:
        raise UserError(f"{file.parent.name}/{file.name} is too large for a segmenter's configuration")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise UserError(f"{file.parent.name}/{file.name} is not JSON") from error
    if not isinstance(config, dict) or not isinstance(config.get("classes"), int) or not 1 <= config["classes"] <= 256:
        raise UserError(f"{file.parent.name}/{file.name} does not say how many classes, 1 to 256, the segmenter has")
    # Encoders are timm's: what would make it read other files or fetch them is refused.
    refused = [key for key, value in config.items() if key in LOADING or "hf-hub:" in str(value)]
    if refused:
        raise UserError(f"{file.parent.name}/{file.name} asks for more than its own weights ({', '.join(refused)})")
    return config
