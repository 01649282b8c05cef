"""Section and page of ``holdfast study telltale``: how well networks distinguish three kinds of backgrounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.core.lazy import pd
from holdfast.core.names import condition_words
from holdfast.core.numbers import alike, estimate, number, percent, points, span
from holdfast.core.types import ORIGINAL
from holdfast.reports.page import charts
from holdfast.reports.page.evidence import Evidence, join_runs, trained, with_display_names
from holdfast.reports.page.figures import COLOURS, INK, WIDE, Chart, Figure
from holdfast.reports.page.parts import Front, Heading, Notice, Part, Section, Text, answer, first_figure
from holdfast.reports.page.provenance import trouble, what_was_run
from holdfast.reports.page.tables import Column, Table, model_column, plain, ranged, with_intervals
from holdfast.reports.page.words import listing, page_facts, short_names
from holdfast.reports.page.writer import about_runs, write_page
from holdfast.reports.trained.training import training
from holdfast.stats import trained as detected
from holdfast.stats.core.reduce import Counts, reduce
from holdfast.stats.effects.confidence import calibration, reliability
from holdfast.stats.trained import CHANCE, KINDS, PRINTED
from holdfast.store import Run

TITLE = "Telling generated from real"
ARTEFACTS = (
    "What gives a kind away need not be the scene. A pasted or painted background has its own grain, sharpness and "
    "JPEG history, and the edge of the mask may show (--feather softens it). Two controls look at that: the same "
    "images as JPEG, which wipes fine traces, and backgrounds of the same class, which are pasted but fit."
)


def is_telltale(runs: Sequence[Run]) -> bool:
    """Return whether all runs are runs of ``telltale``, whose classes are kinds of backgrounds."""
    return bool(runs) and all(run.spec().get("verb") == "detect" for run in runs)


def detection(counts: Counts, rows: pa.Table | None = None) -> Section:
    """Return accuracy against chance, the confusion matrix, confidence, and what gives the kinds away.

    ``rows`` of the one table have the columns of ``stats.trained.CONFIDENCE``; without them the calibration
    error has no interval.
    """
    section = Section("detection", TITLE)
    accuracies = with_display_names(detected.accuracies(counts))
    if accuracies.empty:
        section.parts = [Notice("No image was answered; the reasons are below.")]
        return section
    accuracies = accuracies.sort_values("accuracy", ascending=False, kind="stable", ignore_index=True)
    short = short_names([str(name) for name in accuracies["model"]])
    section.lead = [*_accuracy_words(accuracies, short), ARTEFACTS, *_control_words(counts, short)]
    section.parts = [
        _accuracy_table(accuracies, short),
        *_matrix_parts(counts, short),
        *_confidence_parts(counts, rows, short),
        *_control_parts(counts, short),
    ]
    return section


def _accuracy_words(accuracies: pd.DataFrame, short: dict[str, str]) -> list[str]:
    row = accuracies.iloc[0]
    share = estimate(row["accuracy"], row["low"], row["high"])
    verdict = "more than chance explains" if row["above_chance"] else "which these images do not set apart from chance"
    who = f"{short[str(row['model'])]} names the kind of {share} of {int(row['n']):,} images"
    best = f"Of {len(accuracies)} networks the best: {who}" if len(accuracies) > 1 else who
    printed = listing([f"{name} {percent(value)}" for name, value in PRINTED.items()])
    return [
        f"Three versions of every image: unchanged, on a generated background, and on one of another class. "
        f"{best}, {verdict} ({percent(CHANCE)}).",
        f"The paper prints {printed} for its own three kinds. Those are other images, another generator and another "
        "way of pasting: they are next to these figures, and nothing follows from the difference.",
    ]


def _control_words(counts: Counts, short: dict[str, str]) -> list[str]:
    warnings = [
        f"Warning: as JPEG, {short[row['model']]} loses {points(row['drop'])} ({span(row['low'], row['high'])}): part "
        "of what it reads are traces that compression wipes."
        for row in with_display_names(detected.compressed(counts)).to_dict("records")
        if row["low"] > 0
    ]
    warnings += [
        f"Warning: {short[row['model']]} calls {percent(row['same'])} of backgrounds of the same class random, against "
        f"{percent(row['other'])} of another class: it sees the pasting rather than that the background does not fit."
        for row in with_display_names(detected.pasting(counts)).to_dict("records")
        if detected.sees_pasting(row)
    ]
    if not bool(detected.accuracies(counts)["above_chance"].any()):
        return ["If the kinds are not separated, the controls below have nothing to show."]
    return warnings or ["Neither control shows that traces of their making give the kinds away; that is no proof."]


def _accuracy_table(accuracies: pd.DataFrame, short: dict[str, str]) -> Table:
    ours = accuracies.assign(model=accuracies["model"].map(short), whose="here")
    paper = pd.DataFrame({"model": list(PRINTED), "accuracy": list(PRINTED.values()), "whose": "printed, other data"})
    chance = pd.DataFrame({"model": ["guessing"], "accuracy": [CHANCE], "whose": ["chance"]})
    table = pd.concat([ours[["model", "whose", "accuracy", "low", "high", "n"]], chance, paper], ignore_index=True)
    columns = [
        *plain("text", model="Network", whose="Where"),
        Column("accuracy", "Accuracy", "percent", "low", "high"),
        Column("n", "Images", "integer"),
    ]
    return Table("detection", "Accuracy on the three kinds", table, columns)


def _matrix_parts(counts: Counts, short: dict[str, str]) -> list[Part]:
    frame = with_display_names(detected.confusion(counts))
    parts: list[Part] = [Heading("What is taken for what")]
    for place, model in enumerate(short):
        own = frame[frame["model"] == model]
        wrong = own[own["label"] != own["prediction"]].sort_values("share", ascending=False)
        worst = wrong.iloc[0]
        finding = f"{short[model]} takes no kind for another."
        if not alike(worst["share"], 0):
            finding = (
                f"{short[model]}: the most frequent mistake is to call {condition_words(worst['label'])} "
                f"{condition_words(worst['prediction'])}, {estimate(worst['share'], worst['low'], worst['high'])}."
            )
        tidy = own.assign(
            row=own["label"].map(condition_words),
            column=own["prediction"].map(condition_words),
            estimate=own["share"],
            shown=[percent(value, 0) for value in own["share"]],
            bounds=[span(a, b, 0) for a, b in zip(own["low"], own["high"], strict=True)],
        )[["row", "column", "estimate", "shown", "bounds", "n"]]
        parts.append(
            Figure(
                f"confusion_{place + 1}",
                f"Kind of image (rows) and answer (columns), {short[model]}",
                finding,
                lambda width, tidy=tidy: matrix(tidy, width),  # type: ignore[misc]
                "Shares of the row, with 95 % intervals below.",
            )
        )
    columns = [
        model_column(short, "Network"),
        Column("label", "Kind", show=condition_words),
        Column("prediction", "Answer", show=condition_words),
        Column("share", "Share", "percent", "low", "high"),
        *plain("integer", n="Images", total="Of"),
    ]
    return [*parts, Table("confusion", "Confusion matrix", frame, columns, folded=True)]


def matrix(frame: pd.DataFrame, width: int) -> Chart:
    """Return the confusion matrix of ``row``, ``column``, ``estimate``, texts ``shown`` and ``bounds``, and ``n``."""
    names = [condition_words(name) for name in KINDS]
    label = charts.room(names, 170 if width >= WIDE else 100)
    size = min(130, (width - label - 30) // len(names))
    # One word per line, because the names of the kinds are wider than a cell.
    axis: Chart = {"ticks": False, "domain": False, "title": None, "labelLimit": label, "labelAngle": 0}
    axis["labelExpr"] = "split(datum.label, ' ')"
    top = axis | {"orient": "top", "labelLimit": size, "labelPadding": 18}  # lines go down from the first
    place = {"x": charts.nominal("column", names, axis=top), "y": charts.nominal("row", names, axis=axis)}
    scale = {"domain": [0, 1], "range": list(reversed(charts.HEAT))}
    shade = {"field": "estimate", "type": "quantitative", "legend": None, "scale": scale}
    ink = {"condition": {"test": "datum.estimate > 0.5", "value": "white"}, "value": INK}
    tips = [{"field": name} for name in ("row", "column", "shown", "bounds", "n")]
    layers = [
        charts.layer("rect", place | {"color": shade, "tooltip": tips}, stroke="white"),
        charts.layer("text", place | {"text": {"field": "shown"}, "color": ink}, fontSize=13, dy=-6),
        charts.layer("text", place | {"text": {"field": "bounds"}, "color": ink}, fontSize=10, dy=10),
    ]
    return charts.chart_of(frame, width={"step": size}, height={"step": 56}, layer=layers)


def _confidence_parts(counts: Counts, rows: pa.Table | None, short: dict[str, str]) -> list[Part]:
    table = calibration(counts)
    table = table[table["condition"] == ORIGINAL].astype({"model": str, "trained_on": str}).reset_index(drop=True)
    bounds = ["ece_low", "ece_high", "ece_calibrated"]
    if rows is None:
        table[bounds] = float("nan")
    else:
        errors = detected.calibration_errors(rows).astype({"model": str, "trained_on": str})
        table = table.merge(errors[["model", "trained_on", *bounds]], on=["model", "trained_on"])
    table = with_display_names(table)
    if table.empty:
        return []
    curve = with_display_names(reliability(counts))
    curve = curve[curve["condition"] == ORIGINAL].assign(model=lambda frame: frame["model"].map(short))
    curve = curve.assign(estimate=curve["accuracy"])[["model", "confidence", "estimate", "low", "high", "n"]]
    sentences = []
    for row in table.head(3).to_dict("records"):
        error = number(row["ece"], 3)
        if row["ece_calibrated"] == row["ece_calibrated"]:
            error += f" ({span(row['ece_low'], row['ece_high'], 3, 1)}); exactly right confidences would show "
            error += number(row["ece_calibrated"], 3)
        sentences.append(
            f"{short[str(row['model'])]}: mean confidence {percent(row['confidence'])}, accuracy "
            f"{percent(row['accuracy'])}, calibration error {error}."
        )
    columns = [
        model_column(short, "Network"),
        *plain("percent", accuracy="Accuracy", confidence="Confidence"),
        ranged("ece", "ECE", "number", digits=3, hint="expected calibration error, 15 bins"),
        Column("ece_calibrated", "ECE by chance", "number", digits=3, hint="of exactly right confidences"),
        Column("brier", "Brier", "number", digits=3),
        Column("confidence_wrong", "Confidence when wrong", "percent"),
    ]
    figure = Figure(
        "reliability",
        "Accuracy by confidence, with 95 % intervals",
        sentences[0],
        lambda width: curves(curve, width, models=[short[name] for name in short]),
        "A mark per bin of confidence. On the dashed line the network is as often right as it is sure.",
    )
    return [
        Heading("Does it know when it is wrong?"),
        Text(sentences),
        figure,
        Table("detection_confidence", "Calibration", table, columns),
    ]


def curves(frame: pd.DataFrame, width: int, *, models: Sequence[str]) -> Chart:
    """Return the reliability curves of ``model``, ``confidence``, ``estimate``, ``low``, ``high``, ``n``."""
    axis: dict[str, Any] = {"format": "%", "domain": False, "ticks": False, "tickCount": 5}
    scale = {"type": "quantitative", "scale": {"domain": [0, 1]}, "axis": axis}
    x = scale | {"field": "confidence", "title": "confidence"}
    y = scale | {"title": "accuracy"}
    look = charts.by_model(models, "color", COLOURS) if len(models) > 1 else {"color": {"value": COLOURS[0]}}
    tips: list[Chart] = [{"field": "model"}, {"field": "n"}]
    tips += [{"field": name, "type": "quantitative", "format": ".1%"} for name in ("confidence", "estimate")]
    inner = min(460, width - 70)
    ends = {"x": x, "y": y | {"field": "low"}, "y2": {"field": "high"}, **look}
    curve = {"x": x, "y": y | {"field": "estimate"}, "tooltip": tips, **look}
    layers = [
        charts.dashed_line([{"x": 0, "y": 0}, {"x": 1, "y": 1}]),
        charts.layer("rule", ends, strokeWidth=1.2),
        charts.layer("line", curve, point={"size": 50}, strokeWidth=1.2),
    ]
    return charts.chart_of(frame, width=inner, height=int(0.8 * inner), layer=layers)


def _control_parts(counts: Counts, short: dict[str, str]) -> list[Part]:
    parts: list[Part] = []
    squeezed = with_display_names(detected.compressed(counts))
    if len(squeezed):
        columns = [
            model_column(short, "Network"),
            *plain("percent", original="As they are", accuracy="As JPEG"),
            Column("drop", "Lost", "points", "low", "high"),
        ]
        parts.append(Table("detection_jpeg", "The same images as JPEG of quality 75", squeezed, columns))
    pasted = with_display_names(detected.pasting(counts))
    if len(pasted):
        columns = [
            model_column(short, "Network"),
            *with_intervals(
                "percent", other="Background of another class", same="Background of the same class", none="Originals"
            ),
        ]
        caption = "How often an image is called one with a random background"
        parts.append(Table("detection_pasting", caption, pasted, columns))
    return [Heading("What gives the kinds away: the scene, or traces of the making?"), *parts] if parts else []


def _trainings(runs: Sequence[Run], evidence: Evidence) -> Section:
    """Return the curves of the trainings; what training within scenarios gains is no question here."""
    return replace(training(trained(runs), evidence, compared=False), title="How the training went")


def build_detection(runs: Sequence[Run], out: Path, *, note: str = "") -> Path:
    """Write the page of a run of ``telltale``; return its path."""
    rows = join_runs(runs).dataset
    counts = reduce(rows)
    evidence = Evidence(counts, average="micro")
    sections = [detection(counts, rows.to_table(columns=detected.CONFIDENCE))]
    if trained(runs) and len(counts.cells):
        sections.append(_trainings(runs, evidence))
    errors = trouble(evidence, runs)
    sections += [errors] if errors.lead else []
    sections.append(what_was_run(evidence, runs, {"outcome": "full", "average": "micro"}))
    facts = [
        *page_facts(
            (len(counts.models), "network"), (counts.cells["source_id"].nunique() if len(counts.cells) else 0, "image")
        ),
        (f"{len(KINDS)}", "kinds"),
        (f"{int(counts.cells['n'].sum()) if len(counts.cells) else 0:,}", "answers"),
    ]
    limits = (
        "A network that distinguishes these kinds does so for this generator and this way of pasting; nothing follows "
        "for others. No image, including those that lent a background, is on both sides of a split. Intervals are at "
        "the 95 % level and treat source images, not their renderings, as independent."
    )
    sentences = sections[0].lead
    front = Front(
        "Can a network distinguish generated backgrounds from real ones?",
        answer(sentences[0] if sentences else "No image has a prediction"), facts, limits,
        chart=first_figure(sections[0].parts),
    )  # fmt: skip
    return write_page(front, sections, out, **about_runs(runs, note))
