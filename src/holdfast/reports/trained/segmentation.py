"""Section: how well models segment the object under each scenario, and what each scenario costs them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import pyarrow.dataset as ds

from holdfast.core.lazy import pd
from holdfast.core.numbers import alike, estimate, number, percent, points, span
from holdfast.core.schema import SEGMENTS
from holdfast.core.types import ORIGINAL
from holdfast.reports.page import charts
from holdfast.reports.page.evidence import AS_PUBLISHED, Analysis, ReportRows, details
from holdfast.reports.page.figures import Figure
from holdfast.reports.page.parts import (
    Front,
    Gallery,
    Heading,
    Notice,
    Part,
    Photo,
    Section,
    Text,
    Tile,
    answer,
    png_tile,
    proof,
)
from holdfast.reports.page.regression import fitted_sentence, regression_parts
from holdfast.reports.page.sections import ReportEvidence, ReportSection, of_task
from holdfast.reports.page.tables import CONDITION, Column, Table, model_column, plain, ranged, with_intervals
from holdfast.reports.page.words import condition_label, listing, page_facts, plural, short_names
from holdfast.reports.trained.training import failed_trainings, lines, read_trainings, thinned, trainings_table
from holdfast.stats.core.bootstrap import RESAMPLES
from holdfast.stats.effects.segments import (
    COLUMNS,
    KEYS,
    SEGMENT,
    WITHIN,
    by_class,
    cells_from_segments,
    experiments,
    measured,
    segmented,
    segments,
    segments_by_group,
)
from holdfast.stats.objects.effects import regions_found
from holdfast.stats.regression.fit import fit
from holdfast.store import Run

SEGMENTED = ds.field("task") == SEGMENT

_SIZES = re.compile(r"(_patch\d+)?(_window\d+)?(_\d{3})?(\?.*)?$")
"""What timm and the options add to the name of an encoder."""


@dataclass(frozen=True)
class Segmented:
    """The segmented rows of a report."""

    runs: Sequence[Run]  # the runs that have segmented rows
    frame: pd.DataFrame  # the columns of ``stats.effects.segments.measured``, under the names of ``experiments``
    rows: pd.DataFrame  # all rows, also those without an answer
    resamples: int = RESAMPLES
    seed: int = 0
    analysis: Analysis = AS_PUBLISHED  # reference levels and kind of the regression

    @cached_property
    def table(self) -> pd.DataFrame:
        """Measures per model and condition, and how many objects are found."""
        whole = segments(self.frame, resamples=self.resamples, seed=self.seed)
        objects = regions_found(self.frame, resamples=self.resamples, seed=self.seed)
        return whole.merge(objects, on=KEYS, how="left") if len(objects) else whole

    @cached_property
    def classes(self) -> pd.DataFrame:
        """Measures per model, condition and class."""
        return by_class(self.frame, resamples=self.resamples, seed=self.seed)

    @cached_property
    def models(self) -> list[str]:
        """Models, the best on average first."""
        means = self.table.groupby("model")["miou"].mean().sort_values(ascending=False, kind="stable")
        return [str(name) for name in means.index]

    @cached_property
    def conditions(self) -> list[str]:
        """Conditions: the original first, then the most harmful."""
        means = self.table.groupby("condition")["miou"].mean()
        return sorted(means.index, key=lambda name: (name != ORIGINAL, means[name], name))

    @cached_property
    def short(self) -> dict[str, str]:
        """Names that fit next to a chart: without options and sizes if names stay distinct."""
        networks = {name: name.removesuffix(WITHIN) for name in self.models}
        cut = {name: _SIZES.sub("", network).replace("@tu-", "@") for name, network in networks.items()}
        if len(set(cut.values())) < len(set(networks.values())):
            cut = networks
        short = short_names(list(dict.fromkeys(cut.values())))
        return {name: short[cut[name]] + (", within" if name != networks[name] else "") for name in self.models}

    def front(self) -> Front:
        """Return the top of a page that is about segmentation only."""
        good = self.rows[self.rows["status"] == "ok"]
        facts = page_facts(
            (self.rows["model"].nunique(), "model"),
            (good["source_id"].nunique(), "image"),
            (self.rows["label"].nunique(), "class", "classes"),
            (self.rows["condition"].nunique(), "condition"),
            (len(good), "segmented image"),
        )
        title = "How well is the object segmented when the image changes?"
        if self.frame.empty:
            return Front(title, answer("No image was segmented", "See the errors."), facts, self.limits())
        sentences = [*_cost(self), _finding(self)]
        images = proof(_gallery(self))
        return Front(title, answer(sentences[0], " ".join(sentences[1:])), facts, self.limits(), images, _chart(self))

    def limits(self) -> str:
        """Return what the numbers mean."""
        text = (
            "Pixels are summed over images before they are divided; every class, and the background, counts the same. "
            "Intervals are at the 95 % level and treat images, not pixels, as independent. What "
            f"{plural(self.rows['source_id'].nunique(), 'image')} cannot show, this report does not claim."
        )
        missing = int((self.rows["status"] != "ok").sum())
        return text + (
            f" {missing:,} of {len(self.rows):,} images have no answer and count nowhere." if missing else ""
        )


def read_segments(
    rows: ReportRows, analysis: Analysis | None = None, *, resamples: int = RESAMPLES, seed: int = 0
) -> Segmented:
    """Return the segmented rows of a report."""
    runs = rows.runs_with(SEGMENTED)
    table = rows.photos(COLUMNS, SEGMENTED)
    frame = experiments(measured(table, details(runs, "segments", SEGMENTS)))
    return Segmented(runs, frame, segmented(table), resamples, seed, analysis or AS_PUBLISHED)


STRIPS = 12  # Images of the gallery
PNG = 2_000_000  # Bytes of a kept image; a larger file is not ours


def segmentation(segmented: Segmented) -> Section:
    """Return tables, charts, the regression and a few images."""
    section = Section("segmentation", "Segmentation")
    if segmented.frame.empty:
        notice = Notice("No image was segmented; the reasons are below.")
        section.parts = [notice, *_trainings(segmented), *_errors(segmented)]
        return section
    section.lead = [_finding(segmented), *_cost(segmented), _HOW]
    section.parts = [
        _chart(segmented),
        _table(segmented),
        _density(segmented),
        _class_table(segmented),
        *_by_attribute(segmented),
        *_gallery(segmented),
        *_fitted(segmented),
        *_trainings(segmented),
        *_errors(segmented),
    ]
    return section


def _chart(segmented: Segmented) -> Figure:
    rows = [condition_label(name) for name in segmented.conditions]
    title = "Mean IoU of every model under every condition, with 95 % intervals"
    look: dict[str, Any] = {"short": segmented.short, "rows": rows, "axis": "mean IoU", "domain": (0, 1)}
    finding = " ".join([_finding(segmented), *_cost(segmented)])
    return charts.model_figure("segmentation", title, finding, segmented.table, "miou", **look)


def _by_attribute(segmented: Segmented) -> list[Part]:
    """Return the measures by each attribute that was asked for, the worst group first."""
    parts: list[Part] = []
    for name, values in segmented.analysis.attributes.items():
        frame = segments_by_group(segmented.frame, values, resamples=segmented.resamples, seed=segmented.seed)
        key = "".join(letter if letter.isalnum() else "_" for letter in name)
        columns = [
            Column("value", name), CONDITION, model_column(segmented.short),
            ranged("miou", "Mean IoU"), ranged("drop", "Drop", "points"), *plain("integer", n="Images"),
        ]  # fmt: skip
        title = f"Segmentation by {name}, the worst first; intervals hold for all groups of a condition together"
        parts.append(Table(f"segments_by_{key}", title, frame, columns))
    return parts


def _finding(segmented: Segmented) -> str:
    first = segmented.table[segmented.table["condition"] == segmented.conditions[0]].set_index("model")
    rows: dict[Any, Any] = first.to_dict("index")
    said = [
        f"{segmented.short[name]} {estimate(row['miou'], row['miou_low'], row['miou_high'])}"
        for name in segmented.models
        if (row := rows.get(name)) and not name.endswith(WITHIN)  # on originals it is the same
    ]
    return f"Mean IoU under {condition_label(segmented.conditions[0])}: {listing(said)}."


def _cost(segmented: Segmented) -> list[str]:
    """Return what the worst condition costs each model."""
    lost = segmented.table.dropna(subset=["drop"])
    if lost.empty:
        return []
    crossed = lost[~lost["model"].str.endswith(WITHIN)]
    mean = crossed.groupby("condition")["drop"].mean().sort_values(ascending=False)
    worst = str(mean.index[0])
    rows: dict[Any, Any] = lost[lost["condition"] == worst].set_index("model").to_dict("index")
    said = [
        f"{segmented.short[name]} {points(row['drop'])} ({span(row['drop_low'], row['drop_high'])})"
        for name in segmented.models
        if (row := rows.get(name)) and not name.endswith(WITHIN)
    ]
    if mean.iloc[0] <= 0 or alike(mean.iloc[0], 0):
        return ["No condition costs mean IoU, averaged over the models."]
    costs = (
        "costs" if len(mean) == 1 else "costs no less than any other" if alike(*mean.iloc[[0, -1]]) else "costs most"
    )
    return [
        f"{condition_label(worst).capitalize()} {costs}: {listing(said)} of mean IoU, against the same images' "
        "originals."
    ]


_HOW = (
    "IoU is what truth and answer share of a class's pixels, over what either has. The boundary score asks how much of "
    "the two outlines lies within 0.75 % of the image's diagonal of the other. If a scenario moves the object, "
    "the truth moves with it."
)


def _table(segmented: Segmented) -> Table:
    places = {name: place for place, name in enumerate([*segmented.conditions, *segmented.models])}
    frame = segmented.table.sort_values(["condition", "model"], key=lambda names: names.map(places))
    columns = [
        CONDITION,
        model_column(segmented.short),
        ranged("miou", "Mean IoU"),
        ranged("drop", "Lost", "points", hint="mean IoU of the same images' originals minus this"),
        *with_intervals("percent", pixel_accuracy="Pixels right", boundary_f="Boundary F"),
        ranged("recall", "Objects found", hint="overlapped by half or more"),
        ranged("recall_drop", "Objects lost", "points"),
        Column("n", "Images", "integer"),
    ]
    columns = [column for column in columns if column.key in frame]
    return Table("segmentation", "Segmentation by condition and model", frame, columns)


def _density(segmented: Segmented) -> Figure:
    frame = segmented.classes.assign(
        row=segmented.classes["class"],
        column=segmented.classes["condition"].map(condition_label),
        estimate=segmented.classes["iou"],
        model=segmented.classes["model"].map(segmented.short),
    )[["model", "row", "column", "estimate", "n"]]
    rows = [str(name) for name in frame.groupby("row")["estimate"].mean().sort_values().index]
    columns = [condition_label(name) for name in segmented.conditions]
    models = [segmented.short[name] for name in segmented.models]
    worst = frame.sort_values("estimate").iloc[0]
    where = f"{worst['row']} under {worst['column']} by {worst['model']}"
    finding, title = f"The lowest IoU is {percent(worst['estimate'])}: {where}.", "IoU density map: class by condition"
    draw = partial(charts.density, frame, rows=rows, columns=columns, measure="IoU")
    if len(models) > 1:
        draw = partial(charts.density_panels, frame, rows=rows, columns=columns, models=models, measure="IoU")
        title += ", a panel per model"
    return Figure("segmentation_classes", title, finding, draw)


def _class_table(segmented: Segmented) -> Table:
    columns = [
        Column("class", "Class"),
        CONDITION,
        model_column(segmented.short),
        *with_intervals("percent", iou="IoU", pixel_accuracy="Its pixels found", boundary_f="Boundary F"),
        *plain("percent", boundary_precision="Boundary precision", boundary_recall="Boundary recall"),
        Column("n", "Images", "integer"),
    ]
    frame = segmented.classes.sort_values("iou", kind="stable")
    caption = "Segmentation by class, the lowest IoU first"
    return Table("segmentation_classes", caption, frame, columns, shown=20, folded=True)


def _gallery(segmented: Segmented) -> list[Part]:
    """Return some images next to the truth and the best model's answers: originals and what harms most."""
    wanted = segmented.conditions[:3]
    rows = segmented.frame.drop_duplicates(["row_id", "model"])
    rows = rows[(rows["model"] == segmented.models[0]) & rows["condition"].isin(wanted)]
    order: dict[str, Any] = {name: place for place, name in enumerate(wanted)}
    rows = rows.assign(order=rows["condition"].map(order)).sort_values(["label", "sample_id", "order"])
    tiles: list[Tile] = []
    for row in rows.to_dict("records"):
        files = (run.path / "segments" / f"{row['row_id']}.png" for run in segmented.runs)
        file = next((file for file in files if file.is_file() and file.stat().st_size <= PNG), None)
        if file is not None and len(tiles) < STRIPS:
            tiles.append(png_tile(f"{row['label']}, {condition_label(row['condition'])}", file.read_bytes()))
    if not tiles:
        return []
    text = (
        f"Above the image and the object as it is, below what {segmented.short[segmented.models[0]]} answers and "
        "where it is right (green), misses the object (orange) or sees one where none of its class is (blue): "
        "originals and the conditions that harm most. Every class has its colour."
    )
    return [Heading("Some of the images"), Text([text]), Gallery([Photo("", "", "", tiles)])]


