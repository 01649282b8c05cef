"""Render the pages: the index, one page per model, and two models side by side; names and formats of their measures."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from holdfast.core.distribution import installed_version
from holdfast.core.names import condition_words
from holdfast.core.numbers import MISSING, number, percent, span
from holdfast.reports.page.words import listing, plural
from holdfast.reports.page.writer import script_json
from holdfast.reports.page.writer import templates as page_templates
from holdfast.stats.effects.verdict_words import SIGNS, score_weakness
from holdfast_evidence.board.entry import Score
from holdfast_evidence.board.site.groups import RANKED, Elsewhere, EntryGroup, Tab, layout, written
from holdfast_evidence.board.site.measure import Cells, Measured

if TYPE_CHECKING:
    from jinja2 import Environment


Kind = Literal["percent", "points", "number"]

HERE = Path(__file__).parent
VERDICTS = {
    "foreground": "sees the object",
    "background": "relies on the background",
    "both": "relies on it, sees the object too",
    "undecided": "inconclusive",
}


@dataclass(frozen=True)
class BoardColumn:
    """A column. ``best``: whether high or low values are the better ones."""

    name: str
    title: str
    kind: Kind = "percent"
    best: Literal["high", "low"] = "high"
    hint: str = ""


_WORDS = tomllib.loads((HERE / "measures.toml").read_text(encoding="utf8"))
PROTOCOLS: dict[str, dict[str, Any]] = _WORDS["protocols"]  # title, words, columns and axes of each
KNOWN = {name: BoardColumn(name, **facts) for name, facts in _WORDS["measures"].items()}
MOST_COLUMNS = 7


@lru_cache(maxsize=1000)
def measure_of(name: str, protocol: str) -> BoardColumn:
    """Return how a score of a protocol is called; ``accuracy:grey`` is the accuracy under grey."""
    if (protocol, name) == ("static", "accuracy"):
        return replace(KNOWN["standard_accuracy"], name=name)
    if (protocol, name) == ("objects", "background_effect"):
        return replace(KNOWN[name], hint="recall lost when only the background changes, both pasted")
    if name in KNOWN:
        return KNOWN[name]
    what, _, condition = name.partition(":")
    if condition:
        within = " (trained on it)" if what == "accuracy_within" else ""
        kind: Kind = KNOWN[what].kind if what in KNOWN else "percent"
        words = f"{what.replace('_', ' ')} under {condition}"
        return BoardColumn(name, condition_words(condition) + within, kind, hint=words)
    kind = "percent" if any(word in name for word in ("accuracy", "rate", "acc", "fmr")) else "number"
    return BoardColumn(name, name.replace("_", " ").capitalize(), kind)


def columns_of(protocol: str, members: Sequence[Measured]) -> list[BoardColumn]:
    """Return the scores of a table: those of its protocol, then others that entries have, conditions last."""
    have = dict.fromkeys(score.name for member in members for score in member.entry.scores)
    wanted = [name for name in PROTOCOLS[protocol]["columns"] if name in have]
    others = [name for name in have if name not in wanted and ":" not in name] if len(wanted) < 2 else []
    kinds = [name for name in have if name.startswith("accuracy:")] if protocol == "hard" or not wanted else []
    names = [*wanted, *others, *kinds] or list(have)
    return [measure_of(name, protocol) for name in names[:MOST_COLUMNS]]


def text_of(measure: BoardColumn, value: float | None) -> str:
    """Return a value as people read it."""
    if value is None:
        return MISSING
    if measure.kind == "number":
        return number(value, 3)
    return percent(value) if measure.kind == "percent" else number(100 * value, 1)


def interval_of(measure: BoardColumn, score: Score) -> str:
    """Return its interval, or "" without one."""
    if score.low is None and score.high is None:
        return ""
    scale, digits = (1.0, 3) if measure.kind == "number" else (100.0, 1)
    if score.high is None:
        return f"{number(scale * (score.low or 0.0), digits)} or more"
    if score.low is None:
        return f"{number(scale * score.high, digits)} or less"
    return span(score.low, score.high, digits, scale)


def millions(parameters: int | None) -> str:
    """Return a number of parameters as ``25.6 M``."""
    if parameters is None:
        return MISSING
    if parameters >= 10_000_000:
        return f"{parameters / 1e6:,.0f} M"
    return f"{parameters / 1e6:,.2f} M" if parameters >= 10_000 else f"{parameters:,}"


def speed(images_per_second: float) -> str:
    """Return images per second with three digits."""
    digits = 0 if images_per_second >= 100 else 1 if images_per_second >= 10 else 2
    return f"{number(images_per_second, digits)} images/s"


def rank_text(low: int, high: int) -> str:
    """Return ``3`` or ``1–3``."""
    return f"{low}" if low == high else f"{low}–{high}"


# Scripts and styles come from the site's own files, on a server and from disk; nothing else is loaded or run.
POLICY = "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src data:; base-uri 'none'; form-action 'none'"  # noqa: E501


@cache
def templates() -> Environment:
    """Return the site's templates with the functions that they call."""
    environment = page_templates(HERE / "templates")
    environment.globals |= {
        "policy": POLICY, "version": installed_version(), "text_of": text_of, "plural": plural,
        "interval_of": interval_of, "millions": millions, "speed": speed, "rank_text": rank_text,
        "verdicts": VERDICTS, "of_protocol": PROTOCOLS, "missing": MISSING, "signs": SIGNS, "weakness": score_weakness,
    }  # fmt: skip
    return environment


