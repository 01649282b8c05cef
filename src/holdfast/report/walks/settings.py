"""Parts on how walks were made: options, label spaces, oracle cards, warnings, and what other settings change."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

from holdfast.report.page.parts import Heading, Listing, Notice, Part, Text
from holdfast.report.page.tables import Column, Table
from holdfast.report.page.words import listing, number
from holdfast.report.walks.evidence import FAMILY, SPACES, ReportWalks, both_spaces, first_columns, wide
from holdfast.stats.models.between import kendall

if TYPE_CHECKING:
    import pandas as pd


MOST_EXPLAINED = 6
"""Settings that are explained before the figures; more would be in the way."""


def warnings(walks: ReportWalks) -> list[Part]:
    """Return warnings about related models, oracles and generators, and about label spaces that differ."""
    said: list[str] = []
    for run in walks.runs:
        given = run.spec().get("kinship")
        said += [str(text) for text in given] if isinstance(given, list) else []
    for number_, setting in enumerate(walks.settings, 1):
        spaces = _space_names(setting)
        if len(set(spaces)) > 1:
            name = f"Walk {number_}: the" if walks.several else "The"
            said.append(f"{name} label spaces of loss, oracle and accuracy differ ({', '.join(spaces)}).")
    unique = list(dict.fromkeys(said))
    return [Listing(f"What to bear in mind ({len(unique)})", unique, open=len(unique) <= 6)] if unique else []


def setting_sentences(walks: ReportWalks) -> list[str]:
    """Return what the numbers of the walks stand for: the options in which they differ."""
    if not walks.several:
        return []
    keys = [key for key in walks.settings[0] if not key.endswith("_fingerprint")]
    moved = [key for key in keys if len({str(other.get(key)) for other in walks.settings}) > 1]
    if not moved or len(walks.settings) > MOST_EXPLAINED:
        return [f"{len(walks.settings)} walks: what they stand for is said under “How the walks were made”."]
    said = [
        f"Walk {number_}: " + ", ".join(f"{key.replace('_', ' ')} {_value(setting.get(key))}" for key in moved)
        for number_, setting in enumerate(walks.settings, 1)
    ]
    return [f"Every image was walked in {len(walks.settings)} ways. {'; '.join(said)}."]


def _space_names(setting: dict[str, Any]) -> tuple[str, str, str]:
    """Return the label spaces of the loss, the oracle and the reported accuracy."""
    own = str(setting.get("space", ""))
    return str(setting.get("loss_space", own)), str(setting.get("oracle_space", own)), own


def settings_compared(walks: ReportWalks, frame: pd.DataFrame) -> list[Part]:
    """Return FMR per generator and oracle, where there are several walks."""
    import pandas as pd

    if not walks.several:
        return []
    options = pd.DataFrame(
        [
            {
                "generator": str(setting.get("generator", "")),
                "oracle": str(setting.get("oracle", "")),
                "other": _differences(walks, setting),
                "walk": number_,
            }
            for number_, setting in enumerate(walks.settings, 1)
        ]
    )
    table = options.merge(frame, on="walk").sort_values(["generator", "oracle", "walk"], kind="stable")
    table["model"] = table["model"].map(walks.short)
    columns = [Column("walk", "Walk", "integer"), Column("generator", "Generator"), Column("oracle", "Oracle")]
    if options["other"].any():
        columns.append(Column("other", "Else"))
    columns += [Column("model", "Model"), Column("n", "Images", "integer"), *FAMILY[1:]]
    caption = "FMR by generator and oracle"
    return [
        Heading("Other generators, other oracles"),
        Text(_agreement(walks, frame)),
        Table("fmr_by_generator_and_oracle", caption, table, columns),
    ]


def _differences(walks: ReportWalks, setting: dict[str, Any]) -> str:
    """Return the options, besides generator and oracle, in which the walks differ."""
    skipped = ("generator", "oracle", "generator_fingerprint", "oracle_fingerprint")
    keys = [key for key in setting if key not in skipped]
    moved = [key for key in keys if len({str(other.get(key)) for other in walks.settings}) > 1]
    return ", ".join(f"{key.replace('_', ' ')} {setting[key]}" for key in moved)


def _agreement(walks: ReportWalks, frame: pd.DataFrame) -> list[str]:
    """Return whether walks rank the models in the same order."""
    known = frame[frame["reason"] == ""]
    scores: dict[int, dict[str, float]] = {}
    for row in known.to_dict("records"):
        scores.setdefault(int(row["walk"]), {})[str(row["model"])] = float(row["fmr"])
    said = []
    for first, second in combinations(sorted(scores), 2):
        agreement = kendall(scores[first], scores[second])
        if not agreement["reason"] and int(agreement["n"]) > 2:
            said.append(f"walks {first} and {second} τ = {number(float(agreement['tau']))} ({agreement['n']} models)")
    start = "FMR depends on who makes the images and who judges them."
    return [f"{start} Agreement of the models' order (Kendall): {listing(said, 10)}." if said else start]


def spaces(walks: ReportWalks) -> list[Part]:
    """Return the same walks counted in both label spaces, where that makes a difference."""
    both = both_spaces(walks)
    pooled = both[both["label"] == ""]
    frames = [wide(walks, pooled[pooled["counted"] == space]).assign(counted=SPACES[space]) for space in SPACES]
    own = sorted({SPACES.get(str(setting.get("space")), "a space that was not stated") for setting in walks.settings})
    stated = f"Right and wrong on this page's walks are counted over {listing(own)}, as the walks were made."
    parts: list[Part] = [Heading("Label spaces"), Text([stated, *_space_lines(walks)])]
    same = frames[0][["fmr", "standard_accuracy"]].round(12).equals(frames[1][["fmr", "standard_accuracy"]].round(12))
    if same:
        parts.append(Text(["Counted in the other label space, every figure would be the same."]))
        return parts
    import pandas as pd

    columns = [*first_columns(walks), Column("counted", "Right among"), *FAMILY]
    caption = "The same walks, with right answers counted in either label space"
    parts.append(Table("fmr_label_spaces", caption, pd.concat(frames, ignore_index=True), columns))
    return parts


def _space_lines(walks: ReportWalks) -> list[str]:
    lines = []
    for number_, setting in enumerate(walks.settings, 1):
        loss, oracle, own = (SPACES.get(name, name or "not stated") for name in _space_names(setting))
        start = f"Walk {number_}: the" if walks.several else "The"
        lines.append(f"{start} loss competes over {loss}, the oracle over {oracle}, right answers over {own}.")
    return lines


def how(walks: ReportWalks) -> list[Part]:
    """Return every option of the walks, and the oracles' cards."""
    import pandas as pd

    lines = []
    for number_, setting in enumerate(walks.settings, 1):
        order: list[str] = [key for key in ("generator", "oracle", "steps", "step_size") if key in setting]
        order += [key for key in setting if key not in order]
        options = ", ".join(f"{key.replace('_', ' ')} = {_value(setting[key])}" for key in order)
        lines.append(f"{f'Walk {number_}: ' if walks.several else ''}{options}.")
    parts: list[Part] = [Heading("How the walks were made"), Text(lines)]
    cards: list[Sequence[Sequence[str]]] = []
    for run in walks.runs:
        given = run.spec().get("oracle_cards")
        for card in given if isinstance(given, list) else []:
            if isinstance(card, list) and card and card not in cards and all(_pair(row) for row in card):
                cards.append(card)
    for place, card in enumerate(cards, 1):
        frame = pd.DataFrame([(str(row[0]), str(row[1])) for row in card], columns=["what", "value"])
        name = "oracle_card" if len(cards) == 1 else f"oracle_card_{place}"
        columns = [Column("what", "What"), Column("value", "Value")]
        parts.append(Table(name, "The oracle's card", frame, columns))
    if not cards:
        parts.append(Notice("The oracle's card: the run did not record one."))
    return parts


def _pair(row: object) -> bool:
    return isinstance(row, list) and len(row) == 2


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return "none" if value in ("", None) else str(value)
