"""Runs and boards made of numbers, without a model or an image."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.core.schema import PREDICTIONS, SAMPLES
from holdfast.store import Run
from holdfast_evidence.board.add import add
from holdfast_evidence.board.entry import entry_id

CLASSES = ("dog", "fox", "whale")
STATIC = ("original", "blur_background", "grey", "random_background", "same_class_background", "blur_object")
MODELS = ("python:first", "python:second")


def sample_id(number: int) -> str:
    """Of the made images."""
    return f"photos/{number:03d}"


def _row(model: str, number: int, condition: str, right: bool, **other: Any) -> dict[str, Any]:
    label = CLASSES[number % len(CLASSES)]
    said = label if right else CLASSES[(number + 1) % len(CLASSES)]
    key = [model, number, condition, other.get("parameters", "{}"), other.get("trained_on", ""), other.get("fold", -1)]
    row: dict[str, Any] = {
        "task": "classify", "kind": "static", "dataset": "made", "sample_id": sample_id(number),
        "source_id": sample_id(number), "split": "test", "fold": -1, "condition": condition, "variant": "paper",
        "parameters": "{}", "seed": 0, "model": model, "trained_on": "", "protocol": "argmax", "label": label,
        "prediction": said, "correct": right, "prediction_restricted": said, "correct_restricted": right,
        "confidence": 0.75, "confidence_restricted": 0.75, "probability_of_label": 0.75, "topk": [said],
        "status": "ok", "image_sha256": hashlib.sha256(repr([number, condition]).encode()).hexdigest(),
        "row_id": hashlib.sha256(json.dumps(key).encode()).hexdigest()[:32], "run_id": "made", "schema_version": 1,
    }  # fmt: skip
    return row | other


def static_rows(
    model: str, *, photos: int = 30, seed: int = 0, share: float = 0.7, **other: Any
) -> list[dict[str, Any]]:
    """A model that is right by chance, with donors behind pasted scenes."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(photos):
        for condition in STATIC:
            donor = {}
            if condition in ("random_background", "same_class_background"):
                lender = int(rng.integers(photos))
                donor = {"donor_id": sample_id(lender), "donor_label": CLASSES[lender % len(CLASSES)]}
            rows.append(_row(model, number, condition, bool(rng.random() < share), **donor, **other))
    return rows


def trained_rows(model: str, *, photos: int = 30, seed: int = 0) -> list[dict[str, Any]]:
    """Trained on originals and within two conditions, three folds."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(photos):
        fold = number // 3 % 3
        rows += [
            _row(model, number, condition, bool(rng.random() < 0.8), trained_on="original", fold=fold)
            for condition in STATIC
        ]
        rows += [
            _row(model, number, condition, bool(rng.random() < 0.6), trained_on=condition, fold=fold)
            for condition in ("grey", "blur_object")
        ]
    return rows


def hard_rows(model: str, *, photos: int = 24, seed: int = 0) -> list[dict[str, Any]]:
    """Two images a prompt, of two kinds."""
    rng = np.random.default_rng(seed)
    return [
        _row(
            model, number, "texture" if number % 4 > 1 else "background", bool(rng.random() < 0.4), kind="generated",
            variant="as_stored", source_id=f"prompt-{number // 2}",
        )
        for number in range(photos)
    ]  # fmt: skip


def walk_rows(model: str, *, photos: int = 24, seed: int = 0, steps: int = 5) -> list[dict[str, Any]]:
    """Originals, reconstructions and walks, some rejected."""
    rng = np.random.default_rng(seed)
    told = json.dumps(
        {"generator": "pixel:", "oracle": "clip:embedded", "size": 64, "space": "dataset", "steps": steps}
    )
    rows = []
    for number in range(photos):
        given = {"kind": "dynamic", "variant": ""}
        rows.append(_row(model, number, "original", bool(rng.random() < 0.9), parameters='{"size":64}', **given))
        rows.append(_row(model, number, "reconstruction", bool(rng.random() < 0.8), parameters=told, **given))
        status = "ok" if rng.random() < 0.7 else "rejected"
        rows.append(_row(model, number, "perturbed", bool(rng.random() < 0.5), parameters=told, status=status, **given))
    return rows


def make_run(folder: Path, rows: Sequence[dict[str, Any]], **spec: Any) -> Path:
    """A run directory of these rows."""
    run = Run(folder)
    models = sorted({row["model"] for row in rows})
    told = {"verb": "evaluate", "models": models, "model_names": models, "classes": list(CLASSES), "dataset": "made"}
    run.begin(told | spec)
    run.write_environment({"packages": {"holdfast": "0.1.0"}})
    first = {row["sample_id"]: row for row in rows}
    samples = [
        {name: row[name] for name in ("sample_id", "source_id", "label", "split", "fold", "kind")}
        | {"image_fingerprint": hashlib.sha256(name.encode()).hexdigest(), "mask_fingerprint": ""}
        for name, row in first.items()
    ]
    run.write_samples(pa.Table.from_pylist(samples, schema=SAMPLES))
    run.predictions.write(table_of(rows))
    return folder


def table_of(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """The one table."""
    return pa.Table.from_pylist(list(rows), schema=PREDICTIONS)


def make_board(folder: Path, work: Path, *, models: Sequence[str] = MODELS) -> list[Path]:
    """A board of two models under every protocol."""
    paths: list[Path] = []
    for name, made in (("static", static_rows), ("hard", hard_rows), ("dynamic", walk_rows)):
        rows = [row for number, model in enumerate(models) for row in made(model, seed=number)]
        paths += add(make_run(work / name, rows), folder)
    return paths


def rewrite(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change an entry's JSON as a stranger would."""
    told = json.loads(path.read_text(encoding="utf8"))
    change(told)
    path.write_text(json.dumps(told), encoding="utf8")


def retable(path: Path, change: Callable[[pa.Table], pa.Table], **writing: Any) -> Path:
    """Put another table next to an entry, with its hash, rows and id; returns the new entry."""
    table = path.with_suffix(".parquet")
    rows = change(pq.read_table(table))
    pq.write_table(rows, table, **writing)
    return rehash(path, len(rows))


def rehash(path: Path, rows: int | None = None) -> Path:
    """Make hash and id those of the table that is there."""
    table = path.with_suffix(".parquet")
    digest = hashlib.sha256(table.read_bytes()).hexdigest()
    told = json.loads(path.read_text(encoding="utf8"))
    told["table"]["sha256"] = digest
    told["table"]["rows"] = rows if rows is not None else told["table"]["rows"]
    told["id"] = entry_id(told["model"]["name"], told["dataset"]["name"], told["protocol"]["name"], digest)
    new = path.with_name(f"{told['id']}.json")
    path.unlink()
    table.rename(new.with_suffix(".parquet"))
    new.write_text(json.dumps(told), encoding="utf8")
    return new