def index(tabs: Sequence[Tab], *, title: str, refused: Sequence[str]) -> str:
    """Return the page that a visitor opens."""
    panels = [{"tab": tab, "groups": [_table(group) for group in tab.groups]} for tab in tabs]
    return templates().get_template("index.html.j2").render(
        title=title, tabs=tabs, refused=refused, panels=panels,
        protocols=list(dict.fromkeys(tab.protocol for tab in tabs)),
        measured=sum(tab.measured for tab in tabs),
        printed=len({member.entry.id for tab in tabs for group in tab.groups for member in group.printed}),
    )  # fmt: skip


def _table(group: EntryGroup) -> dict[str, Any]:
    """Return what the template shows of a table."""
    protocol = group.first.protocol.name
    columns = columns_of(protocol, group.members)
    names = [column.name for column in columns]
    main = next((name for name in RANKED[protocol] if name in names), names[0])
    best = next(column.best for column in columns if column.name == main)

    def order(member: Measured) -> tuple[bool, float, str]:
        score = member.scores.get(main)
        value = 0.0 if score is None else score.estimate
        return score is None, -value if best == "high" else value, member.entry.model.title

    hardware = sorted({member.entry.speed.hardware for member in group.members if member.entry.speed})
    reasons: dict[str, list[Elsewhere]] = {}
    for other in group.elsewhere:
        reasons.setdefault(other.why, []).append(other)
    axes = next((pair for pair in PROTOCOLS[protocol]["axes"] if pair[1] in names), ("parameters", names[0]))
    return {
        "group": group, "columns": columns, "main": main, "best": best, "members": sorted(group.members, key=order),
        "ranked": [name for name in group.ranks if name in names], "hardware": hardware,
        "heads": any(member.entry.model.heads for member in group.members),
        "sizes": any(member.entry.model.parameters is not None for member in group.members),
        "verdicts": any(member.verdict for member in group.members), "elsewhere": list(reasons.items()),
        "first_place": _first_place(group, main), "settings": settings(group.first.protocol.settings),
        "slips": [(member.entry.model.title, slip) for member in group.printed for slip in member.entry.slips],
        "axes": axes,
    }  # fmt: skip


def _first_place(group: EntryGroup, measure: str) -> str:
    ranks = group.ranks.get(measure, {})
    titles = {member.entry.id: member.entry.model.title for member in group.measured}
    first = [titles[name] for name, (low, _) in ranks.items() if low == 1]
    if len(ranks) < 2:
        return ""
    what = measure_of(measure, group.first.protocol.name).title.lower() if measure != "fmr" else "FMR"
    if len(first) == 1:
        return f"{first[0]} is first by {what}."
    return (
        f"{len(first)} of {len(ranks)} models share the first rank by {what}: the images are too few to separate them."
    )


def settings(stated: dict[str, Any]) -> list[tuple[str, str]]:
    """Return settings as words."""
    return [
        (name.replace("_", " "), listing([str(item) for item in value], 40) if isinstance(value, list) else str(value))
        for name, value in stated.items()
    ]


# A model


@dataclass(frozen=True)
class EntryPlace:
    """The place of an entry: its table, that table's number of measured entries, its ranks, and another entry."""

    slug: str
    rivals: int
    ranks: dict[str, tuple[int, int]]
    other: str


def place_of(member: Measured, group: EntryGroup) -> EntryPlace:
    """Return the place of an entry in a table."""
    name = member.entry.id
    ranks = {measure: rank_of[name] for measure, rank_of in group.ranks.items() if name in rank_of}
    other = next((rival.entry.id for rival in group.measured if rival.entry.id != name), "")
    return EntryPlace(group.slug, len(group.measured), ranks, other)


def model(member: Measured, place: EntryPlace, *, title: str, report: bool) -> str:
    """Return the page of an entry."""
    entry = member.entry
    pairs = [(measure_of(score.name, entry.protocol.name), score) for score in entry.scores]
    return templates().get_template("model.html.j2").render(
        title=title, one=member, entry=entry, place=place, report=report,
        facts=_facts(member, pairs), whole=[pair for pair in pairs if ":" not in pair[1].name],
        conditions=_conditions(pairs), right="Recall" if entry.protocol.name == "objects" else "Accuracy",
        ranks={name: rank_text(*rank) for name, rank in place.ranks.items()},
        settings=settings(entry.protocol.settings), words=member.words,
        sign=SIGNS.get(member.verdict, ""), classes=_classes(member),
        unanswered=sum(member.statuses.values()),
        statuses=listing([f"{number(count, 0)} {name}" for name, count in member.statuses.items()]),
    )  # fmt: skip


