"""Section: networks that were trained in these runs, within scenarios and on originals, with their curves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.core.files import stored_object
from holdfast.core.lazy import pd
from holdfast.core.numbers import alike, number, percent, points
from holdfast.core.schema import CURVES, JOBS
from holdfast.core.types import ORIGINAL
from holdfast.reports.page import charts
from holdfast.reports.page.evidence import Evidence
from holdfast.reports.page.figures import COLOURS, WIDE, Chart, Figure
from holdfast.reports.page.parts import Front, Listing, Part, Section, answer, first_figure
from holdfast.reports.page.picture_grid import images_of_classes
from holdfast.reports.page.sections import ReportEvidence, ReportSection
from holdfast.reports.page.tables import CLASS, CONDITION, Column, Table, model_column, plain, with_intervals
from holdfast.reports.page.words import condition_label, listing, page_facts, plural, short_names
from holdfast.stats.trained import within
from holdfast.store import Parts, Run, read_table

TITLE = "Trained within each scenario"
EPOCHS_SHOWN = 50  # Points of a curve; if there are more epochs, every n-th and the last are drawn


@dataclass(frozen=True)
class Contrast:
    """A way of training that is held against training on originals, and the words for it.

    ``trained_as`` has {} in place of the tested condition; ``name`` names figure and table.
    """

    trained_as: str
    name: str
    words: str
    title: str
    gains: str
    last: str


INSIDE = Contrast(
    "{}", "trained_within", "within", "within each condition", "Training within a condition instead of on originals",
    "What it does not bring back is not in the image, or is too much for the network or for a training of this "
    "length.",
)  # fmt: skip
UNSEEN = Contrast(
    "all but {}", "trained_without", "on all others", "on all conditions but the tested one",
    "Training on a mixture of all other conditions instead of on originals, with as many images,",
    "A condition was never seen before its test: what is gained came over from the others.",
)  # fmt: skip

_OPTIMISERS = {"adam": "Adam", "adamw": "AdamW"}


def training(runs: Sequence[Run], evidence: Evidence, *, compared: bool = True) -> Section:
    """Return what training within each scenario gains (if ``compared``), how the trainings went, and which failed."""
    jobs, curves = read_trainings(runs, "classify")
    short = short_names(sorted(jobs["model"].unique()))
    section = Section("training", TITLE, lead=[_lead(runs, jobs)])
    failed = jobs[jobs["status"] != "ok"]
    if len(failed):
        section.parts.append(failed_trainings(failed))
    if compared and len(evidence.counts.cells):
        trained_on = set(evidence.counts.cells["trained_on"].astype(str))
        unseen = any(name.startswith(UNSEEN.trained_as[:-2]) for name in trained_on)
        if not unseen or trained_on & set(evidence.counts.conditions) - {ORIGINAL}:
            section.parts += _compared(evidence, short, section.lead, INSIDE)
        if unseen:
            section.parts += _compared(evidence, short, section.lead, UNSEEN)
    section.parts += _curve_figures(curves, short)
    section.parts += [_balance(jobs), trainings_table("jobs", jobs, short, "Validation accuracy")] if len(jobs) else []
    return section


def read_trainings(runs: Sequence[Run], task: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the trainings of a task in these runs, and their curves."""
    jobs = pd.concat([_frame(read_table(run.path / "jobs.parquet", JOBS)) for run in runs])
    curves = pd.concat([_frame(Parts(run.path / "curves", CURVES).rows()) for run in runs])
    jobs = jobs[jobs["task"] == task]
    return jobs, curves[curves["job"].isin(jobs["job"])]


def failed_trainings(failed: pd.DataFrame) -> Listing:
    """Return the trainings that failed, with their errors."""
    errors = [f"{row['job']}: {row['error']}" for row in failed.to_dict("records")]
    return Listing(f"Trainings that failed ({len(failed)})", errors, open=len(failed) <= 6)


def _frame(table: Any) -> pd.DataFrame:
    frame: pd.DataFrame = table.to_pandas()
    names = [name for name in ("task", "model", "trained_on", "status", "split") if name in frame]
    return frame.astype(dict.fromkeys(names, object))


def _lead(runs: Sequence[Run], jobs: pd.DataFrame) -> str:
    spec = runs[0].spec()
    recipe = spec.get("trained_by") or {}
    folds = int(spec.get("folds", 1))
    tested = f"{folds} folds, each tested by models that never saw it" if folds > 1 else "one split"
    hours = float(jobs["seconds"].sum()) / 3600
    spent = f"{number(hours, 1)} hours" if hours >= 1 else f"{number(60 * hours, 1)} minutes"
    optimiser = _OPTIMISERS.get(str(recipe.get("optimiser")), str(recipe.get("optimiser")))
    return (
        f"{plural(len(jobs), 'training')} of {plural(jobs['model'].nunique(), 'network')} on "
        f"{plural(jobs['trained_on'].nunique(), 'condition')}, {tested}, {spent} in all. Recipe {spec.get('recipe')}: "
        f"{optimiser} at {recipe.get('rate', 0):g}, at most {recipe.get('epochs')} epochs in batches of "
        f"{recipe.get('batch_size')}, {recipe.get('size')} pixels, seed {spec.get('seed')}. The epoch with the best "
        "validation accuracy was kept; test images took no part in that choice."
    )


