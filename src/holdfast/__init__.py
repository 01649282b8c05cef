"""Does my vision model see the object, or lean on everything around it?"""

from __future__ import annotations

from importlib import import_module, metadata
from typing import TYPE_CHECKING, Any

from holdfast.core.errors import HoldfastError, SampleError, UserError

if TYPE_CHECKING:
    from holdfast.api import (
        Results,
        compare,
        evaluate,
        load_classifier,
        load_collection,
        mask,
        open_run,
        perturb,
        report,
        synth,
    )
    from holdfast.scenarios import parse_conditions, render, scenario

try:
    __version__ = metadata.version("holdfast")
except metadata.PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0+unknown"

__all__ = [
    "HoldfastError",
    "Results",
    "SampleError",
    "UserError",
    "compare",
    "evaluate",
    "load_classifier",
    "load_collection",
    "mask",
    "open_run",
    "parse_conditions",
    "perturb",
    "render",
    "report",
    "scenario",
    "synth",
]

_HOMES = dict.fromkeys(("parse_conditions", "render", "scenario"), "holdfast.scenarios")


def __getattr__(name: str) -> Any:
    # Imported on first use, so that `import holdfast` costs nothing.
    if name not in __all__:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    return getattr(import_module(_HOMES.get(name, "holdfast.api")), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
