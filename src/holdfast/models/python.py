"""``python:MODULE:ATTRIBUTE``: a callable on images, or a PyTorch network, by the name of its Python object.

A callable is a black box, which may be a remote service. A network (a ``torch.nn.Module``, a class or function that
builds one, or an object whose attribute ``module`` is one) has gradients as well: it is walked, explained and trained.
``vlm+python:MODULE:ATTRIBUTE`` is a callable on images and questions.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from holdfast.core.errors import UserError, first_line
from holdfast.core.fingerprint import array_sha256, fingerprint
from holdfast.core.lazy import torch
from holdfast.core.names import Name, checked, unknown
from holdfast.core.networks import weights_sha256
from holdfast.core.protocols import as_array
from holdfast.core.types import Image, LabelSpace
from holdfast.models import label_spaces, timm
from holdfast.models.label_spaces import OUTPUTS, probabilities
from holdfast.models.options import PREPROCESSING, display_name, existing_file, preprocessing_overrides
from holdfast.models.torch_classifier import TorchClassifier
from holdfast.registry import find_attribute

_DEPTH = 3  # how far attributes are followed in search of weights


def weights_of(target: Any) -> str:
    """Return a hash of all weights that an object holds, however deep; '' if none is seen.

    Networks of torch count by their state, NumPy arrays by their values; functions are followed into what they close
    over and into the globals they use.
    """
    hashes: list[str] = []
    _gather(target, hashes, set(), _DEPTH)
    return fingerprint(hashes) if hashes else ""


def _gather(value: Any, hashes: list[str], seen: set[int], depth: int) -> None:
    torch: Any = sys.modules.get("torch")
    if id(value) in seen or depth < 0 or isinstance(value, (str, bytes, int, float, type, type(sys))):
        return
    seen.add(id(value))
    if torch is not None and isinstance(value, torch.nn.Module):
        hashes.append(weights_sha256(value))
        return
    if torch is not None and isinstance(value, torch.Tensor):
        value = value.detach().cpu().float().numpy()
    if isinstance(value, np.ndarray):
        if value.dtype.kind in "biufc":
            hashes.append(array_sha256(value))
        return
    inner: list[Any] = []
    if isinstance(value, Mapping):
        inner = [value[key] for key in value]
    elif isinstance(value, (list, tuple)):
        inner = list(value)
    elif inspect.ismethod(value):
        inner = [value.__self__]
    elif inspect.isfunction(value):
        inner = [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
        inner += [value.__globals__[name] for name in value.__code__.co_names if name in value.__globals__]
    else:
        inner = [item for _, item in sorted(getattr(value, "__dict__", {}).items())]
    for item in inner:
        _gather(item, hashes, seen, depth - 1)


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


class PythonClassifier:
    """A ``Classifier`` around a callable from a list of HWC uint8 RGB images to scores or class names."""

    def __init__(
        self, name: str, call: Callable[[list[Image]], Any], labels: LabelSpace, *, identity: str, outputs: str
    ) -> None:
        self.name = name
        self.labels = labels
        self.fingerprint = fingerprint({"code": identity, "outputs": outputs, "labels": labels})
        self.only_names = False
        self.versioned = True  # whether the fingerprint changes with its weights
        owner = getattr(call, "__self__", call)
        self.native = bool(getattr(owner, "native", False))  # whether it asks for images at their native depth
        self.independent = False  # whether outputs are scores of labels that go together, not shares of one class
        self._call = call
        self._outputs = outputs
        self._rows = {_spelling(label): row for row, label in reversed(list(enumerate(labels.names)))}

    def predict(self, images: Sequence[Image]) -> NDArray[np.float32]:
        """Return probabilities, (n, labels). A name becomes a 1; a name that is not a label becomes a row of zeros."""
        if not images:
            return np.empty((0, len(self.labels)), np.float32)
        answer = self._call([image.copy() for image in images])
        if _is_names(answer):
            return self._one_hot(list(answer), len(images))
        if self.only_names:
            raise UserError(
                f"{self.name} answers with scores, so it needs a labels attribute or ?labels=FILE, one name a line"
            )
        return probabilities(
            answer, images=len(images), labels=len(self.labels), outputs=self._outputs, name=self.name,
            independent=self.independent,
        )  # fmt: skip

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
        """Return one answer per question; see ``VisionLanguageModel``."""
        answers = list(self._call([image.copy() for image in images], list(questions)))
        if len(answers) != len(questions) or not all(isinstance(answer, str) for answer in answers):
            raise UserError(f"{self.name} should answer with one text for each of {len(questions)} questions")
        return answers


def load(name: Name, *, device: str, classes: Sequence[str] | None = None) -> PythonClassifier | TorchClassifier:
    """Load a network, a callable, a class to instantiate without arguments, or an object with ``predict``.

    A callable gets a list of HWC uint8 RGB images and returns probabilities or logits, (n, labels), or a list of class
    names (None if it has no answer). ``labels`` is an attribute of it, a list of names, or ``labels=FILE``; one that
    answers with names may go without and is then given the dataset's classes. Its own ``fingerprint`` is used
    if it has one, else the source of its module and all weights that the object holds. The working directory is
    importable. Option: ``outputs=auto|logits|probabilities``. For networks see ``_network``.
    """
    target, source = find_attribute(name)
    if is_builder(target) or name.tag:
        return _network(name, target, source, device=device)
    if isinstance(target, type):
        target = target()
    states_size = "size" in name.options or hasattr(target, "preprocessing")
    if _exposed(target) is not None and (states_size or not hasattr(target, "predict")):
        return _network(name, target, source, device=device)
    options = checked(name, {"labels": str, "outputs": str})
    if options.get("outputs", "auto") not in OUTPUTS:
        raise unknown("kind of outputs", options["outputs"], OUTPUTS)
    call, identity, versioned = called(name, target, source, "predict")
    labels = own_labels(target, options.get("labels"))
    only_names = labels is None
    if labels is None:
        if not classes:
            raise UserError(f"python:{name.name} needs a labels attribute or ?labels=FILE, one name a line")
        labels = LabelSpace(tuple(classes))
    shown = display_name(name, name.name)
    classifier = PythonClassifier(shown, call, labels, identity=identity, outputs=options.get("outputs", "auto"))
    classifier.only_names, classifier.versioned = only_names, versioned
    return classifier


def load_maite(name: Name, *, device: str, classes: Sequence[str] | None = None) -> PythonClassifier:
    """Load ``maite:MODULE:ATTRIBUTE``, a MAITE model for image classification; it chooses its own device.

    It gets uint8 images (3, height, width), one each, and returns a score for each class of its ``index2label``.
    """
    del device
    options = checked(name, {"outputs": str})
    call, identity, labels, versioned = maite_model(name, classes)

    def answer(images: list[Image]) -> NDArray[np.float64]:
        scores = call([np.ascontiguousarray(image.transpose(2, 0, 1)) for image in images])
        if any(hasattr(each, "boxes") for each in scores):
            raise UserError(f"maite:{name.name} answers with boxes; a detector is maite:{name.name}?task=detect")
        return np.stack([as_array(each, np.float64) for each in scores])

    outputs = options.get("outputs", "auto")
    classifier = PythonClassifier(display_name(name, name.name), answer, labels, identity=identity, outputs=outputs)
    classifier.versioned = versioned
    return classifier


def maite_model(name: Name, classes: Sequence[str] | None = None) -> tuple[Callable[..., Any], str, LabelSpace, bool]:
    """Return a MAITE model's call, its identity, its outputs, and whether the identity sees its weights."""
    target, source = find_attribute(name)
    target = target() if isinstance(target, type) else target
    call, identity, versioned = called(name, target, source, "__call__")
    names = dict(getattr(target, "metadata", {}).get("index2label", {}))
    if sorted(names) != list(range(len(names))) or not names:
        if names or not classes:
            raise UserError(f"maite:{name.name} needs metadata with index2label, a name for each output from 0 on")
        names = dict(enumerate(classes))
    return call, identity, label_spaces.named([str(names[index]) for index in range(len(names))]), versioned


