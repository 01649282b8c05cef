"""What callers may write for an option, made into what specifications hold."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from holdfast.core.names import split_list
from holdfast.core.places import shown


def listed(names: str | Iterable[str]) -> tuple[str, ...]:
    """Names, of a sequence or of a text with commas."""
    return tuple(split_list(names) if isinstance(names, str) else names)


def texts(options: dict[str, Any]) -> dict[str, Any]:
    """The options with paths as text."""
    return {name: shown(value) if isinstance(value, Path) else value for name, value in options.items()}
