"""``smp:ARCHITECTURE@FOLDER``: segmenters of segmentation_models_pytorch, from what its ``save_pretrained`` wrote.

``embedded:NAME`` are those that Holdfast carries, in the same format.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import SampleError, UserError, first_line
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name
from holdfast.core.types import Image, LabelSpace
from holdfast.models import checkpoint, embedded, label_spaces
from holdfast.models.local_dir import LOADING, MAX_SIDE
from holdfast.models.options import PREPROCESSING, checked, display_name, existing_file, preprocessing_overrides
from holdfast.models.torch_classifier import resolve_device, weights_sha256
from holdfast.registry import unknown

if TYPE_CHECKING:
    import torch

ARCHITECTURES = (
    "DeepLabV3", "DeepLabV3Plus", "DPT", "FPN", "Linknet", "MAnet", "PAN", "PSPNet", "Segformer", "UPerNet", "Unet",
    "UnetPlusPlus",
)  # fmt: skip
_OPTIONS = {"labels": str, **{key: PREPROCESSING[key] for key in ("size", "mean", "std")}}
_MAX_CONFIG = 1_000_000


@dataclass(frozen=True, slots=True)
class Preparation:
    """What a segmenter sees: a picture squeezed to ``input_size`` (height, width), normalised."""

    input_size: tuple[int, int] = (256, 256)
    mean: tuple[float, ...] = (0.485, 0.456, 0.406)
    std: tuple[float, ...] = (0.229, 0.224, 0.225)


class SmpSegmenter:
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
        """For every RGB image of any size its class map, HW: places in ``labels``."""
        maps: list[NDArray[np.uint8]] = []
        for start in range(0, len(images), self.batch_size):
            several = images[start : start + self.batch_size]
            scores = self._scores(np.stack([self._prepared(image) for image in several]))
            maps += [_class_map(one, image.shape[:2]) for one, image in zip(scores, several, strict=True)]
        return maps

    def _prepared(self, image: Image) -> NDArray[np.float32]:
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or image.size == 0:
            raise SampleError(f"models see RGB images (height, width, 3) of uint8, not {image.shape} of {image.dtype}")
        height, width = self.preparation.input_size
        numbers: NDArray[Any] = image.astype(np.float32) / 255
        shrinks = image.shape[0] > height or image.shape[1] > width
        numbers = cv2.resize(numbers, (width, height), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
        normal = (numbers - np.asarray(self.preparation.mean)) / np.asarray(self.preparation.std)
        return np.ascontiguousarray(normal.transpose(2, 0, 1), np.float32)

    def _scores(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        import torch

        exact = torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
        with torch.inference_mode(), exact:
            scores = self._module(torch.from_numpy(batch).to(self.device))
            if scores.ndim != 4 or scores.shape[1] != len(self.labels):
                raise UserError(f"{self.name} answers with shape {tuple(scores.shape)}, not {len(self.labels)} labels")
            answer: NDArray[np.float32] = scores.float().cpu().numpy()
        return answer


def _class_map(scores: NDArray[np.float32], size: tuple[int, ...]) -> NDArray[np.uint8]:
    """The best class of every pixel. Scores rather than classes are resized: edges stay smooth."""
    height, width = size
    if scores.shape[1:] == (height, width):
        return np.asarray(scores.argmax(0), np.uint8)
    shrinks = height < scores.shape[1] or width < scores.shape[2]
    how = cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    best = np.full((height, width), -np.inf, np.float32)
    answer = np.zeros((height, width), np.uint8)
    for index, plane in enumerate(scores):  # one class at a time: a hundred planes of a photo would not fit in memory
        larger = cv2.resize(plane, (width, height), interpolation=how)
        better = larger > best
        best[better], answer[better] = larger[better], index
    return answer


def load(name: Name, *, device: str) -> SmpSegmenter:
    """A folder with ``config.json`` and ``model.safetensors``.

    Options: ``labels=FILE``, ``size``, ``mean`` and ``std`` as for classifiers. Without them images are squeezed to
    256 × 256 and normalised as ImageNet's are.
    """
    options = checked(name, _OPTIONS)
    if name.name not in ARCHITECTURES:
        raise unknown("architecture of segmentation_models_pytorch", name.name, ARCHITECTURES)
    if not name.tag:
        raise UserError(f"smp: reads smp:ARCHITECTURE@FOLDER, for example smp:Unet@folder, not {name.name!r}")
    folder = Path(name.tag)
    config = _read_config(existing_file(str(folder / "config.json"), what="segmenter's configuration"))
    stated = config.get("_model_class", name.name)
    if stated != name.name:
        raise UserError(f"the folder {folder.name} holds a {stated}, not a {name.name}")
    facts = config.pop("holdfast", {})
    state, _ = checkpoint.read_state(existing_file(str(folder / "model.safetensors"), what="segmenter's weights"))
    body = f"{name.name}@{folder.name}"
    return _segmenter(display_name(name, body), config, facts, state, options, device)


def load_embedded(name: Name, *, device: str) -> SmpSegmenter:
    """A segmenter of ``assets/segmenters``; takes no options."""
    asset = embedded.read_asset("segmenters", name)
    return _segmenter(display_name(name, name.name), asset.config, asset.facts, asset.weights, {}, device)


def _segmenter(
    shown: str,
    config: Mapping[str, Any],
    facts: Mapping[str, Any],
    state: Mapping[str, torch.Tensor],
    options: Mapping[str, Any],
    device: str,
) -> SmpSegmenter:
    module = build(config)
    checkpoint.fill(module, state, f"smp/{config['_model_class']}", shown)
    own = LabelSpace(tuple(facts["label_names"])) if "label_names" in facts else None
    known = {key: tuple(facts[key]) for key in ("input_size", "mean", "std") if key in facts}
    if not all(isinstance(side, int) and 0 < side <= MAX_SIDE for side in known.get("input_size", ())):
        raise UserError(f"{shown} asks for images of {known['input_size']} pixels; at most {MAX_SIDE} are allowed")
    changes = preprocessing_overrides(options)
    if "input_size" in changes:
        changes["input_size"] = changes["input_size"][1:]
    return SmpSegmenter(
        shown,
        module,
        label_spaces.from_option(options.get("labels"), int(config["classes"]), own),
        Preparation(**{**known, **changes}),
        architecture=f"smp/{json.dumps(config, sort_keys=True)}",
        device=device,
    )


def build(config: Mapping[str, Any]) -> Any:
    """The untrained network of a configuration: the name of its class and the arguments of its constructor."""
    import segmentation_models_pytorch as library

    arguments = {key: value for key, value in config.items() if key != "_model_class"}
    # Weights come from the folder; a configuration that names pretrained ones would reach for a hub.
    arguments["encoder_weights"] = None
    try:
        return getattr(library, config["_model_class"])(**arguments)
    except (TypeError, ValueError, KeyError, RuntimeError) as error:
        raise UserError(f"the configuration does not fit {config['_model_class']}: {first_line(error)}") from error


def _read_config(file: Path) -> dict[str, Any]:
    if file.stat().st_size > _MAX_CONFIG:
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
