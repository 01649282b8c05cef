"""Statistics and the report at 100,000 rows."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from common import Row

from holdfast.core.schema import PREDICTIONS
from holdfast.reports import build
from holdfast.stats.core.bootstrap import deviations
from holdfast.store import Run

ROWS = 100_000
CONDITIONS = (
    "original", "blur_background", "blur_object", "grey", "red", "green", "blue", "rainbow", "bright_background",
    "bright_object", "segmented", "transparent", "random_background", "same_class_background", "only_background",
    "mean_background", "foreground_on_grey", "silhouette",
)  # fmt: skip


def rows() -> Iterator[Row]:
    rng = np.random.default_rng(0)
    values = (rng.random(ROWS) < 0.7) - 0.7
    photos, donors = rng.integers(0, 8000, ROWS), rng.integers(0, 8000, ROWS)
    for name, second in (("photos", None), ("images and donors", donors)):
        start = time.perf_counter()
        deviations(values, photos, second, resamples=10_000)
        seconds = time.perf_counter() - start
        yield Row(f"bootstrap: 10,000 resamples of 100,000 rows, by {name}", seconds, "s", at_most=10)
    with tempfile.TemporaryDirectory() as folder:
        run = made_run(Path(folder) / "run")
        start = time.perf_counter()
        page = build([run], Path(folder) / "report")
        yield Row("report of 100,000 rows (4 models, 18 conditions)", time.perf_counter() - start, "s", at_most=20)
        yield Row("report: size of the page", page.stat().st_size / 1e6, "MB", at_most=10)


def made_run(path: Path, models: int = 4, classes: int = 20, rows: int = ROWS) -> Run:
    """A run with made-up answers: models differ, and so do conditions."""
    rng = np.random.default_rng(1)
    sources = rows // models // len(CONDITIONS)
    labels = [f"class {number % classes:02d}" for number in range(sources)]
    ease = rng.normal(0, 1, sources)
    parts = []
    for model in range(models):
        for position, condition in enumerate(CONDITIONS):
            right = ease + rng.normal(0, 1, sources) > -1.5 + 0.05 * position + 0.1 * model
            donor = rng.permutation(sources)
            pasted = condition in ("random_background", "same_class_background")
            answers = [label if ok else "something else" for label, ok in zip(labels, right, strict=True)]
            parts.append(
                {
                    "sample_id": [f"s{n}" for n in range(sources)],
                    "source_id": [f"s{n}" for n in range(sources)],
                    "label": labels,
                    "prediction": answers,
                    "prediction_restricted": answers,
                    "correct": right,
                    "correct_restricted": right,
                    "confidence": rng.random(sources).astype(np.float32),
                    "condition": [condition] * sources,
                    "model": [f"model {model}"] * sources,
                    "donor_id": [f"s{n}" if pasted else None for n in donor],
                    "donor_label": [labels[n] if pasted else None for n in donor],
                    "row_id": [f"{model}-{position}-{n}" for n in range(sources)],
                }
            )
    fixed = {"task": "classify", "kind": "static", "dataset": "made", "variant": "paper", "parameters": "{}",
             "status": "ok", "trained_on": "", "protocol": "argmax", "split": "", "run_id": "made"}  # fmt: skip
    columns = {}
    for field in PREDICTIONS:
        if field.name in fixed:
            column = pa.array([fixed[field.name]] * (sources * len(parts)))
        elif field.name in parts[0]:
            column = pa.array([value for part in parts for value in part[field.name]])
        else:
            number = {"fold": -1, "seed": 0, "schema_version": 1}.get(field.name)
            column = pa.array([number] * (sources * len(parts)))
        columns[field.name] = column.cast(field.type)
    path.mkdir(parents=True)
    run = Run(path)
    run.begin({"verb": "evaluate", "dataset": "made", "classes": sorted(set(labels)), "models": [], "data": "made"})
    run.predictions.write(pa.table(columns))
    return run