def is_builder(target: Any) -> bool:
    """Return whether an object builds networks: a subclass of ``nn.Module``, or a callable with ``num_classes``."""
    if isinstance(target, type):
        return _is_module(target, issubclass)
    if not callable(target) or _is_module(target, isinstance):
        return False
    try:
        return "num_classes" in inspect.signature(target).parameters
    except (TypeError, ValueError):
        return False


def arguments_of(name: Name, target: Any) -> dict[str, Any]:
    """Return options as arguments of a builder; those that it declares as text stay as they were typed."""
    try:
        known = inspect.signature(target).parameters
    except (TypeError, ValueError):
        return dict(name.options)
    texts = {key for key, each in known.items() if each.annotation in (str, "str") or isinstance(each.default, str)}
    return {key: name.text(key) if key in texts else value for key, value in name.options.items()}


def build(name: str, target: Any, arguments: Mapping[str, Any], outputs: int | None, *, seed: int = 0) -> Any:
    """Return the network that a builder makes, with so many outputs if it takes ``num_classes``."""
    try:
        takes = "num_classes" in inspect.signature(target).parameters
        sized = {"num_classes": outputs} if takes and outputs else {}
        module = timm.seeded(lambda: target(**sized, **arguments), seed)
    except Exception as error:  # the user's own code
        raise UserError(f"python:{name} cannot be built: {type(error).__name__}: {first_line(error)}") from error
    if not _is_module(module, isinstance):
        raise UserError(f"python:{name} should return a torch.nn.Module, not {type(module).__name__}")
    return module


