"""Build the site of a board, a folder of pages; measured entries are cached by the hash of what they depend on.

The cache belongs to the person who builds the site, never to the board: what is in it is believed.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import holdfast.stats
import holdfast_evidence.board
from holdfast.core.errors import UserError, cannot_write
from holdfast.core.files import UNFINISHED, clear_leftovers, write_atomic
from holdfast.core.schema import PREDICTIONS, SAMPLES
from holdfast.engine import few_threads
from holdfast.stats.core.cells import ClassAccuracies
from holdfast.stats.effects.verdict import VerdictSteps
from holdfast.stats.effects.verdict_words import VerdictWords
from holdfast.store import Run
from holdfast_evidence.board.check import DATASETS, Board, EntryProblem, check, files_of, remember
from holdfast_evidence.board.entry import Entry, entry_json, read_entry
from holdfast_evidence.board.printed import printed_entries
from holdfast_evidence.board.site import measure, pages
from holdfast_evidence.board.site.groups import Tab, tabs_of
from holdfast_evidence.board.site.measure import Cells, Measured, measured
from holdfast_evidence.board.table import read_table


def key_of(path: Path) -> str:
    """Return the key of an entry: a hash of its two files, the list of datasets, and the code that measures."""
    digest = hashlib.sha256(_code())
    for file in (path, path.with_suffix(".parquet"), path.with_name(DATASETS)):
        data = file.read_bytes() if file.is_file() and not file.is_symlink() else b""
        digest.update(hashlib.sha256(data).digest())
    return digest.hexdigest()


@cache
def _code() -> bytes:
    digest = hashlib.sha256()
    for package in (holdfast_evidence.board, holdfast.stats):
        for file in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.digest()


def recall_all(folder: Path, files: Sequence[Path]) -> tuple[dict[Path, Measured], dict[Path, str]]:
    """Return what the cache has of these entries, and the keys of the others; the folder is created if needed."""
    folder.mkdir(parents=True, exist_ok=True)
    keys = {file: key_of(file) for file in files}
    recalled = {file: member for file, key in keys.items() if (member := recall(folder, key)) is not None}
    return recalled, {file: key for file, key in keys.items() if file not in recalled}


def recall(folder: Path, key: str) -> Measured | None:
    """Return a cached entry, or None."""
    try:
        content = json.loads((folder / f"{key}.json").read_text(encoding="utf8"))
    except (OSError, ValueError):
        return None
    content["entry"] = Entry.model_validate_json(json.dumps(content["entry"]))
    content["classes"] = _arrays(ClassAccuracies, content["classes"], float)
    content["cells"] = _arrays(Cells, content["cells"], np.intp)
    content["influence"] = {name: np.array(values) for name, values in content["influence"].items()}
    if words := content["words"]:
        content["words"] = VerdictWords(**words | {"steps": VerdictSteps(**words["steps"])})
    return Measured(**content)


def _arrays(kind: Any, content: dict[str, Any] | None, number: Any) -> Any:
    """Return a dataclass of lists of names and of arrays."""
    if content is None:
        return None
    names = {field.name for field in fields(kind) if "list" not in str(field.type)}
    return kind(**{name: np.array(values, number) if name in names else values for name, values in content.items()})


def keep_measured(folder: Path, key: str, member: Measured) -> None:
    """Store a measured entry. The key is of the files as they were before they were read."""
    content = vars(member) | {
        "entry": member.entry.model_dump(mode="json"),
        "classes": None if member.classes is None else vars(member.classes),
        "cells": None if member.cells is None else vars(member.cells),
        "words": None if member.words is None else asdict(member.words),
    }
    write_atomic(folder / f"{key}.json", json.dumps(content, default=lambda array: array.tolist()).encode())


PARTS = ("models", "data", "downloads", "reports")
STATIC = ("board.css", "board.js", "compare.js")
"""Written first, so that they identify a site even if a build was stopped."""

MANY = 60  # entries from which on a second process is worth its start
CHUNK = 20  # entries handed to a process at a time
Apply = Callable[[Callable[[Any], Any], Sequence[Any]], Iterator[Any]]
"""Applies a function to many things, in order; other processes continue while the results are not yet asked for."""


@dataclass(frozen=True)
class Built:
    """The page that was built, how many entries it has, and what was refused."""

    page: Path
    measured: int
    printed: int
    refused: list[EntryProblem]


def build(
    board: str | Path,
    out: str | Path,
    *,
    title: str = "Leaderboard",
    printed: bool = True,
    skip_bad: bool = False,
    reports: bool = False,
    cache: str | Path | None = None,
    workers: int = 0,
) -> Built:
    """Write the site of a board, ``index.html`` and what belongs to it; the site of an earlier build is replaced.

    Every number is recomputed from the tables. Nothing is written while an entry is wrong, unless ``skip_bad``, which
    leaves such entries out and says so. ``cache`` keeps what was measured, by the hashes of the files.
    """
    folder, site = Path(board), Path(out)
    if not folder.is_dir():
        raise UserError(f"{folder} is not a folder: a board is one, with ID.json and ID.parquet for each entry")
    _may_write(folder, site)
    problems, stems = files_of([folder])
    files = [stem.with_name(f"{stem.name}.json") for stem in stems]
    memories = None if cache is None else Path(cache)
    recalled, keys = ({}, {}) if memories is None else recall_all(memories, files)
    unknown = [(file, keys.get(file, "")) for file in files if file not in recalled]
    with few_threads(), _running(workers, len(unknown)) as run:
        measured, trouble = _measured(files, recalled, unknown, memories, run)
        problems += trouble
        if problems and not skip_bad:
            more = f" ({len(problems) - 1} more; holdfast board check lists all)" if len(problems) > 1 else ""
            raise UserError(f"{problems[0]}{more}; --skip-bad builds the rest")
        known = {member.entry.id for member in measured}
        papers = [Measured(entry) for entry in printed_entries() if entry.id not in known] if printed else []
        tabs = tabs_of([*measured, *papers])
        if not tabs:
            raise UserError(f"{folder} has no entry to show; add one with holdfast board add")
        try:
            _write(site, tabs, folder, title, [str(problem) for problem in problems], reports, run)
        except OSError as error:
            raise cannot_write(f"the site to {site}", error) from error
    own = sum(member.entry.kind == "measured" for member in measured)
    return Built(site / "index.html", own, len(measured) - own + len(papers), problems)


def _may_write(board: Path, out: Path) -> None:
    if out.resolve() == board.resolve() or board.resolve() in out.resolve().parents:
        raise UserError(f"--out {out} is in the board, which holds entries only: give the site its own folder")
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise UserError(f"--out {out} is not a folder")
    names = {path.name for path in out.iterdir()} if out.is_dir() else set()
    begun = all(name in STATIC or name.startswith(UNFINISHED) for name in names)  # by a build that was killed
    if not begun and not names.issuperset(STATIC):
        raise UserError(f"--out {out} has files in it and is not a site of a board: give the site its own folder")


# Measuring


def _measured(
    files: Sequence[Path],
    recalled: dict[Path, Measured],
    unknown: Sequence[tuple[Path, str]],
    cache: Path | None,
    run: Apply,
) -> tuple[list[Measured], list[EntryProblem]]:
    """Return every entry without a problem, and the problems of the others. Unknown ones come with their keys."""
    chunks = [(list(unknown[start : start + CHUNK]), cache) for start in range(0, len(unknown), CHUNK)]
    results = list(run(_chunk, chunks))
    known = recalled | {file: member for pairs, _ in results for file, member in pairs}
    entries = [known[file] for file in files if file in known]
    problems = [problem for _, trouble in results for problem in trouble]
    seen = {str(problem) for problem in problems}
    problems += [problem for problem in _against_each_other(entries) if str(problem) not in seen]
    bad = {problem.file for problem in problems}
    return [member for member in entries if f"{member.entry.id}.json" not in bad], problems


@contextmanager
def _running(workers: int, entries: int) -> Iterator[Apply]:
    """Return a function like ``map``: in this process, or in several if there is much to do."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = workers or (min(cores, entries // CHUNK) if entries > MANY else 1)
    if count < 2:
        yield map
        return
    # spawn: arrow keeps threads that do not survive a fork
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as pool:
        yield pool.map