def _fitted(segmented: Segmented) -> list[Part]:
    """Return the regression of IoU."""
    chosen = segmented.analysis
    fitted = fit(
        cells_from_segments(segmented.frame), references=chosen.references, family=chosen.regression,
        confidence=chosen.confidence,
    )  # fmt: skip
    parts: list[Part] = [Heading("IoU ~ model + scenario + class")]
    if fitted.reason:
        return [*parts, Notice(fitted.reason)]

    def name(model: str) -> str:
        return segmented.short.get(model, model)

    sentence = fitted_sentence(fitted, name, "IoU") + " The background is left out."
    shown = regression_parts(fitted, name, measure="IoU", prefix="segmentation_", digits=chosen.digits)
    return [*parts, Text([sentence]), *shown]


def _trainings(segmented: Segmented) -> list[Part]:
    """Return how the trainings went, if these models were trained here."""
    runs = [run for run in segmented.runs if (run.path / "jobs.parquet").is_file()]
    if not runs:
        return []
    jobs, curves = read_trainings(runs, SEGMENT)
    failed = jobs[jobs["status"] != "ok"]
    recipe = runs[0].spec().get("trained_by") or {}
    sentence = (
        f"{plural(len(jobs), 'training')}, {number(float(jobs['seconds'].sum()) / 60, 1)} minutes in all. Recipe "
        f"{runs[0].spec().get('recipe')}: {recipe.get('optimiser')} at {recipe.get('rate')}, at most "
        f"{recipe.get('epochs')} epochs in batches of {recipe.get('batch_size')}, {recipe.get('size')} pixels. The "
        "epoch with the best mean IoU on validation images was kept; test images took no part in that choice."
    )
    parts: list[Part] = [Heading("How they were trained"), Text([sentence])]
    if len(failed):
        parts.append(failed_trainings(failed))
    if len(curves):
        parts.append(_curves(curves))
    return [*parts, trainings_table("segmentation_jobs", jobs, {}, "Validation mean IoU")]


