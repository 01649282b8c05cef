"""The page on what models lose from one dataset to another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.files import stored_object
from holdfast.core.lazy import pd
from holdfast.core.numbers import alike, percent, points, span
from holdfast.reports.page import charts
from holdfast.reports.page.evidence import Evidence, join_runs
from holdfast.reports.page.figures import COLOURS, INK, WIDE, Chart, Figure
from holdfast.reports.page.parts import Front, Notice, Section, answer, first_figure
from holdfast.reports.page.provenance import what_was_run
from holdfast.reports.page.tables import CLASS, Column, Table, model_column, plain, with_intervals
from holdfast.reports.page.words import listing, page_facts, plural, short_names
from holdfast.reports.page.writer import about_runs, write_page
from holdfast.reports.questions import read_questions
from holdfast.stats.core.bootstrap import RESAMPLES
from holdfast.stats.core.cells import Average
from holdfast.stats.core.reduce import Counts, Outcome
from holdfast.stats.models.datasets import DatasetDrops, dataset_drops, question_drops
from holdfast.stats.models.relative import logits
from holdfast.store import Run

TITLE = "How much accuracy is lost from one dataset to another?"
_LIMITS = (
    "The datasets have different images, so no image is paired: an interval adds the uncertainty of both sides. A drop "
    "says that the second dataset is harder for this model, not why: its images, its labels and how it was chosen "
    "differ, too. Images that were chosen because models fail on them (a mined set) say nothing about those models."
)


def counts_by_dataset(runs: Sequence[Run]) -> dict[str, Counts]:
    """Return the counts of each dataset, in the order in which the runs first name it."""
    return {name: join_runs(own).counts() for name, own in _by_dataset(runs).items()}


def prompts_by_dataset(runs: Sequence[Run]) -> dict[str, dict[str, str]]:
    """Return dataset → source_id → prompt, of images that were painted: those of one prompt depend on each other."""
    prompts: dict[str, dict[str, str]] = {}
    for name, own in _by_dataset(runs).items():
        for run in own:
            table = run.samples().select(["source_id", "attributes"])
            for source, text in zip(*(table[column].to_pylist() for column in table.column_names), strict=True):
                prompt = stored_object(text, "attributes").get("prompt_id") if text and "prompt_id" in text else None
                if prompt:
                    prompts.setdefault(name, {})[source] = str(prompt)
    return prompts


def _by_dataset(runs: Sequence[Run]) -> dict[str, list[Run]]:
    grouped: dict[str, list[Run]] = {}
    for run in runs:
        grouped.setdefault(str(run.spec().get("dataset") or run.run_id), []).append(run)
    if len(grouped) < 2:
        raise UserError(
            f"--between compares datasets, but all of these runs are of {listing(list(grouped)) or 'none'}: name runs "
            "of two datasets, or leave --between out."
        )
    return grouped


def build_between(
    runs: Sequence[Run],
    out: Path,
    *,
    outcome: Outcome = "full",
    average: Average = "macro",
    baseline: Sequence[str] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
    note: str = "",
) -> Path:
    """Write the page, and return its path."""
    settings: dict[str, Any] = {"outcome": outcome, "average": average, "resamples": resamples, "seed": seed}
    asked = _questions(runs)
    counts = counts_by_dataset(runs)
    sections: list[Section] = []
    facts = [(len(counts), "dataset")]
    if all(len(counted.cells) for counted in counts.values()):
        options = settings | {"clusters": prompts_by_dataset(runs), "baseline": baseline}
        lost = dataset_drops(counts, **options)
        other: Outcome = "restricted" if outcome == "full" else "full"
        whole = lost.drops[lost.drops["part"] == ""]
        order = whole.groupby("model")["drop"].mean().sort_values().index.astype(str).tolist()
        short = short_names(order)
        drops = _drop_section(lost, dataset_drops(counts, **options | {"outcome": other}), order, short, settings)
        sections = [drops, _line_section(lost, short), _class_section(lost, short)]
        facts = [*facts, (lost.drops["model"].nunique(), "model"), (len(lost.shared), "class")]
    elif asked is None:
        empty = [name for name, counted in counts.items() if not len(counted.cells)]
        raise UserError(
            f"{listing(empty)} has no answer that --between could compare (holdfast eval or ask makes them)."
        )
    if asked is not None:
        sections.append(_question_section(asked))
    named = [fact if fact[1] != "class" else (*fact, "classes") for fact in facts]
    sections.append(what_was_run(Evidence(next(iter(counts.values()))), runs, settings, "--between"))
    first = sections[0]
    chart = first_figure(first.parts)
    front = Front(TITLE, answer(first.lead[0]), page_facts(*named), _LIMITS, chart=chart)
    return write_page(front, sections, out, **about_runs(runs, note))


def _drop_section(
    lost: DatasetDrops, other: DatasetDrops, order: list[str], short: dict[str, str], settings: dict[str, Any]
) -> Section:
    whole = lost.drops[lost.drops["part"] == ""]
    section = Section("lost", f"Accuracy lost against {lost.reference}", [lost.sentence, *_scope(lost)])
    rows = [short[name] for name in order]
    tidy = whole.assign(
        model=whole["dataset"], row=whole["model"].map(short), estimate=whole["drop"],
        solid=(whole["low"] > 0) | (whole["high"] < 0),
    )  # fmt: skip
    title = f"Points of accuracy lost from {lost.reference}, with 95 % intervals for unpaired images"
    figure = charts.dot_figure(
        "between_drops", title, lost.sentence, tidy, models=lost.datasets, rows=rows, zero=True,
        axis="points lost (to the right) or gained", note="Filled marks: the interval leaves out 0.",
    )  # fmt: skip
    section.parts.append(figure)
    place = {name: at for at, name in enumerate(order)}
    by_model = lost.drops.sort_values(
        ["part", "model"], key=lambda keys: keys.map(place) if keys.name == "model" else keys
    )
    lost_elsewhere = other.drops.set_index(["model", "dataset", "part"])["drop"]
    keys = zip(by_model["model"], by_model["dataset"], by_model["part"], strict=True)
    by_model = by_model.assign(other=[lost_elsewhere.get(key, np.nan) for key in keys])
    columns = [
        model_column(short),
        Column("dataset", "To"),
        *([Column("part", "Part", show=lambda name: name or "whole")] if (by_model["part"] != "").any() else []),
        *with_intervals("percent", reference=lost.reference, accuracy="Accuracy there"),
        Column("drop", "Lost", "points", "low", "high", hint="with other images of these classes"),
        Column("drop", "Lost, other classes", "points", "class_low", "class_high", hint="with other classes, too"),
        Column("other", f"Lost ({'restricted' if settings['outcome'] == 'full' else 'full'})", "points"),
        *plain("integer", n_reference=f"Images of {lost.reference}", n="Images there"),
    ]
    note = (
        "“Lost” has Newcombe's interval from both sides' own (images or prompts as clusters, classes as strata). "
        "“Lost, other classes” takes the classes as draws: mean ± t · s/√K of the class drops. Full: right over all "
        "outputs of a model; restricted: among the dataset's classes only."
    )
    section.parts.append(Table("between_drops", "Accuracy lost from dataset to dataset", by_model, columns, note))
    return section


def _scope(lost: DatasetDrops) -> list[str]:
    texts = [f"Only {plural(len(lost.shared), 'class', 'classes')} that all datasets have count."]
    texts += [
        f"{name} also has {plural(len(labels), 'class', 'classes')} that another lacks ({listing(labels)})."
        for name, labels in lost.left_out.items()
    ]
    if lost.missing:
        texts.append(f"Left out, because they were not tried on all datasets: {listing(lost.missing, 8)}.")
    return [" ".join(texts)]


def _line_section(lost: DatasetDrops, short: dict[str, str]) -> Section:
    section = Section("line", "Effective robustness")
    if lost.effective.reason:
        section.parts = [Notice(lost.effective.reason)]
        return section
    table = lost.effective.table
    section.lead = [
        f"Models that are better on {lost.reference} are usually better elsewhere, too. Effective robustness is what a "
        "model has above the line of the other models: logit(accuracy there) over logit(accuracy on "
        f"{lost.reference}), fitted without the model itself. {lost.effective.sentence}"
    ]
    for number, (dataset, rows) in enumerate(table.groupby("dataset", sort=False), 1):
        frame = rows.assign(model=rows["model"].map(short))
        section.parts.append(
            Figure(
                f"between_line_{number}",
                f"Accuracy on {dataset} against accuracy on {lost.reference}, on logit axes, a mark per model",
                f"The slope of the line is {rows['slope'].median():.2f} (median over the models left out).",
                partial(line_chart, frame, x=lost.reference, y=str(dataset)),
                "The dashed line goes through all models. Above it: more robust than accuracy on the reference says.",
            )
        )
    columns = [
        model_column(short),
        Column("dataset", "To"),
        *plain("percent", reference=lost.reference, accuracy="Accuracy there", predicted="Line of the others"),
        Column("effective", "Above the line", "points", "low", "high"),
        Column("slope", "Slope", "number", digits=2),
        Column("models", "Models in the line", "integer"),
    ]
    caption = "Effective robustness: accuracy minus what the line of the other models predicts"
    note = "Intervals resample the images of both datasets and refit the line; models are taken as they are."
    section.parts.append(
        Table("effective", caption, table.sort_values("effective", ascending=False), columns, note)
    )  # fmt: skip
    return section


def line_chart(frame: pd.DataFrame, width: int, *, x: str, y: str) -> Chart:
    """Return accuracies (columns ``reference``, ``accuracy``) on logit axes, with the line through all of them."""
    ticks = [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99]
    across, up = (logits(frame[name].to_numpy(np.float64), 400.0) for name in ("reference", "accuracy"))
    ends = [float(across.min()), float(across.max())]
    slope, level = np.polyfit(across, up, 1) if np.ptp(across) > 0 else (0.0, float(up.mean()))
    line = [{"x": end, "y": float(level + slope * end)} for end in ends]
    at = [float(np.log(tick / (1 - tick))) for tick in ticks]
    axis = {"values": at, "labelExpr": "format(1 / (1 + exp(-datum.value)), '.0%')", "domain": False, "ticks": False}
    scale = {"type": "quantitative", "scale": {"zero": False, "nice": True}}
    places = {
        name: scale | {"field": name, "axis": axis | {"title": f"accuracy on {dataset}"}}
        for name, dataset in (("x", x), ("y", y))
    }
    rows = frame.assign(x=across, y=up)[["model", "x", "y", "reference", "accuracy", "effective"]]
    shares = ("reference", "accuracy", "effective")
    tips = [{"field": "model"}, *({"field": name, "type": "quantitative", "format": ".1%"} for name in shares)]
    dots = charts.dot_layer(places | {"tooltip": tips}, 60, color=COLOURS[0], opacity=0.9)
    layers = [charts.dashed_line(line), dots]
    if len(rows) <= 12:
        look: dict[str, Any] = {"align": "left", "dx": 7, "fontSize": 11, "color": INK, "limit": 150}
        layers.append(charts.layer("text", places | {"text": {"field": "model"}}, **look))
    size = {"width": min(width - (170 if width >= WIDE else 60), 620), "height": 360 if width >= WIDE else 260}
    return charts.chart_of(rows, **size, layer=layers)


def _class_section(lost: DatasetDrops, short: dict[str, str]) -> Section:
    mean = lost.classes.groupby("label")["drop"].mean().sort_values(ascending=False)
    section = Section("classes", "Where it is lost")
    over = "Over models and datasets,"
    section.lead = [
        f"{over} most is lost on {mean.index[0]} ({points(mean.iloc[0])}) and least on {mean.index[-1]} "
        f"({points(mean.iloc[-1])})."
    ]
    if alike(mean.iloc[0], mean.iloc[-1]):
        section.lead = [f"{over} every class changes by {points(-mean.iloc[0])}."]
    columns = [
        CLASS,
        model_column(short),
        Column("dataset", "To"),
        *plain("percent", reference=lost.reference, accuracy="Accuracy there"),
        Column("drop", "Lost", "points", "low", "high"),
        Column("n", "Images there", "integer"),
    ]
    section.parts.append(
        Table("between_classes", "Accuracy lost by class, the most first", lost.classes, columns, folded=True)
    )  # fmt: skip
    return section


def _questions(runs: Sequence[Run]) -> tuple[str, pd.DataFrame] | None:
    """Return the reference's name and what answers to questions lose; None if a dataset has no questions."""
    frames = {}
    for name, own in _by_dataset(runs).items():
        if not any("question" in run.tasks() for run in own):
            return None
        frames[name] = read_questions(join_runs(own)).table
    table = question_drops(frames)
    return (next(iter(frames)), table) if len(table) else None


def _question_section(asked: tuple[str, pd.DataFrame]) -> Section:
    reference, table = asked
    most = table.sort_values("drop").iloc[-1]
    section = Section("asked", "Questions about the images")
    loses = "loses" if len(table) == 1 or alike(most["drop"], table["drop"].min()) else "loses most,"
    if most["drop"] <= 0 or alike(most["drop"], 0):
        loses = "has the largest change, a drop of" if len(table) > 1 else "changes, by a drop of"
    section.lead = [
        f"{most['model']} {loses} {points(most['drop'])} ({span(most['low'], most['high'])}): "
        f"{percent(most['reference'])} of its answers are right on {reference}, {percent(most['accuracy'])} on "
        f"{most['dataset']}. Counted strictly: an answer that names no option is wrong."
    ]
    columns = [
        Column("model", "Model"),
        Column("kind", "Question", show=lambda kind: kind.replace("_", " ")),
        Column("dataset", "To"),
        *plain("percent", reference=reference, accuracy="Right there"),
        Column("drop", "Lost", "points", "low", "high"),
        *plain("integer", n_reference=f"Answers on {reference}", n="Answers there"),
    ]
    section.parts.append(Table("between_questions", "Right answers lost from dataset to dataset", table, columns))
    return section
