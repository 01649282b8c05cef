"""``holdfast study start`` and ``step-size``: where walks begin, and how large their steps are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.core.errors import UserError
from holdfast.report.page.tables import Column
from holdfast.report.page.words import percent, short_names
from holdfast.report.study import Finding, StudyResult
from holdfast.studies import walks
from holdfast.studies.study import Setting, Study, StudyOptions, dots_of, model_names, world_note

if TYPE_CHECKING:
    import pandas as pd

STARTS = {"clean": "clean image", "fgsm": "FGSM image"}

MODELS = ("embedded:resnet_rho95", "embedded:resnet_rho95_strong", "embedded:vit_rho95")


def run_start(options: StudyOptions) -> StudyResult:
    """Walk from both starts, and compare image by image."""
    epsilon = options.settings["epsilon"]
    if not 0 < epsilon < 1:
        raise UserError("epsilon must be a number between 0 and 1")
    ways = {words: {"start": start} for start, words in STARTS.items()}
    _, rows = walks.walk(options, model_names(options.settings["models"]), ways, fgsm_epsilon=epsilon)
    return StudyResult(
        title="Clean and FGSM start",
        question=(
            f"Does it matter where a walk begins? Every scene walked twice against each model: from the image itself, "
            f"and from the image after one step of FGSM (ε = {epsilon:g}) against the same model. SA is "
            "the accuracy on the originals, which both have in common; the accuracy before the first step is that on "
            "what the generator makes of the start. Intervals are at the 95 % level, differences paired by scene."
        ),
        findings=[_each_start(rows), _differences(rows)],
        facts={"models": rows["model"].nunique(), "test scenes": rows["sample_id"].nunique()},
        note=world_note(options),
    )


START_STUDY = Study(
    run_start, (*walks.walk_settings(MODELS, 96, step_size=0.03), Setting("epsilon", 0.003, "of FGSM, 0 to 1"))
)


def _each_start(rows: pd.DataFrame) -> Finding:
    frame = walks.family(rows, ["model", "way"])
    shown = frame.assign(name=frame["model"].map(short_names(list(dict.fromkeys(frame["model"])))))
    known = shown.dropna(subset="fmr").sort_values("fmr", kind="stable").to_dict("records")
    sentence = "No walk has an FMR: the oracle accepted none of the images, or no original was right."
    if known:
        worst, best = known[0], known[-1]
        sentence = (
            f"FMR lies between {percent(worst['fmr'])} ({worst['name']}, {worst['way']}) and {percent(best['fmr'])} "
            f"({best['name']}, {best['way']})."
        )
    return Finding(
        "Each start by itself",
        [sentence],
        frame,
        [Column("model", "Model"), Column("way", "Start"), *walks.columns(*walks.MEASURES), *walks.COUNTS],
        chart=dots_of(shown, "fmr", line="way", row="name", title="FMR = PA / SA"),
        caption="FMR by start",
    )


def _differences(rows: pd.DataFrame) -> Finding:
    import pandas as pd

    table, sentences = [], []
    compared = [name for name in walks.MEASURES if name != "standard_accuracy"]
    for model, own in rows.groupby("model", sort=False):
        clean, attacked = (own[own["way"] == words] for words in STARTS.values())
        row: dict[str, Any] = {"model": model}
        for measure in compared:
            change = walks.difference(clean, attacked, measure)
            row |= change.row(measure)
            if measure == "fmr":
                sentences.append(f"{model}: an FGSM start moves FMR by {walks.in_points(change)}.")
        table.append(row)
    title = "FGSM start less clean start"
    columns = [Column("model", "Model"), *walks.columns(*compared, kind="points")]
    return Finding(title, sentences, pd.DataFrame(table), columns, caption=title)


PANELS = {
    "validation_rate": ("VR: validated share", True),
    "perturbed_accuracy": ("PA: accuracy on validated images", True),
    "fmr": ("FMR = PA / SA", True),
}


def run_step_size(options: StudyOptions) -> StudyResult:
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
        facts={"models": rows["model"].nunique(), "step sizes": len(sizes), "test scenes": rows["sample_id"].nunique()},
        note=world_note(options),
    )


STEP_SIZE_STUDY = Study(
    run_step_size,
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
