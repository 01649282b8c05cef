"""``timm:ARCHITECTURE[@TAG]``: timm's classifiers, prepared as timm prepares them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.lazy import torch
from holdfast.core.names import Name, checked, unknown
from holdfast.core.networks import hub_errors
from holdfast.models import label_spaces
from holdfast.models.options import PREPROCESSING, display_name, preprocessing_overrides
from holdfast.models.torch_classifier import Geometry, Preprocessing, TorchClassifier


def load(name: Name, *, device: str) -> TorchClassifier:
    """Load a timm classifier.

    Options: ``pretrained=false`` (random weights drawn with ``seed``, ``num_classes`` outputs), ``labels=FILE``, and
    those of ``options.PREPROCESSING``.
    """
    kinds = {"pretrained": bool, "num_classes": int, "seed": int, "labels": str, **PREPROCESSING}
    options = checked(name, kinds)
    pretrained = options.get("pretrained", True)
    if pretrained and {"num_classes", "seed"} & set(options):
        raise UserError("timm: num_classes and seed go with pretrained=false; pretrained weights fix the outputs")
    architecture = f"{name.name}.{name.tag}" if name.tag else name.name
    check_architecture(name.name, architecture)
    module = pretrained_module(architecture) if pretrained else untrained(architecture, options)
    if module.num_classes <= 0:
        raise UserError(f"timm:{name.whole} has no classifier, only features; choose a tag with classes")
    own = module.pretrained_cfg.get("label_names") if pretrained else None
    known = label_spaces.named(own) if own else label_spaces.imagenet(module.num_classes)
    return TorchClassifier(
        display_name(name, name.whole),
        module,
        label_spaces.from_option(options.get("labels"), module.num_classes, known),
        preprocessing(module, preprocessing_overrides(options)),
        architecture=f"timm/{name.name}",
        device=device,
    )


def check_architecture(name: str, full: str = "") -> None:
    """Raise a UserError with the nearest names if timm has no such architecture or tag."""
    import timm

    if name.startswith("hf-hub:"):
        return
    if not timm.is_model(name):
        raise unknown("timm architecture", name, timm.list_models())
    tags = [known for known in timm.list_pretrained(f"{name}.*") if known.split(".")[0] == name.split(".")[0]]
    if "." in full and full not in tags:
        raise unknown(f"set of weights for {name}", full, tags)


def untrained(architecture: str, options: Mapping[str, Any]) -> Any:
    """Build a module whose random weights depend on ``seed`` alone; the global generator is not changed."""
    import timm

    classes = {"num_classes": options["num_classes"]} if "num_classes" in options else {}
    return seeded(lambda: timm.create_model(architecture, pretrained=False, **classes), options.get("seed", 0))


def seeded(build: Callable[[], Any], seed: int) -> Any:
    """Return what ``build`` makes with torch's generator seeded; the generator's state is restored."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def pretrained_module(architecture: str, **options: Any) -> Any:
    """Return timm's module with its weights; ``options`` are those of ``timm.create_model``."""
    import timm

    with hub_errors(f"timm:{architecture}", local=False, libraries=()):
        return timm.create_model(architecture, pretrained=True, **options)


def preprocessing(module: torch.nn.Module, overrides: Mapping[str, Any]) -> Preprocessing:
    """Return the evaluation transform that timm gives a module."""
    from timm.data import resolve_model_data_config

    return from_config({**resolve_model_data_config(module), **overrides})


def from_config(config: Mapping[str, Any]) -> Preprocessing:
    """Return the evaluation transform that timm makes of a data configuration."""
    from timm.data import create_transform

    keys = ("input_size", "interpolation", "mean", "std", "crop_pct", "crop_mode")
    wanted = {key: config[key] for key in keys}
    transform = create_transform(**wanted, is_training=False)
    return Preprocessing(
        transform=transform,
        size=(wanted["input_size"][1], wanted["input_size"][2]),
        mean=tuple(wanted["mean"]),
        std=tuple(wanted["std"]),
        crops_centre=wanted["crop_mode"] == "center",
        description={"library": "timm", **wanted, **described(config)},
        geometry=_geometry(transform),
        **described(config),
    )


def described(config: Mapping[str, Any]) -> dict[str, str]:
    """Return the order of channels if it is not the usual one, so that other models keep their fingerprints."""
    return {"channels": "bgr"} if config.get("channels") == "bgr" else {}


def _geometry(transform: Any) -> Geometry | None:
    """Return what a chain of resizing, cropping and normalising does to pixels; None if it has another step."""
    steps = list(getattr(transform, "transforms", ()))
    if [type(step).__name__ for step in steps] != ["Resize", "CenterCrop", "MaybeToTensor", "Normalize"]:
        return None
    resize, crop = steps[:2]
    sides = [resize.size] if isinstance(resize.size, int) else list(resize.size)
    side = int(sides[0]) if len(sides) == 1 else (int(sides[0]), int(sides[1]))
    height, width = crop.size
    return Geometry(side, (int(height), int(width)), resize.interpolation.value)
