"""How large and how fast the models of a run are, measured on this machine, or read from a file."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import quantiles
from typing import Any

import numpy as np

from holdfast.core.errors import HoldfastError, UserError, first_line
from holdfast.core.files import safe_part
from holdfast.core.names import parse_name
from holdfast.core.protocols import Classifier
from holdfast.core.types import ORIGINAL
from holdfast.models import load_classifier
from holdfast.models.onnx import external_files
from holdfast.models.options import untagged
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.stats.models.choice import ModelCost
from holdfast.store import Run

SIDE = 256
"""Pixels of the square pictures of noise that models are timed on."""

FEWEST, MOST = 3, 15
LONGEST = 10.0
"""Repeats, at least and at most, and seconds after which no other one begins."""

COLUMNS = ("model", "milliseconds")


def sources(runs: Iterable[Run]) -> dict[str, str]:
    """Return name of a model in the table → the name that loads it.

    Of networks that were trained in a run, the first fold's trained on originals stands for all; where the run has
    none any more the name is empty: the architecture's own weights may be of another size and see larger pictures.
    """
    texts_of_models: dict[str, str] = {}
    for run in runs:
        spec = run.spec()
        texts = [str(text) for text in spec.get("models", [])]
        shown = [str(name) for name in spec.get("model_names", texts)]
        for name, text in zip(shown, texts, strict=False):
            folders = sorted((run.path / "models" / safe_part(name.replace(":", "-"))).glob("*/fold-*"))
            own = [folder for folder in folders if folder.parent.name == safe_part(ORIGINAL)] or folders
            made_here = spec.get("verb") == "train"
            texts_of_models.setdefault(name, f"local-dir:{own[0]}" if own else "" if made_here else text)
    return texts_of_models


def measure(
    names: Mapping[str, str],  # of ``sources``
    *,
    classes: Sequence[str] | None = None,  # the dataset's, for models that answer with class names
    device: str = "auto",  # where they run
    batch_size: int = 8,  # pictures a pass
    timed: bool = True,  # whether speed is measured, too
    progress: Progress = silent,
) -> dict[str, ModelCost]:
    """Measure size and speed of models; one that cannot be loaded or run has a reason instead.

    A repeat is a batch of RGB pictures of 256 × 256 noise through ``predict``: preprocessing, network and
    probabilities. A first pass warms up and does not count.
    """
    costs: dict[str, ModelCost] = {}
    for done, (name, text) in enumerate(names.items()):
        progress("speed", done, len(names))
        if not text:
            costs[name] = ModelCost(reason="its trained weights are not in the run any more")
            continue
        try:
            costs[name] = _measured(text, classes, device, batch_size, timed)
        except HoldfastError as error:
            costs[name] = ModelCost(reason=str(error))
        except Exception as error:  # of a library, about one model
            costs[name] = ModelCost(reason=f"{type(error).__name__}: {first_line(error)}")
    progress("speed", len(names), len(names))
    return costs


def _measured(text: str, classes: Sequence[str] | None, device: str, batch_size: int, timed: bool) -> ModelCost:
    model = load_classifier(text, device=device, classes=classes)
    parameters, size = _size(model, text)
    cost = ModelCost(parameters, size, reason="" if size is not None else "its weights cannot be counted")
    if not timed:
        return replace(cost, reason=cost.reason or "speed was not measured")
    times = _times(model, batch_size)
    fast, middle, slow = quantiles(times, n=4, method="inclusive")
    return replace(cost, milliseconds=middle, fast=fast, slow=slow)


def size_and_input(
    text: str, *, classes: Sequence[str] | None = None, device: str = "cpu"
) -> tuple[int | None, int | None]:
    """Return a model's learned numbers and the longer side of its input; None where it does not say."""
    model = load_classifier(text, device=device, classes=classes)
    sides = getattr(getattr(model, "preprocessing", None), "size", None)
    return _size(model, text)[0], max(sides) if sides else None


def _times(model: Classifier, batch_size: int) -> list[float]:
    """Return milliseconds per image for each repeat; ``predict`` returns NumPy arrays, so a GPU is done then."""
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8) for _ in range(batch_size)]
    model.predict(pictures)
    times: list[float] = []
    begun = time.perf_counter()
    while len(times) < FEWEST or (len(times) < MOST and time.perf_counter() - begun < LONGEST):
        start = time.perf_counter()
        model.predict(pictures)
        times.append(1000 * (time.perf_counter() - start) / batch_size)
    return times


def parameter_count(model: Any) -> int:
    """Return how many numbers a loaded model has learned; 0 where it does not show its network."""
    return _size(model, "")[0] or 0


def _size(model: Any, text: str) -> tuple[int | None, int | None]:
    """Return learned numbers, and bytes of the weights: of the file where one is named, else in memory."""
    import torch

    modules = [value for value in getattr(model, "__dict__", {}).values() if isinstance(value, torch.nn.Module)]
    parameters = held = None
    if modules:
        learned = [parameter for module in modules for parameter in module.parameters()]
        tensors = [*learned, *(buffer for module in modules for buffer in module.buffers())]
        parameters = sum(parameter.numel() for parameter in learned)
        held = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    files = [file for file in _files(text) if file.is_file()]
    return parameters, sum(file.stat().st_size for file in files) if files else held


def _files(text: str) -> list[Path]:
    """Return the weight files that a name leads to, where it names some."""
    name = parse_name(text or "none:")
    if name.scheme == "local-dir":
        return [Path(untagged(name)) / "model.safetensors"]
    if name.scheme == "onnx":
        file = Path(untagged(name))
        return [file, *external_files(file)]
    return [Path(name.tag)] if name.scheme == "torch" and name.tag else []


def read_speeds(path: Path) -> dict[str, ModelCost]:
    """Read costs from a CSV: ``model``, ``milliseconds`` (per image), maybe ``parameters`` and ``bytes``."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
            if missing:
                raise UserError(f"--speed {path} has no column {' and '.join(missing)}; it needs model,milliseconds")
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"--speed {path} cannot be read: {first_line(error)}") from error
    costs: dict[str, ModelCost] = {}
    for place, row in enumerate(rows, start=2):
        name = (row["model"] or "").strip()
        if not name or name in costs:
            raise UserError(f"--speed {path}, line {place}: {'this model is there twice' if name else 'no model'}")
        values = {key: _number(row.get(key), f"--speed {path}, line {place}: {key}") for key in _NUMBERS}
        known = {key: None if values[key] is None else round(values[key] or 0) for key in ("parameters", "bytes")}
        reason = "" if values["milliseconds"] is not None else f"no time in {path.name}"
        costs[name] = ModelCost(**known, milliseconds=values["milliseconds"], reason=reason)
    return costs


_NUMBERS = ("milliseconds", "parameters", "bytes")


def _number(text: str | None, where: str) -> float | None:
    if text is None or not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise UserError(f"{where} is a number from 0 on, not {text!r}")
    return value


def merged(measured: Mapping[str, ModelCost], given: Mapping[str, ModelCost]) -> dict[str, ModelCost]:
    """Return what a file says, and what was measured of the rest; a file's size wins only where it has one."""
    costs = dict(measured)
    for name, cost in given.items():
        own = measured.get(name, ModelCost())
        costs[name] = replace(
            cost,
            parameters=own.parameters if cost.parameters is None else cost.parameters,
            bytes=own.bytes if cost.bytes is None else cost.bytes,
        )
    return costs
