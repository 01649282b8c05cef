"""``python:MODULE:ATTRIBUTE``: any callable on images, so that black boxes and remote services work.

``vlm+python:MODULE:ATTRIBUTE`` is the same for callables on images and questions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.fingerprint import fingerprint
from holdfast.core.names import Name
from holdfast.core.types import Image, LabelSpace
from holdfast.models import label_spaces
from holdfast.models.options import checked, display_name
from holdfast.models.scores import OUTPUTS, probabilities
from holdfast.registry import find_attribute, unknown


class PythonClassifier:
    """A ``Classifier`` around a callable from a list of HWC uint8 RGB images to scores or class names."""

    def __init__(
        self, name: str, call: Callable[[list[Image]], Any], labels: LabelSpace, *, identity: str, outputs: str
    ) -> None:
        self.name = name
        self.labels = labels
        self.fingerprint = fingerprint({"code": identity, "outputs": outputs, "labels": labels})
        self.only_names = False
        self._call = call
        self._outputs = outputs
        self._rows = {_spelling(label): row for row, label in reversed(list(enumerate(labels.names)))}

    def predict(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Return probabilities, (n, labels). A name becomes a 1; a name that is no label becomes a row of zeros."""
        if not images:
            return np.empty((0, len(self.labels)), np.float32)
        answer = self._call([image.copy() for image in images])
        if _is_names(answer):
            return self._one_hot(list(answer), len(images))
        if self.only_names:
            raise UserError(f"{self.name} answers with scores, so it needs a labels attribute or ?labels=FILE")
        return probabilities(answer, images=len(images), labels=len(self.labels), outputs=self._outputs, name=self.name)

    def _one_hot(self, answers: list[Any], images: int) -> NDArray[np.float32]:
        if len(answers) != images:
            raise UserError(f"{self.name} answered with {len(answers)} names for {images} images")
        rows = np.zeros((images, len(self.labels)), np.float32)
        for row, answer in enumerate(answers):
            column = None if answer is None else self._rows.get(_spelling(str(answer)))
            if column is not None:
                rows[row, column] = 1
        return rows


class PythonVlm:
    """A ``VisionLanguageModel`` around a callable."""

    def __init__(self, name: str, call: Callable[[list[Image], list[str]], Any], *, identity: str) -> None:
        self.name = name
        self.fingerprint = fingerprint({"code": identity})
        self._call = call

    def answer(self, images: Sequence[Image], questions: Sequence[str]) -> list[str]:
        """One answer a question; see ``VisionLanguageModel``."""
        answers = list(self._call([image.copy() for image in images], list(questions)))
        if len(answers) != len(questions) or not all(isinstance(answer, str) for answer in answers):
            raise UserError(f"{self.name} should answer with one text for each of {len(questions)} questions")
        return answers


def load(name: Name, *, device: str, classes: Sequence[str] | None = None) -> PythonClassifier:
    """Load a callable, a class to instantiate without arguments, or an object with ``predict``.

    It gets a list of HWC uint8 RGB images and returns probabilities or logits, (n, labels), or a list of class names
    (None where it has no answer). ``labels`` is an attribute of it, a list of names, or ``labels=FILE``; one that
    answers with names may go without and is then given the dataset's classes. Its own ``fingerprint`` is used
    where it has one, else the source of its module: set one when weights live elsewhere. The working directory is
    importable. Option: ``outputs=auto|logits|probabilities``.
    """
    del device  # the callable's own business
    options = checked(name, {"labels": str, "outputs": str})
    if options.get("outputs", "auto") not in OUTPUTS:
        raise unknown("kind of outputs", options["outputs"], OUTPUTS)
    target, call, identity = _callable(name, "predict")
    labels = _labels(target, options.get("labels"))
    only_names = labels is None
    if labels is None:
        if not classes:
            raise UserError(f"python:{name.name} needs a labels attribute or ?labels=FILE, one name a line")
        labels = LabelSpace(tuple(classes))
    shown = display_name(name, name.name)
    classifier = PythonClassifier(shown, call, labels, identity=identity, outputs=options.get("outputs", "auto"))
    classifier.only_names = only_names
    return classifier


def load_vlm(name: Name, *, device: str) -> PythonVlm:
    """Load a callable, a class to instantiate without arguments, or an object with ``answer``.

    It gets a list of HWC uint8 RGB images and as many questions, and returns as many texts. Its own ``fingerprint`` is
    used if it has one, else the source of its module. The working directory is importable.
    """
    del device  # the callable chooses its own
    checked(name, {})
    _, call, identity = _callable(name, "answer")
    return PythonVlm(display_name(name, name.name), call, identity=identity)


def _callable(name: Name, method: str) -> tuple[Any, Callable[..., Any], str]:
    """Return the object of a name, what is called for answers, and what tells two versions of it apart."""
    target, source = find_attribute(name)
    if isinstance(target, type):
        target = target()
    call = getattr(target, method, target)
    if not callable(call):
        raise UserError(f"{name.scheme}:{name.name} is neither callable nor an object with {method}")
    return target, call, str(getattr(target, "fingerprint", "") or source)


def _labels(target: Any, option: str | None) -> LabelSpace | None:
    if option == "imagenet":
        return label_spaces.imagenet()
    if option is not None:
        return label_spaces.named(label_spaces.read_names(option))
    own = getattr(target, "labels", None)
    if own is None or isinstance(own, LabelSpace):
        return own
    if isinstance(own, str) or not all(isinstance(label, str) for label in own) or not len(own):
        raise UserError("the labels attribute of a python: model should be a list of names")
    return label_spaces.named(list(own))


def _is_names(answer: Any) -> bool:
    if isinstance(answer, np.ndarray):
        return answer.ndim == 1 and answer.dtype.kind in "UO"
    is_list = isinstance(answer, (list, tuple)) and bool(answer)
    return is_list and all(name is None or isinstance(name, str) for name in answer)


def _spelling(label: str) -> str:
    return label.strip().casefold()
