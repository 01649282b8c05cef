"""The models of an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import HoldfastError, SampleError, UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.lazy import torch
from holdfast.core.protocols import Classifier, Oracle
from holdfast.core.types import Collection, Image, LabelSpace, Sample
from holdfast.data.labels import LabelMap, class_keys, map_labels
from holdfast.models import attacks, load_classifier, proof
from holdfast.models.torch_classifier import TorchClassifier
from holdfast.oracle import load_oracle
from holdfast.pipeline.specs import EvaluateSpec as EvaluateSpec
from holdfast.scenarios import Condition
from holdfast.scenarios.tensors import supports

SEVERAL_LABELS = "images with several labels are for holdfast eval; leave out ?separator= here"


@dataclass(frozen=True)
class TestedModel:
    """A classifier or detector, and which of its outputs belong to which class of the dataset."""

    # ``fast`` is its fingerprint in rows that ``--fast`` makes; it is empty if the model cannot be used so. Those
    # answers may differ in the last digits, and must never be taken for exact ones.

    model: Any
    labels: LabelMap
    fingerprint: str
    fast: str = ""
    parameters: int = 0  # 0 if the model does not show its network

    def named(self, condition: Condition) -> str:
        """Return the fingerprint that goes into the row ids under a condition."""
        return self.fast if self.fast and supports(condition) else self.fingerprint


class Tested(TestedModel):
    """A classifier under test."""

    model: Classifier

    @property
    def classifier(self) -> Classifier:
        """The classifier itself."""
        return self.model


@dataclass
class Unloaded:
    """What a plan needs to know of a classifier that only workers load."""

    name: str
    labels: LabelSpace
    fingerprint: str
    versioned: bool = True
    adapt_images: int = 0

    def predict(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Raise a HoldfastError: the weights are elsewhere."""
        raise HoldfastError(f"{self.name} is not loaded in this process")


def unloaded(model: Tested) -> Tested:
    """Return the model without its weights."""
    loaded = model.classifier
    known = Unloaded(
        loaded.name, loaded.labels, loaded.fingerprint, getattr(loaded, "versioned", True),
        getattr(loaded, "adapt_images", 0),
    )  # fmt: skip
    return replace(model, model=known)


def modules_of(model: object) -> list[torch.nn.Module]:
    """Return the networks that a loaded model shows."""
    return [value for value in getattr(model, "__dict__", {}).values() if isinstance(value, torch.nn.Module)]


def parameter_count(model: object) -> int:
    """Return how many numbers a loaded model has learned; 0 if it does not show its network."""
    return sum(parameter.numel() for module in modules_of(model) for parameter in module.parameters())


def load_models(spec: EvaluateSpec, collection: Collection) -> list[Tested]:
    """Load the models and map the dataset's classes to their outputs."""
    if collection.separator:
        raise UserError(SEVERAL_LABELS)
    keys = class_keys(collection, spec.labels)
    tested = []
    for name in spec.models:
        classifier = load_classifier(name, device=spec.device, classes=collection.classes)
        if getattr(classifier, "native", False) and getattr(spec, "depth", "8") != "native":
            raise UserError(f"{classifier.name} asks for images at their native depth: use eval with --depth native")
        if hasattr(classifier, "batch_size"):  # it splits batches itself when memory runs out
            classifier.batch_size = spec.batch_size
        labels = map_labels(collection.classes, keys, classifier.labels)
        exact = fingerprint([classifier.fingerprint, labels.fingerprint])
        tensors = isinstance(classifier, TorchClassifier) and classifier.preprocessing.geometry is not None
        fast = fingerprint([exact, "fast"]) if spec.fast and tensors else ""
        tested.append(Tested(classifier, labels, exact, fast, parameter_count(classifier)))
    check_names([model.classifier.name for model in tested])
    return tested


def proved(model: Any, samples: Iterable[Sample], max_pixels: int) -> list[str]:
    """Return how a model's network agrees with its own ``predict`` on the first images; see ``models.proof``.

    ``model``: a classifier or a segmenter. Raises a UserError if they disagree; a black box needs no proof.
    """
    prove = proof.prove_segmenter if hasattr(model, "segment") else proof.prove
    if not hasattr(model, "logits"):
        return []
    agreement = prove(model, first_images(samples, max_pixels))
    return [agreement.sentence] if agreement is not None else []


def first_images(samples: Iterable[Sample], max_pixels: int) -> list[Image]:
    """Return the first originals that can be read, as many as a proof asks for."""
    images: list[Image] = []
    for sample in samples:
        if len(images) == proof.IMAGES:
            break
        with suppress(SampleError):
            images.append(sample.image.load(max_pixels=max_pixels))
    return images


def load_judge(name: str, collection: Collection, *, labels: str | None, device: str) -> Oracle:
    """Load an oracle for the classes of a collection, whose keys may come from a label file."""
    return load_oracle(
        name, classes=collection.classes, keys=class_keys(collection, labels), load_classifier=load_classifier,
        map_labels=map_labels, device=device,
    )  # fmt: skip


def know_models(
    spec: EvaluateSpec,
    collection: Collection,
    conditions: Sequence[Condition],
    inspect: Callable[[Tested], Tested] | None = None,
) -> list[Tested]:
    """Return what a plan needs of the models. One is loaded at a time, and not on a GPU: workers load their own."""
    # ``inspect`` sees each model while it is loaded, and may return another description of it.
    known = []
    for name in spec.models:
        (model,) = load_models(replace(spec, models=(name,), device="cpu"), collection)
        check_attacks(conditions, [model])
        known.append(unloaded(inspect(model) if inspect is not None else model))
    check_names([model.classifier.name for model in known])
    return known


def check_names(names: Sequence[str]) -> None:
    """Raise a UserError if two models share a name: their rows could not be distinguished."""
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise UserError(f"two models share the name {twice}; add ?name=… to one of them")


def check_attacks(conditions: Sequence[Condition], tested: Sequence[Tested]) -> None:
    """Raise a UserError if a model cannot be attacked as asked: better now than in every row."""
    for condition in conditions:
        if condition.definition.attack:
            for model in tested:
                attacks.check_attackable(model.classifier, condition.scenario)
