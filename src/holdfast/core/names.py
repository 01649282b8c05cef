"""The grammar of names: ``scheme:name@tag?option=value&option=value``."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

from holdfast.core.errors import UserError


@dataclass(frozen=True, slots=True)
class Name:
    """A parsed name. ``scheme`` is empty for plain names and paths."""

    scheme: str
    name: str
    tag: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def parse_options(text: str) -> dict[str, Any]:
    """Parse ``a=1&b=x`` into values of type int, float, bool or str."""
    parts = text.split("&") if text else []
    if not all("=" in part for part in parts):
        raise UserError(f"options read option=value&option=value, which {text!r} does not")
    # Not parse_qsl, which makes a space of the + in a file's name.
    return {unquote(key): _value(unquote(value)) for key, _, value in (part.partition("=") for part in parts)}


def write_options(options: Mapping[str, Any]) -> str:
    """Return ``?a=1&b=x``, which ``parse_options`` reads; "" without options."""
    texts = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in options.items()}
    query = "&".join(f"{quote(key)}={quote(value, safe='/')}" for key, value in texts.items())
    return f"?{query}" if query else ""


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def parse_name(text: str, *, tagged: bool = True) -> Name:
    """Split a name into its parts.

    A one-letter scheme is a drive letter and so part of a path. With ``tagged=False`` an ``@`` is part of the name.
    """
    head, _, query = text.partition("?")
    scheme, colon, rest = head.partition(":")
    if not colon or len(scheme) < 2 or "/" in scheme or "\\" in scheme or "." in scheme:
        scheme, rest = "", head
    name, tag = rest, ""
    if tagged and "@" in rest:
        name, _, tag = rest.rpartition("@")
    return Name(scheme, name, tag, parse_options(query))


def split_list(text: str) -> list[str]:
    """Split a comma-separated list; empty members are dropped."""
    return [part.strip() for part in text.split(",") if part.strip()]


def nearest(name: str, known: Iterable[str], *, count: int = 3) -> list[str]:
    """Return the known names that are most like a mistyped one."""
    lowered = {candidate.lower(): candidate for candidate in known}
    return [lowered[hit] for hit in difflib.get_close_matches(name.lower(), lowered, n=count, cutoff=0.5)]


def unknown(what: str, name: str, known: Iterable[str]) -> UserError:
    """Return the error for an unknown name; it offers the nearest names, or else all of them."""
    names = sorted(known)
    close = nearest(name, names)
    hint = f"did you mean {', '.join(close)}?" if close else f"known: {', '.join(names[:30])}"
    return UserError(f"no {what} is called {name!r}; {hint}")
