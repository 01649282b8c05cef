"""Run directories with simulated latent walks, for the tests of the report."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pyarrow as pa

from holdfast.core.fingerprint import fingerprint
from holdfast.core.schema import FRAMES, PREDICTIONS, SAMPLES, WALKS
from holdfast.store import Parts, Run

OPTIONS: dict[str, Any] = {
    "steps": 50, "step_size": 0.001, "gradient": "sign", "loss": "cross_entropy", "first": "step", "start": "clean",
    "fgsm_epsilon": 0.003, "direction": "loss", "stop_when_fooled": False, "black_box": 0, "precision": "float32",
    "size": 64, "generator": "made:generator", "generator_fingerprint": "0123456789abcdef", "oracle": "made:oracle",
    "oracle_fingerprint": "fedcba9876543210", "space": "dataset", "loss_space": "dataset", "oracle_space": "dataset",
    "sparse": "",
}  # fmt: skip
CARD = [["Oracle", "made:oracle"], ["What it is", "A simulated one."], ["Known biases", "It likes even numbers."]]


@dataclass(frozen=True)
class World:
    """What is drawn at random: chances, and names.

    Attributes:
        models: name → chance that it stays right on an accepted image.
        classes: names.
        photos: a class.
        standard: chance that a model is right on an original.
        validation: chance that the oracle accepts the first image.
        frames: images whose walks are kept step by step.
        random_walk: whether that baseline was run.
        options: what each walk setting has other than ``OPTIONS``.
        all_outputs: chance that a right answer among the classes is right among all outputs, too.
        kinship: warnings.
        source: image's number and class → its name.
        seed: of everything.
    """

    models: Mapping[str, float] = field(default_factory=lambda: {"timm:first": 0.7, "timm:second": 0.3})
    classes: Sequence[str] = ("cat", "dog", "fox", "owl")
    photos: int = 10
    standard: float = 0.9
    validation: float = 0.8
    frames: int = 2
    random_walk: bool = True
    options: Sequence[Mapping[str, Any]] = ({},)
    all_outputs: float = 1.0
    kinship: Sequence[str] = ()
    source: str = "image {} of {}"
    seed: int = 0


@dataclass
class _Tables:
    rows: list[dict[str, Any]] = field(default_factory=list)
    walks: list[dict[str, Any]] = field(default_factory=list)
    frames: list[dict[str, Any]] = field(default_factory=list)


def make_walks(path: Path, world: World | None = None, **changes: Any) -> Run:
    """A run of walks whose ends are drawn at random; ``changes`` are fields of ``World``."""
    world = World(**changes) if world is None else world
    rng = np.random.default_rng(world.seed)
    run = Run(path)
    about = {"verb": "perturb", "dataset": "made", "classes": list(world.classes), "models": list(world.models)}
    run.begin(about | {"seed": 0, "oracle_cards": [CARD], "kinship": list(world.kinship)})
    run.write_environment({"command": "holdfast perturb made --out runs/made", "python": "3.11"})
    run.write_samples(SAMPLES.empty_table())
    made = _Tables()
    for model, keeps in world.models.items():
        for number in range(world.photos * len(world.classes)):
            before = bool(rng.random() < world.standard)
            _row(made, world, model, number, "original", {"size": 64}, before, rng)
            for place, other in enumerate(world.options):
                _walk(made, world, model, number, place, OPTIONS | dict(other), before, keeps, rng, path)
    run.predictions.write(pa.Table.from_pylist(made.rows, schema=PREDICTIONS))
    Parts(path / "details" / "walks", WALKS).write(pa.Table.from_pylist(made.walks, schema=WALKS))
    if made.frames:
        Parts(path / "details" / "frames", FRAMES).write(pa.Table.from_pylist(made.frames, schema=FRAMES))
    return run


def _row(
    made: _Tables, world: World, model: str, number: int, condition: str, options: Mapping[str, Any], right: bool,
    rng: np.random.Generator, status: str = "ok", accepted: bool | None = None,
) -> str:  # fmt: skip
    place = number // world.photos
    label, other = world.classes[place], world.classes[(place + 1) % len(world.classes)]
    everywhere = right and bool(rng.random() < world.all_outputs)
    parameters = json.dumps(options, sort_keys=True)
    name = world.source.format(number, label)
    row_id = f"{model}-{number}-{fingerprint([condition, parameters])[:12]}"
    made.rows.append(
        {
            "task": "classify", "kind": "dynamic", "dataset": "made", "sample_id": name, "source_id": name, "split": "",
            "fold": -1, "condition": condition, "variant": "", "parameters": parameters, "seed": 0, "model": model,
            "trained_on": "", "protocol": "argmax", "label": label, "prediction": label if everywhere else other,
            "correct": everywhere, "prediction_restricted": label if right else other, "correct_restricted": right,
            "confidence": 0.9, "oracle": options.get("oracle"), "oracle_accepted": accepted, "oracle_score": 0.8,
            "status": status, "error": "the oracle saw an owl" if status == "rejected" else None,
            "image_sha256": row_id, "row_id": row_id, "run_id": "made", "schema_version": 1,
        }
    )  # fmt: skip
    return row_id


def _walk(
    made: _Tables, world: World, model: str, number: int, place: int, options: Mapping[str, Any], before: bool,
    keeps: float, rng: np.random.Generator, folder: Path,
) -> None:  # fmt: skip
    shown = bool(rng.random() < 0.95)
    reconstructed = before and bool(rng.random() < 0.95)
    _row(made, world, model, number, "reconstruction", options, reconstructed, rng, accepted=shown)
    validated = bool(rng.random() < world.validation)
    after = before and bool(rng.random() < keeps)
    steps = int(min(rng.geometric(0.04), options["steps"])) if validated else 0
    stop = "first_rejected" if not validated else "budget" if steps == options["steps"] else "rejected"
    status = "ok" if validated else "rejected"
    right = after if validated else before
    row_id = _row(made, world, model, number, "perturbed", options, right, rng, status, validated)
    made.walks.append(
        {
            "row_id": row_id, "steps": steps, "budget": options["steps"], "validated": validated, "stop": stop,
            "reconstruction_accepted": shown, "oracle_saw": "", "oracle_margin": 0.5,
            "latent_distance": 0.001 * steps, "image_distance": 0.002 * steps + 0.001 * rng.random(),
            "largest_change": 0.01 * steps, "perceptual_distance": 0.05 * rng.random() if validated else None,
            "colour_shift": 3 * rng.random() if validated else None, "image": "",
        }
    )  # fmt: skip
    if world.random_walk and validated:
        _row(made, world, model, number, "random_walk", options, before, rng, accepted=True)
    if number < world.frames:
        _film(made, world, number, row_id, steps, stop, right, before, folder / "frames", rng)


def _film(
    made: _Tables, world: World, number: int, row_id: str, steps: int, stop: str, right: bool, before: bool,
    folder: Path, rng: np.random.Generator,
) -> None:  # fmt: skip
    label, other = world.classes[0], world.classes[1]
    folder.mkdir(parents=True, exist_ok=True)
    last = steps if stop == "budget" else steps + 1
    turn = last // 2
    start = rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)
    for step in range(last + 1):
        picture = np.roll(cv2.resize(start, (64, 64), interpolation=cv2.INTER_CUBIC), step, axis=1)
        name = f"frames/{len(made.frames)}.png"
        cv2.imwrite(str(folder.parent / name), picture)
        said = before if step < turn else right
        made.frames.append(
            {
                "row_id": row_id, "step": step, "loss": 0.1 * step, "probability": 1 / (1 + 0.1 * step),
                "prediction": label if said else other, "oracle_score": 0.9 - 0.01 * step,
                "accepted": step <= steps, "image": name,
            }
        )  # fmt: skip