def _curves(curves: pd.DataFrame) -> Figure:
    short = short_names(sorted(curves["model"].unique()))
    mean = thinned(curves, ["miou"])
    conditions = sorted(mean["trained_on"].unique(), key=lambda name: (name != ORIGINAL, name))
    frame = mean.assign(
        model=mean["model"].map(short),
        panel=mean["trained_on"].map(condition_label),
        value=mean["miou"],
        position=mean["trained_on"].map({name: place for place, name in enumerate(conditions)}),
    )[["panel", "position", "model", "split", "epoch", "value"]]
    last = mean[mean["last"] & (mean["split"] == "validation")]["miou"].mean()
    return Figure(
        "segmentation_curves",
        "Mean IoU by epoch, on training and validation images; a panel is what was trained on",
        f"Mean IoU by epoch, mean over folds; {percent(last)} on validation images at the end.",
        lambda width: lines(frame, width, models=list(short.values()), share=True),
        "Dashed: training images, batch by batch, as augmented; solid: validation images, all together.",
    )


def _errors(segmented: Segmented) -> list[Part]:
    """Return the images without an answer, by reason."""
    bad = segmented.rows[segmented.rows["status"] != "ok"]
    if bad.empty:
        return []
    counted = bad.groupby(["error", "status", "model", "condition"], dropna=False).agg(
        n=("row_id", "size"), example=("sample_id", "min")
    )
    columns = [
        *plain("text", error="Reason", status="Status", model="Model"),
        CONDITION,
        Column("n", "Images", "integer"),
        Column("example", "For example"),
    ]
    frame = counted.reset_index().sort_values("n", ascending=False, kind="stable")
    return [Table("segmentation_errors", "Images without an answer, by reason", frame, columns)]


def _segmented(report: ReportEvidence) -> Segmented:
    return read_segments(report.rows, report.analysis, **report.resampling)


SEGMENTATION = ReportSection(
    lambda report: segmentation(report.once(_segmented)), of_task(SEGMENT),
    lambda report: report.once(_segmented).front(), measures=("segments",),
)  # fmt: skip
