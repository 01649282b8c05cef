"""Lay entries out in tables and tabs, and rank them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from holdfast.core.fingerprint import fingerprint
from holdfast.stats.models.ranks import rank_ranges
from holdfast_evidence.board.entry import PROTOCOLS, Entry
from holdfast_evidence.board.printed import comparable
from holdfast_evidence.board.site.measure import NONE, Cells, Measured

RANKED = {
    "static": ("mean_accuracy", "robustness_score_background", "robustness_score", "accuracy"),
    "hard": ("accuracy",),
    "dynamic": ("fmr", "standard_accuracy", "perturbed_accuracy", "validation_rate"),
    "objects": ("mean_recall", "recall"),
}
"""Measures that models are ranked by; the first is the one a table opens with."""


@dataclass(frozen=True)
class Elsewhere:
    """Entries that are not in a table, and why."""

    what: str
    why: str
    slug: str


@dataclass
class EntryGroup:
    """One table: entries of one protocol, dataset and setting. Measured ones first, printed ones next to them.

    ``ranks``: measure → entry id → first and last rank it may have; ``heading`` says what distinguishes it from the
    other tables of its dataset.
    """

    slug: str
    measured: list[Measured]
    printed: list[Measured]
    heading: str = ""
    ranks: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    elsewhere: list[Elsewhere] = field(default_factory=list)

    @property
    def members(self) -> list[Measured]:
        """Return all entries."""
        return [*self.measured, *self.printed]

    @property
    def first(self) -> Entry:
        """Return the entry whose protocol and dataset stand for the group."""
        return self.members[0].entry


@dataclass(frozen=True)
class Tab:
    """The tables of one protocol and dataset."""

    slug: str
    protocol: str
    dataset: str
    groups: list[EntryGroup]

    @property
    def measured(self) -> int:
        """Return the entries with a table."""
        return sum(len(group.measured) for group in self.groups)


def tabs_of(entries: Sequence[Measured]) -> list[Tab]:
    """Return the tabs: protocol by protocol, dataset by dataset, those with measured entries first."""
    own = _grouped([member for member in entries if member.entry.kind == "measured"])
    papers = _grouped([member for member in entries if member.entry.kind == "printed"])
    alone: list[EntryGroup] = []
    for paper in papers:
        beside = False
        for group in own:
            if group.first.protocol.name != paper.first.protocol.name:
                continue
            fits, why = comparable(paper.first, group.measured[0].entry)
            if fits:
                beside = True
                group.printed += paper.printed
            else:
                source = paper.first.source
                assert source is not None
                what = f"{source.title}, {source.where} ({paper.first.dataset.title})"
                group.elsewhere.append(Elsewhere(what, why, paper.slug))
                paper.elsewhere.append(Elsewhere(f"Measured on {group.first.dataset.title}", why, group.slug))
        if not beside:
            alone.append(paper)
    here = {group.slug for group in (*own, *alone)}
    for group in own:
        group.elsewhere = [other for other in group.elsewhere if other.slug in here]
        group.ranks = ranks(group)
    return _tabs([*own, *alone])


def _grouped(entries: Sequence[Measured]) -> list[EntryGroup]:
    by_slug: dict[str, list[Measured]] = {}
    for member in entries:
        kind, dataset, protocol = member.entry.kind, member.entry.dataset, member.entry.protocol
        key = fingerprint([kind, dataset.name, dataset.sha256, protocol.model_dump(mode="json")])
        by_slug.setdefault(key, []).append(member)
    groups = []
    for key, members in by_slug.items():
        slug = f"{members[0].entry.protocol.name}-{key[:10]}"
        is_measured = members[0].entry.kind == "measured"
        groups.append(EntryGroup(slug, *((members, []) if is_measured else ([], members))))
    return groups


def _tabs(groups: Sequence[EntryGroup]) -> list[Tab]:
    by_subject: dict[tuple[str, str], list[EntryGroup]] = {}
    for group in groups:
        by_subject.setdefault((group.first.protocol.name, group.first.dataset.title), []).append(group)
    tabs = []
    for (protocol, dataset), members in by_subject.items():
        members.sort(key=lambda group: (-len(group.measured), -len(group.printed), group.slug))
        for group, heading in zip(members, _headings(members), strict=True):
            group.heading = heading
        slug = f"{protocol}-{fingerprint(dataset)[:8]}"
        tabs.append(Tab(slug, protocol, dataset, members))
    return sorted(tabs, key=lambda tab: (list(PROTOCOLS).index(tab.protocol), -tab.measured, tab.dataset))


def _headings(groups: list[EntryGroup]) -> list[str]:
    """Set the headings of one dataset's tables: the settings in which they differ."""
    if len(groups) == 1:
        return ["Printed in papers" if groups[0].first.kind == "printed" else "Measured"]
    names = list(dict.fromkeys(name for group in groups for name in group.first.protocol.settings))
    headings = []
    for group in groups:
        entry = group.first
        reasons = [
            _setting(name, entry.protocol.settings[name])
            for name in names
            if name in entry.protocol.settings
            and any(other.first.protocol.settings.get(name) != entry.protocol.settings[name] for other in groups
                    if other.first.kind == entry.kind)
        ]  # fmt: skip
        if entry.dataset.sha256 and len({other.first.dataset.sha256 for other in groups if other.measured}) > 1:
            reasons.append(f"images {entry.dataset.sha256[:8]}")
        kind = "Printed in papers" if entry.kind == "printed" else "Measured"
        headings.append(f"{kind}: {', '.join(reasons)}" if reasons else kind)
    return headings


