"""Section and page: telling original, generated and random backgrounds apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.conditions import condition_words
from holdfast.core.errors import UserError
from holdfast.core.types import ORIGINAL
from holdfast.report.page import charts
from holdfast.report.page import writer as page
from holdfast.report.page.figures import COLOURS, INK, MUTED, WIDE, Chart, Figure
from holdfast.report.page.parts import Heading, Notice, Part, Section, ShownFigure, ShownTable, Text
from holdfast.report.page.tables import Column, Table
from holdfast.report.page.words import estimate, listing, number, percent, points, short_names, span
from holdfast.report.static.evidence import Evidence, named
from holdfast.report.static.provenance import trouble, what_was_run
from holdfast.report.study import about_world
from holdfast.report.trained.training import trained, training
from holdfast.stats.core.reduce import Counts, reduce
from holdfast.stats.effects import detection as detected
from holdfast.stats.effects.confidence import calibration, reliability
from holdfast.stats.effects.detection import CHANCE, KINDS, PRINTED
from holdfast.store import Run

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

TITLE = "Telling generated from real"
ARTEFACTS = (
    "What gives a kind away need not be the scene. A pasted or painted background has its own grain, sharpness and "
    "JPEG history, and the edge of the mask may show (--feather softens it). Two controls look at that: the same "
    "pictures as JPEG, which wipes fine traces, and backgrounds of the same class, which are pasted but fit."
)


def is_detection(runs: Sequence[Run]) -> bool:
    """Whether all of these runs are about kinds of backgrounds, so that nothing else is to be said of them."""
    return bool(runs) and all(run.spec().get("verb") == "detect" for run in runs)


def detection(counts: Counts, rows: pa.Table | None = None) -> Section:
    """Accuracy against chance, the confusion matrix, confidence, and what gives the kinds away.

    ``rows`` are those of the one table, with the columns of ``stats.effects.detection.CONFIDENCE``; without them the
    calibration error has no interval.
    """
    section = Section("detection", TITLE)
    found = named(detected.accuracies(counts))
    if found.empty:
        section.parts = [Notice("No picture was answered; the reasons are below.")]
        return section
    found = found.sort_values("accuracy", ascending=False, kind="stable", ignore_index=True)
    short = short_names([str(name) for name in found["model"]])
    section.lead = [*_accuracy_words(found, short), ARTEFACTS, *_control_words(counts, short)]
    section.parts = [
        ShownTable(_accuracy_table(found, short)),
        *_matrix_parts(counts, short),
        *_confidence_parts(counts, rows, short),
        *_control_parts(counts, short),
    ]
    return section


def _accuracy_words(found: pd.DataFrame, short: dict[str, str]) -> list[str]:
    row = found.iloc[0]
    told = estimate(row["accuracy"], row["low"], row["high"])
    verdict = "more than chance explains" if row["above_chance"] else "which these photos do not set apart from chance"
    who = f"{short[str(row['model'])]} names the kind of {told} of {int(row['n']):,} pictures"
    best = f"Of {len(found)} networks the best: {who}" if len(found) > 1 else who
    printed = listing([f"{name} {percent(value)}" for name, value in PRINTED.items()])
    return [
        f"Three kinds of picture of every photo: as it is, before a generated background, before one of another class. "
        f"{best}, {verdict} ({percent(CHANCE)}).",
        f"The paper prints {printed} for its own three kinds. Those are other photos, another generator and another "
        "way of pasting: they stand beside these figures, and nothing follows from the difference.",
    ]


def _control_words(counts: Counts, short: dict[str, str]) -> list[str]:
    said = [
        f"Warning: as JPEG, {short[row['model']]} loses {points(row['drop'])} ({span(row['low'], row['high'])}): part "
        "of what it reads are traces that compression wipes."
        for row in named(detected.compressed(counts)).to_dict("records")
        if row["low"] > 0
    ]
    said += [
        f"Warning: {short[row['model']]} calls {percent(row['same'])} of backgrounds of the same class random, against "
        f"{percent(row['other'])} of another class: it sees the pasting rather than that the background does not fit."
        for row in named(detected.pasting(counts)).to_dict("records")
        if detected.sees_pasting(row)
    ]
    if not bool(detected.accuracies(counts)["above_chance"].any()):
        return ["Where the kinds are not told apart, the controls below have nothing to show."]
    return said or ["Neither control shows that the kinds are told by traces of their making; that is no proof."]


def _accuracy_table(found: pd.DataFrame, short: dict[str, str]) -> Table:
    import pandas as pd

    ours = found.assign(model=found["model"].map(short), whose="here")
    paper = pd.DataFrame({"model": list(PRINTED), "accuracy": list(PRINTED.values()), "whose": "printed, other data"})
    chance = pd.DataFrame({"model": ["guessing"], "accuracy": [CHANCE], "whose": ["chance"]})
    table = pd.concat([ours[["model", "whose", "accuracy", "low", "high", "n"]], chance, paper], ignore_index=True)
    columns = [
        Column("model", "Network"),
        Column("whose", "Where"),
        Column("accuracy", "Accuracy", "percent", "low", "high"),
        Column("n", "Pictures", "integer"),
    ]
    return Table("detection", "Accuracy on the three kinds", table, columns)


def _matrix_parts(counts: Counts, short: dict[str, str]) -> list[Part]:
    frame = named(detected.confusion(counts))
    parts: list[Part] = [Heading("What is taken for what")]
    for place, model in enumerate(short):
        own = frame[frame["model"] == model]
        wrong = own[own["label"] != own["prediction"]].sort_values("share", ascending=False)
        worst = wrong.iloc[0]
        finding = (
            f"{short[model]}: the most frequent mistake is to call {condition_words(worst['label'])} "
            f"{condition_words(worst['prediction'])}, {estimate(worst['share'], worst['low'], worst['high'])}."
        )
        tidy = own.assign(
            row=own["label"].map(condition_words), column=own["prediction"].map(condition_words), estimate=own["share"],
            shown=[percent(value, 0) for value in own["share"]],
            bounds=[span(a, b, 0) for a, b in zip(own["low"], own["high"], strict=True)],
        )[["row", "column", "estimate", "shown", "bounds", "n"]]  # fmt: skip
        parts.append(ShownFigure(Figure(
            f"confusion_{place + 1}", f"Kind of picture (rows) and answer (columns), {short[model]}", finding,
            lambda width, tidy=tidy: matrix(tidy, width),  # type: ignore[misc]
            "Shares of the row, with 95 % intervals below.",
        )))  # fmt: skip
    columns = [
        Column("model", "Network", show=lambda name: short.get(name, name)),
        Column("label", "Kind", show=condition_words),
        Column("prediction", "Answer", show=condition_words),
        Column("share", "Share", "percent", "low", "high"),
        Column("n", "Pictures", "integer"),
        Column("total", "Of", "integer"),
    ]
    return [*parts, ShownTable(Table("confusion", "Confusion matrix", frame, columns, folded=True))]


def matrix(frame: pd.DataFrame, width: int) -> Chart:
    """Shares of rows: ``row``, ``column``, ``estimate``, texts ``shown`` and ``bounds``, ``n``."""
    names = [condition_words(name) for name in KINDS]
    label = charts.room(names, 170 if width >= WIDE else 100)
    size = min(130, (width - label - 30) // len(names))
    # A word a line: the names of the kinds are wider than a cell.
    axis: Chart = {
        "ticks": False, "domain": False, "title": None, "labelLimit": label, "labelAngle": 0,
        "labelExpr": "split(datum.label, ' ')",
    }  # fmt: skip
    x = {"field": "column", "type": "nominal", "scale": charts.in_order(names)}
    x["axis"] = axis | {"orient": "top", "labelLimit": size, "labelPadding": 18}  # lines go down from the first
    y = {"field": "row", "type": "nominal", "scale": charts.in_order(names), "axis": axis}
    shade = {
        "field": "estimate", "type": "quantitative", "legend": None,
        "scale": {"domain": [0, 1], "range": list(reversed(charts.HEAT))},
    }  # fmt: skip
    ink = {"condition": {"test": "datum.estimate > 0.5", "value": "white"}, "value": INK}
    tips: list[Chart] = [{"field": name} for name in ("row", "column", "shown", "bounds", "n")]
    place = {"x": x, "y": y}
    layers: list[Chart] = [
        {"mark": {"type": "rect", "stroke": "white"}, "encoding": place | {"color": shade, "tooltip": tips}},
        {
            "mark": {"type": "text", "fontSize": 13, "dy": -6},
            "encoding": place | {"text": {"field": "shown"}, "color": ink},
        },
        {
            "mark": {"type": "text", "fontSize": 10, "dy": 10},
            "encoding": place | {"text": {"field": "bounds"}, "color": ink},
        },
    ]
    data = {"data": {"name": "rows"}, "datasets": {"rows": charts.records(frame)}}
    return data | {"width": {"step": size}, "height": {"step": 56}, "layer": layers}


def _confidence_parts(counts: Counts, rows: pa.Table | None, short: dict[str, str]) -> list[Part]:
    table = calibration(counts)
    table = table[table["condition"] == ORIGINAL].astype({"model": str, "trained_on": str}).reset_index(drop=True)
    bounds = ["ece_low", "ece_high", "ece_calibrated"]
    if rows is None:
        table[bounds] = float("nan")
    else:
        errors = detected.calibration_errors(rows).astype({"model": str, "trained_on": str})
        table = table.merge(errors[["model", "trained_on", *bounds]], on=["model", "trained_on"])
    table = named(table)
    if table.empty:
        return []
    curve = named(reliability(counts))
    curve = curve[curve["condition"] == ORIGINAL].assign(model=lambda one: one["model"].map(short))
    curve = curve.assign(estimate=curve["accuracy"])[["model", "confidence", "estimate", "low", "high", "n"]]
    said = [
        f"{short[str(row['model'])]}: mean confidence {percent(row['confidence'])}, accuracy "
        f"{percent(row['accuracy'])}, calibration error {_error(row)}."
        for row in table.head(3).to_dict("records")
    ]
    columns = [
        Column("model", "Network", show=lambda name: short.get(name, name)),
        Column("accuracy", "Accuracy", "percent"),
        Column("confidence", "Confidence", "percent"),
        Column("ece", "ECE", "number", "ece_low", "ece_high", digits=3, hint="expected calibration error, 15 bins"),
        Column("ece_calibrated", "ECE by chance", "number", digits=3, hint="of exactly right confidences"),
        Column("brier", "Brier", "number", digits=3),
        Column("confidence_wrong", "Confidence when wrong", "percent"),
    ]
    figure = Figure(
        "reliability", "Accuracy by confidence, with 95 % intervals", said[0],
        lambda width: curves(curve, width, models=[short[name] for name in short]),
        "A mark a bin of confidence. On the dashed line the network is as often right as it is sure.",
    )  # fmt: skip
    return [
        Heading("Does it know when it is wrong?"),
        Text(said),
        ShownFigure(figure),
        ShownTable(Table("detection_confidence", "Calibration", table, columns)),
    ]


def _error(row: Mapping[Any, Any]) -> str:
    """0.041 (0.030 to 0.052), and what exactly right confidences would show."""
    text = number(row["ece"], 3)
    if row["ece_calibrated"] != row["ece_calibrated"]:
        return text
    told = f"{text} ({span(row['ece_low'], row['ece_high'], 3, 1)})"
    return f"{told}, where exactly right confidences would show {number(row['ece_calibrated'], 3)}"


def curves(frame: pd.DataFrame, width: int, *, models: Sequence[str]) -> Chart:
    """Reliability: ``model``, ``confidence``, ``estimate``, ``low``, ``high``, ``n``."""
    axis: dict[str, Any] = {"format": "%", "domain": False, "ticks": False, "tickCount": 5}
    scale = {"type": "quantitative", "scale": {"domain": [0, 1]}, "axis": axis}
    x = scale | {"field": "confidence", "title": "confidence"}
    y = scale | {"title": "accuracy"}
    look = charts.by_model(models, "color", COLOURS) if len(models) > 1 else {"color": {"value": COLOURS[0]}}
    tips: list[Chart] = [{"field": "model"}, {"field": "n"}]
    tips += [{"field": name, "type": "quantitative", "format": ".1%"} for name in ("confidence", "estimate")]
    inner = min(460, width - 70)
    layers: list[Chart] = [
        {
            "data": {"values": [{"x": 0, "y": 0}, {"x": 1, "y": 1}]},
            "mark": {"type": "line", "color": MUTED, "strokeDash": [3, 3], "strokeWidth": 1},
            "encoding": {"x": {"field": "x", "type": "quantitative"}, "y": {"field": "y", "type": "quantitative"}},
        },
        {
            "mark": {"type": "rule", "strokeWidth": 1.2},
            "encoding": {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}, **look},
        },
        {
            "mark": {"type": "line", "point": {"size": 50}, "strokeWidth": 1.2},
            "encoding": {"x": x, "y": y | {"field": "estimate"}, "tooltip": tips, **look},
        },
    ]
    data = {"data": {"name": "rows"}, "datasets": {"rows": charts.records(frame)}}
    return data | {"width": inner, "height": int(0.8 * inner), "layer": layers}


def _control_parts(counts: Counts, short: dict[str, str]) -> list[Part]:
    parts: list[Part] = []
    squeezed = named(detected.compressed(counts))
    if len(squeezed):
        columns = [
            Column("model", "Network", show=lambda name: short.get(name, name)),
            Column("original", "As they are", "percent"),
            Column("accuracy", "As JPEG", "percent"),
            Column("drop", "Lost", "points", "low", "high"),
        ]
        parts.append(ShownTable(Table("detection_jpeg", "The same pictures as JPEG of quality 75", squeezed, columns)))
    pasted = named(detected.pasting(counts))
    if len(pasted):
        columns = [
            Column("model", "Network", show=lambda name: short.get(name, name)),
            Column("other", "Background of another class", "percent", "other_low", "other_high"),
            Column("same", "Background of the same class", "percent", "same_low", "same_high"),
            Column("none", "Originals", "percent", "none_low", "none_high"),
        ]
        caption = "How often a picture is called one with a random background"
        parts.append(ShownTable(Table("detection_pasting", caption, pasted, columns)))
    return [Heading("Is it told by the scene, or by traces of the making?"), *parts] if parts else []


def _trainings(runs: Sequence[Run], evidence: Evidence) -> Section:
    """The curves; what training within scenarios gains is no question here."""
    section = training(trained(runs), evidence)
    names = [
        part.figure.name if isinstance(part, ShownFigure) else part.table.name if isinstance(part, ShownTable) else ""
        for part in section.parts
    ]
    kept = [part for part, name in zip(section.parts, names, strict=True) if not name.startswith("trained_within")]
    return replace(section, title="How the training went", lead=section.lead[:1], parts=kept)


def build_detection(runs: Sequence[Run], out: Path, *, note: str = "") -> Path:
    """The page of a run of ``detect``; returns its path."""
    from holdfast.report.static.rows import join

    rows = join(runs).dataset
    counts = reduce(rows)
    evidence = Evidence(counts, average="micro")
    settings = {"outcome": "full", "average": "micro"}
    sections = [detection(counts, rows.to_table(columns=detected.CONFIDENCE))]
    if trained(runs) and len(counts.cells):
        sections.append(_trainings(runs, evidence))
    errors = trouble(evidence, runs)
    sections += [errors] if errors.lead else []
    sections.append(what_was_run(evidence, runs, settings))
    photos = counts.cells["source_id"].nunique() if len(counts.cells) else 0
    facts = [
        (f"{len(counts.models):,}", "network" if len(counts.models) == 1 else "networks"),
        (f"{photos:,}", "photos"),
        (f"{len(KINDS)}", "kinds"),
        (f"{int(counts.cells['n'].sum()) if len(counts.cells) else 0:,}", "answers"),
    ]
    limits = (
        "A network that tells these kinds apart tells those of this generator and this way of pasting; of others "
        "nothing follows. No photo, and no photo that lent a background, is on both sides of a split. Intervals are at "
        "the 95 % level and treat photos, not pictures, as independent."
    )
    try:
        return page.write(
            sections, out, title=TITLE,
            subject=listing(list(dict.fromkeys(str(run.spec().get("dataset") or run.run_id) for run in runs))),
            facts=facts, limits=limits, note=note or max(about_world(str(run.spec().get("data", ""))) for run in runs),
            run_names=listing([run.run_id for run in runs], 6),
        )  # fmt: skip
    except OSError as error:
        raise UserError(f"cannot write the page to {out}: {error.strerror}") from error
