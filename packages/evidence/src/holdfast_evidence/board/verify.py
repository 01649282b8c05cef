"""Measure some of an entry's rows again: do they agree, and how many of all rows may be false?

A random sample of rows goes the ordinary way of ``eval`` (or of ``perturb``, for walks) on the same data, and every
answer is held against the entry's. What needs no model is checked of all rows: their labels, and that
none is missing or made up.
"""

from __future__ import annotations

import csv
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.core.errors import UserError
from holdfast.core.files import whole_file
from holdfast.core.fingerprint import generator
from holdfast.core.names import condition_name
from holdfast.core.numbers import percent
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.specs import RerunOptions
from holdfast.store.run import guarded
from holdfast_evidence.board import objects, rerun
from holdfast_evidence.board.check import check
from holdfast_evidence.board.entry import Entry
from holdfast_evidence.board.table import pictures_of

LEVEL = 0.95
ROWS = 200
FORGED = 0.01  # the share of forged rows for which the chance to find one is stated
_NUMBERS = ("confidence", "confidence_restricted", "probability_of_label")
_ANSWERS = (
    ("prediction", "correct", "confidence"),
    ("prediction_restricted", "correct_restricted", "confidence_restricted"),
)


@dataclass(frozen=True)
class Compared:
    """A row of the entry next to the same row, measured again."""

    sample_id: str  # sample_id, condition: which
    condition: str
    agrees: bool  # prediction, correctness, status and probabilities, within the tolerance
    why: str  # what does not
    same_pixels: bool | None  # whether the image is the same to the last bit; None if one of the two has none
    # whether the row's id comes out the same: then image, mask, label, settings and weights are the same; None
    # if the row does not exist here
    same_id: bool | None
    stated: float | None  # stated, recomputed: probability of the true class, the entry's and ours
    recomputed: float | None


@dataclass(frozen=True)
class Verified:
    """The result of a verification."""

    entry: Entry  # that was verified
    rows: list[Compared]  # compared, one by one
    total: int  # rows that the entry has
    unit: str  # what was drawn at random, rows or walks, and of how many
    drawn: int  # drawn, of: how many, of how many
    of: int
    wrong: int  # of those drawn, with a row that disagrees
    at_most: float  # share of all that may be false, at the 95 % level
    seed: int  # of the drawing
    problems: list[str] = field(default_factory=list)  # what is wrong with all rows taken together, in sentences
    allow: float = 0.0  # share that may disagree
    renamed: bool = False  # whether rows may have other ids here

    @property
    def agrees(self) -> bool:
        """Return the verdict."""
        return not self.problems and self.wrong <= self.allow * self.drawn and (self.renamed or not self.other_ids)

    @property
    def other_ids(self) -> int:
        """Return how many of the compared rows have another id here."""
        return sum(row.same_id is False for row in self.rows)

    def sentences(self) -> list[str]:
        """Return the verdict and its evidence in sentences."""
        alike = [row for row in self.rows if row.same_pixels is not None]
        pixels = sum(bool(row.same_pixels) for row in alike)
        share = (
            "" if self.drawn == self.of else f"; at most {percent(self.at_most)} of all {self.of:,} are false (95 %)"
        )
        sentences = [
            f"{self.entry.id}: {'agrees' if self.agrees else 'disagrees'}.",
            f"{self.wrong} of {self.drawn} {self.unit} drawn at random (--seed {self.seed}) disagree{share}.",
            f"If {percent(FORGED, 0)} of all {self.of:,} {self.unit} were forged, such a draw would find one of "
            f"them with a chance of {percent(chance_to_find(FORGED, self.drawn, self.of), 0)}.",
            f"The images of {pixels} of {len(alike)} rows are the same to the last bit.",
        ]
        if self.entry.protocol.settings.get("fast"):
            sentences[-1] = (
                "The entry was measured with --fast, which hashes no images and may compute in bfloat16: here "
                "its rows were measured exactly. --tolerance and --allow say how far apart they may be."
            )
        if self.other_ids:
            sentences.append(
                f"{self.other_ids} of {len(self.rows)} rows have another id here: weights, class names, donors, colour "
                "behind transparent images or scenarios are not the ones of the entry. "
                + ("--renamed allows it." if self.renamed else "So this is not the entry's model; --renamed allows it.")
            )
        return sentences + self.problems


