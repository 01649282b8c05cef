"""``features:MODEL``: encoders, which return an embedding of an image instead of classes.

Of a classifier, the embedding is what its last layer reads. Of ``timm:``, ``hf:`` (DINO, SigLIP), ``onnx:`` and other
exported files, ``python:`` and ``live:``, networks without classes are encoders as well: their output is the embedding.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from holdfast.core.errors import SampleError, UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.lazy import torch
from holdfast.core.names import Name, checked, parse_name
from holdfast.core.protocols import ImageEncoder, as_array
from holdfast.core.types import Image
from holdfast.models import FEATURES, _architectures, label_spaces, live, load_classifier, timm, transformers
from holdfast.models.options import PREPROCESSING, display_name, preprocessing_overrides
from holdfast.models.python import called, is_builder, output_count, weights_of
from holdfast.models.torch_classifier import Preprocessing, TorchClassifier
from holdfast.registry import find_attribute

_OWN = ("onnx", "openvino", "litert", "tensorrt", "python", "live")
"""Schemes of the user's own models: what comes out of them is the embedding."""


def load_encoder(text: str, *, device: str = "auto") -> ImageEncoder:
    """Load an encoder by name.

    Args:
        text: ``features:`` before the name of a model, such as ``features:timm:vit_small_patch14_dinov2.lvd142m``,
            ``features:hf:google/siglip2-base-patch16-224`` or ``features:packaged:efficientnet_lite0``.
        device: ``auto``, ``cpu``, ``cuda``, ``mps``.

    Raises:
        UserError: There is no such model, or it has no embedding.
    """
    inner = parse_name(text.removeprefix(f"{FEATURES}:"))
    if not inner.scheme:
        raise UserError(f"{text}: expected {FEATURES}: before a model's name, such as {FEATURES}:timm:resnet50")
    shown = inner.text("name")
    inner = replace(inner, options={key: value for key, value in inner.options.items() if key != "name"})
    encoder = _load(inner, text.removeprefix(f"{FEATURES}:"), device)
    encoder.fingerprint = fingerprint(["embedding", encoder.fingerprint])
    encoder.name = shown or (encoder.name if inner.scheme == "live" else f"{FEATURES}:{encoder.name}")
    return encoder


def _load(name: Name, text: str, device: str) -> ImageEncoder:
    if name.scheme == "timm":
        return _timm(name, device)
    if name.scheme == "hf" and not any("ForImageClassification" in each for each in _architectures(name.whole)):
        return _transformers(name, device)
    if name.scheme in ("python", "live") and (own := _callable(name)) is not None:
        return own
    classifier: Any = copy.copy(load_classifier(text, device=device))
    if not hasattr(classifier, "embeds"):
        raise UserError(f"{FEATURES}:{text} is a {type(classifier).__name__}, which shows no embedding")
    if isinstance(classifier, TorchClassifier) and name.scheme not in _OWN:
        module = _without_head(copy.deepcopy(classifier.module), len(classifier.labels), text)
        # A file of BGR was turned round when it was loaded.
        known = replace(classifier.preprocessing, channels="rgb")
        return _encoder(classifier.name, module, known, f"before the head of {classifier.fingerprint}", device)
    classifier.embeds = True
    return cast(ImageEncoder, classifier)


def _encoder(
    name: str, module: torch.nn.Module, preprocessing: Preprocessing, architecture: str, device: str
) -> ImageEncoder:
    """Return a network as an encoder; a UserError if it does not return one vector per image."""
    blank = preprocessing.transform(PIL.Image.new("RGB", preprocessing.size[::-1]))
    width = output_count(name, module, blank)
    encoder = TorchClassifier(
        name, module, label_spaces.numbered(width), preprocessing, architecture=architecture, device=device
    )
    encoder.embeds = True
    return encoder


def _timm(name: Name, device: str) -> ImageEncoder:
    options = checked(name, {"pretrained": bool, "seed": int, **PREPROCESSING})
    architecture = f"{name.name}.{name.tag}" if name.tag else name.name
    timm.check_architecture(name.name, architecture)
    if options.get("pretrained", True):
        module = timm.pretrained_module(architecture, num_classes=0)
    else:
        module = timm.untrained(architecture, {"num_classes": 0, **options})
    how = timm.preprocessing(module, preprocessing_overrides(options))
    return _encoder(display_name(name, name.whole), module, how, f"timm/{name.name}", device)


