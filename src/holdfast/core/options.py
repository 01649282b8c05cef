"""Options of verbs: the field of a spec declares default, help, choices and bounds, once.

The command line (``cli.verb``) and the functions of the API (``api.verb``) are made from these fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from inspect import get_annotations
from pathlib import Path
from typing import Any, TypeVar, get_origin, get_type_hints

from holdfast.core.errors import UserError
from holdfast.core.names import split_list, unknown
from holdfast.core.places import shown


@dataclass(frozen=True)
class Option:
    """What a field says about its option other than name, type and default."""

    help: str  # one sentence for people
    choices: tuple[str, ...] = ()  # the only values that are allowed
    least: float | None = None  # the smallest number that is allowed
    most: float | None = None  # the largest
    unit: str = ""  # what a number counts, such as pixels
    argument: str = ""  # the name of the positional argument, such as DATA; '' for an option
    flag: str = ""  # the option's name on the command line if the field's does not fit, such as ``--with``
    typed: Any = None  # the default on the command line if the field has another; None: the same
    read: Callable[[str], Any] | None = None  # makes the field's value from typed text
    is_path: bool = False  # the text is a path
    is_list: bool = False  # the text holds names with commas between them; fields of type tuple are lists anyway
    is_needed: bool = False  # it has to be given, although the field has a default
    python_only: bool = False  # it is not on the command line
    panel: str = ""  # the heading in ``--help`` if it is not that of the spec, such as that of one feature


def option(default: Any = MISSING, *, help: str, **details: Any) -> Any:
    """Return a dataclass field with an ``Option``; ``details`` are the attributes of that."""
    return field(default=default, metadata={"option": Option(help, **details)})


def as_in(spec: type, name: str) -> Any:
    """Return a dataclass field with the default and the ``Option`` that another spec declares."""
    known = options_of(spec)[name]
    return field(default=known.default, metadata={"option": known.option})


def part(spec: type) -> Any:
    """Return a dataclass field that holds another spec; its options are among the others."""
    return field(default_factory=spec, metadata={"part": spec})


@dataclass(frozen=True)
class Spec:
    """Base of all specs: refuses values that the options do not allow.

    A subclass may set ``PANEL``, the heading of its options in ``--help``.
    """

    def __post_init__(self) -> None:
        for declared in fields(self):
            if "option" in declared.metadata:
                check(declared.name, declared.metadata["option"], getattr(self, declared.name), declared.default)


@dataclass(frozen=True)
class Declared:
    """An option as a spec declares it. ``default`` is MISSING if a value is needed; ``part``: see ``part``."""

    name: str
    type: Any
    default: Any
    option: Option
    panel: str
    part: str = ""

    @property
    def is_tuple(self) -> bool:
        """Return whether the field holds several values."""
        return get_origin(self.type) is tuple and self.type.__args__[-1] is Ellipsis

    @property
    def is_list(self) -> bool:
        """Return whether people may give several values."""
        return self.is_tuple or self.option.is_list


def options_of(spec: Any) -> Mapping[str, Declared]:
    """Return name → option of a spec: arguments first, then its own options, then those of its bases."""
    return _options_of(spec)


@cache
def _options_of(spec: type) -> Mapping[str, Declared]:
    types = get_type_hints(spec)
    homes = {name: each for each in reversed(spec.__mro__) for name in get_annotations(each)}
    by_home: dict[type, list[Declared]] = {each: [] for each in spec.__mro__}
    for each in fields(spec):
        panel = homes[each.name].__dict__.get("PANEL", "")
        if "part" in each.metadata:
            inner = options_of(each.metadata["part"]).values()
            by_home[homes[each.name]] += [
                Declared(option.name, option.type, option.default, option.option, option.panel, each.name)
                for option in inner
            ]
        elif "option" in each.metadata:
            known: Option = each.metadata["option"]
            default = MISSING if known.is_needed else each.default if each.default_factory is MISSING else None
            declared = Declared(each.name, types[each.name], default, known, known.panel or panel)
            by_home[homes[each.name]].append(declared)
    known_options = [option for several in by_home.values() for option in several]
    return {option.name: option for option in sorted(known_options, key=lambda option: not option.option.argument)}


def check(name: str, known: Option, value: Any, default: Any = None) -> None:
    """Raise a UserError for a value that the option does not allow; its default is always allowed."""
    if value is None or value == default:
        return
    flag = known.flag or f"--{name.replace('_', '-')}"
    for each in value if isinstance(value, tuple) else [value]:
        if known.choices and each not in known.choices:
            raise unknown(f"choice of {flag}", str(each), known.choices)
        least, most = known.least, known.most
        if (least is not None and not each >= least) or (most is not None and not each <= most):
            bounds = f"{least} or more" if most is None else f"a number from {least} to {most}"
            raise UserError(f"{flag} is {bounds}, not {each}")


S = TypeVar("S")


def make(spec: type[S], values: Mapping[str, Any], *, verb: str) -> S:
    """Return the spec that people ask for: paths and lists as they write them, None for what they leave out."""
    known = options_of(spec)
    given: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise unknown(f"option of {verb}", name, known)
        if value is not None:
            inner = given.setdefault(known[name].part, {}) if known[name].part else given
            inner[name] = _plain(known[name], value)
    for name, declared in known.items():
        if declared.default is MISSING and name not in given:
            needed = declared.option.argument or declared.option.flag or f"--{name.replace('_', '-')}"
            raise UserError(f"{verb} needs {needed}: {declared.option.help}")
    for each in fields(spec):  # type: ignore[arg-type]
        if each.name in given and "part" in each.metadata:
            given[each.name] = each.metadata["part"](**given[each.name])
    return spec(**given)


def _plain(declared: Declared, value: Any) -> Any:
    if isinstance(value, Path):
        value = shown(value)
    if declared.option.read is not None and isinstance(value, str):
        return declared.option.read(value)
    is_sequence = isinstance(value, Iterable) and not isinstance(value, (str, Mapping))
    if declared.is_tuple:
        return tuple(value if is_sequence else split_list(value))
    return ",".join(map(str, value)) if declared.is_list and is_sequence else value
