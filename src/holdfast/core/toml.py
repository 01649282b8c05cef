"""Read TOML files that a user wrote."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.places import place

MAX_BYTES = 1 << 20
_DEEPEST = 32
_KEY_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_DEEP_KEY = re.compile(rf"(?:{_KEY_PART}[ \t]*\.[ \t]*){{{_DEEPEST}}}")
"""A key of this many parts: the parser's time and memory grow with the square of their number."""


def read_toml(path: str | Path, what: str) -> dict[str, Any]:
    """Return the table of a file; a UserError, which calls it ``what``, if it is missing, too large or no TOML."""
    file = place(path)
    if not file.is_file():
        raise UserError(f"{what} {str(path)!r} is not a file")
    if file.stat().st_size > MAX_BYTES:
        raise UserError(f"{what} {str(path)!r} is larger than {MAX_BYTES} bytes: that is no table of words")
    try:
        text = file.read_text(encoding="utf-8-sig")
        if _DEEP_KEY.search(text):
            raise UserError(f"{what} {str(path)!r} has a key of more than {_DEEPEST} dotted parts")
        return tomllib.loads(text)
    except OSError as error:
        raise UserError(f"{what} {str(path)!r} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"{what} {str(path)!r} is not TOML: {error}") from error
