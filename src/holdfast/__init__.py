"""Does my vision model see the object, or lean on everything around it?"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from holdfast.core.distribution import COMPANIONS, installed_version, pip_install
from holdfast.core.errors import HoldfastError, SampleError, UserError

if TYPE_CHECKING:
    from holdfast.api import (
        Results,
        ask,
        choose,
        compare,
        data,
        evaluate,
        explain,
        generate,
        load_classifier,
        load_collection,
        mask,
        mine,
        modes,
        open_run,
        parity,
        perturb,
        remedy,
        report,
        segment,
        sidecar,
        synth,
        telltale,
        train,
    )  # fmt: skip
    from holdfast.scenarios import parse_conditions, render, scenario
    from holdfast.verbs import check, plan, track

# Libraries read these when they are imported. onnxruntime would keep an id of the machine and a file of events for its
# maker in the home folder, diffusers would tell the hub which pipelines are loaded.
for _name in ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY"):
    os.environ.setdefault(_name, "1")

__version__ = installed_version()

__all__ = [
    "HoldfastError", "Results", "SampleError", "UserError", "ask", "check", "choose", "compare", "data",
    "evaluate", "explain", "generate", "load_classifier", "load_collection", "mask",
    "mine", "modes", "open_run", "parity", "parse_conditions", "perturb", "plan", "remedy", "render", "report",
    "scenario", "segment", "sidecar", "synth", "telltale", "track", "train",
]  # fmt: skip

_HOMES = dict.fromkeys(("parse_conditions", "render", "scenario"), "holdfast.scenarios") | dict.fromkeys(
    ("check", "plan", "track"), "holdfast.verbs"
)
"""Names that are not in ``holdfast.api``."""


def __getattr__(name: str) -> Any:
    # Imported on first use, so that `import holdfast` costs nothing.
    if name not in __all__:
        if name[0] != "_" and not find_spec(f"holdfast.{name}") and (function := _of_another_package(name)):
            return function
        if extra := next((extra for extra, names in COMPANIONS.items() if name in names), ""):
            raise AttributeError(f"holdfast.{name} comes with {pip_install(extra)}")
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    return getattr(import_module(_HOMES.get(name, "holdfast.api")), name)


def _of_another_package(name: str) -> Any:
    """Return the function of a verb that another package adds; None if there is none."""
    from holdfast.api.verb import function_of
    from holdfast.registry import verbs

    typed = name.replace("_", "-")
    return function_of(verbs.get(typed)) if typed in verbs and verbs.get(typed).python_name == name else None


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


class _Package(ModuleType):
    """Keeps verbs such as ``report`` in place when Python binds the package of the same name on import."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in __all__ and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
