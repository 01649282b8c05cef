"""Prompt strategies: ways to ask for a background, those that come with Holdfast and those of a file."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from holdfast.core.errors import UserError
from holdfast.core.files import read_toml, write_atomic
from holdfast.diorama import vocabulary
from holdfast.pipeline.generate.prompts import Prompts, prompts_of_table
from holdfast.registry import unknown

ALL = "all"
ORIGINALS = "originals"
"""The name of the row of untouched pictures, which no strategy may have."""

PHOTOGRAPHS = Path(__file__).with_suffix(".toml")


def drawn_strategies() -> dict[str, Prompts]:
    """Return the strategies for drawn scenes, in the words that the embedded generator was trained on."""
    backgrounds = vocabulary.BACKGROUNDS
    usual = [vocabulary.home_background(label, "test") for label in vocabulary.CLASSES]
    return {
        "plain": Prompts("{a class}"),
        "other": Prompts("{a class} {background}", backgrounds=backgrounds),
        "misleading": Prompts("{a class} {background}", backgrounds={kind: backgrounds[kind] for kind in usual}),
        "same": Prompts("{a class} {background}", backgrounds=backgrounds, wanted="same"),
        "scenery": Prompts("{background}", backgrounds=backgrounds),
        "unseen": Prompts("{a class} {background}", backgrounds=vocabulary.UNSEEN_BACKGROUNDS),
    }


MEANING = {
    "plain": "the class and nothing else",
    "other": "the class somewhere other than where it was",
    "misleading": "the class where another class is usually seen",
    "same": "the class where it was: what painting anew costs by itself",
    "scenery": "a place other than where it was, without the class",
    "unseen": "the class in places that no embedded classifier was trained on",
    "magazine": "a picture in a fitting magazine",
    "environment": "a fitting environment",
    "keep_foreground": "the foreground to be left alone",
    "consistent": "foreground and background to agree",
    "elsewhere": "a place that may not fit",
}


def strategies_of(file: str, chosen: Sequence[str], classes: Sequence[str], *, drawn: bool) -> dict[str, Prompts]:
    """Return name → prompts, in order.

    Args:
        file: TOML with a table per strategy, or '' for those that come with Holdfast.
        chosen: names, or ``all``.
        classes: those of the dataset.
        drawn: whether the scenes are drawn.
    """
    if file or not drawn:
        path = Path(file) if file else PHOTOGRAPHS
        known = {}
        for name, table in read_toml(path, "--prompts").items():
            if not isinstance(table, dict):
                raise UserError(f"{path} must have a table per strategy, and {name!r} is no table")
            known[name] = prompts_of_table(table, f"{name} in {path.name}", classes, strict=bool(file))
    else:
        known = drawn_strategies()
    for name in known:
        if name == ORIGINALS or not re.fullmatch(r"\w[\w -]{0,39}", name):
            raise UserError(f"{name!r} cannot be the name of a strategy: a few words of letters and digits can")
    if list(chosen) == [ALL]:
        return known
    for name in chosen:
        if name not in known:
            raise unknown("prompt strategy", name, known)
    return {name: known[name] for name in dict.fromkeys(chosen)}


def write_prompts(prompts: Prompts, file: Path) -> Path:
    """Write prompts as a file for ``--prompts``, and return its path; strings of JSON are strings of TOML."""
    lines = [f"default = {_quoted(prompts.default)}", f"background = {_quoted(prompts.wanted)}"]
    for name, table in (("classes", prompts.classes), ("backgrounds", prompts.backgrounds)):
        lines += ["", f"[{name}]", *(f"{_quoted(key)} = {_quoted(text)}" for key, text in table.items())]
    write_atomic(file, ("\n".join(lines) + "\n").encode())
    return file


def _quoted(text: str) -> str:
    # JSON leaves the character DEL as it is, which TOML refuses.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
