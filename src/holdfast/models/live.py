"""``live:NAME``: models that people hold in Python, kept by name in this process."""

from __future__ import annotations

import copy
import functools
import hashlib
import inspect
import logging
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import PIL.Image

from holdfast.core.errors import UserError, first_line
from holdfast.core.lazy import torch
from holdfast.core.names import Name, checked, unknown
from holdfast.core.types import LabelSpace
from holdfast.models import label_spaces, probing, timm
from holdfast.models.python import PythonClassifier, output_count, weights_of
from holdfast.models.torch_classifier import Preprocessing, TorchClassifier


@dataclass(frozen=True)
class LiveModel:
    """A network or a callable, with what has to be known about it."""

    # a ``torch.nn.Module`` (TorchScript, too), an exported program of torch, a package of AOTInductor, a pipeline of
    # transformers, a callable on a list of HWC uint8 RGB images, or an object with ``predict_proba`` or ``predict``.
    target: Any
    # turns a PIL image into the CHW tensor that a network takes; None: what the network itself says.
    transform: Callable[..., Any] | None = None
    labels: Sequence[str] | None = None  # the names of its outputs, in order; None: what it says itself
    classes: Sequence[str] = ()  # of the dataset that it is shown, in order: its outputs, if there are as many


LOG = logging.getLogger(__name__)
_MODELS: dict[str, LiveModel] = {}


def keep(
    model: Any,
    name: str = "",
    *,
    transform: Any = None,
    labels: Sequence[str] | None = None,
    classes: Sequence[str] = (),
) -> str:
    """Keep a model in this process and return its name, ``live:NAME``; an object of the same name is replaced.

    Options may follow the name (``mine?adapt=batchnorm``).
    """
    if not isinstance(model, LiveModel):
        model = LiveModel(model, transform, labels, classes)
    name, _, options = name.partition("?")
    shown = name or name_of(model)
    key = re.sub(r"[^\w.+-]+", "_", shown).strip("_") or "model"
    _MODELS[key] = model
    return f"live:{key}?{options}" if options else f"live:{key}"


def name_of(model: Any) -> str:
    """Return what a model given as an object is called: its own name, or that of its class."""
    target = model.target if isinstance(model, LiveModel) else model
    own = target.name if isinstance(target, TorchClassifier) else getattr(target, "__name__", "")
    return str(own or type(target).__name__)


def is_live(value: Any) -> bool:
    """Return whether a value is a model rather than the name of one."""
    methods = ("predict", "predict_proba", "graph_module")
    return isinstance(value, LiveModel) or callable(value) or any(hasattr(value, method) for method in methods)


def kept(name: Name) -> LiveModel:
    """Return the model that this process keeps under a name."""
    if name.name not in _MODELS:
        if _MODELS:
            raise unknown("live model of this process", name.name, _MODELS)
        raise UserError(f"live:{name.name} lives in the Python process that gave it; call the function there again")
    return _MODELS[name.name]


def load(name: Name, *, device: str, classes: Sequence[str] | None = None) -> TorchClassifier | PythonClassifier:
    """Return the classifier of a model that this process keeps. Other processes do not have it."""
    checked(name, {})
    model = kept(name)
    if isinstance(model.target, TorchClassifier):  # what ``load_classifier`` returned
        if model.transform:
            raise UserError(f"{model.target.name} brings its own preprocessing; leave out transform=")
        loaded = copy.copy(model.target)
        loaded.name = name.name
        return loaded
    network = _network(model)
    if network is None:
        return _callable(name.name, model, classes)
    module, own_transform, own_labels = network
    if not module.state_dict():
        _warn_unversioned(name.name, "another name")
    preprocessing = _preprocessing(name.name, module, model.transform or own_transform)
    outputs = output_count(name.name, module, preprocessing.transform(PIL.Image.new("RGB", (320, 240))))
    if model.labels and len(model.labels) != outputs:
        raise UserError(f"{name.name} has {outputs} outputs, but class_names has {len(model.labels)} names")
    names = model.labels or (model.classes if len(model.classes) == outputs else ())
    space = label_spaces.named(list(names)) if names else own_labels or label_spaces.imagenet(outputs)
    if space is None and classes and len(classes) != outputs:
        raise UserError(
            f"{name.name} has {outputs} outputs and the dataset {len(classes)} classes, so names are missing: "
            "give class_names=[…], the names of its outputs in their order"
        )
    if space is None and classes:  # in the order of their names, as torchvision's ImageFolder numbers them
        space = label_spaces.named(sorted(classes))
        _say_order(name.name, space.names)
    return TorchClassifier(
        name.name, module, label_spaces.from_option(None, outputs, space), preprocessing,
        architecture=f"live/{type(model.target).__name__}", device=device,
    )  # fmt: skip