def _network(name: Name, target: Any, source: str, *, device: str) -> TorchClassifier:
    """Return the classifier of a network.

    Its weights are its own, or those of ``@FILE`` (safetensors or a state dict), for a builder. Images are prepared as
    the options ``size``, ``mean``, ``std``, ``crop`` and ``interpolation`` say, else its attribute ``preprocessing``, a
    dictionary with these keys, else the ``config.json`` that ``holdfast train`` writes next to the weights; mean 0 and
    deviation 1 if nothing is said. Other options are arguments of the builder.
    """
    from holdfast.models import checkpoint

    builds = is_builder(target)
    kinds = {"labels": str, **PREPROCESSING}
    arguments = {key: value for key, value in arguments_of(name, target).items() if builds and key not in kinds}
    kept = {key: value for key, value in name.options.items() if key not in arguments}
    options = checked(replace(name, options=kept), kinds)
    labels, config = own_labels(target, options.get("labels")), dict[str, Any]()
    if name.tag:
        if not builds:
            raise UserError(
                f"python:{name.name} holds its own weights; @FILE goes with a class, or a function of num_classes"
            )
        file = existing_file(name.tag, what="checkpoint")
        state, classes = checkpoint.read_state(file)
        config = _beside(file, name.name)
        arguments = {**config.get("model_args", {}), **arguments}
        labels = labels or classes
    module = build(name.name, target, arguments, len(labels) if labels else None) if builds else _exposed(target)
    if name.tag:
        checkpoint.fill(module, state, f"python:{name.name}", file.name)
    data = {
        "input_size": None, "mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0), "interpolation": "bilinear",
        "crop_pct": 1.0, "crop_mode": "squash", **config.get("pretrained_cfg", {}),
        **preprocessing_overrides(_stated(name, target, module)), **preprocessing_overrides(options),
    }  # fmt: skip
    if data["input_size"] is None:
        raise UserError(
            f"python:{name.name} is a network; say how images reach it: ?size=224, for ImageNet's usual colours "
            "&mean=0.485/0.456/0.406&std=0.229/0.224/0.225 (else they go in as 0 to 1), and &labels=names.txt unless "
            "it says its classes itself"
        )
    preprocessing = timm.from_config(data)
    black = PIL.Image.new("RGB", data["input_size"][:0:-1])
    outputs = output_count(f"python:{name.name}", module, preprocessing.transform(black))
    return TorchClassifier(
        display_name(name, name.name + (f"@{Path(name.tag).name}" if name.tag else "")),
        module,
        label_spaces.from_option(None, outputs, labels or label_spaces.imagenet(outputs)),
        preprocessing,
        architecture=f"python/{source}/{json.dumps(arguments, sort_keys=True, default=str)}",
        device=device,
    )