def _compared(evidence: Evidence, short: dict[str, str], lead: list[str], contrast: Contrast) -> list[Part]:
    """Return training on originals against another way of training, condition by condition."""
    frame = within(evidence.counts, trained_as=contrast.trained_as, **evidence.settings)
    both = frame.dropna(subset=["gain"])
    if len(both):
        mean = both.groupby("condition")["gain"].mean().sort_values()
        gain, low, high = (float(value) for value in (both["gain"].mean(), mean.iloc[0], mean.iloc[-1]))
        changed = "changes nothing" if alike(gain, 0) else f"{'gains' if gain > 0 else 'loses'} {points(abs(gain))}"
        ends = (
            f": most under {condition_label(str(mean.index[-1]))} ({points(high)}), least under "
            f"{condition_label(str(mean.index[0]))} ({points(low)})"
        )
        lead.append(f"{contrast.gains} {changed} on average{'' if alike(low, high) else ends}. {contrast.last}")
    ways = {"originals": "on originals", "within": contrast.words}
    parts = []
    for way, words in ways.items():
        known = frame.dropna(subset=[way])
        if way == "within" and len(both):
            known = known[known["condition"] != ORIGINAL]  # the same models, shown once
        names = [f"{short.get(name, name)}, {words}" for name in known["model"]]
        interval = {"estimate": known[way], "low": known[f"{way}_low"], "high": known[f"{way}_high"]}
        parts.append(known.assign(model=names, row=known["condition"].map(condition_label), **interval))
    tidy = pd.concat(parts)
    order = [f"{short.get(name, name)}, {words}" for name in evidence.counts.models for words in ways.values()]
    models = [name for name in order if name in set(tidy["model"])]
    # The original first, then the conditions that harm models trained on originals most.
    means = frame.groupby("condition")["originals"].mean().fillna(frame.groupby("condition")["within"].mean())
    rows = [
        condition_label(name) for name in sorted(means.index, key=lambda name: (name != ORIGINAL, means[name], name))
    ]
    title = f"Accuracy of networks trained on originals and of the same networks trained {contrast.title}"
    note = "Intervals are over images; trainings differ, too, which the table of gains counts if there are folds."
    look: dict[str, Any] = {"models": models, "rows": rows, "axis": "accuracy", "domain": (0, 1), "note": note}
    figure = charts.dot_figure(contrast.name, title, lead[-1], tidy, **look)
    columns = [
        CONDITION,
        model_column(short, "Network"),
        *with_intervals("percent", originals="On originals", within=contrast.words.capitalize()),
        Column("gain", "Gain", "points", "low", "high"),
        Column("n", "Images", "integer"),
    ]
    caption = f"Trained on originals and {contrast.title}"
    table = Table(contrast.name, caption, frame, columns, folded=True)
    return [figure, table]


def _curve_figures(curves: pd.DataFrame, short: dict[str, str]) -> list[Part]:
    """Return accuracy and loss by epoch, a panel per condition; means over folds."""
    if curves.empty:
        return []
    mean = thinned(curves, ["loss", "accuracy"])
    mean = mean.assign(model=mean["model"].map(short), panel=mean["trained_on"].map(condition_label))
    conditions = sorted(mean["trained_on"].unique(), key=lambda name: (name != ORIGINAL, name))
    order: dict[str, Any] = {condition_label(name): place for place, name in enumerate(conditions)}
    mean["position"] = mean["panel"].map(order)
    at_end = mean[mean["last"]].groupby("split")["accuracy"].mean()
    at_last = listing([f"{percent(value, 0)} on {name} images" for name, value in at_end.items()])
    figures = []
    for measure, title in (("accuracy", "Accuracy by epoch"), ("loss", "Loss by epoch")):
        rows = mean[["panel", "position", "model", "split", "epoch", measure]].rename(columns={measure: "value"})
        figures.append(
            Figure(
                f"curves_{measure}",
                f"{title}, on training and validation images; a panel is what was trained on",
                f"{title} of every training, mean over folds. In the last epoch accuracy is {at_last}.",
                partial(lines, rows, models=list(dict.fromkeys(short.values())), share=measure == "accuracy"),
                "Dashed: training images, as augmented; solid: validation images, as they are. Means over folds; "
                "tensorboard/ in the run's folder has every training by itself.",
            )
        )
    return list(figures)


