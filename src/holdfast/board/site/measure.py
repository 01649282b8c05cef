"""Measure an entry for its pages: everything they show comes from its table."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from holdfast.board.entry import Entry, Score
from holdfast.board.numbers import answers_of, background_effect, ordered, scored
from holdfast.stats.core.answers import Answers
from holdfast.stats.core.bootstrap import Codes, Floats
from holdfast.stats.core.cells import ClassAccuracies, class_accuracies, pooled_influence
from holdfast.stats.core.columns import codes_of, equals
from holdfast.stats.effects.score_spread import score_influence
from holdfast.stats.effects.verdict import evidence_of
from holdfast.stats.effects.verdict_words import VerdictWords, in_words
from holdfast.stats.walks.walk_rows import setting_of, walk_influence, walks_of

NONE = "-"
"""How a picture without an answer is written, beside 1 (right) and 0 (wrong)."""


@dataclass(frozen=True)
class Cells:
    """Every picture under every condition, in the order of condition and picture.

    Attributes:
        conditions: names, the original first.
        images: sample ids, sorted.
        labels: of the images.
        sources: of the images: the photo or prompt each is made of.
        condition: (cells,) into conditions.
        image: (cells,) into images.
        right: (cells,) 0 or 1; where a picture has several rows, whether all are right.
        answers: texts.
        answer: (cells,) into answers, −1 where there is none.
    """

    conditions: list[str]
    images: list[str]
    labels: list[str]
    sources: list[str]
    condition: Codes
    image: Codes
    right: Codes
    answers: list[str]
    answer: Codes


@dataclass(frozen=True)
class Measured:
    """What the site knows of an entry.

    Attributes:
        entry: as submitted, the scores recomputed.
        classes: accuracy per condition and class; None for a printed entry, as all that follows.
        cells: right answers, image by image.
        sources: photos or prompts.
        influence: measure → (sources,) what each adds to the measure's deviation from the truth.
        words: what it holds on to, in words; None where the protocol has no verdict.
        statuses: rows that were not answered, by status.
    """

    entry: Entry
    classes: ClassAccuracies | None = None
    cells: Cells | None = None
    sources: list[str] = field(default_factory=list)
    influence: dict[str, Floats] = field(default_factory=dict)
    words: VerdictWords | None = None
    statuses: dict[str, int] = field(default_factory=dict)

    @property
    def verdict(self) -> str:
        """Return foreground, background, both or undecided; empty without a verdict."""
        return self.words.steps.verdict if self.words else ""

    @property
    def scores(self) -> dict[str, Score]:
        """Return name → score."""
        return {score.name: score for score in self.entry.scores}


def measured(entry: Entry, table: pa.Table) -> Measured:
    """Return an entry and everything that is shown of it, from its rows.

    Args:
        entry: one that was checked, its scores recomputed.
        table: its rows, as ``read_table`` gives them.
    """
    protocol = entry.protocol.name
    fine = equals(table, "status", "ok") & equals(table, "task", "classify")
    states, names = codes_of(table, "status")
    statuses = {name: int((states == place).sum()) for place, name in enumerate(names) if name != "ok"}
    answered = table if fine.all() else table.filter(pa.array(fine))
    rows = answers_of(table)
    base = rows.on(rows.base())
    if not base.all():
        answered, own = answered.filter(pa.array(base)), rows.part(base)
    else:
        own = rows
    if protocol == "dynamic":
        restricted = setting_of(table).get("space") != "all"
        sources, influence = walk_influence(walks_of(table))
        own = own.restricted() if restricted else own
    elif protocol == "hard":
        restricted, sources, influence = False, rows.sources, {"accuracy": pooled_influence(rows)}
    else:
        restricted, (sources, influence) = False, _static_influence(rows)
    words = None
    if protocol == "static":
        evidence = evidence_of(rows, rows.base(), classes=rows.labels, background=background_effect(rows))
        words = in_words(evidence)
    return Measured(
        entry, class_accuracies(own),
        _cells(answered, own, restricted=restricted), sources, influence, words, statuses,
    )  # fmt: skip


def _static_influence(rows: Answers) -> tuple[list[str], dict[str, Floats]]:
    influence: dict[str, Floats] = {}
    for name, which in (("robustness_score", "static"), ("robustness_score_background", "background")):
        design = scored(rows, which)
        if design is None:
            continue
        parts = score_influence(design)
        spread = np.zeros((len(rows.sources), len(parts)))
        spread[design.present] = np.stack(list(parts.values()), axis=1)
        columns = dict(zip(parts, spread.T, strict=True))
        influence = {name: columns["robustness_score"]} | (influence or columns)
    return rows.sources, influence


def _cells(table: pa.Table, rows: Answers, *, restricted: bool) -> Cells:
    """Return the answers picture by picture."""
    sample, images = codes_of(table, "sample_id")
    answer, answers = codes_of(table, "prediction_restricted" if restricted else "prediction")
    conditions = ordered(rows.conditions)
    place = np.array([conditions.index(name) for name in rows.conditions], np.intp)
    key = place[rows.condition] * np.intp(len(images)) + sample
    cells, first, number = np.unique(key, return_index=True, return_inverse=True)
    right = np.ones(len(cells))
    np.minimum.at(right, number, rows.right)
    label, source = np.zeros(len(images), np.intp), np.zeros(len(images), np.intp)
    label[sample], source[sample] = rows.label, rows.source
    return Cells(
        conditions, images, [rows.labels[at] for at in label],
        [rows.sources[at] for at in source], (cells // len(images)).astype(np.intp),
        (cells % len(images)).astype(np.intp), right.astype(np.intp), answers, answer[first],
    )  # fmt: skip