def _transformers(name: Name, device: str) -> ImageEncoder:
    checked(name, {})
    model, processor = transformers.fetched(name, kind="an encoder", auto="AutoModel")
    settings = json.dumps(transformers.shape_of(model.config), sort_keys=True)
    return _encoder(
        display_name(name, transformers.hub_place(name)[3]), _pooled(model), transformers.preprocessing(processor),
        f"transformers/{type(model).__name__}/{settings}", device,
    )  # fmt: skip


def _pooled(model: Any) -> torch.nn.Module:
    """Return a module with one vector per image: of two towers the image's, else the pooled output or first token."""

    class PooledEncoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            towers = hasattr(self.model, "get_image_features")
            answer = (self.model.get_image_features if towers else self.model)(pixel_values=batch)
            if not torch.is_tensor(answer):
                pooled = getattr(answer, "pooler_output", None)
                answer = answer.last_hidden_state[:, 0] if pooled is None else pooled
            vectors: torch.Tensor = answer.flatten(1)
            return vectors

    return PooledEncoder()


def _without_head(module: torch.nn.Module, outputs: int, text: str) -> torch.nn.Module:
    """Return a classifier's network with its last layer taken out."""
    heads = [
        key for key, layer in module.named_modules()
        if isinstance(layer, torch.nn.Linear) and layer.out_features == outputs
    ]  # fmt: skip
    if not heads:
        raise UserError(f"{FEATURES}:{text}: the network has no last linear layer with {outputs} outputs to take out")
    for key in heads:
        parent, _, child = key.rpartition(".")
        setattr(module.get_submodule(parent), child, torch.nn.Identity())
    return module


class CallableEncoder:
    """An encoder around a callable from a list of HWC uint8 RGB images to an array (images, width)."""

    def __init__(self, name: str, call: Callable[[list[Image]], Any], identity: str) -> None:
        self.name, self.fingerprint, self._call = name, fingerprint({"code": identity}), call

    def predict(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Return the embeddings, (n, width)."""
        answer: NDArray[np.float32] = as_array(self._call([image.copy() for image in images]), np.float32)
        if answer.ndim != 2 or len(answer) != len(images):
            raise SampleError(f"{self.name}: expected an array ({len(images)}, width), got shape {answer.shape}")
        return answer


def _callable(name: Name) -> CallableEncoder | None:
    """Return the encoder of a callable; None for a network."""
    if name.scheme == "live":
        target, identity = live.kept(name).target, name.name
    else:
        target, identity = find_attribute(name)
        if name.tag or is_builder(target):
            return None
        target = target() if isinstance(target, type) else target
    if isinstance(getattr(target, "module", target), torch.nn.Module) or isinstance(target, TorchClassifier):
        return None
    checked(name, {})
    if name.scheme == "python":
        call, identity, _ = called(name, target, identity, "predict")
    else:
        call = getattr(target, "predict", target)
        identity = str(getattr(target, "fingerprint", "") or f"{identity} {weights_of(target)}")
    return CallableEncoder(name.name if name.scheme == "live" else f"python:{name.name}", call, identity)


def is_encoder(text: str) -> bool:
    """Return whether a name means an encoder."""
    return parse_name(text, tagged=False).scheme == FEATURES


def features(model: Any, name: str = "", *, transform: Any = None) -> str:
    """Keep an encoder that this process has as an object, and return its name for ``holdfast.evaluate``.

    Args:
        model: A network whose output is an embedding, or a callable from a list of HWC uint8 RGB images to an array
            (images, width).
        name: What the results call it; by default its own name.
        transform: Turns a PIL image into the tensor that a network takes.

    Returns:
        ``features:live:NAME``.

    Raises:
        UserError: The object is not a model.

    Examples:
        >>> features(lambda images: [image.mean((0, 1)) for image in images], "colour")
        'features:live:colour'
    """
    if not live.is_live(model):
        raise UserError(f"features() takes a network or a callable on images, not {type(model).__name__}")
    return f"{FEATURES}:{live.keep(model, name, transform=transform)}"
