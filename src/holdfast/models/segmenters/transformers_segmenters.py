"""``hf:NAME-OR-FOLDER[@REVISION]``: semantic segmenters of the transformers library (SegFormer, UPerNet, BEiT …)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError, first_line
from holdfast.core.lazy import torch
from holdfast.core.names import Name, checked, unknown
from holdfast.core.networks import hub_errors
from holdfast.models.options import display_name
from holdfast.models.segmenters.torch_segmenter import MAX_CONFIG, OPTIONS, TorchSegmenter, assembled
from holdfast.models.torch_classifier import picked
from holdfast.models.transformers import fetched, hub_place, refuse_other_weights, shape_of

_KEY = "logits"


def load(name: Name, *, device: str) -> TorchSegmenter:
    """Load a segmenter by its hub name or local folder.

    Weights are read from safetensors only and code in the repository is never run. Images are squeezed to the size of
    its image processor and normalised as that says. Options: ``labels=FILE``, ``size``, ``mean``, ``std``.
    """
    options = checked(name, OPTIONS)
    import transformers

    where, revision, local, body = hub_place(name)
    with hub_errors(f"hf:{body if local else where}", local=local, wrong="is not a segmenter that can be loaded"):
        settings, _ = transformers.ImageProcessingMixin.get_image_processor_dict(where, revision=revision)
    model, _ = fetched(name, kind="a segmenter", auto="AutoModelForSemanticSegmentation", processor="")
    names = [str(model.config.id2label[index]) for index in sorted(model.config.id2label)]
    if len(names) > 256:
        raise UserError(f"hf:{where} has {len(names)} classes; class maps hold at most 256")
    shown = display_name(name, body)
    shape = {key: value for key, value in shape_of(model.config).items() if key != "holdfast"}
    architecture = f"transformers/{type(model).__name__}/{json.dumps(shape, sort_keys=True)}"
    return assembled(
        shown, picked(model, _KEY), names, _facts(settings), options, architecture=architecture, device=device
    )


def _facts(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return an image processor's settings as ``prepared_as`` reads them."""
    size = settings.get("size") or {}
    edge = size if isinstance(size, int) else size.get("shortest_edge") or size.get("longest_edge") or 512
    sides = (edge, edge) if isinstance(size, int) else (size.get("height") or edge, size.get("width") or edge)
    facts: dict[str, Any] = {"input_size": tuple(int(side) for side in sides)}
    if not settings.get("do_normalize", True):
        return facts | {"mean": (0.0,) * 3, "std": (1.0,) * 3}
    return facts | {
        own: tuple(settings[theirs])
        for own, theirs in (("mean", "image_mean"), ("std", "image_std"))
        if settings.get(theirs)
    }


def _vit(size: int, options: Mapping[str, int]) -> dict[str, Any]:
    """Return a plain ViT: BEiT's with absolute positions, without layer scale, its maps brought to four scales."""
    layers, width = options.get("layers", 12), options.get("hidden_size", 768)
    return {
        "image_size": size, "patch_size": options.get("patch", 16), "hidden_size": width, "num_hidden_layers": layers,
        "num_attention_heads": options.get("heads", 12), "intermediate_size": 4 * width,
        "use_absolute_position_embeddings": True, "use_relative_position_bias": False,
        "use_shared_relative_position_bias": False, "use_mask_token": False, "layer_scale_init_value": 0.0,
        "out_indices": [max(1, round(layers * part / 4)) for part in (1, 2, 3, 4)], "add_fpn": True,
        "reshape_hidden_states": True,
    }  # fmt: skip


def _swin(size: int, options: Mapping[str, int]) -> dict[str, Any]:
    return {"image_size": size, "embed_dim": options.get("hidden_size", 96), "out_features": _STAGES}


_STAGES = ["stage1", "stage2", "stage3", "stage4"]
BACKBONES: Mapping[str, tuple[str, Callable[[int, Mapping[str, int]], dict[str, Any]], tuple[str, ...]]] = {
    "vit": ("BeitConfig", _vit, ("hidden_size", "layers", "heads", "patch")),
    "swin": ("SwinConfig", _swin, ("hidden_size",)),
    "convnext": ("ConvNextConfig", lambda size, options: {"out_features": _STAGES}, ()),
}
"""The configuration of each in transformers, its settings, and which options it takes."""

NETWORKS = (*(f"upernet@{backbone}" for backbone in BACKBONES), "segformer")
"""What can be built from configuration, without weights."""


def configuration(name: Name, size: int) -> dict[str, Any]:
    """Return the settings of an untrained network: ``upernet@vit``, ``segformer`` …, or those of a local folder.

    Options of ``upernet@``: those of the backbone in ``BACKBONES``, and ``decoder`` channels.
    """
    import transformers

    folder = Path(name.whole)
    if (folder / "config.json").is_file():
        checked(name, {})
        if (folder / "config.json").stat().st_size > MAX_CONFIG:
            raise UserError(f"{folder.name}/config.json is too large for a segmenter's configuration")
        try:
            config = transformers.AutoConfig.from_pretrained(str(folder), trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise UserError(f"hf:{folder.name} cannot be loaded: {first_line(error)}") from error
    elif name.whole == "segformer":
        checked(name, {})
        config = transformers.SegformerConfig()
    elif name.whole in NETWORKS:
        kind, settings_of, taken = BACKBONES[name.tag]
        options = checked(name, dict.fromkeys((*taken, "decoder"), int))
        backbone = getattr(transformers, kind)(**settings_of(size, options))
        config = transformers.UperNetConfig(
            backbone_config=backbone, hidden_size=options.get("decoder", 512), use_auxiliary_head=False
        )
    else:
        raise unknown("segmenter of transformers to build, or folder", name.whole, NETWORKS)
    refuse_other_weights(config, name.whole)
    settings: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    return {key: value for key, value in settings.items() if key not in _VOLATILE}


_VOLATILE = ("_name_or_path", "transformers_version", "id2label", "label2id", "num_labels", "dtype", "holdfast")


def build(settings: Mapping[str, Any], outputs: int) -> torch.nn.Module:
    """Build the untrained network of these settings; its answer has ``logits``."""
    import transformers

    try:
        config = transformers.CONFIG_MAPPING[settings["model_type"]].from_dict(dict(settings))
        config.num_labels = outputs
        module: torch.nn.Module = transformers.AutoModelForSemanticSegmentation.from_config(config)
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise UserError(
            f"transformers cannot build a segmenter of {settings.get('model_type')}: {first_line(error)}"
        ) from error
    return module


def config_of(model: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Return what ``config.json`` says of a trained segmenter, with the names of its classes."""
    config = model.config
    config.id2label = dict(enumerate(names))
    config.label2id = {name: place for place, name in enumerate(names)}
    config.architectures = [type(model).__name__]
    return dict(json.loads(config.to_json_string(use_diff=True)))


def processor_of(size: int, mean: tuple[float, ...], std: tuple[float, ...]) -> dict[str, Any]:
    """Return ``preprocessor_config.json``, which transformers reads as well."""
    return {
        "image_processor_type": "SegformerImageProcessor", "do_resize": True, "size": {"height": size, "width": size},
        "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True, "image_mean": list(mean),
        "image_std": list(std), "do_reduce_labels": False, "resample": 2,
    }  # fmt: skip
