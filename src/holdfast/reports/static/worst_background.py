"""Section: accuracy on the worst of several backgrounds, and the backgrounds that fool most objects."""

from __future__ import annotations

from typing import Any

import pyarrow.dataset as ds

from holdfast.core.lazy import pd
from holdfast.core.names import SWEEPS, condition_name
from holdfast.core.numbers import percent, points, span
from holdfast.core.types import ORIGINAL
from holdfast.reports.page import charts
from holdfast.reports.page.figures import COLOURS, WIDE, Chart, Figure
from holdfast.reports.page.parts import Gallery, Notice, Part, Photo, Section, judged, pictures_of, tile
from holdfast.reports.page.sections import ReportEvidence, ReportSection
from holdfast.reports.page.tables import Column, Table, model_column, plain, ranged
from holdfast.reports.page.words import class_words, plural, short_names
from holdfast.stats.effects.worst_background import OTHER, READS, fooling_backgrounds, worst_background

PANELS = 6  # models in the chart, those that lose most
BACKGROUNDS, OBJECTS = 3, 4  # in the gallery, and of each
_SWEPT = ds.field("condition").isin(list(SWEEPS))
_SIDES = {"other": "other classes", "same": "the own class (control)"}


def applies(report: ReportEvidence) -> bool:
    """Return whether classifiers were asked about several backgrounds of other classes."""
    return "classify" in report.tasks and bool(report.rows.dataset.count_rows(filter=ds.field("condition") == OTHER))


def build(report: ReportEvidence) -> Section:
    """Return the section."""
    section = Section("worst_background", "The worst of several backgrounds")
    wanted = (_SWEPT | (ds.field("condition") == ORIGINAL)) & (ds.field("task") == "classify")
    columns = [*READS, "variant", "prediction", "prediction_restricted", "confidence"]
    rows = report.rows.photos(columns, wanted).to_pandas()
    curve = worst_background(rows, **report.settings)
    if curve.empty:
        section.parts = [
            Notice("The control is missing: ask for worst_background, which has both kinds of backgrounds.")
        ]
        return section
    fooling = fooling_backgrounds(rows, outcome=report.outcome, seed=report.seed)
    last = curve.groupby("model").tail(1).sort_values("effect", ascending=False, kind="stable")
    models = [str(name) for name in last["model"]]
    short = short_names(models)
    section.lead = _lead(last, short)
    table = curve.sort_values(["backgrounds", "effect"], ascending=False, kind="stable")
    note = "Images are paired; intervals are over images and backgrounds. The CSV has every k."
    section.parts = [
        _figure(curve, models[:PANELS], short, section.lead[0]),
        Table("worst_background", "On the worst of k backgrounds", table, _columns(short), note, shown=len(models)),
        _backgrounds(fooling, short),
        *_gallery(report, rows, fooling[fooling["model"] == models[0]], short),
    ]
    return section


def _lead(last: pd.DataFrame, short: dict[str, str]) -> list[str]:
    texts = [
        f"{short[row['model']]} {percent(row['other'])} on the worst of {plural(row['backgrounds'], 'background')} of "
        f"other classes and {percent(row['same'])} on the worst of as many of the object's own class: a difference of "
        f"{points(row['effect'])} ({span(row['effect_low'], row['effect_high'])})"
        for row in last.head(3).to_dict("records")
    ]
    return [
        f"Accuracy: {'; '.join(texts)}.",
        "The worst of k backgrounds falls with k by chance alone, so only the difference from the control is an effect "
        "of the background's class. All objects are put on the same backgrounds, except those of their own class.",
    ]


def _columns(short: dict[str, str]) -> list[Column]:
    return [
        model_column(short), *plain("integer", backgrounds="k"), *plain("percent", original="Original"),
        ranged("other", "Other classes"), ranged("same", "Own class (control)"),
        ranged("effect", "Difference", "points"), *plain("integer", n="Images"),
    ]  # fmt: skip


def _figure(curve: pd.DataFrame, models: list[str], short: dict[str, str], finding: str) -> Figure:
    parts = [
        curve.assign(estimate=curve[side], low=curve[f"{side}_low"], high=curve[f"{side}_high"], row=words)
        for side, words in _SIDES.items()
    ]
    tidy = pd.concat(parts)[["model", "backgrounds", "row", "estimate", "low", "high"]]
    tidy = tidy[tidy["model"].isin(models)].assign(model=lambda frame: frame["model"].map(short))
    names = [short[model] for model in models]
    title = "Accuracy on the worst of k backgrounds, with 95 % intervals"
    return Figure("worst_background", title, finding, lambda width: curves(tidy, width, models=names))


