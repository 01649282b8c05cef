"""Measure an entry for its pages, from its table alone, and write the numbers as CSV, JSON and Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.stats.core.answers import Answers, codes_of, equals
from holdfast.stats.core.bootstrap import Codes, Floats
from holdfast.stats.core.cells import ClassAccuracies, class_accuracies, pooled_influence
from holdfast.stats.effects.score_spread import score_influence
from holdfast.stats.effects.verdict import VerdictSteps, evidence_of
from holdfast.stats.effects.verdict_words import VerdictWords, in_words
from holdfast.stats.walks.walk_rows import setting_of, walk_influence, walks_of
from holdfast.store.run import guarded
from holdfast_evidence.board import objects
from holdfast_evidence.board.entry import Entry, Score
from holdfast_evidence.board.numbers import answers_of, background_effect, ordered, scored
from holdfast_evidence.board.table import pictures_of

NONE = "-"  # how an image without an answer is written, next to 1 (right) and 0 (wrong)


@dataclass(frozen=True)
class Cells:
    """Every image under every condition, in the order of condition and image."""

    conditions: list[str]  # names, the original first
    images: list[str]  # sample ids, sorted
    labels: list[str]  # of the images
    sources: list[str]  # of the images: the image or prompt each is made of
    condition: Codes  # (cells,) into conditions
    image: Codes  # (cells,) into images
    right: Codes  # (cells,) 0 or 1; if an image has several rows, whether all are right
    answers: list[str]  # texts
    answer: Codes  # (cells,) into answers, −1 if there is none


@dataclass(frozen=True)
class Measured:
    """What the site knows of an entry."""

    entry: Entry  # as submitted, the scores recomputed
    # accuracy per condition and class; None for a printed entry, as all that follows
    classes: ClassAccuracies | None = None
    cells: Cells | None = None  # right answers, image by image
    sources: list[str] = field(default_factory=list)  # images or prompts
    # measure → (sources,) what each adds to the measure's deviation from the truth
    influence: dict[str, Floats] = field(default_factory=dict)
    words: VerdictWords | None = None  # what it relies on, in words; None if the protocol has no verdict
    statuses: dict[str, int] = field(default_factory=dict)  # rows that were not answered, by status

    @property
    def verdict(self) -> str:
        """Return foreground, background, both or undecided; empty without a verdict."""
        return self.words.steps.verdict if self.words else ""

    @property
    def scores(self) -> dict[str, Score]:
        """Return name → score."""
        return {score.name: score for score in self.entry.scores}


def measured(entry: Entry, table: pa.Table) -> Measured:
    """Return everything that is shown of a checked entry, from its rows as ``read_table`` gives them."""
    protocol = entry.protocol.name
    states, names = codes_of(pictures_of(table), "status")
    statuses = {name: int((states == place).sum()) for place, name in enumerate(names) if name != "ok"}
    if protocol == "objects":
        return _detector(entry, table, statuses)
    fine = equals(table, "status", "ok") & equals(table, "task", "classify")
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


def _detector(entry: Entry, table: pa.Table, statuses: dict[str, int]) -> Measured:
    """Return what is shown of a detector: every counted object is where an image is elsewhere."""
    evidence = objects.judged_rows(table)[0]
    classified = evidence.answers.as_classified()
    rows, design = objects.recalled(evidence.answers)
    influence: dict[str, Floats] = {}
    if design is not None:
        for name, values in score_influence(design).items():
            if name != "robustness_score":
                influence[name.replace("accuracy", "recall")] = spread = np.zeros(len(rows.sources))
                spread[design.present] = values
    row = evidence.holds.iloc[0]
    steps = VerdictSteps(row["leans"], row["sees"], "", "")
    words = VerdictWords(steps, row["headline"], row["rests_on"], row["small_print"], list(row["warnings"]))
    cells = _cells(classified, rows, restricted=False)
    return Measured(entry, class_accuracies(rows), cells, rows.sources, influence, words, statuses)


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
    """Return the answers image by image."""
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


SCHEMA = pa.schema(
    [
        ("entry", pa.string()), ("kind", pa.string()), ("model", pa.string()), ("title", pa.string()),
        ("dataset", pa.string()), ("dataset_sha256", pa.string()), ("protocol", pa.string()),
        ("protocol_version", pa.int32()), ("settings", pa.string()), ("score", pa.string()),
        ("estimate", pa.float64()), ("low", pa.float64()), ("high", pa.float64()), ("n", pa.int64()),
        ("rank_low", pa.int32()), ("rank_high", pa.int32()), ("parameters", pa.int64()), ("input_size", pa.int32()),
        ("heads", pa.string()),
        ("images_per_second", pa.float64()), ("hardware", pa.string()), ("holds_on_to", pa.string()),
        ("table_sha256", pa.string()), ("run_fingerprint", pa.string()), ("paper", pa.string()), ("code", pa.string()),
        ("source", pa.string()),
    ]
)  # fmt: skip
TEXTS = [column.name for column in SCHEMA if column.type == pa.string()]

Ranks = Mapping[str, Mapping[str, tuple[int, int]]]  # measure → entry → first and last rank


def rows_of(members: Sequence[Measured], ranks: Ranks) -> list[dict[str, Any]]:
    """Return a row per entry and score."""
    rows = []
    for member in members:
        entry = member.entry
        about = {
            "entry": entry.id, "kind": entry.kind, "model": entry.model.name, "title": entry.model.title,
            "dataset": entry.dataset.name, "dataset_sha256": entry.dataset.sha256, "protocol": entry.protocol.name,
            "protocol_version": entry.protocol.version,
            "settings": json.dumps(entry.protocol.settings, sort_keys=True, ensure_ascii=False),
            "parameters": entry.model.parameters, "input_size": entry.model.input_size, "heads": entry.model.heads,
            "images_per_second": entry.speed.images_per_second if entry.speed else None,
            "hardware": entry.speed.hardware if entry.speed else None, "holds_on_to": member.verdict,
            "table_sha256": entry.table.sha256 if entry.table else None,
            "run_fingerprint": entry.run.fingerprint if entry.run else None, "paper": entry.model.paper,
            "code": entry.model.code, "source": f"{entry.source.title}, {entry.source.where}" if entry.source else "",
        }  # fmt: skip
        for score in entry.scores:
            low, high = ranks.get(score.name, {}).get(entry.id, (None, None))
            rows.append(
                about
                | {"score": score.name, "estimate": score.estimate, "low": score.low, "high": score.high, "n": score.n}
                | {"rank_low": low, "rank_high": high}
            )
    return rows


def as_csv(rows: Sequence[dict[str, Any]]) -> bytes:
    """Return CSV at full precision; a text that a spreadsheet would run as a formula gets a quote before it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(SCHEMA.names)
    texts = {text for name in TEXTS for text in map(itemgetter(name), rows) if text is not None}
    changed = {text: safe for text in texts if (safe := guarded(text)) != text}
    lines: Iterable[Iterable[Any]] = map(itemgetter(*SCHEMA.names), rows)
    if changed:
        lines = ([changed.get(value, value) for value in line] for line in lines)
    writer.writerows(lines)
    return out.getvalue().encode()


def as_json(rows: Sequence[dict[str, Any]]) -> bytes:
    """Return the rows as a JSON list, one object per line."""
    lines = ",\n".join(map(json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode, rows))
    return f"[\n{lines}\n]\n".encode()


def as_parquet(rows: Sequence[dict[str, Any]]) -> bytes:
    """Return the rows as Parquet."""
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(list(rows), schema=SCHEMA), sink, compression="zstd")
    return bytes(sink.getvalue())
