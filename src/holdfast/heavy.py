"""Libraries that take seconds to import: ``from holdfast.heavy import torch`` is quick, the first use imports it."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    import ray
    import torch
else:

    class HeavyModule(ModuleType):
        """Stands for a library, and becomes a copy of its module when one of its names is first used."""

        def __getattr__(self, name: str) -> Any:
            module = import_module(self.__name__)
            self.__dict__.update(vars(module))
            return getattr(module, name)

    pd, ray, torch = HeavyModule("pandas"), HeavyModule("ray"), HeavyModule("torch")

__all__ = ["pd", "ray", "torch"]
