"""What a study is, and how one is run: settings as data, a function, and the page made of what it found."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.core.files import write_atomic
from holdfast.core.names import split_list
from holdfast.pipeline.jobs.environment import environment
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.registry import unknown
from holdfast.report.study import StudyResult, write_study

Value = bool | int | float | str | tuple[float, ...] | tuple[str, ...]


@dataclass(frozen=True)
class Setting:
    """One thing about a study that can be chosen; the type of the default is the type of every value.

    A tuple is written as a list with commas. ``quick`` is the default of a rehearsal, where that is another.
    """

    name: str
    default: Value
    meaning: str
    quick: Value | None = None


@dataclass(frozen=True)
class StudyOptions:
    """What one run of a study was asked for.

    Attributes:
        out: the folder for everything; runs go below ``out / "runs"``, where they resume.
        settings: a value for every setting of the study.
        quick: whether it is a rehearsal.
        device: ``auto``, ``cpu``, ``cuda`` …
        seed: everything random follows from it.
        progress: told how far it is.
    """

    out: Path
    settings: Mapping[str, Any]
    quick: bool = False
    device: str = "auto"
    seed: int = 0
    progress: Progress = silent


@dataclass(frozen=True)
class Study:
    """A study: a function and its settings. The registry has its name and its summary."""

    run: Callable[[StudyOptions], StudyResult]
    settings: tuple[Setting, ...] = ()


def run_study(
    name: str,
    out: Path,
    *,
    assignments: Sequence[str] = (),
    quick: bool = False,
    device: str = "auto",
    seed: int = 0,
    progress: Progress = silent,
) -> Path:
    """Run a study by name and write its page, its tables and its figures; returns the path of the page.

    Args:
        name: of the study.
        out: its folder; a study that is there goes on, one with other settings is refused.
        assignments: ``key=value`` for settings that are not to be the default.
        quick: a rehearsal of seconds that shows that everything works and nothing more.
        device: for models.
        seed: of everything random.
        progress: told how far it is.
    """
    study: Study = registry.studies.get(name)
    settings = chosen(name, study.settings, assignments, quick=quick)
    asked = json.loads(json.dumps({"study": name, "quick": quick, "seed": seed, "settings": settings}))
    claimed = _claim(out / "study.json", asked)
    try:
        result = study.run(StudyOptions(out, settings, quick, device, seed, progress))
    except UserError:
        if claimed:  # a mistake in the settings must not keep the folder from the right ones
            (out / "study.json").unlink()
        raise
    return write_study(result, out, asked | {"environment": environment()})


def chosen(name: str, settings: Sequence[Setting], assignments: Sequence[str], *, quick: bool) -> dict[str, Any]:
    """Every setting's value: what was assigned, else the default."""
    known = {setting.name: setting for setting in settings}
    values = {
        setting.name: setting.quick if quick and setting.quick is not None else setting.default for setting in settings
    }
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise UserError(f"a setting reads key=value, which {assignment!r} does not")
        if key not in known:
            if not known:
                raise UserError(f"the study {name} has no settings")
            raise unknown(f"setting of the study {name}", key, known)
        values[key] = _parsed(known[key], text)
    return values


def _parsed(setting: Setting, text: str) -> Value:
    default = setting.default
    try:
        if isinstance(default, bool):
            return {"true": True, "false": False}[text]
        if isinstance(default, tuple):
            parts = split_list(text)
            if not parts:
                raise ValueError("no members")
            return tuple(float(part) for part in parts) if isinstance(default[0], float) else tuple(parts)
        return type(default)(text)
    except (ValueError, KeyError):
        raise UserError(f"{setting.name}={text} is not {kind_of(setting)}: {setting.meaning}") from None


def kind_of(setting: Setting) -> str:
    """The type of a setting in words."""
    words: dict[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    if isinstance(setting.default, tuple):
        members = {float: "numbers", str: "names"}[type(setting.default[0])]
        return f"a list of {members} with commas"
    return words[type(setting.default)]


def written(value: Value) -> str:
    """A value as one assigns it."""
    if isinstance(value, tuple):
        return ",".join(written(part) for part in value)
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _claim(file: Path, asked: Mapping[str, Any]) -> bool:
    """Whether the folder is new. It holds one study: mixing the results of two settings would go unseen."""
    if not file.is_file():
        write_atomic(file, (json.dumps(asked, indent=2) + "\n").encode())
        return True
    try:
        there = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        there = None
    if not isinstance(there, dict):
        raise UserError(f"{file} cannot be read; choose another folder or delete it")
    before, now = ({**one.get("settings", {}), **one} for one in (there, asked))
    other = [key for key in now if key != "settings" and before.get(key) != now[key]]
    if other:
        was = ", ".join(f"{key} {before.get(key)}" for key in other)
        raise UserError(f"{file.parent} holds a study with other settings ({was}); choose another folder")
    return False