def curves(frame: pd.DataFrame, width: int, *, models: list[str]) -> Chart:
    """Return accuracy over k for both kinds of backgrounds, a panel per model."""
    columns = min(len(models), 3 if width >= WIDE else 1)
    inner = (width - 60) // columns - (30 if columns > 1 else 0)
    axis: dict[str, Any] = {"domain": False, "ticks": False}
    most = int(frame["backgrounds"].max())
    scale = {"domain": [1, most], "nice": False}
    x = {"field": "backgrounds", "type": "quantitative", "scale": scale, "title": "k, number of backgrounds"}
    x["axis"] = axis | {"tickMinStep": 1, "grid": False}
    y = {"type": "quantitative", "scale": {"zero": False}, "title": "accuracy", "axis": axis | {"format": "%"}}
    legend = {"orient": "top", "direction": "horizontal", "title": None, "symbolOpacity": 1}
    colour = {"field": "row", "type": "nominal", "legend": legend}
    colour["scale"] = {"domain": list(_SIDES.values()), "range": [COLOURS[1], COLOURS[0]]}
    tip = charts.tooltip({"model": "model", "row": "backgrounds of"}, charts.INTERVAL)
    both = {"x": x, "color": colour}
    layers = [
        charts.layer("area", both | {"y": y | {"field": "low"}, "y2": {"field": "high"}}, opacity=0.16),
        charts.layer("line", both | {"y": y | {"field": "estimate"}}, strokeWidth=1.8),
        charts.dot_layer(both | {"y": y | {"field": "estimate"}, "tooltip": tip}, 24),
    ]
    spec = {"width": inner, "height": 220, "layer": layers}
    facet = charts.facet_of("model", inner)
    return charts.chart_of(charts.placed(frame, models), facet=facet, columns=columns, spec=spec)


def _backgrounds(fooling: pd.DataFrame, short: dict[str, str]) -> Table:
    columns = [
        model_column(short), Column("donor_id", "Background of"), Column("donor_label", "Its class", show=class_words),
        ranged("fooled", "Objects fooled"), ranged("excess", "More than on the others", "points"),
        *plain("integer", n="Objects"),
    ]  # fmt: skip
    note = (
        "Objects are fooled if they are right as they are and wrong on the background. The last interval holds for all "
        "backgrounds of a model together."
    )
    shown = fooling.groupby("model", sort=False).head(5)
    return Table("fooling_backgrounds", "The five backgrounds that fool most objects", shown, columns, note)


def _gallery(report: ReportEvidence, rows: pd.DataFrame, fooling: pd.DataFrame, short: dict[str, str]) -> list[Part]:
    """Return objects on the backgrounds that fool most of them, of the model that loses most."""
    worst = fooling[fooling["fooled"] > 0].head(BACKGROUNDS)
    ending = "" if report.outcome == "full" else "_restricted"
    own = rows[rows["model"].isin(worst["model"]) & (rows["status"] == "ok")]
    right = own[f"correct{ending}"].astype(bool)
    known = own[(own["condition"] == ORIGINAL) & right]["sample_id"]
    wrong = own[(own["condition"] == OTHER) & ~right & own["sample_id"].isin(known)].sort_values("sample_id")
    photos = []
    for row in worst.to_dict("records"):
        fooled = wrong[wrong["donor_id"] == row["donor_id"]].drop_duplicates("label").head(OBJECTS)
        names = [condition_name(OTHER, variant) for variant in fooled["variant"]]
        images = pictures_of(report.pictures, report.runs, set(fooled["source_id"]), only=set(names))
        tiles = []
        for name, each in zip(names, fooled.astype(object).to_dict("records"), strict=True):
            said = judged(short[row["model"]], class_words(each[f"prediction{ending}"]), False, each["confidence"])
            tiles.append(tile(class_words(each["label"]), images.get((each["sample_id"], name), b""), [said]))
        summary = (
            f"{percent(row['fooled'])} of {plural(row['n'], 'object')} are fooled; these are of different classes."
        )
        photos.append(Photo(row["donor_id"], class_words(row["donor_label"]), summary, tiles, of="background of"))
    return [Gallery(photos)] if any(each.picture for photo in photos for each in photo.tiles) else []


WORST_BACKGROUND = ReportSection(build, applies, measures=("worst-background", "fooling-backgrounds"))