def _setting(name: str, value: Any) -> str:
    words = name.replace("_", " ")
    if not isinstance(value, list):
        return f"{words} {value}"
    several = f"{len(value)} {words}" if words.endswith("s") else f"{words} {len(value)} conditions"
    return f"{words} {', '.join(value)}" if len(value) < 3 else several


def ranks(group: EntryGroup) -> dict[str, dict[str, tuple[int, int]]]:
    """Return measure → entry → the ranks that it may have among the measured entries of its table."""
    ranks: dict[str, dict[str, tuple[int, int]]] = {}
    sources = sorted({name for member in group.measured for name in member.sources})
    place = {name: at for at, name in enumerate(sources)}
    at = [
        np.arange(len(sources)) if own == sources else np.array([place[name] for name in own], np.intp)
        for own in (member.sources for member in group.measured)
    ]
    for measure in RANKED[group.first.protocol.name]:
        members = [number for number, member in enumerate(group.measured) if measure in member.influence]
        members = [number for number in members if measure in group.measured[number].scores]
        if not members:
            continue
        influence = np.zeros((len(sources), len(members)))
        for column, number in enumerate(members):
            influence[at[number], column] = group.measured[number].influence[measure]
        scores = [group.measured[number].scores[measure] for number in members]
        # an unknown bound becomes NaN
        value, least, most = np.array([(score.estimate, score.low, score.high) for score in scores], float).T
        low, high = rank_ranges(value, least, most, influence)
        ranks[measure] = {
            group.measured[number].entry.id: (int(low[column]), int(high[column]))
            for column, number in enumerate(members)
        }
    return ranks


def layout(group: EntryGroup) -> Cells | None:
    """Return the images and conditions of a table: all that any of its entries has."""
    cells = [member.cells for member in group.measured if member.cells is not None]
    if not cells:
        return None
    first = cells[0]
    if all(_same_layout(first, other) for other in cells[1:]):
        return first
    conditions = list(dict.fromkeys(name for other in cells for name in other.conditions))
    about = {
        image: (label, source)
        for other in cells
        for image, label, source in zip(other.images, other.labels, other.sources, strict=True)
    }
    images = sorted(about)
    place = {name: at for at, name in enumerate(images)}
    keys = np.unique(np.concatenate([_keys(other, conditions, place) for other in cells]))
    nothing = np.zeros(len(keys), np.intp)
    return Cells(
        conditions, images, [about[name][0] for name in images], [about[name][1] for name in images],
        keys // len(images), keys % len(images), nothing, [], nothing - 1,
    )  # fmt: skip


def written(cells: Cells, whole: Cells) -> tuple[str, list[int]]:
    """Return the right answers of an entry in the order of its table's layout, and the wrong ones in words."""
    if _same_layout(whole, cells):
        right, answer = cells.right, cells.answer
        complete = np.ones(len(right), bool)
    else:
        place = {name: at for at, name in enumerate(whole.images)}
        own = _keys(cells, whole.conditions, place)
        at = np.searchsorted(whole.condition * np.intp(len(whole.images)) + whole.image, own)
        complete = np.zeros(len(whole.image), bool)
        complete[at] = True
        right, answer = np.zeros(len(complete), np.intp), np.full(len(complete), -1)
        right[at], answer[at] = cells.right, cells.answer
    text = np.where(complete, right + ord("0"), ord(NONE)).astype(np.uint8).tobytes().decode("ascii")
    return text, answer[complete & (right == 0)].tolist()


def _keys(cells: Cells, conditions: list[str], place: dict[str, int]) -> Any:
    condition = np.array([conditions.index(name) for name in cells.conditions], np.intp)
    image = np.array([place[name] for name in cells.images], np.intp)
    return condition[cells.condition] * np.intp(len(place)) + image[cells.image]


def _same_layout(first: Cells, other: Cells) -> bool:
    return first is other or (
        first.conditions == other.conditions
        and first.images == other.images
        and np.array_equal(first.condition, other.condition)
        and np.array_equal(first.image, other.image)
    )
