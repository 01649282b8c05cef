"""``holdfast study step-size``: how validated share and FMR follow the size of a walk's steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from holdfast.core.errors import UserError
from holdfast.report.page.tables import Column
from holdfast.report.page.words import percent, short_names
from holdfast.report.study import Finding, StudyResult
from holdfast.studies import walks
from holdfast.studies.study import Setting, Study, StudyOptions, model_names, world_note

if TYPE_CHECKING:
    import pandas as pd

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
    ways = {f"{size:g}": {"step_size": size} for size in sizes}
    _, rows = walks.walk(options, model_names(settings["models"]), ways)
    rows = rows.assign(step_size=rows["way"].astype(float))
    return StudyResult(
        title="Step size",
        question=(
            "How does the size of a step change what is measured? The first image already contains one step, so a "
            f"large step may be rejected at once; a small one may not get anywhere in {settings['steps']} steps. Every "
            "scene walked against each model with each size. Intervals are at the 95 % level."
        ),
        findings=[_response(rows, sizes)],
        facts=[
            (str(rows["model"].nunique()), "models"),
            (str(len(sizes)), "step sizes"),
            (str(rows["sample_id"].nunique()), "test scenes"),
        ],
        note=world_note(options),
    )


STUDY = Study(
    run,
    (
        *walks.walk_settings(("embedded:resnet_rho95", "embedded:vit_rho95"), 48),
        Setting("step_sizes", (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3), "in units of the latent", (0.001, 0.1)),
    ),
)


def _response(rows: pd.DataFrame, sizes: list[float]) -> Finding:
    frame = walks.family(rows, ["model", "step_size"])
    sentences = []
    for model, own in rows.groupby("model", sort=False):
        ends = frame[frame["model"] == model].set_index("step_size").loc[[sizes[0], sizes[-1]]]
        first, last = (own[own["step_size"] == size] for size in (sizes[0], sizes[-1]))
        rate, ratio = (walks.difference(first, last, name) for name in ("validation_rate", "fmr"))
        validated, survived = (
            " to ".join(percent(value) for value in ends[name]) for name in ("validation_rate", "fmr")
        )
        sentences.append(
            f"{model}: from a step of {sizes[0]:g} to one of {sizes[-1]:g}, VR goes from {validated} "
            f"({walks.in_points(rate)}) and FMR from {survived} ({walks.in_points(ratio)})."
        )
    drawn = frame.assign(line=frame["model"].map(short_names(list(dict.fromkeys(frame["model"])))))
    step = Column("step_size", "Step", "number", digits=4)
    return Finding(
        "What the step size does",
        sentences,
        frame,
        [Column("model", "Model"), step, *walks.columns(), *walks.BOUNDS, *walks.COUNTS],
        chart=lambda width: walks.curves(
            drawn, width, line="line", x="step_size", panels=PANELS, across="step size", few=True
        ),
        caption="VR, PA and FMR against the step size",
    )
