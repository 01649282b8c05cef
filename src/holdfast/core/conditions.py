"""Names of conditions, the same in tables, on the command line and on pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

PLAIN_VARIANTS = ("paper", "as_stored", "")  # variants that a condition's name does not mention

WITHOUT_OBJECT = ("only_background", "silhouette", "no_fg", "only_bg_b")
"""Scenarios that take the object out of the picture (the last two are ImageNet-9's); averages leave them out."""

Key = tuple[str, str | None, str | None]  # the columns ``condition``, ``variant`` and ``parameters`` of a row


def condition_name(scenario: str, variant: str | None = "", parameters: str | None = "") -> str:
    """Return ``blur_background@released``, and the parameters after a space where some are given."""
    name = scenario if not variant or variant in PLAIN_VARIANTS else f"{scenario}@{variant}"
    return f"{name} {parameters}" if parameters else name


def condition_names(rows: Iterable[Key]) -> dict[Key, str]:
    """Return the name of every condition; parameters are part of it where a scenario's variant has several."""
    keys = dict.fromkeys(rows)
    settings = Counter(key[:2] for key in keys)
    return {key: condition_name(*key) if settings[key[:2]] > 1 else condition_name(*key[:2]) for key in keys}


def scenario_of(name: str) -> str:
    """Return the scenario of a condition's name, without variant and parameters."""
    return name.partition(" ")[0].partition("@")[0]


def without_object(name: str) -> bool:
    """Return whether the condition of this name takes the object out of the picture."""
    return scenario_of(name) in WITHOUT_OBJECT


def condition_words(name: str) -> str:
    """Return a condition's name as people read it: ``blur background@released``."""
    return name.replace("_", " ")
