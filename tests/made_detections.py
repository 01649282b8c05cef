"""Tables of detectors with planted truths: how many objects are found, and how many false alarms there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.core.protocols import size_class
from holdfast.core.schema import DETECTIONS, IMAGES, OBJECTS, PREDICTIONS, SAMPLES, SCHEMA_VERSION
from holdfast.store import Parts, Run

THRESHOLD = 0.5


@dataclass(frozen=True)
class Planted:
    """What is true under a condition: chances per object, false alarms per image, whether lost ones score low."""

    recall: float = 0.8
    alarms: float = 0.5
    wrong: float = 0.0
    faint: bool = False
    donors: int = 0


def made_detections(
    truths: Mapping[str, Planted],
    *,
    photos: int = 60,
    classes: int = 3,
    seed: int = 0,
    model: str = "made:detector",
    spread: float = 0.0,
) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return objects, images and detections.

    An object is found under a condition where its own luck is below the condition's chance, so that what is found at a
    lower chance is found at a higher one; ``spread`` makes objects of one image alike.
    """  # fmt: skip
    rng = np.random.default_rng(seed)
    objects: list[dict[str, Any]] = []
    images: list[dict[str, Any]] = []
    detections: list[dict[str, Any]] = []
    for photo in range(photos):
        count = int(rng.integers(0 if photo % 10 == 9 else 1, 5))
        share = rng.random(count)
        if spread:
            share = np.where(rng.random(count) < spread, rng.random(), share)
        corner, side = rng.uniform(0, 300, (count, 2)), rng.uniform(20, 150, (count, 2))
        boxes, labels = np.concatenate([corner, corner + side], axis=1), rng.integers(0, classes, count)
        for condition, truth in truths.items():
            donor = f"donor {rng.integers(truth.donors)}" if truth.donors else None
            key = {
                "row_id": f"{model}/{condition}/{photo}", "sample_id": f"p{photo}", "source_id": f"p{photo}",
                "condition": condition, "variant": "", "parameters": "{}", "seed": 0, "model": model, "donor_id": donor,
            }  # fmt: skip
            said: list[dict[str, Any]] = []
            for number in range(count):
                box = dict(zip(("x1", "y1", "x2", "y2"), boxes[number].tolist(), strict=True))
                area = float(side[number].prod())
                hit = bool(share[number] < truth.recall)
                other = not hit and bool(rng.random() < truth.wrong)
                label = f"class {labels[number]}"
                answer = label if hit else f"class {(labels[number] + 1) % classes}" if other else ""
                objects.append(
                    key | box | {
                        "object_id": str(number), "label": label, "area": area, "crowd": False, "target": False,
                        "size": size_class(area), "mask_made": False,
                        "status": "removed" if condition == "only_background" else "ok", "error": "", "found": hit,
                        "iou": float(hit), "score": 0.9 if hit else 0.0, "predicted": answer,
                    }
                )  # fmt: skip
                if answer:
                    said.append(box | {"label": answer, "score": float(rng.uniform(THRESHOLD + 0.01, 1))})
                elif truth.faint:
                    said.append(box | {"label": label, "score": float(rng.uniform(THRESHOLD - 0.05, THRESHOLD))})
            alarms = int(rng.poisson(truth.alarms))
            for _ in range(alarms):
                x, y = rng.uniform(400, 600, 2)
                box = {"x1": x, "y1": y, "x2": x + 30, "y2": y + 30}
                said.append(box | {"label": "class 0", "score": float(rng.uniform(THRESHOLD + 0.01, 1))})
            detections += [key | answer for answer in said]
            kept = sum(answer["score"] >= THRESHOLD for answer in said)
            wrong = sum(bool(row["predicted"]) and not row["found"] for row in objects[len(objects) - count :])
            images.append(
                key | {
                    "n_objects": 0 if condition == "only_background" else count,
                    "n_predictions": kept, "false_alarms": alarms + wrong, "other_classes": 0,
                    "threshold": THRESHOLD, "status": "ok", "error": "",
                }
            )  # fmt: skip
    return (
        pa.Table.from_pylist(objects, OBJECTS), pa.Table.from_pylist(images, IMAGES),
        pa.Table.from_pylist(detections, DETECTIONS),
    )  # fmt: skip


def detector_run(path: Path, *tables: tuple[pa.Table, pa.Table, pa.Table], dataset: str = "made") -> Run:
    """Return a run directory with these tables of one or several detectors, as ``eval`` writes it."""
    run = Run(path)
    objects, images, detections = (pa.concat_tables(parts) for parts in zip(*tables, strict=True))
    models = sorted(set(images["model"].to_pylist()))
    spec = {"verb": "evaluate", "task": "detect", "dataset": dataset, "model_names": models}
    run.begin(spec | {"thresholds": dict.fromkeys(models, THRESHOLD), "classes": ["class 0", "class 1", "class 2"]})
    Parts(path / "details" / "objects", OBJECTS, ("row_id", "object_id")).write(objects)
    Parts(path / "details" / "images", IMAGES).write(images)
    Parts(path / "details" / "detections", DETECTIONS).write(detections)
    rows = [
        dict.fromkeys(PREDICTIONS.names)
        | {name: row[name] for name in ("row_id", "sample_id", "source_id", "condition", "variant", "parameters")}
        | {"task": "detect", "kind": "static", "dataset": dataset, "split": "", "fold": -1, "seed": 0, "trained_on": ""}
        | {
            "model": row["model"],
            "protocol": "boxes",
            "label": "class 0" if row["n_objects"] else None,
            "donor_id": row["donor_id"],
            "run_id": run.run_id,
        }
        | {"status": row["status"], "error": row["error"], "schema_version": SCHEMA_VERSION, "correct": True}
        for row in images.to_pylist()
    ]
    run.predictions.write(pa.Table.from_pylist(rows, PREDICTIONS))
    samples = [
        {"sample_id": name, "source_id": name, "label": "", "split": "", "fold": -1, "kind": "static"}
        | {
            "condition": "original",
            "image_fingerprint": f"image of {name}",
            "mask_fingerprint": "b",
            "problem": "",
            "licence": "",
        }
        | {"attributes": "{}"}
        for name in sorted(set(images["sample_id"].to_pylist()))
    ]
    run.write_samples(pa.Table.from_pylist(samples, SAMPLES))
    return run
