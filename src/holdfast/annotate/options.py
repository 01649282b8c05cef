"""Options in the name of a mask maker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.names import Name
from holdfast.registry import unknown


def numbers(
    name: Name, defaults: Mapping[str, int | float], limits: Mapping[str, tuple[float, float]]
) -> dict[str, Any]:
    """Return the defaults overlaid with the name's options; raise UserError for an unknown option or a wrong number."""
    maker = name.scheme or name.name
    if name.scheme and name.name:
        raise UserError(f"the mask maker {maker} takes options ({maker}?option=value), not the name {name.name!r}")
    chosen: dict[str, Any] = dict(defaults)
    for key, value in name.options.items():
        if key not in defaults:
            raise unknown(f"option of {maker}", key, defaults)
        whole = isinstance(defaults[key], int)
        low, high = limits[key]
        good = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        if not good or not low <= value <= high:
            kind = "a whole number" if whole else "a number"
            raise UserError(f"{maker}'s {key} must be {kind} from {low:g} to {high:g}, not {value!r}")
        chosen[key] = value if whole else float(value)
    return chosen


def spelled(maker: str, options: Mapping[str, int | float], defaults: Mapping[str, int | float]) -> str:
    """Return the shortest name that gives these options."""
    changed = [f"{key}={value}" for key, value in options.items() if value != defaults[key]]
    return f"{maker}?{'&'.join(changed)}" if changed else maker
