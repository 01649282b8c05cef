"""A hash of the weights inside any Python object, so that a changed model is not taken for the old one."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from holdfast.core.fingerprint import array_sha256, fingerprint
from holdfast.models.torch_classifier import weights_sha256

_DEPTH = 3  # how far attributes are followed in search of weights


def weights_of(target: Any) -> str:
    """Return a hash of all weights that an object holds, however deep; '' where none is seen.

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