@functools.cache
def _say_order(name: str, labels: tuple[str, ...]) -> None:
    """Log, once, which class each output is taken for where nothing says it."""
    first = [*labels[:3], "…", labels[-1]] if len(labels) > 4 else labels
    LOG.warning(
        "the outputs of %s have no names, so they are taken for the classes in alphabetical order: 0 to %d are %s. "
        "If it was trained in another order, give class_names=[…]", name, len(labels) - 1, ", ".join(first),
    )  # fmt: skip


def _network(model: LiveModel) -> tuple[Any, Any, LabelSpace | None] | None:
    """Return a copy of the network as a module, its own transform and labels; None for what is not a network."""
    torch: Any = sys.modules.get("torch")  # without torch in memory, nothing is a network of it
    target = model.target
    if torch is None:
        return None
    transform, names = None, getattr(getattr(target, "config", None), "id2label", None)
    if getattr(target, "task", "") == "image-classification" and hasattr(target, "image_processor"):
        target, transform = target.model, target.image_processor  # a pipeline of transformers
        names = target.config.id2label
    elif hasattr(target, "graph_module") and callable(getattr(target, "module", None)):
        target = target.module()  # what torch.export returns
    elif hasattr(target, "get_constant_fqns"):  # what torch._inductor.aoti_load_package returns
        target = _compiled(target)
    if not isinstance(target, torch.nn.Module):
        return None
    if any(value.is_meta for value in target.state_dict().values()):
        raise UserError("weights of the model are on the device meta, which holds no values; load them first")
    broken = [
        key for key, value in target.state_dict().items() if value.is_floating_point() and not value.isfinite().all()
    ]
    if broken:
        raise UserError(f"weights of the model are not finite: {', '.join(broken[:3])}; its answers would mean nothing")
    own = getattr(target, "labels", None)
    if isinstance(names, Mapping):
        own = [str(names[key]) for key in sorted(names, key=int)]
    space = own if isinstance(own, LabelSpace) else label_spaces.named(list(own)) if own is not None else None
    return _logits_of(target), transform, space


def _compiled(package: Any) -> Any:
    """Return a package of AOTInductor, which is a plain callable on tensors, as a module."""

    class CompiledPackage(torch.nn.Module):
        """Calls the package."""

        def forward(self, batch: torch.Tensor) -> Any:
            """Return what the package answers."""
            return package(batch)

    return CompiledPackage()


def _logits_of(network: Any) -> Any:
    """Return a copy that answers with logits; the user's own module keeps its device, mode and precision."""

    class CopiedLogits(torch.nn.Module):
        """Calls the network and takes its logits."""

        def __init__(self) -> None:
            super().__init__()
            with torch.no_grad():  # else TorchScript's copies would not be leaves
                self.network = copy.deepcopy(network)
            self.pretrained_cfg = getattr(network, "pretrained_cfg", None)
            self.transform = getattr(network, "transform", None)

        def train(self, mode: bool = True) -> CopiedLogits:
            """Set the mode of the copy; an exported program has none."""
            try:
                return super().train(mode)
            except NotImplementedError:
                self.training = mode
                return self

        def forward(self, batch: torch.Tensor) -> torch.Tensor:
            """Return the logits of a prepared batch."""
            answer = self.network(batch)
            answer = answer[0] if isinstance(answer, (tuple, list)) else answer
            logits: torch.Tensor = getattr(answer, "logits", answer)
            return logits

    return CopiedLogits()


