"""A board of a thousand entries: its site, and sorting its table in a browser."""

from __future__ import annotations

import hashlib
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from common import Row

from holdfast.core.schema import PREDICTIONS, SCHEMA_VERSION
from holdfast.core.types import ORIGINAL
from holdfast.scenarios import parse_conditions
from holdfast_evidence.board.entry import (
    Dataset,
    Entry,
    EntryRun,
    EntryTable,
    Model,
    Protocol,
    Score,
    Speed,
    entry_id,
    entry_json,
)
from holdfast_evidence.board.numbers import numbers, settings
from holdfast_evidence.board.table import packed, published, run_fingerprint

ENTRIES, DATASETS, PHOTOS, CLASSES = 1000, 4, 36, 12
CONDITIONS = (*(one.name for one in parse_conditions("static")), "same_class_background")
PASTED = ("random_background", "same_class_background")
CLICKS = 8
HOLDFAST = str(Path(sys.executable).with_name("holdfast"))


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        board, site, cache = (Path(folder) / name for name in ("board", "site", "cache"))
        made_board(board)
        for what in ("cold", "warm: tables read before"):
            start, worked = time.perf_counter(), processor()
            built(board, site, cache)
            seconds, worked = time.perf_counter() - start, processor() - worked
            yield Row(f"board: site of 1,000 entries of 500 rows, {what}", seconds, "s", at_most=10)
            yield Row("  its processor time, all processes", worked, "s")
        one = Path(folder) / "one"
        made_board(one, datasets=1)
        built(one, Path(folder) / "single", cache)
        slowest = min(slowest_click(Path(folder) / "single") for _ in range(3))  # the round least disturbed
        yield Row("board: sort a table of 1,000 rows, slowest click", slowest, "ms", at_most=100)


def built(board: Path, site: Path, cache: Path) -> None:
    """By the command: its processes import what started them, and that would be all of these benchmarks."""
    words = [HOLDFAST, "board", "build", str(board), "--out", str(site), "--cache", str(cache)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def processor() -> float:
    """Seconds that this process and the ended ones below it worked."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def slowest_click(site: Path) -> float:
    """Milliseconds from a click on a column to the next frame."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"],
        )
        page = browser.new_page(viewport={"width": 1400, "height": 900})
        page.goto((site / "index.html").as_uri())
        times = page.evaluate(
            """async clicks => {
                const frame = () => new Promise(done => requestAnimationFrame(() => setTimeout(done)));
                const buttons = [...document.querySelectorAll('.panel:not([hidden]) th button')];
                const times = [];
                for (let number = 0; number < clicks; number++) {
                    const start = performance.now();
                    buttons[number % buttons.length].click();
                    document.body.offsetHeight;
                    await frame();
                    times.push(performance.now() - start);
                }
                return times;
            }""",
            CLICKS,
        )
        browser.close()
    return float(max(times))


def made_board(folder: Path, *, entries: int = ENTRIES, datasets: int = DATASETS, photos: int = PHOTOS) -> Path:
    """Entries with made-up answers: models, conditions and images differ in how hard they are."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    ease = rng.normal(0, 1, (datasets, photos))
    for number in range(entries):
        name, dataset = f"made:model-{number:04d}", number % datasets
        table = published(_rows(rng, name, dataset, ease[dataset], skill=rng.normal(1.5, 0.7)))
        data = packed(table)
        digest = hashlib.sha256(data).hexdigest()
        scores: list[Score] = numbers(table, "static")
        entry = Entry(
            kind="measured", id=entry_id(name, f"made-{dataset}", "static", digest),
            model=Model(name=name, title=f"Model {number:04d}", parameters=int(10 ** rng.uniform(5.5, 8.5))),
            dataset=Dataset(name=f"made-{dataset}", sha256=f"{dataset:064x}", images=photos, classes=CLASSES),
            protocol=Protocol(name="static", settings=settings(table, "static")),
            scores=scores, speed=Speed(images_per_second=float(10 ** rng.uniform(1, 3.5)), hardware="one made-up GPU"),
            table=EntryTable(sha256=digest, rows=len(table), schema_version=SCHEMA_VERSION),
            run=EntryRun(fingerprint=run_fingerprint(table), holdfast="0.1.0"),
        )  # fmt: skip
        (folder / f"{entry.id}.json").write_text(entry_json(entry), encoding="utf8")
        (folder / f"{entry.id}.parquet").write_bytes(data)
    return folder


def _rows(rng: np.random.Generator, model: str, dataset: int, ease: np.ndarray, skill: float) -> pa.Table:
    photos, size = len(ease), len(ease) * len(CONDITIONS)
    photo, place = np.tile(np.arange(photos), len(CONDITIONS)), np.repeat(np.arange(len(CONDITIONS)), photos)
    condition = np.array(CONDITIONS, object)[place]
    right = skill + ease[photo] - 0.12 * place * (condition != ORIGINAL) + rng.normal(0, 1, size) > 0
    label = photo % CLASSES
    answer = np.where(right, label, (label + rng.integers(1, CLASSES, size)) % CLASSES)
    classes = np.array([f"class {number:02d}" for number in range(CLASSES)], object)
    donor = (photo * 7 + 5) % photos
    sure = rng.uniform(0.5, 1, size)
    pasted = np.isin(condition.astype(str), PASTED)
    names = np.array([f"photo-{number:04d}" for number in range(photos)], object)
    columns = {
        "task": ["classify"] * size, "kind": ["static"] * size, "dataset": [f"made-{dataset}"] * size,
        "sample_id": names[photo], "source_id": names[photo], "split": ["test"] * size, "fold": np.full(size, -1),
        "condition": condition, "variant": ["paper"] * size, "parameters": ["{}"] * size, "seed": np.zeros(size, int),
        "model": [model] * size, "trained_on": [""] * size, "protocol": ["argmax"] * size, "label": classes[label],
        "prediction": classes[answer], "correct": right, "prediction_restricted": classes[answer],
        "correct_restricted": right, "confidence": sure, "confidence_restricted": sure,
        "probability_of_label": np.where(right, sure, 1 - sure), "topk": [[name] for name in classes[answer]],
        "donor_id": np.where(pasted, names[donor], None),
        "donor_label": np.where(pasted, classes[label[donor]], None), "status": ["ok"] * size,
        "image_sha256": [f"{dataset}-{a}-{b}" for a, b in zip(photo, place, strict=True)],
        "row_id": [hashlib.sha256(f"{model} {row}".encode()).hexdigest()[:32] for row in range(size)],
        "run_id": ["made"] * size, "schema_version": np.full(size, SCHEMA_VERSION),
    }  # fmt: skip
    arrays = [
        pa.array(columns[field.name], from_pandas=True).cast(field.type)
        if field.name in columns
        else pa.nulls(size, field.type)
        for field in PREDICTIONS
    ]
    return pa.Table.from_arrays(arrays, schema=PREDICTIONS)