def thinned(curves: pd.DataFrame, measures: list[str]) -> pd.DataFrame:
    """Return means over folds by epoch, few enough to be drawn; ``last`` marks where a curve ends."""
    keys = ["trained_on", "model", "split"]
    mean = curves.groupby([*keys, "epoch"], as_index=False)[measures].mean()
    mean["last"] = mean["epoch"] == mean.groupby(keys)["epoch"].transform("max")
    step = -(-int(mean["epoch"].max()) // EPOCHS_SHOWN)
    return mean[(mean["epoch"] % step == 0) | mean["last"] | (mean["epoch"] == 1)]


def lines(frame: pd.DataFrame, width: int, *, models: Sequence[str], share: bool) -> Chart:
    """Return curves by epoch in small panels, a colour per model, dashed for training images."""
    desk = width >= WIDE
    across = min(4 if desk else 2, frame["panel"].nunique())
    inner = (width - 40) // across - 34
    axis: Chart = {"domain": False, "ticks": False, "tickCount": 3}
    scale = {"domain": [0, 1]} if share else {"domainMin": 0, "nice": True}
    y = {"field": "value", "type": "quantitative", "title": None, "scale": scale}
    y["axis"] = axis | ({"format": "%"} if share else {})
    dash = {"domain": ["train", "validation"], "range": [[3, 2], [1, 0]]}
    tip = [{"field": name} for name in ("model", "split", "epoch")]
    tip.append({"field": "value", "type": "quantitative", "format": ".1%" if share else ".3f"})
    legend = {"orient": "top", "title": None, "padding": 6}
    first, last = int(frame["epoch"].min()), int(frame["epoch"].max())
    epochs = sorted({first, (first + last) // 2, last})
    colours = [COLOURS[place % len(COLOURS)] for place in range(len(models))]
    by_model = {"domain": list(models), "range": colours}
    encoding: Chart = {
        "x": {"field": "epoch", "type": "quantitative", "axis": axis | {"format": "d", "values": epochs}},
        "y": y,
        "color": {"field": "model", "type": "nominal", "scale": by_model, "legend": legend},
        "strokeDash": {"field": "split", "type": "nominal", "scale": dash, "legend": legend},
        "tooltip": tip,
    }
    point = False if frame["epoch"].nunique() > 1 else {"size": 20}
    curves = [charts.layer("line", encoding, strokeWidth=1.6, point=point)]
    spec = {"width": inner, "height": round(0.6 * inner), "layer": curves}
    panels = {"facet": charts.facet_of("panel", inner, 3), "columns": across, "spacing": {"row": 12, "column": 16}}
    return charts.chart_of(frame, **panels, spec=spec)


def _balance(jobs: pd.DataFrame) -> Table:
    """Return how many training images each class had."""
    counts = pd.DataFrame([stored_object(text, "class_balance") for text in jobs["class_balance"].dropna()])
    frame = pd.DataFrame({"label": counts.columns, "least": counts.min().to_numpy(), "most": counts.max().to_numpy()})
    columns = [
        CLASS,
        *plain("integer", least="Fewest images in a training", most="Most images in a training"),
    ]
    return Table("class_balance", "Training images of each class", frame, columns, folded=True)


def trainings_table(name: str, jobs: pd.DataFrame, short: dict[str, str], measure: str) -> Table:
    """Return a row per training; ``measure`` names what was best on validation images."""
    columns = [
        model_column(short, "Network"),
        Column("trained_on", "Trained on", show=condition_label),
        Column("fold", "Test fold", "integer"),
        Column("status", "Status"),
        *plain("integer", epochs="Epochs", best_epoch="Best epoch"),
        Column("validation", measure, "percent"),
        *plain("integer", train_images="Training images", seconds="Seconds"),
    ]
    return Table(name, "The trainings", jobs, columns, folded=True)


def _section(report: ReportEvidence) -> Section:
    return training(report.trained, _every(report))


def _every(report: ReportEvidence) -> Evidence:
    return Evidence(report.counts, **report.settings)


def _front(report: ReportEvidence) -> Front:
    every, section, rows = _every(report), report.once(_section), report.static
    jobs, curves = read_trainings(report.trained, "classify")
    charts_of_curves = _curve_figures(curves, short_names(sorted(jobs["model"].unique())))
    gained = section.lead[1:]
    return Front(
        "What does training within each scenario gain?",
        answer(gained[0] if gained else "The trainings ended; nothing can be compared yet", section.lead[0]),
        page_facts(
            (len(every.models), "model"),
            (rows.dataset.count_rows(), "row"),
            (len(every.conditions), "condition"),
        ),
        "Each network is tested on images that it did not see in training. Intervals are at the 95 % level and treat "
        "images as independent.",
        images_of_classes(every, rows, report.pictures, classes=3, columns=4),
        first_figure(charts_of_curves) or first_figure(section.parts),
    )


TRAINING = ReportSection(lambda report: report.once(_section), lambda report: bool(report.trained), _front)