def verify(
    entry: str | Path,
    data: str,
    *,
    rows: int = ROWS,
    seed: int | None = None,
    tolerance: float = objects.TOLERANCE,
    allow: float = 0.0,
    renamed: bool = False,
    progress: Progress = silent,
    **options: Any,
) -> Verified:
    """Measure some of an entry's rows again.

    Args:
        entry: ``ID.json``, with ``ID.parquet`` next to it; or a folder that has one entry.
        data: the dataset: its hash has to be the entry's.
        rows: how many, drawn at random over conditions in proportion; of walks, images that have about so many rows.
        seed: of the drawing, to draw the same again; by default one that no one could know beforehand.
        tolerance: by which probabilities may differ. Other hardware and libraries give other last digits.
        allow: share of what is drawn that may disagree.
        renamed: accept rows whose ids differ here, because of other weights, class names or donors, if their answers
            agree.
        progress: called with how far it is.
        **options: fields of ``RerunOptions``: masks, labels, device, model, …
    """
    path = Path(entry)
    if path.is_dir():
        entries = [table.with_suffix(".json") for table in path.glob("*.parquet")]
        if len(entries) != 1:
            raise UserError(f"{path} has {len(entries)} measured entries; name the JSON file of one")
        path = entries[0]
    if path.suffix != ".json" or not path.is_file():
        raise UserError(f"{path} is not an entry; name its JSON file, with the table next to it")
    if rows < 1 or not 0 <= tolerance <= 1 or not 0 <= allow < 1:
        raise UserError("--rows must be 1 or more, --tolerance from 0 to 1, and --allow from 0 to less than 1")
    kept: list[tuple[Entry, pa.Table]] = []
    problems = check([path], keep=lambda entry, table: kept.append((entry, table)))
    if problems:
        raise UserError(f"{problems[0]}: an entry that is wrong in itself need not be measured again")
    if not kept:
        raise UserError(f"{path.name} is a printed entry: it has no rows to measure again")
    claimed, table = kept[0]
    seed = secrets.randbits(32) if seed is None else seed
    given = RerunOptions(data, **options)
    again = _walks if claimed.protocol.name == "dynamic" else _rows
    with tempfile.TemporaryDirectory(prefix="holdfast-verify-") as folder:
        verified = again(claimed, table, given, rows, seed, tolerance, Path(folder), progress)
    return replace(verified, allow=allow, renamed=renamed)


def _rows(
    claimed: Entry, table: pa.Table, given: RerunOptions, count: int, seed: int, tolerance: float, folder: Path,
    progress: Progress,
) -> Verified:  # fmt: skip
    again = rerun.Evaluated.of(claimed, table, given, folder, progress)
    records = pictures_of(table).to_pylist()
    problems = again.problems(records)
    known = [row for row in records if rerun.key_of(row) in again.expected]
    drawn = stratified([f"{row['condition']} {row['variant']} {row['parameters']}" for row in known], count, seed)
    chosen = [known[place] for place in drawn]
    measured = again.rows(chosen, progress)
    boxes = objects.by_picture(table) if claimed.protocol.name == "objects" else None
    compared = [
        _compared(row, measured.get(rerun.key_of(row)), tolerance, None if boxes is None else boxes[row["row_id"]])
        for row in chosen
    ]
    wrong = sum(not row.agrees for row in compared)
    bound = upper_bound(wrong, len(compared))
    return Verified(claimed, compared, len(records), "rows", len(compared), len(known), wrong, bound, seed, problems)