def _preprocessing(name: str, module: Any, transform: Any) -> Preprocessing:
    transform = transform or module.transform
    if transform is None and module.pretrained_cfg:
        return timm.preprocessing(module.network, {})
    if not callable(transform):
        raise UserError(
            f"how does {name} want its images? Give transform=, a function from a PIL image to a tensor (for example "
            "weights.transforms() of torchvision, or the image processor of transformers)"
        )
    if hasattr(transform, "image_mean"):
        transform = _Processor(transform)
    try:
        prepared = transform(PIL.Image.new("RGB", (320, 240)))
    except Exception as error:  # the user's own code
        raise UserError(
            f"the transform of {name} fails on a PIL image: {type(error).__name__}: {first_line(error)}"
        ) from error
    size = tuple(prepared.shape) if hasattr(prepared, "detach") else ()
    if len(size) != 3 or (size[2] in (1, 3) and size[0] not in (1, 3)):
        shape = f" of shape {tuple(prepared.shape)}" if hasattr(prepared, "shape") else ""
        raise UserError(
            f"transform= of {name} returns {_kind(prepared)}{shape}; wanted is one torch tensor (channels, height, "
            "width), as torchvision's transforms.ToTensor() makes it"
        )
    probing.check_repeats(name, transform)
    colours = probing.colours_of(transform)
    about = re.sub(r" at 0x[0-9a-f]+", "", repr(getattr(transform, "processor", transform)))
    source = _source(transform) if "<function" in about or "object" in about else ""
    return Preprocessing(
        transform if colours.channels == "rgb" else _Turned(transform), (size[1], size[2]), colours.mean, colours.std,
        False, {"transform": about, "source": source}, channels=colours.channels, unclear=colours.unclear,
    )  # fmt: skip


def _kind(value: Any) -> str:
    """Return what a value is, with an article: ``an ndarray``, ``a Tensor``."""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' or name.startswith('nd') else 'a'} {name}"


@dataclass(frozen=True)
class _Processor:
    """An image processor of transformers as a function of one image."""

    processor: Any

    def __call__(self, picture: PIL.Image.Image) -> Any:
        return self.processor(images=picture, return_tensors="pt")["pixel_values"][0]


@dataclass(frozen=True)
class _Turned:
    """A transform of blue-first images with its channels turned round, as ``Preprocessing`` wants them."""

    transform: Callable[..., Any]

    def __call__(self, picture: PIL.Image.Image) -> Any:
        return self.transform(picture).flip(0)


def _callable(name: str, model: LiveModel, classes: Sequence[str] | None) -> PythonClassifier:
    target = model.target
    method = next((known for known in ("predict_proba", "predict") if callable(getattr(target, known, None))), "")
    call = getattr(target, method) if method else target
    if not callable(call):
        raise UserError(f"a model must be a network, a callable or an object with predict, not {type(target).__name__}")
    names = model.labels or getattr(target, "labels", None) or model.classes or None
    names = getattr(names, "names", names)  # a model that Holdfast loaded has a LabelSpace
    if names is None and not classes:
        raise UserError(f"what are the outputs of {name} called? Give class_names=[…]")
    weights = weights_of(target)
    if not weights and not getattr(target, "fingerprint", ""):
        _warn_unversioned(name, "another name, or its own attribute fingerprint,")
    identity = str(getattr(target, "fingerprint", "") or f"{_source(target)} {weights}")
    outputs = "probabilities" if method == "predict_proba" else getattr(target, "outputs", "auto")
    classifier = PythonClassifier(
        name, call, label_spaces.named(list(names if names is not None else classes or ())), identity=identity,
        outputs=outputs if outputs in label_spaces.OUTPUTS else "auto",
    )  # fmt: skip
    classifier.only_names = names is None
    return classifier


def _warn_unversioned(name: str, what: str) -> None:
    text = f"{name} shows no weights, so a changed version cannot be distinguished: give every version {what}"
    warnings.warn(text.rstrip(","), stacklevel=3)


def _source(target: Any) -> str:
    """Return a hash of the code of a callable, '' if it cannot be read."""
    for candidate in (target, type(target)):
        try:
            return hashlib.sha256(inspect.getsource(candidate).encode()).hexdigest()
        except (TypeError, OSError):
            continue
    return ""
