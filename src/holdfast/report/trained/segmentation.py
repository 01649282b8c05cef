"""Section: how well models segment the object under each scenario, and what a scenario costs them."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.schema import CURVES, JOBS
from holdfast.core.types import ORIGINAL
from holdfast.report.page import charts, plots
from holdfast.report.page.figures import Figure
from holdfast.report.page.parts import (
    Heading,
    Listing,
    Notice,
    Part,
    Picture,
    Pictures,
    Section,
    ShownFigure,
    ShownTable,
    Text,
)
from holdfast.report.page.tables import Column, Table
from holdfast.report.page.words import estimate, listing, number, percent, plural, points, short_names, span
from holdfast.report.static.evidence import shown
from holdfast.report.static.regression import GROUPS
from holdfast.report.trained.segmented import Segmented
from holdfast.report.trained.training import lines, thinned
from holdfast.stats.effects.segments import SEGMENT, WITHIN
from holdfast.stats.regression.fit import Regression
from holdfast.store import Parts, Run, read_table

if TYPE_CHECKING:
    import pandas as pd

STRIPS = 12
"""Pictures of the gallery."""

PNG = 2_000_000
"""Bytes of a kept picture; a larger file is none of ours."""


def segmentation(found: Segmented) -> Section:
    """Tables, charts, the regression and a few pictures."""
    section = Section("segmentation", "Segmentation")
    if found.frame.empty:
        notice = Notice("No picture was segmented; the reasons are below.")
        section.parts = [notice, *_trainings(found), *_errors(found)]
        return section
    section.lead = [_finding(found), *_cost(found), _how(found)]
    section.parts = [
        ShownFigure(_chart(found)),
        ShownTable(_table(found)),
        ShownFigure(_density(found)),
        ShownTable(_class_table(found)),
        *_gallery(found),
        *_fitted(found),
        *_trainings(found),
        *_errors(found),
    ]
    return section


def _finding(found: Segmented) -> str:
    first = found.table[found.table["condition"] == found.conditions[0]].set_index("model")
    rows: dict[Any, Any] = first.to_dict("index")
    said = [
        f"{found.short[name]} {estimate(row['miou'], row['miou_low'], row['miou_high'])}"
        for name in found.models
        if (row := rows.get(name)) and not name.endswith(WITHIN)  # on originals it is the same
    ]
    return f"Mean IoU under {shown(found.conditions[0])}: {listing(said)}."


def _cost(found: Segmented) -> list[str]:
    """What the worst condition costs each of a few models."""
    lost = found.table.dropna(subset=["drop"])
    if lost.empty:
        return []
    crossed = lost[~lost["model"].str.endswith(WITHIN)]
    mean = crossed.groupby("condition")["drop"].mean().sort_values(ascending=False)
    worst = str(mean.index[0])
    rows: dict[Any, Any] = lost[lost["condition"] == worst].set_index("model").to_dict("index")
    said = [
        f"{found.short[name]} {points(row['drop'])} ({span(row['drop_low'], row['drop_high'])})"
        for name in found.models
        if (row := rows.get(name)) and not name.endswith(WITHIN)
    ]
    return [f"{shown(worst).capitalize()} costs most: {listing(said)} of mean IoU, against the same photos' originals."]


def _how(found: Segmented) -> str:
    return (
        "IoU is what truth and answer share of a class's pixels, over what either has. The boundary score asks how "
        "much of the two outlines lies within 0.75 % of the picture's diagonal of the other. Where a scenario moves "
        "the object, the truth moves with it."
    )


def _tidy(found: Segmented, measure: str) -> pd.DataFrame:
    frame = found.table
    return frame.assign(
        model=frame["model"].map(found.short), row=frame["condition"].map(shown), estimate=frame[measure],
        low=frame[f"{measure}_low"], high=frame[f"{measure}_high"],
    )[["model", "row", "estimate", "low", "high"]]  # fmt: skip


def _chart(found: Segmented) -> Figure:
    tidy = _tidy(found, "miou")
    models = [found.short[name] for name in found.models]
    rows = [shown(name) for name in found.conditions]
    return Figure(
        "segmentation",
        "Mean IoU of every model under every condition, with 95 % intervals",
        _finding(found) + " ".join(["", *_cost(found)]),
        lambda width: charts.dots(tidy, width, models=models, rows=rows, title="mean IoU", domain=(0, 1)),
    )


def _table(found: Segmented) -> Table:
    places = {name: place for place, name in enumerate(found.conditions)}
    order = {name: place for place, name in enumerate(found.models)}
    frame = found.table.sort_values(
        ["condition", "model"], key=lambda one: one.map(places if one.name == "condition" else order)
    )
    columns = [
        Column("condition", "Condition", show=shown),
        Column("model", "Model", show=lambda name: found.short.get(name, name)),
        Column("miou", "Mean IoU", "percent", "miou_low", "miou_high"),
        Column(
            "drop", "Lost", "points", "drop_low", "drop_high", hint="mean IoU of the same photos' originals minus this"
        ),
        Column("pixel_accuracy", "Pixels right", "percent", "pixel_accuracy_low", "pixel_accuracy_high"),
        Column("boundary_f", "Boundary F", "percent", "boundary_f_low", "boundary_f_high"),
        Column("n", "Pictures", "integer"),
    ]
    return Table("segmentation", "Segmentation by condition and model", frame, columns)


def _density(found: Segmented) -> Figure:
    frame = found.classes.assign(
        row=found.classes["class"], column=found.classes["condition"].map(shown), estimate=found.classes["iou"],
        model=found.classes["model"].map(found.short),
    )[["model", "row", "column", "estimate", "n"]]  # fmt: skip
    rows = [str(name) for name in frame.groupby("row")["estimate"].mean().sort_values().index]
    columns = [shown(name) for name in found.conditions]
    models = [found.short[name] for name in found.models]
    worst = frame.sort_values("estimate").iloc[0]
    said = (
        f"The lowest IoU is {percent(worst['estimate'])}: {worst['row']} under {worst['column']} by {worst['model']}."
    )
    if len(models) == 1:
        return Figure(
            "segmentation_classes", "IoU by class and condition", said,
            lambda width: charts.density(frame, width, rows=rows, columns=columns, measure="IoU"),
        )  # fmt: skip
    return Figure(
        "segmentation_classes", "IoU by class and condition, a panel a model", said,
        lambda width: charts.density_panels(
            frame, width, rows=rows, columns=columns, models=models, measure="IoU"
        ),
    )  # fmt: skip


def _class_table(found: Segmented) -> Table:
    columns = [
        Column("class", "Class"),
        Column("condition", "Condition", show=shown),
        Column("model", "Model", show=lambda name: found.short.get(name, name)),
        Column("iou", "IoU", "percent", "iou_low", "iou_high"),
        Column("pixel_accuracy", "Its pixels found", "percent", "pixel_accuracy_low", "pixel_accuracy_high"),
        Column("boundary_f", "Boundary F", "percent", "boundary_f_low", "boundary_f_high"),
        Column("boundary_precision", "Boundary precision", "percent"),
        Column("boundary_recall", "Boundary recall", "percent"),
        Column("n", "Pictures", "integer"),
    ]
    frame = found.classes.sort_values("iou", kind="stable")
    caption = "Segmentation by class, the lowest IoU first"
    return Table("segmentation_classes", caption, frame, columns, shown=20, folded=True)


def _gallery(found: Segmented) -> list[Part]:
    """A few pictures beside the truth and the answers of the best model: originals and what harms most."""
    wanted = found.conditions[:3]
    rows = found.frame.drop_duplicates(["row_id", "model"])
    rows = rows[(rows["model"] == found.models[0]) & rows["condition"].isin(wanted)]
    order = {name: place for place, name in enumerate(wanted)}
    rows = rows.assign(_order=rows["condition"].map(order)).sort_values(["label", "sample_id", "_order"])
    strips: list[Picture] = []
    for row in rows.to_dict("records"):
        file = _strip(found.runs, str(row["row_id"]))
        if file is not None and len(strips) < STRIPS:
            strips.append(_picture(file, f"{row['label']}, {shown(row['condition'])}"))
    if not strips:
        return []
    text = (
        f"Above the picture and the object as it is, below what {found.short[found.models[0]]} answers and where it is "
        "right (green), misses the object (orange) or sees one where none of its class is (blue): originals and the "
        "conditions that harm most. Every class has its colour."
    )
    return [Heading("Some of the pictures"), Text([text]), Pictures(strips)]


def _strip(runs: Sequence[Run], row: str) -> Path | None:
    files = (run.path / "segments" / f"{row}.png" for run in runs)
    return next((file for file in files if file.is_file() and file.stat().st_size <= PNG), None)


def _picture(file: Path, caption: str) -> Picture:
    import PIL.Image

    with PIL.Image.open(file) as opened:
        width, height = opened.size
    return Picture(caption, base64.b64encode(file.read_bytes()).decode(), width, height)


def _fitted(found: Segmented) -> list[Part]:
    """The regression of accuracies, on IoU."""
    fitted = found.regression
    parts: list[Part] = [Heading("IoU ~ model + scenario + class")]
    if fitted.reason:
        return [*parts, Notice(fitted.reason)]
    said = (
        f"The additive model explains {percent(fitted.adjusted_r_squared, 0)} of the variance between "
        f"{plural(fitted.n, 'cell')} (adjusted R²); what is left over has a standard deviation of "
        f"{points(fitted.sy_x)}. RMSE {number(fitted.rmse, 4)}, AICc {number(fitted.aicc, 1)}. The background is "
        "left out."
    )
    columns = [
        Column("term", "Term"),
        Column("estimate", "Estimate", "points", "low", "high"),
        Column("standard_error", "Standard error", "points", digits=2),
        Column("t", "t", "number", digits=2),
        Column("p", "p", "p"),
        Column("stars", "Stars"),
    ]
    table = Table(
        "segmentation_coefficients", "Coefficients, in points of IoU", fitted.coefficients, columns, folded=True
    )
    sentences = [text.replace("an accuracy", "an IoU").replace("accuracy", "IoU") for text in fitted.sentences]
    told: list[Part] = [Text([said, *fitted.notes]), ShownFigure(_coefficients(found, fitted, said)), ShownTable(table)]
    return [*parts, *told, Listing("Every coefficient in a sentence", sentences)]


def _coefficients(found: Segmented, fitted: Regression, said: str) -> Figure:
    frame = fitted.coefficients
    parts = frame["term"].str.extract(re.compile(r"^(model|scenario|class)\[(.*)\]$", re.DOTALL))
    names = parts[1].where(parts[0] != "scenario", parts[1].map(shown, na_action="ignore"))
    names = names.where(parts[0] != "model", parts[1].map(lambda name: found.short.get(name, name), na_action="ignore"))
    tidy = frame.assign(group=parts[0].map(GROUPS), row=names).dropna(subset=["group", "low"])
    tidy = tidy.sort_values("estimate", kind="stable")[["group", "row", "estimate", "low", "high", "stars"]]
    groups = [name for name in GROUPS.values() if (tidy["group"] == name).any()]
    against = listing([found.short.get(name, shown(name)) for name in fitted.references.values()])
    return Figure(
        "segmentation_coefficients",
        "Coefficients of the regression in points of IoU, with 95 % intervals",
        said,
        lambda width: plots.coefficients(tidy, width, groups=groups),
        f"Against the reference: {against}. Hollow marks may be chance (p ≥ .05).",
    )


def _trainings(found: Segmented) -> list[Part]:
    """How the trainings went, where these models were trained here."""
    import pandas as pd

    runs = [run for run in found.runs if (run.path / "jobs.parquet").is_file()]
    if not runs:
        return []
    jobs = pd.concat([_frame(read_table(run.path / "jobs.parquet", JOBS)) for run in runs])
    curves = pd.concat([_frame(Parts(run.path / "curves", CURVES).rows()) for run in runs])
    jobs = jobs[jobs["task"] == SEGMENT]
    curves = curves[curves["job"].isin(jobs["job"])]
    failed = jobs[jobs["status"] != "ok"]
    recipe = runs[0].spec().get("trained_by") or {}
    said = (
        f"{plural(len(jobs), 'training')}, {number(float(jobs['seconds'].sum()) / 60, 1)} minutes in all. Recipe "
        f"{runs[0].spec().get('recipe')}: {recipe.get('optimiser')} at {recipe.get('rate')}, at most "
        f"{recipe.get('epochs')} epochs in batches of {recipe.get('batch_size')}, {recipe.get('size')} pixels. The "
        "epoch with the best mean IoU on validation photos was kept; test photos took no part in that choice."
    )
    parts: list[Part] = [Heading("How they were trained"), Text([said])]
    if len(failed):
        told = [f"{row['job']}: {row['error']}" for row in failed.to_dict("records")]
        parts.append(Listing(f"Trainings that failed ({len(failed)})", told, open=len(failed) <= 6))
    if len(curves):
        parts.append(ShownFigure(_curves(curves)))
    columns = [
        Column("model", "Network"),
        Column("trained_on", "Trained on", show=shown),
        Column("fold", "Test fold", "integer"),
        Column("status", "Status"),
        Column("epochs", "Epochs", "integer"),
        Column("best_epoch", "Best epoch", "integer"),
        Column("validation", "Validation mean IoU", "percent"),
        Column("train_images", "Training images", "integer"),
        Column("seconds", "Seconds", "integer"),
    ]
    return [*parts, ShownTable(Table("segmentation_jobs", "The trainings", jobs, columns, folded=True))]


def _curves(curves: pd.DataFrame) -> Figure:
    short = short_names(sorted(curves["model"].unique()))
    mean = thinned(curves, ["miou"])
    conditions = sorted(mean["trained_on"].unique(), key=lambda name: (name != ORIGINAL, name))
    frame = mean.assign(
        model=mean["model"].map(short), panel=mean["trained_on"].map(shown), value=mean["miou"],
        position=mean["trained_on"].map({name: place for place, name in enumerate(conditions)}),
    )[["panel", "position", "model", "split", "epoch", "value"]]  # fmt: skip
    last = mean[mean["last"] & (mean["split"] == "validation")]["miou"].mean()
    return Figure(
        "segmentation_curves",
        "Mean IoU by epoch, on training and validation images; a panel is what was trained on",
        f"Mean IoU by epoch, mean over folds; {percent(last)} on validation images at the end.",
        lambda width: lines(frame, width, models=list(short.values()), share=True),
        "Dashed: training images, batch by batch, as augmented; solid: validation images, all together.",
    )


def _frame(table: Any) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas()
    names = [name for name in ("task", "model", "trained_on", "status", "split") if name in frame]
    return frame.astype(dict.fromkeys(names, object))


def _errors(found: Segmented) -> list[Part]:
    """Pictures without an answer, by reason."""
    bad = found.rows[found.rows["status"] != "ok"]
    if bad.empty:
        return []
    counted = bad.groupby(["error", "status", "model", "condition"], dropna=False).agg(
        n=("row_id", "size"), example=("sample_id", "min")
    )
    columns = [
        Column("error", "Reason"),
        Column("status", "Status"),
        Column("model", "Model"),
        Column("condition", "Condition", show=shown),
        Column("n", "Pictures", "integer"),
        Column("example", "For example"),
    ]
    frame = counted.reset_index().sort_values("n", ascending=False, kind="stable")
    return [ShownTable(Table("segmentation_errors", "Pictures without an answer, by reason", frame, columns))]
