"""``holdfast study step-size``: how validated share and FMR follow the size of a walk's steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from holdfast.core.errors import UserError
from holdfast.report.page.tables import Column
from holdfast.report.page.words import percent, short_names
from holdfast.report.study import Finding, StudyResult
from holdfast.studies import dynamic
from holdfast.studies.study import Setting, Study, StudyOptions

if TYPE_CHECKING:
    import pandas as pd

SETTINGS = (
    *dynamic.walk_settings(
        models=("embedded:resnet_rho95", "embedded:vit_rho95"), scenes=48, steps=10
    ),
    Setting("step_sizes", (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3), "in units of the latent", (0.001, 0.1)),
)  # fmt: skip
PANELS = {
    "validation_rate": ("VR: validated share", True),
    "perturbed_accuracy": ("PA: accuracy on validated images", True),
    "fmr": ("FMR = PA / SA", True),
}


def run(options: StudyOptions) -> StudyResult:
    """Walk with every step size, and show what it does."""
    settings = options.settings
    sizes = sorted(set(settings["step_sizes"]))
    if len({f"{size:g}" for size in sizes}) < max(2, len(sizes)) or not all(
        np.isfinite(size) and size > 0 for size in sizes
    ):
        raise UserError("step_sizes must be two or more numbers above 0")
    models = dynamic.models_of(settings)
    ways = {f"{size:g}": {"step_size": size} for size in sizes}
    _, walks = dynamic.walk_ways(options, ways, models)
    models, walks = dynamic.called(models), walks.assign(step_size=walks["way"].astype(float))
    frame = dynamic.family(walks, ["model", "step_size"])
    return StudyResult(
        title="Step size",
        question=(
            "How does the size of a step change what is measured? The first image already contains one step, so a "
            f"large step may be rejected at once; a small one may not get anywhere in {settings['steps']} steps. Every "
            "scene walked against each model with each size. Intervals are at the 95 % level."
        ),
        findings=[_response(frame, walks, models, sizes)],
        facts=[(str(len(models)), "models"), (str(len(sizes)), "step sizes"), (str(settings["scenes"]), "test scenes")],
        note=dynamic.note(options),
        runs=["runs/walks"],
    )


STUDY = Study(run, SETTINGS)


def _response(frame: pd.DataFrame, walks: pd.DataFrame, models: list[str], sizes: list[float]) -> Finding:
    sentences = []
    for model in models:
        ends = frame[frame["model"] == model].set_index("step_size").loc[[sizes[0], sizes[-1]]]
        own = walks[walks["model"] == model]
        first, last = (own[own["step_size"] == size] for size in (sizes[0], sizes[-1]))
        rate, ratio = (dynamic.difference(first, last, name) for name in ("validation_rate", "fmr"))
        validated, survived = (
            " to ".join(percent(value) for value in ends[name]) for name in ("validation_rate", "fmr")
        )
        sentences.append(
            f"{model}: from a step of {sizes[0]:g} to one of {sizes[-1]:g}, VR goes from {validated} "
            f"({dynamic.in_points(rate)}) and FMR from {survived} ({dynamic.in_points(ratio)})."
        )
    short = short_names(models)
    drawn = dynamic.tidy(
        frame.assign(line=frame["model"].map(short)), line="line", x="step_size", measures=list(PANELS)
    )
    shown = dynamic.columns("standard_accuracy", "validation_rate", "perturbed_accuracy", "fmr")
    return Finding(
        "What the step size does",
        sentences,
        frame,
        [
            Column("model", "Model"),
            Column("step_size", "Step", "number", digits=4),
            *shown,
            *dynamic.BOUNDS,
            *dynamic.COUNTS,
        ],
        chart=lambda width: dynamic.curves(
            drawn, width, lines=list(short.values()), panels=PANELS, across="step size", logarithmic=True, marks=True
        ),
        caption="VR, PA and FMR against the step size",
    )
