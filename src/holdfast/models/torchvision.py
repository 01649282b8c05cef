"""``torchvision:ARCHITECTURE[@WEIGHTS]``: torchvision's classifiers, prepared as their weights ask."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from holdfast.core.errors import UserError, first_line
from holdfast.core.lazy import import_torchvision
from holdfast.core.names import Name, checked, unknown
from holdfast.core.networks import offline
from holdfast.models import label_spaces
from holdfast.models.options import PREPROCESSING, display_name, preprocessing_overrides
from holdfast.models.timm import described, seeded
from holdfast.models.torch_classifier import Geometry, Preprocessing, TorchClassifier


def load(name: Name, *, device: str) -> TorchClassifier:
    """Load a torchvision classifier; the tag names its weights (``IMAGENET1K_V2``), the default ones without a tag.

    Options: ``weights=none`` (random weights drawn with ``seed``, ``num_classes`` outputs), ``labels=FILE``, and those
    of ``options.PREPROCESSING``.
    """
    options = checked(name, {"weights": str, "num_classes": int, "seed": int, "labels": str, **PREPROCESSING})
    if options.get("weights", "none") != "none":
        raise UserError(f"torchvision: weights={options['weights']} goes behind an @; only weights=none is an option")
    if "weights" not in options and {"num_classes", "seed"} & set(options):
        raise UserError("torchvision: num_classes and seed go with weights=none; pretrained weights fix the outputs")
    weights = find_weights(name.name, name.tag)
    if "weights" in options:
        outputs = options.get("num_classes", label_spaces.IMAGENET_OUTPUTS)
        module = seeded(lambda: build(name.name, outputs), options.get("seed", 0))
    else:
        outputs = len(weights.meta["categories"])
        module = pretrained(name.name, weights)
    return TorchClassifier(
        display_name(name, name.whole),
        module,
        label_spaces.from_option(options.get("labels"), outputs, label_spaces.imagenet(outputs)),
        preprocessing(weights, preprocessing_overrides(options)),
        architecture=f"torchvision/{name.name}",
        device=device,
    )


def weight_choices(architecture: str, task: str = "") -> Any:
    """Return the sets of weights of an architecture for a ``task`` (detection, segmentation; '' for classes)."""
    torchvision = import_torchvision()

    kinds = {"": "torchvision architecture", "detection": "detector of torchvision"}
    known = torchvision.models.list_models(module=getattr(torchvision.models, task) if task else torchvision.models)
    if architecture not in known:
        raise unknown(kinds.get(task, "segmenter of torchvision"), architecture, known)
    return torchvision.models.get_model_weights(architecture)


def find_weights(architecture: str, tag: str = "") -> Any:
    """Return the weights of a tag, or the default ones; for unknown names the error offers the nearest."""
    choices = weight_choices(architecture)
    if tag and tag not in choices.__members__:
        raise unknown(f"set of weights for {architecture}", tag, choices.__members__)
    return choices[tag] if tag else choices.DEFAULT


def build(architecture: str, outputs: int) -> Any:
    """Build the module without trained weights."""
    torchvision = import_torchvision()

    # These two warn about a slow default initialisation and train with a second output unless configured otherwise.
    special = {"init_weights": True, "aux_logits": False} if architecture in ("inception_v3", "googlenet") else {}
    return torchvision.models.get_model(architecture, weights=None, num_classes=outputs, **special)


def pretrained(architecture: str, weights: Any) -> Any:
    """Return the module with torchvision's weights, which are downloaded if they are missing."""
    torchvision = import_torchvision()

    try:
        with _weights_only():
            return torchvision.models.get_model(architecture, weights=weights, progress=False)
    except OSError as error:
        raise offline(f"torchvision:{architecture}@{weights.name}", error) from error
    except (pickle.UnpicklingError, RuntimeError) as error:
        raise UserError(
            f"the downloaded weights of torchvision:{architecture} are damaged or not what they should be; delete them "
            f"from torch's cache ({first_line(error)})"
        ) from error


@contextmanager
def _weights_only() -> Iterator[None]:
    """Make every torch.load in torchvision's builders use ``weights_only``."""
    variable = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(variable)
    os.environ[variable] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


def preprocessing(weights: Any, overrides: Mapping[str, Any]) -> Preprocessing:
    """Return the transform that belongs to the weights."""
    from torchvision.transforms import InterpolationMode

    own = weights.transforms()
    changed: dict[str, Any] = {key: list(overrides[key]) for key in ("mean", "std") if key in overrides}
    if "input_size" in overrides or "crop_pct" in overrides:
        _, side, width = overrides.get("input_size", (3, own.crop_size[0], own.crop_size[0]))
        if side != width:
            raise UserError(f"torchvision crops squares, so size={side}/{width} cannot be met")
        share = overrides.get("crop_pct", own.crop_size[0] / own.resize_size[0])
        changed |= {"crop_size": side, "resize_size": round(side / share)}
    if "interpolation" in overrides:
        changed["interpolation"] = InterpolationMode(overrides["interpolation"])
    transform = weights.transforms(**changed)
    return Preprocessing(
        transform=transform,
        size=(transform.crop_size[0], transform.crop_size[0]),
        mean=tuple(transform.mean),
        std=tuple(transform.std),
        crops_centre=True,
        description={
            "library": "torchvision",
            "resize": transform.resize_size[0],
            "crop": transform.crop_size[0],
            "interpolation": transform.interpolation.value,
            "mean": list(transform.mean),
            "std": list(transform.std),
            **described(overrides),
        },
        geometry=Geometry(transform.resize_size[0], (transform.crop_size[0],) * 2, transform.interpolation.value),
        **described(overrides),
    )
