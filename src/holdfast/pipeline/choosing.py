"""From runs to a choice: what names of weights stand for, what models cost, and the recommendation, for parity too."""

from __future__ import annotations

import csv
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast import registry
from holdfast.core.errors import HoldfastError, UserError, first_line
from holdfast.core.files import safe_part
from holdfast.core.names import parse_name, scenario_of, split_list
from holdfast.core.networks import resolve_device
from holdfast.core.types import ORIGINAL
from holdfast.engine import core_count
from holdfast.models import is_detector, load_classifier
from holdfast.models.runtimes.onnx import external_files
from holdfast.pipeline.classifiers import modules_of, parameter_count
from holdfast.pipeline.jobs.progress import Progress, gpu_name, silent, with_progress
from holdfast.pipeline.specs import ChooseSpec as ChooseSpec
from holdfast.scenarios import find_scenario
from holdfast.stats.core.grid import chosen
from holdfast.stats.core.reduce import Counts
from holdfast.stats.models.choice import ModelChoice, ModelCost, choose, weigh
from holdfast.stats.models.recommendation import MEGA, Recommendation, recommend
from holdfast.store import Run

if TYPE_CHECKING:
    import pandas as pd


SIDE = 256  # pixels of the square images of noise that models are timed on
FEWEST, MOST = 3, 15
LONGEST = 10.0  # Repeats, at least and at most, and seconds after which no other one begins
COLUMNS = ("model", "milliseconds")


def sources(runs: Iterable[Run]) -> dict[str, str]:
    """Return name of a model in the table → the name that loads it."""
    # Of networks that were trained in a run, the first fold's trained on originals stands for all; if the run has
    # none any more the name is empty: the architecture's own weights may be of another size and see larger images.
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
    batch_size: int = 8,  # images a pass
    timed: bool = True,  # whether speed is measured, too
    progress: Progress = silent,
) -> dict[str, ModelCost]:
    """Measure size and speed of models; one that cannot be loaded or run has a reason instead."""
    # A repeat is a batch of RGB images of 256 × 256 noise through ``predict``: preprocessing, network and
    # probabilities. A first pass warms up and does not count.
    costs: dict[str, ModelCost] = {}
    for name, text in with_progress(names.items(), progress, "speed", len(names)):
        if not text:
            costs[name] = ModelCost(reason="its trained weights are not in the run any more")
            continue
        try:
            costs[name] = _measured(text, classes, device, batch_size, timed)
        except HoldfastError as error:
            costs[name] = ModelCost(reason=str(error))
        except Exception as error:  # of a library, about one model
            costs[name] = ModelCost(reason=f"{type(error).__name__}: {first_line(error)}")
    return costs


def _measured(text: str, classes: Sequence[str] | None, device: str, batch_size: int, timed: bool) -> ModelCost:
    model = load_classifier(text, device=device, classes=classes)
    parameters, size = _size(model, text)
    cost = ModelCost(parameters, size, reason="" if size is not None else "its weights cannot be counted")
    if not timed:
        return replace(cost, reason=cost.reason or "speed was not measured")
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8) for _ in range(batch_size)]
    model.predict(pictures)
    times: list[float] = []
    begun = time.perf_counter()
    while len(times) < FEWEST or (len(times) < MOST and time.perf_counter() - begun < LONGEST):
        start = time.perf_counter()
        model.predict(pictures)  # it returns NumPy arrays, so a GPU is done then
        times.append(1000 * (time.perf_counter() - start) / batch_size)
    fast, middle, slow = quantiles(times, n=4, method="inclusive")
    return replace(cost, milliseconds=middle, fast=fast, slow=slow)


def architecture_facts(
    text: str, *, classes: Sequence[str] | None = None, device: str = "cpu"
) -> tuple[int | None, int | None, str]:
    """Return a model's parameters, the longer side of its input (None if unknown) and its attention heads.

    Heads are those of a stage each, such as ``3/6/12/24``; one number if all stages have it, empty without attention.
    """
    model = load_classifier(text, device=device, classes=classes)
    sides = getattr(getattr(model, "preprocessing", None), "size", None)
    heads = [
        count
        for module in modules_of(model)
        for part in module.modules()
        if isinstance(count := getattr(part, "num_heads", None), int)
    ]
    return _size(model, text)[0], max(sides) if sides else None, "/".join(str(count) for count, _ in groupby(heads))