def _facts(member: Measured, pairs: Sequence[tuple[BoardColumn, Score]]) -> list[tuple[str, str, str]]:
    wanted = PROTOCOLS[member.entry.protocol.name]["columns"]
    by_name = {score.name: (measure, score) for measure, score in pairs}
    # The published score never stands alone: its row below has its weakness next to it.
    kept = [by_name[name] for name in wanted if name in by_name and name != "robustness_score"] or list(pairs)[:4]
    return [(measure.title, text_of(measure, score.estimate), interval_of(measure, score)) for measure, score in kept]


_BARS = {"recall": "Recall", "false_alarms": "False alarms per image", "ap": "AP"}


def _conditions(
    pairs: Sequence[tuple[BoardColumn, Score]],
) -> dict[str, list[tuple[BoardColumn, Score, dict[str, float]]]]:
    """Return what is measured → measure, score and bar of each condition; long bars end at the highest bound."""
    tables: dict[str, list[tuple[BoardColumn, Score]]] = {}
    for measure, score in pairs:
        if ":" in score.name:
            tables.setdefault(_BARS.get(score.name.partition(":")[0], "Accuracy"), []).append((measure, score))
    longest = {title: max(1.0, *(score.high or 1.0 for _, score in rows)) for title, rows in tables.items()}
    return {
        title: [(measure, score, bar(score, longest[title])) for measure, score in rows]
        for title, rows in tables.items()
    }


def bar(score: Score, whole: float = 1.0) -> dict[str, float]:
    """Return the places of a bar and its interval, 0..100 of the whole."""
    low, high = (score.estimate if bound is None else bound for bound in (score.low, score.high))
    return {name: round(100 * min(max(value / whole, 0.0), 1.0), 2) for name, value in
            (("value", score.estimate), ("low", low), ("high", high))}  # fmt: skip


def _classes(member: Measured) -> dict[str, Any] | None:
    """Return accuracy per class and condition, as cells of a table."""
    from markupsafe import Markup

    classes, whole = member.classes, member.cells
    if classes is None or whole is None:
        return None
    order = [classes.conditions.index(name) for name in whole.conditions]
    shares = 100 * np.stack([classes.accuracy, classes.low, classes.high], axis=2)
    rows = []
    for at, name in enumerate(classes.classes):
        # Ready to be shown: a table has hundreds of cells, all of them numbers.
        cells = "".join(
            f'<td class="number">{number(value, 0)} %<span class="interval">{span(low, high, 0, 1)}</span></td>'
            if value == value  # NaN: no image
            else f'<td class="number">{MISSING}</td>'
            for value, low, high in shares[order, at].tolist()
        )
        rows.append((name, int(classes.n[:, at].max()), Markup(cells)))  # noqa: S704
    return {"conditions": [condition_words(name) for name in whole.conditions], "rows": rows}


# Two models


def compare(*, title: str) -> str:
    """Return the page that compares two models; its data is loaded by scripts on demand."""
    return templates().get_template("compare.html.j2").render(title=title)


def catalogue(tabs: Sequence[Tab]) -> str:
    """Return what the page of two models can choose from."""
    groups = [
        {
            "slug": group.slug, "protocol": PROTOCOLS[tab.protocol]["title"], "kind": tab.protocol,
            "dataset": tab.dataset, "heading": group.heading,
            "entries": [[entry.id, entry.model.title, entry.model.name] for entry in (m.entry for m in group.measured)],
        }
        for tab in tabs
        for group in tab.groups
        if group.measured
    ]  # fmt: skip
    return f"holdfast.catalogue({script_json(groups)});\n"


def images(group: EntryGroup) -> tuple[str, Cells] | None:
    """Return the images of a table as a script, and their layout."""
    whole = layout(group)
    if whole is None:
        return None
    classes = sorted(set(whole.labels))
    sources = sorted(set(whole.sources))
    places = [np.flatnonzero(whole.condition == number) for number in range(len(whole.conditions))]
    cells = [whole.image[at].tolist() for at in places]
    every = list(range(len(whole.images)))
    place, source = {name: at for at, name in enumerate(classes)}, {name: at for at, name in enumerate(sources)}
    content = {
        "conditions": whole.conditions, "images": whole.images, "classes": classes,
        "labels": [place[name] for name in whole.labels],
        "sources": None if len(sources) == len(every) else [source[name] for name in whole.sources],
        "cells": [None if cell == every else cell for cell in cells],
    }  # fmt: skip
    return f"holdfast.group({script_json(group.slug)},{script_json(content)});\n", whole


def answers(member: Measured, whole: Cells) -> str:
    """Return the answers of an entry as a script, in the order of its table's images."""
    assert member.cells is not None
    right, wrong = written(member.cells, whole)
    content = {"right": right, "answers": member.cells.answers, "wrong": wrong}
    return f"holdfast.entry({script_json(member.entry.id)},{script_json(content)});\n"