def _beside(file: Path, name: str) -> dict[str, Any]:
    """Return the configuration that ``holdfast train`` wrote next to the weights; empty if there is none."""
    from holdfast.models.local_dir import is_config, read_config

    path = file.with_name("config.json")
    if not path.is_file() or not is_config(path):
        return {}
    config = read_config(path, python=True)
    if (config["library"], config["architecture"]) != ("python", name):
        raise UserError(
            f"{file} is of {config['library']}:{config['architecture']}, as its config.json says, not {name}"
        )
    return config


def _stated(name: Name, target: Any, module: Any) -> Mapping[str, Any]:
    """Return what the object's attribute ``preprocessing`` says, spelled as options are."""
    own = getattr(target, "preprocessing", None) or getattr(module, "preprocessing", None) or {}
    if not isinstance(own, Mapping) or not set(own) <= set(PREPROCESSING):
        raise UserError(f"preprocessing of python:{name.name} should be a dictionary with {', '.join(PREPROCESSING)}")
    texts = {
        key: "/".join(str(part) for part in value) if isinstance(value, (tuple, list)) else value
        for key, value in own.items()
    }
    return checked(Name(name.scheme, name.name, "", texts), PREPROCESSING)


def output_count(name: str, module: Any, image: torch.Tensor) -> int:
    """Return how many outputs a network has, from its answer to one prepared image, CHW."""
    batch = image[None]
    try:
        with torch.inference_mode():
            answer = module.float().eval().cpu()(batch)
    except Exception as error:  # the user's own code
        reason = f"{type(error).__name__}: {first_line(error)}"
        raise UserError(f"{name} does not take a batch of shape {tuple(batch.shape)}: {reason}") from error
    if not isinstance(answer, torch.Tensor) or answer.ndim != 2:
        shape = tuple(answer.shape) if isinstance(answer, torch.Tensor) else type(answer).__name__
        raise UserError(f"{name} should answer with logits, (images, classes), not with {shape}")
    return int(answer.shape[1])


def _exposed(target: Any) -> Any:
    """Return the network that an object is, or has as its attribute ``module``; None for a black box."""
    inner = getattr(target, "module", None)
    return target if _is_module(target, isinstance) else inner if _is_module(inner, isinstance) else None


def _is_module(target: Any, test: Callable[[Any, Any], bool]) -> bool:
    torch: Any = sys.modules.get("torch")  # if no one has imported torch, nothing is a module of it
    return torch is not None and test(target, torch.nn.Module)


def load_vlm(name: Name, *, device: str) -> PythonVlm:
    """Load a callable, a class to instantiate without arguments, or an object with ``answer``.

    It gets a list of HWC uint8 RGB images and as many questions, and returns as many texts. Its own ``fingerprint`` is
    used if it has one, else the source of its module. The working directory is importable.
    """
    del device  # the callable chooses its own
    checked(name, {})
    target, source = find_attribute(name)
    call, identity, _ = called(name, target() if isinstance(target, type) else target, source, "answer")
    return PythonVlm(display_name(name, name.name), call, identity=identity)


def called(name: Name, target: Any, source: str, method: str) -> tuple[Callable[..., Any], str, bool]:
    """Return what is called for answers, what distinguishes two versions of it, and whether that sees its weights."""
    call = getattr(target, method, target)
    if not callable(call):
        raise UserError(f"{name.scheme}:{name.name} is neither callable nor an object with {method}")
    own = str(getattr(target, "fingerprint", ""))
    weights = "" if own else weights_of(target)
    return call, own or f"{source} {weights}".rstrip(), bool(own or weights)


def own_labels(target: Any, option: str | None) -> LabelSpace | None:
    """Return the labels of an option, or else of an object's attribute ``labels``; None if there are none."""
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
