"""The step of walks: its share of the latent's scale, and what the trials of other steps came to."""

from __future__ import annotations

from typing import Any, TypeGuard

from holdfast.core.lazy import pd
from holdfast.core.numbers import number, percent
from holdfast.reports.page.charts import FIT, chart_of, dot_layer, layer, tooltip
from holdfast.reports.page.figures import COLOURS, Chart, Figure
from holdfast.reports.page.parts import Heading, Part, Text
from holdfast.reports.page.tables import Column, Table
from holdfast.reports.walks.evidence import ReportWalks

_COUNTS = ("step_size", "share", "walks", "right", "validated", "validated_right")


def step_parts(walks: ReportWalks) -> list[Part]:
    """Return how long a step is against the latent; with trials, FMR over the step size as chart and table."""
    sentences, trials = [], []
    for run in walks.runs:
        spec = run.spec()
        scale, options = spec.get("latent_scale"), spec.get("walk")
        step = options.get("step_size") if isinstance(options, dict) else None
        if not (_above_zero(scale) and _above_zero(step)):
            continue
        name = f"{run.path.name}: " if len(walks.runs) > 1 else ""
        sentences.append(
            f"{name}A step of {number(step, 4)} is {percent(step / scale, 2)} of the latent's scale "
            f"({number(scale, 2)}, the standard deviation of its values)."
        )
        given = spec.get("step_trials")
        trials += [trial for trial in given if _usable(trial)] if isinstance(given, list) else []
    if not sentences:
        return []
    parts: list[Part] = [Heading("The step"), Text(sentences)]
    return [*parts, *_trial_parts(pd.DataFrame(trials))] if trials else parts


def _above_zero(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and value > 0


def _usable(trial: Any) -> bool:
    return isinstance(trial, dict) and all(isinstance(trial.get(name), (int, float)) for name in _COUNTS)


def _trial_parts(frame: pd.DataFrame) -> list[Part]:
    frame = frame.sort_values("step_size").reset_index(drop=True)
    frame["standard"] = frame["right"] / frame["walks"]
    frame["kept"] = frame["validated"] / frame["walks"]
    frame["perturbed"] = frame["validated_right"] / frame["validated"].where(frame["validated"] > 0)
    frame["fmr"] = frame["perturbed"] / frame["standard"].where(frame["standard"] > 0)
    known = frame.dropna(subset=["fmr"])
    columns = [
        Column("step_size", "Step", "number", digits=4), Column("share", "of the scale", "percent", digits=2),
        Column("walks", "Walks", "integer"), Column("standard", "SA", "percent"), Column("perturbed", "PA", "percent"),
        Column("kept", "VR", "percent"), Column("fmr", "FMR", "percent"),
        Column("first_failure", "First failure", "number", digits=1,
               hint="Median step at which an image is misclassified or rejected; empty if half of the walks meet none"),
    ]  # fmt: skip
    note = "Trials of --step-size auto on a few images, pooled over models: too few to compare models with."
    table = Table("step_trials", "Trials of the step", frame, columns, note)
    if len(known) < 2:
        return [table]
    said = "; ".join(f"{number(row['step_size'], 4)}: {percent(row['fmr'])}" for row in known.to_dict("records"))
    figure = Figure(
        "step_trials", "FMR over the size of a step", f"FMR by step size: {said}.",
        lambda width: _chart(known, width),
        "If a step is too short, FMR stays at 100 %; if it is too long, the oracle rejects the images.",
    )  # fmt: skip
    return [figure, table]


def _chart(frame: pd.DataFrame, width: int) -> Chart:
    x = {
        "field": "step_size",
        "type": "quantitative",
        "scale": {"type": "log"},
        "axis": {"title": "step", "tickCount": 5},
    }
    y = {"field": "fmr", "type": "quantitative", "scale": {"domainMin": 0}, "axis": {"title": "FMR", "format": "%"}}
    tip = tooltip({"step_size": "step"}, {"fmr": "FMR", "kept": "VR"})
    shown = frame[["step_size", "fmr", "kept"]]
    layers = [
        layer("line", {"x": x, "y": y}, color=COLOURS[0]),
        dot_layer({"x": x, "y": y, "tooltip": tip}, 64, color=COLOURS[0]),
    ]
    return chart_of(shown, 6, width=width, height=200, autosize=FIT, layer=layers)