def _size(model: Any, text: str) -> tuple[int | None, int | None]:
    """Return learned numbers, and bytes of the weights: of the file if one is named, else in memory."""
    parameters = held = None
    if modules := modules_of(model):
        tensors = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
        held = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
        parameters = parameter_count(model)
    name = parse_name(text)
    files = [Path(name.tag)] if name.scheme == "torch" and name.tag else []
    if name.scheme == "local-dir":
        files = [Path(name.whole) / "model.safetensors"]
    elif name.scheme in ("onnx", "openvino", "litert", "tensorrt"):
        file = Path(name.whole)
        files = [file, file.with_suffix(".bin"), *(external_files(file) if file.suffix == ".onnx" else [])]
    sizes = [file.stat().st_size for file in files if file.is_file()]
    return parameters, sum(sizes) if sizes else held


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
        numbers = ("milliseconds", "parameters", "bytes")
        values = {key: _number(row.get(key), f"--speed {path}, line {place}: {key}") for key in numbers}
        known = {key: None if values[key] is None else round(values[key] or 0) for key in ("parameters", "bytes")}
        reason = "" if values["milliseconds"] is not None else f"no time in {path.name}"
        costs[name] = ModelCost(**known, milliseconds=values["milliseconds"], reason=reason)
    return costs


def _number(text: str | None, where: str) -> float | None:
    if text is None or not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise UserError(f"{where} must be a number of 0 or more, not {text!r}")
    return value


def merged(measured: Mapping[str, ModelCost], given: Mapping[str, ModelCost]) -> dict[str, ModelCost]:
    """Return what a file says, and what was measured of the rest; a file's size wins only if it has one."""
    costs = dict(measured)
    for name, cost in given.items():
        own = measured.get(name, ModelCost())
        costs[name] = replace(
            cost,
            parameters=own.parameters if cost.parameters is None else cost.parameters,
            bytes=own.bytes if cost.bytes is None else cost.bytes,
        )
    return costs


MEASURE, NONE = "measure", "none"


@dataclass(frozen=True)
class Chosen:
    """The numbers, the recommendation, how it was asked for, and the page."""

    choice: ModelChoice
    recommendation: Recommendation
    settings: Mapping[str, Any]
    page: Path = Path()


def members_of(counts: Counts) -> dict[str, list[str]]:
    """Return name of a scenario, alias, family or group → its conditions in the table that keep the object."""
    # The original belongs to none: it has a weight of its own.
    members: dict[str, list[str]] = {}
    families: dict[str, list[str]] = {}
    for condition in chosen(counts, None):
        if condition == ORIGINAL:
            continue
        scenario = scenario_of(condition)
        names = [scenario]
        if scenario in registry.scenarios:
            definition = find_scenario(scenario)
            names += definition.aliases
            for wider in dict.fromkeys(group for group in (definition.family, definition.group) if group):
                families.setdefault(wider, []).append(condition)
        for name in names:
            members.setdefault(name, []).append(condition)
    return families | members


def read_weights(text: str) -> dict[str, float]:
    """Read ``blur=2,random_background=3``; parameters may hold ``=``, too: the number is behind the last one."""
    weights: dict[str, float] = {}
    for part in split_list(text):
        name, _, value = part.rpartition("=")
        name = name.strip()
        try:
            weight = float(value)
        except ValueError:
            name = ""
        if not name:
            raise UserError(f"--weights reads name=number,name=number, which {part!r} is not")
        if name in weights:
            raise UserError(f"--weights names {name} twice")
        weights[name] = weight
    return weights


def choose_model(counts: Counts, runs: Sequence[Run], spec: ChooseSpec, *, progress: Progress = silent) -> Chosen:
    """Weigh, measure what models cost, and recommend."""
    asked = read_weights(spec.weights) if isinstance(spec.weights, str) else spec.weights
    weights = weigh(asked, counts, members_of(counts), accuracy_weight=spec.accuracy_weight)
    costs, timing = costs_of(counts, runs, spec, progress)
    choice = choose(
        counts, weights, costs=costs, limit_bytes=None if spec.limit_size is None else MEGA * spec.limit_size,
        limit_milliseconds=spec.limit_time, outcome=spec.outcome, average=spec.average, resamples=spec.resamples,
        seed=spec.seed,
    )  # fmt: skip
    settings = {
        "weights": {scenario.name: scenario.weight for scenario in weights}, "limit_megabytes": spec.limit_size,
        "limit_milliseconds": spec.limit_time, "timing": timing, "outcome": spec.outcome, "average": spec.average,
        "resamples": spec.resamples, "seed": spec.seed, "slice": spec.slice,
    }  # fmt: skip
    return Chosen(choice, recommend(choice), settings)


