"""Does my vision model see the object, or rely on everything around it?"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from holdfast.core.distribution import extra_with, installed_version, pip_install
from holdfast.core.errors import HoldfastError, SampleError, UserError

if TYPE_CHECKING:
    from holdfast.api import (
        Results,
        ask,
        choose,
        compare,
        data_check,
        evaluate,
        explain,
        generate,
        load_classifier,
        load_collection,
        mask,
        mine,
        mine_modes,
        mine_remedy,
        open_run,
        parity,
        perturb,
        report,
        segment,
        synth,
        train,
    )  # fmt: skip
    from holdfast.scenarios import parse_conditions, render, scenario
    from holdfast.verbs import check, plan, track

# Libraries read these when they are imported. onnxruntime would keep an id of the machine and a file of events for its
# maker in the home folder, diffusers would report to the hub which pipelines are loaded.
for _name in ("ORT_DISABLE_TELEMETRY", "HF_HUB_DISABLE_TELEMETRY"):
    os.environ.setdefault(_name, "1")

__version__ = installed_version()

__all__ = [
    "HoldfastError", "Results", "SampleError", "UserError", "ask", "check", "choose", "compare", "data_check",
    "evaluate", "explain", "generate", "load_classifier", "load_collection", "mask", "mine", "mine_modes",
    "mine_remedy", "open_run", "parity", "parse_conditions", "perturb", "plan", "render", "report", "scenario",
    "segment", "synth", "track", "train",
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
        if extra := extra_with(name.replace("_", " ")):
            raise AttributeError(f"holdfast.{name} comes with {pip_install(extra)}")
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}", name=name, obj=sys.modules[__name__])
    return getattr(import_module(_HOMES.get(name, "holdfast.api")), name)


def _of_another_package(name: str) -> Any:
    """Return the function of a verb that another package adds; None if there is none."""
    from holdfast.api.verb import function_of
    from holdfast.core.verbs import python_name
    from holdfast.registry import verbs

    typed = next((verb for verb in verbs if python_name(verb) == name), "")
    return function_of(verbs.get(typed)) if typed else None


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
