"""Run directories with made-up answers, for the tests of the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.core.schema import PREDICTIONS, SAMPLES
from holdfast.store import Run

CONDITIONS = (
    "original",
    "blur_object",
    "grey",
    "random_background",
    "same_class_background",
    "only_background",
    "silhouette",
)
PASTED = ("random_background", "same_class_background", "only_background")
HARM = {"original": 0.0, "blur_object": 1.5, "grey": 0.1, "random_background": 1.0, "same_class_background": 0.4}


def make_run(
    path: Path,
    *,
    models: Sequence[str] = ("timm:first", "timm:second"),
    classes: Sequence[str] = ("cat", "dog", "fox", "owl"),
    photos: int = 8,
    conditions: Sequence[str] = CONDITIONS,
    status: str = "ok",
    error: str | None = None,
    dataset: str = "made",
    seed: int = 0,
    source: str = "image {} of {}",
    parts: int = 1,
    share: Callable[[str, str, str], float] | None = None,
) -> Run:
    """A run in which an image is answered rightly with a chance that depends on model, condition, class and image.

    ``share``: model, condition and class → the share of the images that is answered rightly, exactly.
    """
    rng = np.random.default_rng(seed)
    label = np.repeat(np.arange(len(classes)), photos)
    names = np.array([source.format(i, classes[k]) for i, k in enumerate(label)], dtype=object)
    at, model, condition = (
        grid.ravel()
        for grid in np.meshgrid(
            np.arange(len(label)), np.arange(len(models)), np.arange(len(conditions)), indexing="ij"
        )
    )
    skill, hard = rng.normal(2.0, 0.6, len(models)), rng.normal(0, 1, len(label))
    harm = np.array([HARM.get(name, 5.0) for name in conditions])
    chance = 1 / (
        1 + np.exp(-(skill[model] - harm[condition] - hard[at] + rng.normal(0, 0.7, len(classes))[label[at]]))
    )
    right = rng.random(len(at)) < chance
    if share is not None:
        wanted = [
            share(models[m], conditions[c], classes[label[a]]) for a, m, c in zip(at, model, condition, strict=True)
        ]
        right = (at % photos) < np.round(np.array(wanted) * photos)
    truth = label[at]
    answer = np.where(right, truth, (truth + 1 + rng.integers(0, max(len(classes) - 1, 1), len(at))) % len(classes))
    told, tested = np.array(classes, object), np.array(conditions, object)[condition]
    donor = (at * 7 + 3) % len(label)
    pasted = np.isin(tested.astype(str), PASTED)
    ok = status == "ok"
    count = len(at)
    columns: dict[str, Any] = {
        "sample_id": names[at], "source_id": names[at], "condition": tested, "model": np.array(models, object)[model],
        "label": told[truth],
        "image_sha256": [f"{a}-{c}" for a, c in zip(at, condition, strict=True)],
        "row_id": [f"{dataset}-{a}-{m}-{c}-{seed}" for a, m, c in zip(at, model, condition, strict=True)],
        "fold": np.full(count, -1), "seed": np.zeros(count, int), "schema_version": np.ones(count, int),
        "task": ["classify"] * count, "kind": ["static"] * count, "dataset": [dataset] * count, "split": [""] * count,
        "variant": ["paper"] * count, "parameters": ["{}"] * count, "trained_on": [""] * count,
        "protocol": ["argmax"] * count, "status": [status] * count, "run_id": ["made"] * count,
        "error": [error] * count,
    }  # fmt: skip
    if ok:
        confidence = np.clip(0.45 + 0.4 * right + rng.normal(0, 0.08, count), 0.01, 0.99)
        columns |= {
            "prediction": told[answer], "correct": right,
            "prediction_restricted": told[answer], "correct_restricted": right,
            "confidence": confidence, "donor_id": np.where(pasted, names[donor], None),
            "donor_label": np.where(pasted, told[label[donor]], None),
        }  # fmt: skip
    arrays = [
        pa.array(columns[one.name], from_pandas=True).cast(one.type)
        if one.name in columns
        else pa.nulls(count, one.type)
        for one in PREDICTIONS
    ]
    run = Run(path)
    run.begin({"verb": "evaluate", "dataset": dataset, "classes": list(classes), "models": list(models), "seed": 0})
    run.write_environment(
        {"command": f"holdfast eval {dataset} --out runs/made", "python": "3.11", "packages": {"numpy": "2"}}
    )
    run.write_samples(SAMPLES.empty_table())
    table = pa.Table.from_arrays(arrays, schema=PREDICTIONS)
    # As workers write them: in no order, so that no two parts have the same words in the same places.
    word = PREDICTIONS.field("model").type
    texts = pa.schema([(one.name, pa.string() if one.type == word else one.type) for one in PREDICTIONS])
    for rows in np.array_split(rng.permutation(count) if parts > 1 else np.arange(count), parts):
        run.predictions.write(table.take(pa.array(rows)).cast(texts))
    return run
