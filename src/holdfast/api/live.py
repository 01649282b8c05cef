"""Live objects in place of names: networks, callables, datasets and arrays that people hold in Python."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holdfast.api.live_data import is_name, write_data
from holdfast.core.errors import UserError
from holdfast.models import live

ARGUMENTS = ("transform", "class_names")
"""Arguments of functions that take models, besides the options of their spec."""


def with_names(values: Mapping[str, Any], *, temporary: bool) -> dict[str, Any]:
    """Return the arguments of a verb with names in place of live objects.

    Models stay in memory, so the work stays in this process. Datasets are written below ``out``. Where ``out`` may be
    ``temporary`` and is left out, a folder is made, and a line says where.
    """
    named = {name: value for name, value in values.items() if name not in ARGUMENTS}
    if temporary and named.get("out") is None:
        named["out"] = make_temporary()
    classes: tuple[str, ...] = ()
    if "data" in named and not is_name(named["data"]):
        if named.get("out") is None:
            raise UserError("a dataset given as an object is written below out=; say where")
        named["data"], classes = write_data(named["data"], Path(named["out"]) / "data")
    if "models" in named:
        given = {name: values[name] for name in ARGUMENTS if values.get(name) is not None}
        named["models"] = model_names(named["models"], classes, **given)
        if any(name.startswith("live:") for name in named["models"]) and _elsewhere(named):
            raise UserError("models given as objects stay in this process; leave out workers and executor")
    return named


def model_names(models: Any, classes: tuple[str, ...] = (), *, transform: Any = None, class_names: Any = None) -> Any:
    """Return the names of models that are given as names, objects, a list of both, or a dict name → object."""
    if isinstance(models, str):
        return models
    labels = class_names or classes or None
    if isinstance(models, Mapping):
        return [_name(model, str(name), transform, labels) for name, model in models.items()]
    several = list(models) if isinstance(models, (list, tuple)) else [models]
    names = [_name(model, "", transform, labels) for model in several]
    twice = {name for name in names if names.count(name) > 1}
    if any(name.startswith("live:") for name in twice):
        raise UserError(f"two models share the name {min(twice)}; give them as a dict name → model")
    return names


def _name(model: Any, name: str, transform: Any, labels: Any) -> str:
    if is_name(model):
        return f"{model}?name={name}" if name and "?" not in str(model) else str(model)
    if not live.is_live(model):
        raise UserError(
            f"a model is a name (holdfast ls models), a torch network, a callable on images or an object with predict, "
            f"not {type(model).__name__}"
        )
    return live.keep(model, name, transform=transform, labels=labels)


def make_temporary() -> Path:
    """Make a folder that the system may remove, and say where it is."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-"))
    print(f"This run is temporary: {folder} (give out= to keep it)")
    return folder


def _elsewhere(values: Mapping[str, Any]) -> bool:
    executor = values.get("executor")
    return values.get("workers", 1) not in (None, 1) or (executor is not None and not executor.shares_memory)