def _walks(
    claimed: Entry, table: pa.Table, given: RerunOptions, count: int, seed: int, tolerance: float, folder: Path,
    progress: Progress,
) -> Verified:  # fmt: skip
    records = table.to_pylist()
    conditions = {row["condition"] for row in records}
    images = sorted({row["sample_id"] for row in records})
    drawn = stratified(["walks"] * len(images), max(1, count // len(conditions)), seed)
    chosen = {images[place] for place in drawn}
    measured, problems = rerun.walked(claimed, records, given, chosen, folder, progress)
    mine = {(row["sample_id"], row["condition"]): row for row in measured}
    compared = [
        _compared(row, mine.get((row["sample_id"], row["condition"])), tolerance)
        for row in records
        if row["sample_id"] in chosen
    ]
    wrong = len({row.sample_id for row in compared if not row.agrees})
    bound = upper_bound(wrong, len(chosen))
    return Verified(claimed, compared, len(table), "walks", len(chosen), len(images), wrong, bound, seed, problems)


def stratified(groups: Sequence[str], count: int, seed: int) -> list[int]:
    """Draw places at random without repeats, from every group its share, rounded up or down by chance.

    All places are equally likely, so that ``upper_bound`` holds whatever group the false rows are in: with shares
    rounded by rule, a forger would know which groups are looked at less.
    """
    if count >= len(groups):
        return list(range(len(groups)))
    rng = generator(seed, "verify")
    names = sorted(set(groups))
    turn = dict(zip(names, rng.permutation(len(names)).tolist(), strict=True))
    shuffled = rng.permutation(len(groups)).tolist()
    ordered = sorted(shuffled, key=lambda place: turn[groups[place]])
    step = len(groups) / count
    start = rng.random() * step
    return sorted(ordered[min(int(start + step * number), len(groups) - 1)] for number in range(count))


def upper_bound(wrong: int, drawn: int) -> float:
    """Return the largest share of false rows that such a sample leaves possible: Clopper–Pearson, one-sided."""
    from scipy.stats import beta

    return 1.0 if wrong >= drawn else float(beta.ppf(LEVEL, wrong + 1, drawn - wrong))


def chance_to_find(share: float, drawn: int, total: int) -> float:
    """Return the chance that rows drawn without repeats have at least one of the forged ones (hypergeometric)."""
    from scipy.stats import hypergeom

    return 1 - float(hypergeom.pmf(0, total, max(1, round(share * total)), drawn))


def _compared(
    claimed: Mapping[str, Any],
    measured: Mapping[str, Any] | None,
    tolerance: float,
    boxes: tuple[list[dict[str, Any]], list[dict[str, Any]]] | None = None,
) -> Compared:
    name = condition_name(claimed["condition"], claimed["variant"])
    if measured is None:
        return Compared(claimed["sample_id"], name, False, "has no such row here", None, None, _number(claimed), None)
    mine, other = claimed.get("image_sha256"), measured.get("image_sha256")
    why = ""
    if boxes is not None and claimed["status"] == measured.get("status") == "ok":
        why = objects.difference(boxes, measured, tolerance, claimed["threshold"])
    why = why or _difference(claimed, measured, tolerance)
    same = mine == other if mine and other else None
    return Compared(
        claimed["sample_id"], name, not why, why, same, claimed["row_id"] == measured.get("row_id"), _number(claimed),
        _number(measured),
    )  # fmt: skip


def _number(row: Mapping[str, Any]) -> float | None:
    value = row.get("probability_of_label")
    return None if value is None else round(float(value), 6)


def _difference(claimed: Mapping[str, Any], measured: Mapping[str, Any], tolerance: float) -> str:
    """Return what differs by more than the tolerance, or ""."""
    if claimed["status"] != measured.get("status"):
        return f"status is {claimed['status']}, here {measured.get('status')}"
    if claimed["status"] not in ("ok", "rejected", "pending"):
        return ""
    for name in _NUMBERS:
        mine, other = claimed[name], measured.get(name)
        if (mine is None) != (other is None):
            return f"{name} is {mine}, here {other}"
        if mine is not None and other is not None and abs(mine - other) > tolerance:
            return f"{name} is {mine:.4f}, here {other:.4f}"
    for answer, right, sure in _ANSWERS:
        same = claimed[answer] == measured.get(answer) and claimed[right] == measured.get(right)
        if not same and not _tied(claimed, measured, answer, right, sure, tolerance):
            here = f"{measured.get(answer)} ({_words(measured.get(right))})"
            return f"{answer} is {claimed[answer]} ({_words(claimed[right])}), here {here}"
    return ""


def _words(right: bool | None) -> str:
    return "no answer" if right is None else "right" if right else "wrong"


def _tied(
    claimed: Mapping[str, Any], measured: Mapping[str, Any], answer: str, right: str, sure: str, tolerance: float
) -> bool:
    """Return whether two answers are about equally probable, so that last digits decide between them.

    Only then may they differ, and the entry must still say truly whether its own is right.
    """
    label = claimed["label"]
    if claimed[answer] is None or measured.get(answer) is None or bool(claimed[right]) != (claimed[answer] == label):
        return False
    if any(number is None for number in (claimed[sure], measured.get(sure), measured.get("probability_of_label"))):
        return False  # a label that the model has no output for ties with nothing
    if max(claimed[sure], measured[sure]) > 0.5 + tolerance:
        return False  # nothing else can be as probable
    if claimed[answer] == label:  # what a submitter would like to be true is held to the number itself
        return abs(float(measured[sure]) - float(measured["probability_of_label"])) <= 2 * tolerance
    return claimed[answer] in list(measured.get("topk") or [])[:2]


def write_rows(verified: Verified, path: Path) -> None:
    """Write the compared rows as CSV."""
    with whole_file(path, alone=True) as temporary, temporary.open("w", encoding="utf8", newline="") as file:
        table = csv.DictWriter(file, [column.name for column in fields(Compared)])
        table.writeheader()
        for row in verified.rows:
            values = asdict(row)
            table.writerow({name: guarded(text) if isinstance(text, str) else text for name, text in values.items()})
