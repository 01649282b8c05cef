"""Libraries that take long to import: ``from holdfast.core.lazy import torch`` loads torch at its first use."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

__all__ = ["diffusers", "pd", "ray", "scipy_optimize", "scipy_sparse", "scipy_special", "scipy_stats", "torch"]

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
