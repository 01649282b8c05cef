"""``hf:NAME-OR-FOLDER[@REVISION]``: image classifiers of the transformers library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import UserError
from holdfast.core.files import json_object
from holdfast.core.lazy import torch
from holdfast.core.names import Name, checked
from holdfast.core.networks import hub_errors
from holdfast.models import label_spaces, probing
from holdfast.models.options import display_name
from holdfast.models.torch_classifier import Preprocessing, TorchClassifier, picked

if TYPE_CHECKING:
    import PIL.Image


def load(name: Name, *, device: str) -> TorchClassifier:
    """Load a model by its hub name or local folder, with its own image processor.

    Weights are read from safetensors only and code in the repository is never run. Option: ``labels=FILE``.
    """
    options = checked(name, {"labels": str})
    model, processor = fetched(name, kind="an image classifier", auto="AutoModelForImageClassification")
    names = [str(model.config.id2label[index]) for index in sorted(model.config.id2label)]
    return TorchClassifier(
        display_name(name, hub_place(name)[3]),
        picked(model, "logits"),
        label_spaces.from_option(options.get("labels"), len(names), label_spaces.named(names)),
        preprocessing(processor),
        architecture=f"transformers/{type(model).__name__}/{json.dumps(shape_of(model.config), sort_keys=True)}",
        device=device,
    )


def hub_place(name: Name) -> tuple[str, str, bool, str]:
    """Return where a model is (a folder, or its name on the hub), the revision, whether it is local, and its name."""
    folder = Path(name.whole)
    if folder.is_dir():
        _check_kind(folder)
        return str(folder), "main", True, folder.name
    return name.name, name.tag or "main", False, name.whole


_OTHER_KINDS = {
    "model_index.json": "a pipeline of diffusers, which makes images",
    "open_clip_config.json": "a model of open_clip; name it clip:local-dir:FOLDER",
    "adapter_config.json": "an adapter (LoRA) without its model; merge the two and save the result",
}


def _check_kind(folder: Path) -> None:
    """Raise a UserError for a folder that another library wrote, or none."""
    if (folder / "config.json").is_file():
        if "architecture" in json_object(folder / "config.json"):
            raise UserError(f"{folder} is a model of timm; name it local-dir:{folder}")
        return
    for file, kind in _OTHER_KINDS.items():
        if (folder / file).is_file():
            raise UserError(f"{folder} is not a model of transformers, but {kind}")
    raise UserError(f"{folder} is not a model of transformers: it has no config.json")


def fetched(name: Name, *, kind: str, auto: str, processor: str = "AutoImageProcessor") -> tuple[Any, Any]:
    """Return a model with trained weights, and its processor, if one is asked for.

    ``kind`` says in words what it must be; ``auto`` and ``processor`` are transformers' classes for the two. Only
    safetensors are read, and code next to them is never run.
    """
    import transformers

    where, revision, local, body = hub_place(name)
    shown = f"hf:{body if local else where}"
    trust: dict[str, Any] = {"revision": revision, "trust_remote_code": False}
    with hub_errors(shown, local=local, wrong=f"is not {kind} that can be loaded"):
        processed = getattr(transformers, processor).from_pretrained(where, **trust) if processor else None
        refuse_other_weights(transformers.AutoConfig.from_pretrained(where, **trust), where)
        model, report = getattr(transformers, auto).from_pretrained(
            where, **trust, use_safetensors=True, output_loading_info=True
        )
    missing = sorted(report["missing_keys"])
    if missing:
        # transformers fills what is missing with random numbers and only warns.
        raise UserError(f"{shown} has no trained {kind.split()[-1]}: {', '.join(missing[:3])} are not in its weights")
    return model, processed


def refuse_other_weights(config: Any, where: str) -> None:
    """Raise a UserError for a configuration that names another pretrained backbone, which would be downloaded."""
    inner = getattr(config, "backbone_config", None)
    if any(getattr(part, "use_pretrained_backbone", False) for part in (config, inner) if part is not None):
        raise UserError(f"hf:{where} asks for a pretrained backbone apart from its own weights")


def shape_of(config: Any) -> dict[str, Any]:
    """Return the settings that shape the computation, without what differs between library versions and machines."""
    settings: dict[str, Any] = json.loads(config.to_json_string(use_diff=True))
    volatile = ("_name_or_path", "transformers_version", "torch_dtype", "dtype", "id2label", "label2id")
    return {key: value for key, value in settings.items() if key not in volatile}


def preprocessing(processor: Any) -> Preprocessing:
    """Return what an image processor does, as a transform of one image."""
    settings: dict[str, Any] = json.loads(processor.to_json_string())
    size, crop = settings.get("size") or {}, settings.get("crop_size") or {}
    cropped = bool(settings.get("do_center_crop")) or bool(settings.get("crop_pct"))
    sides = crop if settings.get("do_center_crop") and crop else size
    edge = sides.get("shortest_edge") or sides.get("longest_edge") or 224
    normalised = settings.get("do_normalize", True)

    def prepared(picture: PIL.Image.Image) -> torch.Tensor:
        tensor: torch.Tensor = processor(images=picture, return_tensors="pt")["pixel_values"][0]
        return tensor

    stated = probing.Colours(
        _three(settings, "image_mean", 0.0) if normalised else (0.0,) * 3,
        _three(settings, "image_std", 1.0) if normalised else (1.0,) * 3,
    )
    # Settings do not say everything: some processors return blue first, or scale pixels otherwise.
    colours = probing.colours_of(prepared, stated)
    return Preprocessing(
        transform=prepared if colours.channels == "rgb" else lambda picture: prepared(picture).flip(0),
        size=(sides.get("height") or edge, sides.get("width") or edge),
        mean=colours.mean,
        std=colours.std,
        crops_centre=cropped,
        description={"library": "transformers", **settings},
        channels=colours.channels,
        unclear=colours.unclear,
    )


def _three(settings: Mapping[str, Any], key: str, otherwise: float) -> tuple[float, ...]:
    value = settings.get(key)
    if value is None:
        return (otherwise,) * 3
    return (float(value),) * 3 if isinstance(value, (int, float)) else tuple(float(number) for number in value)
