"""From the name of a model to a classifier."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from typing import cast

from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.core.names import parse_name
from holdfast.core.protocols import Classifier, Segmenter


def load_classifier(text: str, *, device: str = "auto", classes: Sequence[str] | None = None) -> Classifier:
    """The model of a name such as ``timm:resnet50`` or ``torch:resnet18@best.pth?labels=names.txt``.

    Args:
        text: ``scheme:name[@tag][?option=value&…]``; every scheme knows ``name=``, which is what the results call
            the model (two checkpoints called ``best.pth`` need it).
        device: ``auto`` (the best there is), ``cpu``, ``cuda``, ``cuda:1``, ``mps``.
        classes: the dataset's classes, for models that answer with class names instead of scores.
    """
    name = parse_name(text)
    if not name.scheme:
        known = ", ".join(f"{entry.name}:" for entry in registry.models.entries())
        hint = f"onnx:{text}" if name.name.endswith(".onnx") else "timm:resnet50"
        raise UserError(f"a model is named scheme:name, for example {hint}, which {text!r} is not; schemes: {known}")
    if name.scheme in registry.vlms:
        raise UserError(f"{name.scheme}: answers in words, not with classes: holdfast ask is for it, this is not")
    options = dict(name.options)
    called = str(options.pop("name", ""))
    load = registry.models.get(name.scheme)
    extra = {"classes": classes} if "classes" in inspect.signature(load).parameters else {}
    classifier = cast(Classifier, load(dataclasses.replace(name, options=options), device=device, **extra))
    if called:
        classifier.name = called
    return classifier


def load_segmenter(text: str, *, device: str = "auto") -> Segmenter:
    """The segmenter of a name such as ``embedded:unet``, ``smp:FPN@FOLDER`` or ``hf:FOLDER``; ``name=`` as above."""
    name = parse_name(text)
    if not name.scheme:
        known = ", ".join(f"{entry.name}:" for entry in registry.segmenters.entries())
        raise UserError(
            f"a segmenter is named scheme:name, for example embedded:unet, which {text!r} is not; schemes: {known}"
        )
    options = dict(name.options)
    called = str(options.pop("name", ""))
    load = registry.segmenters.get(name.scheme)
    segmenter = cast(Segmenter, load(dataclasses.replace(name, options=options), device=device))
    if called:
        segmenter.name = called
    return segmenter


def available(scheme: str) -> list[str]:
    """The models of a scheme that can be listed at once and used as they are (packaged, embedded); else nothing."""
    if scheme not in ("packaged", "embedded"):
        return []
    from holdfast.models import embedded, packaged

    names = packaged.installed() if scheme == "packaged" else embedded.installed()
    return [f"{scheme}:{name}" for name in names]
