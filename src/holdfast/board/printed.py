"""Published tables as entries, and which entries may be compared.

``printed/*.json`` has the tables of the three papers: each number with where it stands, and what is wrong with it.
"""

from __future__ import annotations

import json
import re
from functools import cache
from importlib.resources import files
from typing import Any

from holdfast.board.entry import Entry, parse_entry


@cache
def printed_entries() -> tuple[Entry, ...]:
    """Return the published tables that come with Holdfast, paper by paper."""
    # The folder of this module's name has no module of its own.
    folder = files("holdfast.board") / "printed"
    entries: list[Entry] = []
    for file in sorted(folder.iterdir(), key=lambda path: path.name):
        if file.name.endswith(".json"):
            parts = json.loads(file.read_text(encoding="utf8"))
            entries += [parse_entry(json.dumps(part), f"{file.name}, {part['id']}") for part in parts]
    return tuple(entries)


def comparable(entry: Entry, other: Entry) -> tuple[bool, str]:
    """Return whether two entries may be in one table; if not, why, in one sentence.

    Two measured entries need the same pictures (by hash) and the same settings throughout. A printed one has no hash
    and states little: it needs the same dataset by name, and every setting that it states has to be the other's, too.
    """
    if entry.protocol.name != other.protocol.name:
        ways = _WAYS[entry.protocol.name], _WAYS[other.protocol.name]
        return False, f"They answer different questions: one is measured on {ways[0]}, the other on {ways[1]}."
    if _plain(entry.dataset.name) != _plain(other.dataset.name):
        return False, f"They are about different pictures: {entry.dataset.name} and {other.dataset.name}."
    hashes = entry.dataset.sha256, other.dataset.sha256
    if all(hashes) and hashes[0] != hashes[1]:
        return False, f"Both datasets are called {entry.dataset.name}, but their pictures, masks or labels differ."
    if entry.protocol.version != other.protocol.version:
        versions = f"{entry.protocol.version} and {other.protocol.version}"
        return False, f"They follow versions {versions} of the protocol, which count differently."
    if reason := _settings(entry, other):
        return False, reason
    if not {score.name for score in entry.scores} & {score.name for score in other.scores}:
        return False, f"They have no number in common: {entry.scores[0].name} here, {other.scores[0].name} there."
    return True, ""


_WAYS = {
    "static": "photos whose surroundings are changed",
    "hard": "generated pictures that other models fail on",
    "dynamic": "pictures that are pushed against each model",
}


def _settings(entry: Entry, other: Entry) -> str:
    first, second = entry.protocol.settings, other.protocol.settings
    loose = "printed" in (entry.kind, other.kind)
    stated = set(first if entry.kind == "printed" else ()) | set(second if other.kind == "printed" else ())
    for name in sorted(stated if loose else set(first) | set(second)):
        given = first.get(name), second.get(name)
        if not (_alike(name, *given) if loose else given[0] == given[1]):
            return _difference(name, entry, other)
    return ""


def _difference(name: str, entry: Entry, other: Entry) -> str:
    first, second = entry.protocol.settings.get(name), other.protocol.settings.get(name)
    if isinstance(first, list) and isinstance(second, list):
        only = [name for name in first if name not in second], [name for name in second if name not in first]
        sides = [
            f"only {title} has {_few(more)}"
            for title, more in zip((entry.model.title, other.model.title), only, strict=True)
            if more
        ]
        what = _WORDS.get(name, f"They differ in {name}")
        return f"{what}: {' and '.join(sides) or 'in another order'}."
    if name == "trained_on":
        trained, given = (entry, other) if first is not None else (other, entry)
        return f"{trained.model.title} was trained for the comparison, and {given.model.title} is as it was delivered."
    values = ["not stated" if value is None else _short(value) for value in (first, second)]
    titles = entry.model.title, other.model.title
    return f"They differ in {name.replace('_', ' ')}: {values[0]} for {titles[0]}, {values[1]} for {titles[1]}."


_WORDS = {
    "conditions": "They are measured under different conditions",
    "trained_on": "They are trained under different conditions",
}


def _few(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _short(value: Any) -> str:
    text = ", ".join(value) if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else text[:57] + "…"


def _alike(name: str, first: Any, second: Any) -> bool:
    """Return whether two names of generators or oracles are alike: some are paths, some words, one within the other."""
    if name in ("generator", "oracle") and isinstance(first, str) and isinstance(second, str):
        left, two = _plain(first), _plain(second)
        return bool(left and two) and (left in two or two in left)
    if isinstance(first, list) and isinstance(second, list):
        return set(first) == set(second)
    return bool(first == second)


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())
