"""The grammar of names, ``scheme:name@tag?option=value&option=value``, and the names of conditions."""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import os
import re
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar
from urllib.parse import quote, unquote

from holdfast.core.errors import UserError, errors_in_keywords

P = ParamSpec("P")
NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that no XML document holds, and so no SVG."""
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Name:
    """A parsed name. ``scheme`` is empty for plain names and paths."""

    scheme: str
    name: str
    tag: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    # What was typed for options whose value is written otherwise: 0001 is the number 1 or the folder "0001".
    texts: Mapping[str, str] = field(default_factory=dict, compare=False)

    def text(self, option: str) -> str:
        """Return an option as it was typed; "" if it was not given."""
        return self.texts.get(option, _written(self.options[option])) if option in self.options else ""

    @property
    def whole(self) -> str:
        """Return the name together with its tag, for schemes whose names are paths."""
        return f"{self.name}@{self.tag}" if self.tag else self.name


def checked(name: Name, kinds: Mapping[str, type], *, elsewhere: Iterable[str] = ("name",)) -> dict[str, Any]:
    """Return the options of a name, each converted to its type; for an unknown option the error offers the nearest.

    ``elsewhere``: names of further options that are read before, which the error offers too.
    """
    checked_options: dict[str, Any] = {}
    for option, value in name.options.items():
        if option not in kinds:
            raise unknown(f"option of {name.scheme}:", option, [*kinds, *elsewhere])
        kind = kinds[option]
        if kind is str:
            checked_options[option] = name.text(option)
            continue
        fits = isinstance(value, kind) or (kind is float and isinstance(value, int))
        if not fits or (kind is not bool and isinstance(value, bool)):
            raise UserError(f"{name.scheme}: option {option}={name.text(option)} is not a {kind.__name__}")
        checked_options[option] = kind(value)
    return checked_options


def parse_options(text: str) -> dict[str, str]:
    """Split ``a=1&b=x`` into options and their texts."""
    parts = text.split("&") if text else []
    if not all("=" in part for part in parts):
        raise UserError(f"options must have the form option=value&option=value, not {text!r}")
    # Not parse_qsl, which makes a space of the + in a file's name.
    return {unquote(key): unquote(value) for key, _, value in (part.partition("=") for part in parts)}


def write_options(options: Mapping[str, Any], texts: Mapping[str, str] | None = None) -> str:
    """Return ``?a=1&b=x``, which ``parse_options`` reads, with ``texts`` as they were typed; "" without options."""
    typed = texts or {}
    written = {key: typed.get(key, _written(value)) for key, value in options.items()}
    query = "&".join(f"{quote(key)}={quote(value, safe='/')}" for key, value in written.items())
    return f"?{query}" if query else ""


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_WHOLE = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def _value(text: str) -> Any:
    """Return what a text may mean: a truth value, a number as people write numbers, or itself."""
    if text in ("true", "false"):
        return text == "true"
    if text in ("inf", "-inf"):
        return float(text)
    if _WHOLE.fullmatch(text) and len(text) < 300:
        return int(text)
    return float(text) if _NUMBER.fullmatch(text) and math.isfinite(float(text)) else text


def options_name(scheme: str, name: str, tag: str, query: str) -> Name:
    """Return a name with the options of ``a=1&b=x``."""
    texts = parse_options(query)
    options = {key: _value(text) for key, text in texts.items()}
    typed = {key: text for key, text in texts.items() if _written(options[key]) != text}
    return Name(scheme, name, tag, options, typed)


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
    return options_name(scheme, name, tag, query)


def split_list(text: str) -> list[str]:
    """Split a comma-separated list; empty members are dropped, and a path that exists keeps its commas."""
    parts, members = text.split(","), []
    while parts:
        lengths = range(len(parts), 1, -1) if any("/" in part or "." in part for part in parts) else ()
        length = next((length for length in lengths if _is_one(",".join(parts[:length]))), 1)
        members.append(",".join(parts[:length]).strip())
        parts = parts[length:]
    return [member for member in members if member]


def _is_one(text: str) -> bool:
    """Return whether all commas of a name are in existing paths: ``scheme:PATH``, ``scheme:name@PATH``, options."""
    head, _, query = text.partition("?")
    values = [part.partition("=")[2] for part in query.split("&")]
    for path in (head, head.partition(":")[2], head.rpartition("@")[2], *values):
        if "," in path and os.path.exists(unquote(path).strip()):  # noqa: PTH110  (a Path refuses NUL)
            text = text.replace(path, "", 1)
    return "," not in text


STEERING = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""Characters, as a class of a regular expression, that steer a terminal or turn the direction of text."""

