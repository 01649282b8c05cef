"""From runs to a choice: what names of weights stand for, what models cost, and the recommendation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import registry
from holdfast.core.conditions import scenario_of
from holdfast.core.errors import UserError
from holdfast.core.names import split_list
from holdfast.core.types import ORIGINAL
from holdfast.engine import core_count
from holdfast.models.torch_classifier import resolve_device
from holdfast.pipeline import speed
from holdfast.pipeline.jobs.environment import gpu_name
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.pipeline.specs import ChooseSpec as ChooseSpec
from holdfast.scenarios import find_scenario
from holdfast.stats.core.grid import chosen
from holdfast.stats.core.reduce import Counts
from holdfast.stats.models.choice import ModelChoice, ModelCost, choose, weigh
from holdfast.stats.models.recommendation import MEGA, Recommendation, recommend
from holdfast.store import Run

MEASURE, NONE = "measure", "none"


@dataclass(frozen=True)
class Chosen:
    """The numbers, the recommendation, how it was asked for, and the page."""

    choice: ModelChoice
    recommendation: Recommendation
    settings: Mapping[str, Any]
    page: Path = Path()


def members_of(counts: Counts) -> dict[str, list[str]]:
    """Return name of a scenario, alias, family or group → its conditions in the table that keep the object.

    The original belongs to none: it has a weight of its own.
    """
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
        try:
            weight = float(value)
        except ValueError:
            raise UserError(f"--weights reads name=number,name=number, which {part!r} is not") from None
        if not name.strip():
            raise UserError(f"--weights reads name=number,name=number, which {part!r} is not")
        if name.strip() in weights:
            raise UserError(f"--weights names {name.strip()} twice")
        weights[name.strip()] = weight
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
        "resamples": spec.resamples, "seed": spec.seed,
    }  # fmt: skip
    return Chosen(choice, recommend(choice), settings)


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
        given = speed.read_speeds(path)
        unknown = sorted(set(given) - set(counts.models))
        if unknown and not set(given) & set(counts.models):
            raise UserError(
                f"--speed {path} names {', '.join(unknown[:6])} and no model of these runs, which have "
                f"{', '.join(counts.models[:6])}"
            )
    device = resolve_device(spec.device)
    names = {name: text for name, text in speed.sources(runs).items() if name in counts.models}
    classes = next((listed for run in runs if (listed := run.spec().get("classes"))), None)
    measured = speed.measure(
        names, classes=classes, device=device, batch_size=spec.batch_size, timed=timed, progress=progress
    )
    costs = speed.merged(measured, given)
    if timed:
        machine = gpu_name() if device.startswith("cuda") else f"{device.upper()}, {core_count()} cores"
        timing = (
            f"Times are medians of {speed.FEWEST} to {speed.MOST} repeats on this machine ({machine}) with "
            f"{spec.batch_size} pictures of {speed.SIDE} × {speed.SIDE} a pass, preprocessing included."
        )
    else:
        timing = f"Times are those of {Path(spec.speed).name}." if given else "Speed was not measured."
    return costs, timing
