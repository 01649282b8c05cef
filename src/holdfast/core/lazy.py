"""Libraries that take long to import: ``from holdfast.core.lazy import torch`` loads torch at its first use."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = [
    "diffusers", "import_torchvision", "pd", "ray", "scipy_optimize", "scipy_sparse", "scipy_special", "scipy_stats",
    "torch",
]  # fmt: skip

if TYPE_CHECKING:
    import diffusers
    import pandas as pd
    import ray
    import torch
    from scipy import optimize as scipy_optimize
    from scipy import sparse as scipy_sparse
    from scipy import special as scipy_special
    from scipy import stats as scipy_stats
else:

    class LazyModule(ModuleType):
        """A module that is imported when one of its names is first asked for."""

        def __getattr__(self, name: str) -> Any:
            value = getattr(importlib.import_module(self.__name__), name)
            if self.__name__ != "ray":  # whose functions change when a cluster starts or ends
                setattr(self, name, value)  # found without this function from now on
            return value

    pd, ray, torch = LazyModule("pandas"), LazyModule("ray"), LazyModule("torch")
    diffusers = LazyModule("diffusers")
    scipy_optimize, scipy_sparse = LazyModule("scipy.optimize"), LazyModule("scipy.sparse")
    scipy_special, scipy_stats = LazyModule("scipy.special"), LazyModule("scipy.stats")


COMPILER = "torch._dynamo"
"""What torchvision imports for one question, whether a device can compile, which most runs never ask: two seconds."""


def import_torchvision() -> ModuleType:
    """Import torchvision and leave torch's compiler, if it is not loaded yet, until it is asked for."""
    importlib.import_module("torch")  # whose own import must not meet the modules below
    utils = f"{COMPILER}.utils"
    if "torchvision" in sys.modules or COMPILER in sys.modules:
        return importlib.import_module("torchvision")
    empty, question = ModuleType(COMPILER), ModuleType(utils)
    empty.__path__ = []
    vars(question)["is_compile_supported"] = lambda device: importlib.import_module(utils).is_compile_supported(device)
    sys.modules |= {COMPILER: empty, utils: question}
    try:
        return importlib.import_module("torchvision")
    except (ImportError, AttributeError):  # of a version that asks for more
        pass
    finally:
        for name in (COMPILER, utils):
            if sys.modules.get(name) in (empty, question):
                del sys.modules[name]
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    return importlib.import_module("torchvision")