def recorded_sizes(runs: Sequence[Run]) -> dict[str, ModelCost]:
    """Return the numbers of parameters that runs recorded, by the model's name."""
    return {
        name: ModelCost(int(number)) for run in runs for name, number in run.spec().get("model_parameters", {}).items()
    }


def recorded_costs(
    runs: Sequence[Run], spec: ChooseSpec, count: Callable[[], Counts]
) -> tuple[dict[str, ModelCost], str]:
    """Return size and speed of the models: parameters as runs recorded them, and times if they are asked for."""
    recorded = recorded_sizes(runs)
    if spec.speed == NONE:
        return recorded, ""
    costs, timing = costs_of(count(), runs, spec, silent)
    return recorded | costs, timing


def costs_of(
    counts: Counts, runs: Sequence[Run], spec: ChooseSpec, progress: Progress
) -> tuple[dict[str, ModelCost], str]:
    """Return costs by the model's name in the statistics, and a sentence on how they were measured."""
    given: dict[str, ModelCost] = {}
    timed = spec.speed == MEASURE
    if spec.speed not in (MEASURE, NONE):
        path = Path(spec.speed)
        if not path.is_file():
            raise UserError(f"--speed is measure, none or a CSV file; there is no file {spec.speed}")
        given = read_speeds(path)
        unknown = sorted(set(given) - set(counts.models))
        if unknown and not set(given) & set(counts.models):
            raise UserError(
                f"--speed {path} names {', '.join(unknown[:6])} and no model of these runs, which have "
                f"{', '.join(counts.models[:6])}"
            )
    device = resolve_device(spec.device)
    names = {name: text for name, text in sources(runs).items() if name in counts.models}
    classes = next((listed for run in runs if (listed := run.spec().get("classes"))), None)
    measured = measure(
        names, classes=classes, device=device, batch_size=spec.batch_size, timed=timed, progress=progress
    )
    costs = merged(measured, given)
    if timed:
        machine = gpu_name() if device.startswith("cuda") else f"{device.upper()}, {core_count()} cores"
        timing = (
            f"Times are medians of {FEWEST} to {MOST} repeats on this machine ({machine}) with "
            f"{spec.batch_size} images of {SIDE} × {SIDE} a pass, preprocessing included."
        )
    else:
        timing = f"Times are those of {Path(spec.speed).name}." if given else "Speed was not measured."
    return costs, timing


_SHARED_NAMES = 0.9  # of the outputs: spellings differ between libraries


def check_comparable(old: str, new: str, *, classes: Sequence[str], outcome: str, device: str) -> list[str]:
    """Return sentences on how the two prepare their images differently; a UserError if answers cannot be compared.

    Loads both models, on the processor, one after the other.
    """
    described = []
    for name in (old, new):
        if is_detector(name):
            raise UserError(f"{name} is a detector; parity compares classifiers")
        model = load_classifier(name, device=device, classes=classes)
        about = dict(getattr(getattr(model, "preprocessing", None), "description", {}))
        described.append((model.name, set(model.labels.names), about))
    (first, names, seen), (second, other_names, also_seen) = described
    if first == second:
        raise UserError(f"both models are called {first}; add ?name=… to one of them")
    if outcome == "full" and len(names & other_names) < _SHARED_NAMES * min(len(names), len(other_names)):
        raise UserError(
            f"{first} and {second} call their outputs differently ({min(names - other_names)!r} is not an output of "
            f"the second): name them with ?labels= or holdfast compare --sidecar, or use --accuracy restricted"
        )
    return [
        f"{second} prepares images otherwise: {key} is {_shown(also_seen[key])}, not {_shown(seen[key])}"
        for key in seen
        if key in also_seen and _shown(seen[key]) != _shown(also_seen[key])
    ]


def _shown(value: Any) -> str:
    return (
        "/".join(f"{each:g}" if isinstance(each, (int, float)) else str(each) for each in value)
        if isinstance(value, (tuple, list))
        else str(value)
    )


def costs(names: dict[str, str], *, classes: Sequence[str], device: str, progress: Progress = silent) -> pd.DataFrame:
    """Return size and speed of models, a row each; ``names``: of ``speed.sources``."""
    import pandas as pd

    measured = measure(names, classes=classes, device=device, batch_size=1, progress=progress)
    return pd.DataFrame([{"model": name, **asdict(cost)} for name, cost in measured.items()])