ZERO_WIDTH = r"\u200b-\u200d\u2060-\u2064\ufeff"
"""Characters, likewise, that no one sees: two names that differ in them look the same."""

_ODD = re.compile(f"[{STEERING}\ud800-\udfff]")


def visible(text: str) -> str:
    r"""Return text for a terminal: what steers it as an escape such as \x1b, bytes that are not UTF-8 as \xff."""

    def escaped(match: re.Match[str]) -> str:
        code = ord(match[0])
        code = code & 0xFF if 0xDC80 <= code <= 0xDCFF else code  # how Python holds such a byte
        return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"

    return _ODD.sub(escaped, text)


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


def speaks_python(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with errors that name keywords instead of options, and offer the nearest for a wrong one."""

    @functools.wraps(function)
    @errors_in_keywords()
    def call(*args: P.args, **values: P.kwargs) -> R:
        try:
            return function(*args, **values)
        except TypeError as error:
            wrong = re.search(r"(\w+)\(\) got an unexpected keyword argument '(\w+)'", str(error))
            if wrong is None or wrong[2] not in values:
                raise
            *_, (frame, _) = traceback.walk_tb(error.__traceback__)  # if the options were handed on
            called = frame.f_locals.get(wrong[1], frame.f_globals.get(wrong[1]))
            known = {*inspect.signature(called if callable(called) else function).parameters}
            own = inspect.signature(function).parameters.values()
            known |= {each.name for each in own if each.kind is not each.VAR_KEYWORD} - {"self"}
            raise unknown(f"option of {function.__name__}", wrong[2], known) from error

    return call


PLAIN_VARIANTS = ("paper", "as_stored", "")  # variants that a condition's name does not mention

WITHOUT_OBJECT = ("only_background", "silhouette", "no_fg", "only_bg_b")
"""Scenarios that take the object out of the image (the last two are ImageNet-9's); averages leave them out."""

SWEEPS = ("background_sweep", "same_class_sweep")
"""Scenarios that put each object on many backgrounds: of other classes, and of its own. They are reported together."""

Key = tuple[str, str | None, str | None]  # the columns ``condition``, ``variant`` and ``parameters`` of a row


def condition_name(scenario: str, variant: str | None = "", parameters: str | None = "") -> str:
    """Return ``blur_background@released``, and the parameters after a space if some are given."""
    name = scenario if not variant or variant in PLAIN_VARIANTS else f"{scenario}@{variant}"
    return f"{name} {parameters}" if parameters else name


def condition_names(rows: Iterable[Key]) -> dict[Key, str]:
    """Return the name of every condition; parameters are part of it if a scenario's variant has several."""
    keys = dict.fromkeys(rows)
    settings = Counter(key[:2] for key in keys)
    return {key: condition_name(*key) if settings[key[:2]] > 1 else condition_name(*key[:2]) for key in keys}


def scenario_of(name: str) -> str:
    """Return the scenario of a condition's name, without variant and parameters."""
    return name.partition(" ")[0].partition("@")[0]


def without_object(name: str) -> bool:
    """Return whether the condition of this name takes the object out of the image."""
    return scenario_of(name) in WITHOUT_OBJECT


def typed_name(name: str) -> str:
    """Return a condition's name as it is typed: ``fog@3`` for ``fog@severity_3``."""
    return name.replace("@severity_", "@")


def condition_words(name: str) -> str:
    """Return a condition's name as people read it: ``blur background@released``."""
    return typed_name(name).replace("_", " ")
