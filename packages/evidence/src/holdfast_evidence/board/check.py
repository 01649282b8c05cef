"""Check a board: entries are recomputed from their tables and compared with the other entries and the datasets."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from holdfast import registry
from holdfast.core.errors import UserError, first_line
from holdfast.core.fingerprint import canonical_json
from holdfast.core.schema import SCHEMA_VERSION
from holdfast.core.types import ORIGINAL
from holdfast.data.nuisances import KINDS as NUISANCES
from holdfast.engine import few_threads
from holdfast.stats.core.answers import codes_of
from holdfast.stats.core.bootstrap import codes
from holdfast.stats.walks.walk_rows import PERTURBED, RANDOM_WALK, RECONSTRUCTION
from holdfast.store.foreign import parse_foreign_json
from holdfast_evidence.board import objects
from holdfast_evidence.board.entry import (
    PROTOCOLS,
    Count,
    Dataset,
    Digest,
    Entry,
    EntryPart,
    Name,
    Score,
    entry_id,
    in_words,
    read_entry,
    read_text,
)
from holdfast_evidence.board.numbers import numbers, read_table, settings
from holdfast_evidence.board.table import is_of_protocol, pictures_of, run_fingerprint

TOLERANCE = 1e-9
AP_TOLERANCE = 1e-5  # its resamples are summed in single precision, whose order differs by machine
DATASETS = "datasets.json"
ALLOWED = {DATASETS, "README.md", "LICENSE"}
MAX_DATASETS = 8 << 20
_STEM = re.compile(r"[a-z0-9][a-z0-9._-]{0,119}")
_TOLD = ("matte", "fast", "fill")  # settings that the rows cannot show
UNANSWERED = 0.01  # the share of images under a condition that may be without an answer: numbers are of the others
_ACCURACIES = ("accuracy", "accuracy_within", "standard_accuracy", "recall", "false_alarms")


@dataclass(frozen=True)
class EntryProblem:
    """What is wrong with a file, in one sentence."""

    file: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}: {self.message}"


class _Known(EntryPart):
    name: Name
    images: Count
    classes: Count


@dataclass
class Board:
    """What is known while entries are checked one after the other."""

    keep: Callable[[Entry, pa.Table], object] | None = None
    datasets: dict[str, _Known] | None = None
    names: dict[str, str] = field(default_factory=dict)  # id → file
    tables: dict[str, str] = field(default_factory=dict)  # hash → file
    runs: dict[str, str] = field(default_factory=dict)  # fingerprint → file
    answered: dict[tuple[str, ...], tuple[int, str]] = field(default_factory=dict)  # who answered most, and how many
    repeated: dict[tuple[str, ...], tuple[str, str]] = field(default_factory=dict)
    believed: dict[str, tuple[Entry, Path]] = field(default_factory=dict)  # hash of a dataset → an entry on it
    facts: dict[str, Dataset] = field(default_factory=dict)  # hash of a dataset → what the first entry says of it
    labels: dict[str, dict[str, str]] = field(default_factory=dict)  # hash of a dataset → sample → label


def check(
    places: Path | str | Sequence[Path | str],
    *,
    against: Path | str | None = None,
    keep: Callable[[Entry, pa.Table], object] | None = None,
) -> list[EntryProblem]:
    """Return everything that is wrong with a board, or with some files of one; nothing is written.

    ``against`` is a board that these are to join: it is believed, and its ``datasets.json`` goes. ``keep`` is called
    with every measured entry that nothing is wrong with, its scores recomputed, and its rows.
    """
    given = [Path(path) for path in ([places] if isinstance(places, (str, Path)) else places)]
    if not given:
        raise UserError("there is nothing to check; name a folder or the files of a submission")
    for path in given:
        if not path.exists() and not path.is_symlink():
            raise UserError(f"there is no file or folder {path}")
    if against is not None and not Path(against).is_dir():
        raise UserError(f"--against {against} is not a folder")
    problems, stems = files_of(given)
    if against is not None:
        problems += [
            EntryProblem(path.name, "is not a submission's to bring") for path in given if path.name in ALLOWED
        ]
    home = Path(against) if against is not None else stems[0].parent if stems else given[0]
    board = Board(keep, datasets=read_datasets(home / DATASETS))
    if against is not None:
        _believe(board, Path(against), {stem.resolve() for stem in stems})
    with few_threads():
        for stem in stems:
            problems += [EntryProblem(f"{stem.name}.json", message) for message in _entry(stem, board)]
    return problems


def read_datasets(path: Path) -> dict[str, _Known] | None:
    """Return the datasets that a board accepts, by hash; None if it keeps no list."""
    if not path.exists():
        return None
    content = parse_foreign_json(read_text(path, MAX_DATASETS), path.name)
    try:
        return TypeAdapter(dict[Digest, _Known]).validate_python(content)
    except ValidationError as error:
        raise UserError(f"{path} should be hash → name, images, classes; {in_words(error)}") from None


def files_of(given: Iterable[Path]) -> tuple[list[EntryProblem], list[Path]]:
    """Return problems of files that do not belong on a board, and the stems of the entries."""
    problems: list[EntryProblem] = []
    stems: dict[Path, None] = {}
    for place in given:
        inside = sorted(place.iterdir()) if place.is_dir() and not place.is_symlink() else [place]
        for path in inside:
            name = ascii(path.name)[1:-1]
            if path.name in ALLOWED and not path.is_symlink():
                continue
            if path.is_symlink():
                problems.append(EntryProblem(name, "is a link, and a board has plain files only"))
            elif path.is_dir():
                problems.append(EntryProblem(name, "is a folder; a board has files only"))
            elif path.suffix not in (".json", ".parquet") or not _STEM.fullmatch(path.stem):
                problems.append(EntryProblem(name, "is not a file of an entry: those are ID.json and ID.parquet"))
            elif path.suffix == ".parquet" and not path.with_suffix(".json").exists():
                problems.append(EntryProblem(name, "is a table without its entry"))
            else:
                stems[path.with_name(path.stem)] = None
    return problems, list(stems)


def _believe(board: Board, folder: Path, mine: set[Path]) -> None:
    """Record the entries of a board that is believed, except those that are being checked."""
    for path in sorted(folder.glob("*.json")):
        if path.name == DATASETS or path.with_name(path.stem).resolve() in mine:
            continue
        entry = read_entry(path)
        remember(board, entry, str(path))
        board.facts.setdefault(entry.dataset.sha256, entry.dataset)
        if entry.kind == "measured":
            key = f"{entry.dataset.sha256} objects" if entry.protocol.name == "objects" else entry.dataset.sha256
            board.believed.setdefault(key, (entry, path))


def remember(board: Board, entry: Entry, file: str) -> list[str]:
    """Record an entry; return which entry it copies, and which answers it lacks that others have."""
    problems = []
    if board.names.setdefault(entry.id, file) != file:
        problems.append(f"{board.names[entry.id]} has this id already")
    if entry.table is not None and entry.run is not None:
        if board.tables.setdefault(entry.table.sha256, file) != file:
            problems.append(f"is the same submission as {board.tables[entry.table.sha256]}: the same table")
        else:
            # whatever the model is called: ids of rows are made of its name and weights, too
            if board.runs.setdefault(entry.run.fingerprint, file) != file:
                problems.append(f"is the same run as {board.runs[entry.run.fingerprint]}: rows of the same ids")
        problems += _fewer(board, entry, file)
    return problems


def _fewer(board: Board, entry: Entry, file: str) -> list[str]:
    """Return what an entry leaves out that others of the same dataset and settings count."""
    settings = dict(entry.protocol.settings)
    repeated = canonical_json(settings.pop("repeated", None))
    place = (entry.dataset.sha256, entry.protocol.name, canonical_json(settings))
    problems = []
    first, other = board.repeated.setdefault(place, (repeated, file))
    if first != repeated:
        problems.append(f"has other conditions than {other} whose images repeat others, though both are of the same")
    for score in entry.scores:
        if score.n is None or score.name.partition(":")[0] not in _ACCURACIES:
            continue
        most, other = board.answered.get((*place, score.name), (0, ""))
        if score.n < most * (1 - UNANSWERED) - 1:
            problems.append(f"has {score.n} answers for {score.name}, but {other} has {most}")
        if score.n > most:
            board.answered[*place, score.name] = (score.n, file)
    return problems[:1]


def _entry(stem: Path, board: Board) -> list[str]:
    file = stem.with_name(f"{stem.name}.json")
    try:
        entry = read_entry(file)
        if entry.id != stem.name:
            return [f"has the id {entry.id}, which is not its file's name"]
        problems = remember(board, entry, str(file))
        table = stem.with_name(f"{stem.name}.parquet")
        if entry.kind == "printed":
            return problems + (["is printed, and yet there is a table next to it"] if table.exists() else [])
        if entry.protocol.version != PROTOCOLS[entry.protocol.name]:
            known = PROTOCOLS[entry.protocol.name]
            return [
                *problems,
                f"follows version {entry.protocol.version} of its protocol; this Holdfast counts by {known}",
            ]
        rows = read_table(table, entry)
        problems += _dataset(entry, rows, board)
        problems += _rows(entry, pictures_of(rows))
        problems += objects.problems(rows) if entry.protocol.name == "objects" else []
        scores = numbers(rows, entry.protocol.name)
        problems += _recomputed(entry, rows, scores)
    except UserError as error:
        return [str(error).removeprefix(f"{file.name} ")]
    except (ArithmeticError, LookupError, ValueError, pa.ArrowException) as error:
        # rows that no run would write, in a way no one thought of
        return [f"has a table that cannot be counted: {type(error).__name__}: {first_line(error)}"]
    if not problems and board.keep is not None:
        board.keep(entry.model_copy(update={"scores": scores}), rows)
    return problems


def _dataset(entry: Entry, rows: pa.Table, board: Board) -> list[str]:
    """Compare an entry with the list of datasets, or with what other entries say of its dataset."""
    dataset, problems = entry.dataset, []
    if board.datasets is not None and dataset.sha256 not in board.datasets:
        return [f"is about a dataset that {DATASETS} does not have: {dataset.name}, {dataset.sha256[:12]}…"]
    known = board.datasets[dataset.sha256] if board.datasets is not None else board.facts.setdefault(
        dataset.sha256, dataset
    )  # fmt: skip
    for name in ("name", "images", "classes"):
        mine, theirs = getattr(dataset, name), getattr(known, name)
        if mine != theirs:
            problems.append(f"says that {name} of its dataset is {mine}, and it is {theirs}")
    of_objects = entry.protocol.name == "objects"
    pictures = pictures_of(rows)
    samples, names = codes_of(pictures, "sample_id")
    classes = codes_of(objects.part_of(rows, objects.OBJECT) if of_objects else rows, "label")[1]
    images = known.images
    if images is not None and len(names) > images:
        problems.append(f"has rows of {len(names)} images, and the dataset has {images}")
    elif images is not None and len(names) < images:
        problems.append(f"has rows of {len(names)} of the dataset's {images} images; an entry is about all of them")
    if known.classes is not None and len(classes) > known.classes:
        problems.append(f"has {len(classes)} classes, and the dataset has {known.classes}")
    first = np.unique(samples, return_index=True)[1]
    for column, words in (("label", "labels"), ("source_id", "source images")):
        own = codes_of(pictures, column)[0]
        if (own[first][samples] != own).any():
            problems.append(f"gives one image two {words}")
    others = _labels(board, dataset.sha256, of_objects=of_objects)
    for name, label in _truths(rows, of_objects).items():
        if others.setdefault(name, label) != label:
            problems.append(f"labels {name} {label[:200]}, but other entries have {others[name][:200]}")
            break
    return problems


def _truths(rows: pa.Table, of_objects: bool) -> dict[str, str]:
    """Return sample → label, or its objects in one text."""
    if of_objects:
        return objects.truths(rows)
    samples, names = codes_of(rows, "sample_id")
    labels, classes = codes_of(rows, "label")
    own = labels[np.unique(samples, return_index=True)[1]]
    return {name: classes[code] for name, code in zip(names, own, strict=True)}


def _labels(board: Board, sha256: str, *, of_objects: bool) -> dict[str, str]:
    """Return sample → label (or objects) of a dataset, as the first entry about it has them."""
    key = f"{sha256} objects" if of_objects else sha256
    if key not in board.labels:
        entry, path = board.believed.get(key, (None, None))
        board.labels[key] = {}
        if entry is not None and path is not None:
            board.labels[key] = _truths(read_table(path.with_suffix(".parquet"), entry), of_objects)
    return board.labels[key]


def _rows(entry: Entry, rows: pa.Table) -> list[str]:
    """Return problems that the rows themselves show."""
    protocol, problems = entry.protocol.name, []
    if not is_of_protocol(rows, protocol).all():
        problems.append(f"has rows that are not of the {protocol} protocol")
    allowed = {"hard": {*NUISANCES}, "dynamic": {ORIGINAL, PERTURBED, RECONSTRUCTION, RANDOM_WALK}}.get(protocol)
    known = registry.scenarios if allowed is None else allowed
    strange = [name for name in codes_of(rows, "condition")[1] if name not in known]
    problems += [f"has the condition {name}, which is not known" for name in strange[:3]]
    if {int(version) for version in np.unique(rows["schema_version"].fill_null(-1).to_numpy())} != {SCHEMA_VERSION}:
        problems.append(f"has rows of another version of the table than {SCHEMA_VERSION}")
    return problems + _unanswered(rows) + _whole(rows)


def _unanswered(rows: pa.Table) -> list[str]:
    """Return a problem if many rows are errors: wrong answers could be called errors."""
    status, names = codes_of(rows, "status")
    fine = np.isin(status, [place for place, name in enumerate(names) if name in ("ok", "rejected")])
    if fine.all():
        return []
    conditions, known = codes_of(rows, "condition")
    # without a mask there is no change to make; an original takes none
    skipped = np.isin(status, [place for place, name in enumerate(names) if name == "skipped"])
    for number, name in enumerate(known):
        own = conditions == number
        lost = int((own & ~fine & ~(skipped if name != ORIGINAL else False)).sum())
        if lost > max(1, UNANSWERED * own.sum()):
            return [f"has no answer in {lost} of {own.sum()} rows under {name}; numbers are of the others"]
    return []


def _whole(rows: pa.Table) -> list[str]:
    """Return problems of rows that count twice, and of conditions that lack images of the originals."""
    # One after the other, so that the number of combinations stays that of the rows.
    way = np.zeros(len(rows), np.intp)
    (conditions, known), (variants, kinds) = codes_of(rows, "condition"), codes_of(rows, "variant")
    for numbers_of, names in (
        codes_of(rows, "trained_on"), (conditions, known), (variants, kinds), codes_of(rows, "parameters")
    ):  # fmt: skip
        way = codes(way * (len(names) + 1) + numbers_of)[0]
    samples, names = codes_of(rows, "sample_id")
    (fold, folds), (seed, seeds) = (codes(rows[name].to_numpy()) for name in ("fold", "seed"))
    cells, cell = np.unique(way * np.intp(len(names)) + samples, return_inverse=True)
    twice = codes(cell * np.intp(folds) + fold)[0]
    several = codes(twice * np.intp(seeds) + seed)[1]
    problems = ["has an answer twice: the same image, condition and fold under two ids"] if several < len(rows) else []
    stored = np.isin(variants, [place for place, kind in enumerate(kinds) if kind == "as_stored"])
    if ORIGINAL not in known:
        return problems
    whole = len(np.unique(samples[conditions == known.index(ORIGINAL)]))
    images = np.bincount(cells // len(names))  # of each way
    of_way = np.zeros(len(images), np.intp)
    of_way[way] = conditions
    for number in np.unique(way[~stored]):
        name = known[of_way[number]]
        if name not in (RECONSTRUCTION, RANDOM_WALK) and images[number] != whole:
            problems.append(f"has {images[number]} images under {name}, and {whole} originals")
            break
    return problems


def _recomputed(entry: Entry, rows: pa.Table, scores: Sequence[Score]) -> list[str]:
    """Compare scores, settings, fingerprint and id with those of the table."""
    problems = []
    assert entry.table is not None
    assert entry.run is not None
    protocol = entry.protocol.name
    if entry.id != entry_id(entry.model.name, entry.dataset.name, protocol, entry.table.sha256):
        problems.append("has an id that is not made of its model, dataset, protocol and table")
    if entry.run.fingerprint != run_fingerprint(rows):
        problems.append("has a run's fingerprint that is not its table's")
    stated = {name: value for name, value in entry.protocol.settings.items() if name not in _TOLD}
    if stated != settings(rows, protocol):
        wrong = sorted(name for name, value in (stated | settings(rows, protocol)).items() if stated.get(name) != value)
        problems.append(f"states settings that its table does not have: {', '.join(wrong or sorted(stated))[:200]}")
    return problems + _scores(entry.scores, scores)


def _scores(stated: Sequence[Score], recomputed: Sequence[Score]) -> list[str]:
    theirs, ours = ({score.name: score for score in scores} for scores in (stated, recomputed))
    if set(theirs) != set(ours):
        strange = sorted(set(theirs) ^ set(ours))
        return [f"has other scores than its table gives: {', '.join(strange)[:200]}"]
    for name, mine in ours.items():
        for part in ("estimate", "low", "high", "n"):
            their, two = getattr(theirs[name], part), getattr(mine, part)
            near = AP_TOLERANCE if name.startswith("ap") else TOLERANCE
            if (their is None) != (two is None) or (their is not None and not abs(their - two) <= near):
                return [f"says that {name} ({part}) is {their}, and its table gives {two}"]
    return []