def _chunk(given: tuple[list[tuple[Path, str]], Path | None]) -> tuple[list[tuple[Path, Measured]], list[EntryProblem]]:
    """Read, check and measure some entries."""
    pa.set_cpu_count(1)
    files, cache = given
    pairs: list[tuple[Path, Measured]] = []
    problems: list[EntryProblem] = []
    for file, key in files:
        kept: list[Measured] = []

        def keep(entry: Entry, table: pa.Table, kept: list[Measured] = kept) -> None:
            kept.append(measured(entry, table))

        trouble = check([file], keep=keep)
        problems += trouble
        if trouble:
            continue
        member = kept[0] if kept else Measured(read_entry(file))
        if cache is not None:
            keep_measured(cache, key, member)
        pairs.append((file, member))
    return pairs, problems


def _against_each_other(entries: Sequence[Measured]) -> list[EntryProblem]:
    """Return problems that only show next to other entries: a submission twice, one image under two labels."""
    board = Board()
    labels: dict[str, dict[str, str]] = {}
    lists: dict[str, tuple[list[str], list[str]]] = {}
    problems = []
    for member in entries:
        file, dataset = f"{member.entry.id}.json", member.entry.dataset
        problems += [EntryProblem(file, message) for message in remember(board, member.entry, file)]
        if dataset.sha256 and board.facts.setdefault(dataset.sha256, dataset) != dataset:
            message = "says other things of its dataset than another entry of the same dataset"
            problems.append(EntryProblem(file, message))
        if member.cells is None or lists.get(dataset.sha256) == (member.cells.images, member.cells.labels):
            continue
        lists[dataset.sha256] = (member.cells.images, member.cells.labels)
        known = labels.setdefault(dataset.sha256, {})
        for image, label in zip(member.cells.images, member.cells.labels, strict=True):
            if known.setdefault(image, label) != label:
                problems.append(EntryProblem(file, f"labels {image} {label}, but other entries have {known[image]}"))
                break
    return problems


# Writing


@dataclass(frozen=True)
class _Job:
    """Pages to write: entries of one table, each with its place, and the layout of the table's images."""

    members: list[tuple[Measured, pages.EntryPlace]]
    whole: Cells | None
    site: Path
    board: Path
    title: str
    reports: bool


def _write(
    site: Path, tabs: Sequence[Tab], board: Path, title: str, refused: Sequence[str], reports: bool, run: Apply
) -> None:
    site.mkdir(parents=True, exist_ok=True)
    for name in (*STATIC, "index.html", "compare.html"):
        clear_leftovers(site / name)
    for name in STATIC:
        write_atomic(site / name, (pages.HERE / "static" / name).read_bytes())
    for part in PARTS:
        shutil.rmtree(site / part, ignore_errors=True)
        (site / part).mkdir()
    done: set[str] = set()
    jobs: list[_Job] = []
    groups = [group for tab in tabs for group in tab.groups]
    for group in groups:
        images = pages.images(group)
        if images is not None:
            write_atomic(site / "data" / f"{group.slug}.js", images[0].encode())
        # A printed entry may be next to two tables.
        new = [member for member in group.members if member.entry.id not in done]
        done |= {member.entry.id for member in new}
        placed = [(member, pages.place_of(member, group)) for member in new]
        whole = None if images is None else images[1]
        jobs += [
            _Job(placed[start : start + CHUNK], whole, site, board, title, reports)
            for start in range(0, len(placed), CHUNK)
        ]
    written = run(_write_models, jobs)  # next to what follows
    for group in groups:
        rows = measure.rows_of(group.members, group.ranks)
        for ending, text in (("csv", measure.as_csv), ("json", measure.as_json), ("parquet", measure.as_parquet)):
            write_atomic(site / "downloads" / f"{group.slug}.{ending}", text(rows))
    write_atomic(site / "data" / "catalogue.js", pages.catalogue(tabs).encode())
    write_atomic(site / "compare.html", pages.compare(title=title).encode())
    index = pages.index(tabs, title=title, refused=refused).encode()
    for _ in written:
        pass
    write_atomic(site / "index.html", index)


def _write_models(job: _Job) -> None:
    """Write the pages of some entries and their files."""
    for member, place in job.members:
        name, own = member.entry.id, job.site / "downloads"
        has_report = job.reports and _report(member, job.board, job.site / "reports" / name)
        page = pages.model(member, place, title=job.title, report=has_report)
        write_atomic(job.site / "models" / f"{name}.html", page.encode())
        write_atomic(own / f"{name}.json", entry_json(member.entry).encode())
        ranks = {measure: {name: rank} for measure, rank in place.ranks.items()}
        write_atomic(own / f"{name}.csv", measure.as_csv(measure.rows_of([member], ranks)))
        if job.whole is not None and member.cells is not None:
            write_atomic(job.site / "data" / f"{name}.js", pages.answers(member, job.whole).encode())
            write_atomic(own / f"{name}.parquet", (job.board / f"{name}.parquet").read_bytes())


def _report(member: Measured, board: Path, out: Path) -> bool:
    """Write the report of an entry from its table alone, as ``holdfast report`` does; False if it has none."""
    entry = member.entry
    if entry.kind != "measured" or entry.protocol.name == "dynamic":
        return False
    from holdfast.reports import build as build_report
    from holdfast.results import SCORED

    rows = read_table(board / f"{entry.id}.parquet", entry).cast(PREDICTIONS)
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder) / entry.id)
        run.path.mkdir(parents=True)
        run.begin({"verb": "evaluate", "dataset": entry.dataset.name, "models": [entry.model.name]})
        run.write_samples(SAMPLES.empty_table())
        run.predictions.write(rows)
        build_report([run], out, note=f"Made of the table of the board's entry {entry.id}.", **SCORED)
    return True
