"""``holdfast study metrics``: do all metrics of robustness measure the same thing?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from holdfast.core.errors import UserError
from holdfast.core.numbers import number, span
from holdfast.reports.page.charts import chart_of, layer, nominal, room, tooltip
from holdfast.reports.page.figures import INK, WIDE, Chart
from holdfast.reports.page.tables import Column, plain, ranged
from holdfast.reports.page.words import listing, plural, short_names
from holdfast.reports.study import Finding, StudyResult
from holdfast.stats.core.bootstrap import NO_ESTIMATE, Estimate, interval
from holdfast.stats.models.ranks import (
    MetricValues,
    correlate,
    correlates_more,
    mean_correlation,
    mean_of,
    with_holm,
)
from holdfast_studies import metric_measures as measures
from holdfast_studies.metric_measures import Metric
from holdfast_studies.study import DRAWN, EMBEDDED, Setting, Study, StudyOptions, subject

QUICK_MODELS = (
    "embedded:resnet_rho0", "embedded:resnet_rho95", "embedded:mobilenet_rho95", "embedded:resnet_rho95_strong",
)  # fmt: skip
MEAN = "Mean of these"
NARROW = "\u00a0"  # a space that no line breaks at
OPPOSED, NEITHER, ALIKE = "#b35806", "#f7f7f7", "#2166ac"
"""Colours of −1, 0 and 1, distinguished by people with any of the common colour deficiencies."""
_RHO = [
    Column("spearman", "Spearman's ρ", "number", "low", "high", digits=2, hint="interval for other images and models"),
    Column("images", "These models", hint="95 % interval of ρ over images alone"),
    Column("without", "One left out", hint="smallest and largest ρ when one model is left out"),
    ranged("tau", "Kendall's τ", "number", 2, hint="over images and models"),
    Column("p_holm", "p", "p", hint="of Kendall's τ, exact over models; Holm's correction over the table"),
]


def run(options: StudyOptions) -> StudyResult:
    """Measure every metric on every model, and correlate."""
    _check(options)
    models = measures.load_models(options)
    metrics, missing = measures.static(options, models)
    metrics.append(measures.corruptions(options, models))
    for title, metric in (
        ("PGD accuracy", measures.attack(options, models)),
        ("FMR", measures.fmr(options, models)),
        ("Hard-set accuracy", measures.hard_set(options, models)),
    ):
        if isinstance(metric, str):
            missing[title] = metric
        else:
            metrics.append(metric)
    other = measures.other_data(options, models)
    values = measures.resample([*metrics, *other], seed=options.seed)
    own = {metric.key: values[metric.key] for metric in metrics}
    findings = [_against_each_other(metrics, own, options.seed)]
    if other:
        findings.append(_against_other_data(metrics, other, values, options.seed))
    findings += [
        _every_model(models.names, [*metrics, *other], values),
        _what_was_measured(metrics, other, values, missing),
    ]
    return StudyResult(
        title="Metrics of robustness",
        question=_question(len(models.names), bool(other)),
        findings=findings,
        facts={
            "models": len(models.names),
            "metrics": len(metrics),
            "other data": len(other),
            "images": len(metrics[0].clusters),
        },
    )


STUDY = Study(
    run,
    (
        *subject((EMBEDDED,), 240, quick=QUICK_MODELS, quick_scenes=24, generator="", oracle=""),
        Setting("other", (DRAWN,), "other data to be right on; drawn stands for drawn scenes of other kinds"),
        Setting("other_scenes", 480, "images of each other data", 24),
        Setting("corrupted", 120, "images for the corruptions", 12),
        Setting("severities", (1.0, 2.0, 3.0, 4.0, 5.0), "of each corruption", (3.0,)),
        Setting("attacked", 120, "images for the attack", 12),
        Setting("attack", "pgd", "the attack, a scenario by name", "pgd?steps=2"),
        Setting("walked", 36, "images for the walks behind FMR", 12),
        Setting("steps", 10, "of a walk, at most", 2),
        Setting("step_size", 0.05, "of a walk, in units of the generator's latent"),
        Setting("pool", "", "folder of generated images to mine; empty: Holdfast's, for drawn scenes"),
        Setting("pool_images", 0, "at most so many of them; 0 for all", 72),
        Setting("surrogates", (measures.ITSELF,),
                "who chooses the hard set; models stands for those under test, each judged by what the others fail"),
    ),
)  # fmt: skip


def _check(options: StudyOptions) -> None:
    settings = options.settings
    options.require(scenes=2, corrupted=2, attacked=2, walked=2, other_scenes=2)
    if not 0 <= settings["context"] <= 1:
        raise UserError("context must be a number from 0 to 1")
    if not set(settings["severities"]) <= {1, 2, 3, 4, 5}:
        raise UserError("severities are whole numbers from 1 to 5, for example --set severities=1,3,5")
    if measures.ITSELF not in settings["surrogates"] and len(set(settings["surrogates"])) < 2:
        raise UserError("a shared failure takes two surrogates or more: --set surrogates=A,B,C")


def _question(models: int, other: bool) -> str:
    return (
        f"Do metrics of robustness measure the same thing? All of them were taken of the same {models} models, and "
        "each was turned so that more is better (background effect and corruption error count with a minus sign): a "
        "rank correlation of 1 means the same order of models, −1 the reverse. "
        + (
            "Then each was held against accuracy on other data. "
            if other
            else "No other data was named (--set other=A,B), so none is foretold. "
        )
        + "Spearman's ρ and Kendall's τ, not Pearson's r: the metrics have unlike scales, some are squares or ratios, "
        "and what is asked is the order. Intervals are at the 95 % level. Those of ρ are for other images and other "
        "models: both are resampled, images of one source together and the same for all metrics of one data, and they "
        "are never narrower than Bonett and Wright's for so many models. No one drew these models at random, so "
        "‘other models’ means others of this kind. Surrogates of the hard set stay as they are in a resample."
    )


def _row(first: str, second: str, correlation: Mapping[str, Any]) -> dict[str, Any]:
    ends = {"images": ("images_low", "images_high"), "without": ("least", "most")}
    shown = {
        name: span(correlation[low], correlation[high], 2, 1).replace(" ", NARROW) for name, (low, high) in ends.items()
    }
    return {"first": first, "second": second, **correlation, **shown}


def _against_each_other(metrics: Sequence[Metric], values: Mapping[str, MetricValues], seed: int) -> Finding:
    rows = [
        _row(metric.title, other.title, correlate(values[metric.key], values[other.key], seed=seed))
        for metric, other in combinations(metrics, 2)
    ]
    frame = pd.DataFrame(with_holm(rows))
    numbers = frame[["spearman", "low", "high"]]
    cells = pd.concat(
        numbers.assign(row=frame[row], column=frame[column])
        for row, column in (("first", "second"), ("second", "first"))
    )
    titles = [metric.title for metric in metrics]
    return Finding(
        "Metrics against each other",
        _agreement_in_words(frame, mean_correlation(values, seed=seed)),
        frame.sort_values("spearman", ascending=False, ignore_index=True),
        [*plain("text", first="Metric", second="and"), *_columns(frame)],
        chart=lambda width: correlation_chart(cells, width, rows=titles, columns=titles),
        caption="Rank correlation of every two metrics over models, each turned so that more is better",
    )


def _columns(frame: pd.DataFrame) -> list[Column]:
    """Return the columns of correlations; number of models and reason only if they differ."""
    extra = [Column("n", "Models", "integer")] if frame["n"].nunique() > 1 else []
    return [*_RHO, *extra, *([Column("reason", "Why there is none")] if frame["reason"].any() else [])]


def _agreement_in_words(frame: pd.DataFrame, mean: Estimate) -> list[str]:
    known = frame.dropna(subset=["spearman"])
    if known.empty:
        return ["No two metrics could be correlated."]
    alike, opposed = known[known["low"] > 0], known[known["high"] < 0]
    n, pairs = int(known["n"].max()), len(known)
    if len(alike) == pairs:
        verdict = f"All {pairs} pairs of metrics order the models alike, as far as {n} models can say."
    elif len(opposed):
        verdict = (
            f"They do not measure the same thing: of {pairs} pairs of metrics {len(alike)} surely order the models "
            f"alike and {len(opposed)} surely the other way round."
        )
    else:
        verdict = (
            f"Of {pairs} pairs of metrics {len(alike) or 'none'} surely order the models alike; of the other "
            f"{pairs - len(alike)} nothing is sure with {n} models."
        )
    ranked = known.sort_values("spearman")
    closest, farthest = (
        f"{row['first']} and {row['second']} (ρ = {number(row['spearman'])}, {span(row['low'], row['high'], 2, 1)})"
        for row in (ranked.iloc[-1], ranked.iloc[0])
    )
    opposed_here = known[known["images_high"] < 0]
    pairs_here = zip(opposed_here["first"], opposed_here["second"], strict=True)
    named = [f"{first} against {second}" for first, second in pairs_here]
    holds = int((known["p_holm"] < 0.05).sum())
    wide = float((known["high"] - known["low"]).median())
    return [
        f"{verdict} Each interval speaks for itself; with Holm's correction over all pairs {holds or 'none'} of "
        f"Kendall's τ differ from 0. The mean of the correlations is {number(mean.value)} "
        f"({span(mean.low, mean.high, 2, 1)}).",
        f"Of these {plural(n, 'model')} themselves, images alone resampled, {int((known['images_low'] > 0).sum())} "
        f"pairs are surely alike and {len(named)} surely opposed" + (f" ({listing(named, 9)})." if named else "."),
        f"The closest are {closest}; the farthest apart {farthest}.",
        f"With {plural(n, 'model')} an interval of ρ is {number(wide)} wide in the middle: a sign is what can be read, "
        "hardly a size. More models make it narrower (--set models=embedded,local-dir:FOLDER/*).",
    ]


def _against_other_data(
    metrics: Sequence[Metric], other: Sequence[Metric], values: Mapping[str, MetricValues], seed: int
) -> Finding:
    """Compare each metric with the order of the models on other data."""
    targets = {metric.title: values[metric.key] for metric in other}
    if len(other) > 1:
        targets[MEAN] = mean_of(list(targets.values()))
    rows = []
    for title, target in targets.items():
        for metric in metrics:
            own = values[metric.key]
            clean = metric.key == "clean"
            more = NO_ESTIMATE if clean else correlates_more(own, values["clean"], target, seed=seed)
            rows.append(_row(metric.title, title, correlate(own, target, seed=seed)) | more.row("more"))
    frame = pd.DataFrame(with_holm(rows))
    cells = frame.assign(row=frame["first"], column=frame["second"])
    more_column = ranged("more", "ρ above that of clean accuracy", "number", 2)
    titles = [metric.title for metric in metrics]
    return Finding(
        "Metrics and accuracy on other data",
        _foretold_in_words(frame, list(targets)[-1]),
        frame,
        [*plain("text", second="Accuracy on", first="Metric"), *_columns(frame), more_column],
        chart=lambda width: correlation_chart(cells, width, rows=titles, columns=list(targets)),
        caption="Rank correlation of each metric with accuracy on other data, over models",
    )


def _foretold_in_words(frame: pd.DataFrame, last: str) -> list[str]:
    whole = frame[(frame["second"] == last) & frame["spearman"].notna()]
    if whole.empty:
        return ["No metric could be correlated with accuracy on other data."]

    def rho(row: Any) -> str:
        return f"ρ = {number(row['spearman'])}"

    def ends(row: Any) -> str:
        return span(row["low"], row["high"], 2, 1)

    best = whole.sort_values("spearman").iloc[-1]
    clean = whole[whole["first"] == "Clean accuracy"]
    what = "the mean accuracy on other data" if last == MEAN else f"accuracy on {last}"
    clean_words = f"; clean accuracy has {rho(clean.iloc[0])} ({ends(clean.iloc[0])})." if len(clean) else "."
    sure, wrong, better = (
        [str(name) for name in whole.loc[clear, "first"]]
        for clear in (whole["low"] > 0, whole["high"] < 0, whole["more_low"] > 0)
    )
    sentences = [
        f"With {what}, {best['first']} goes best ({rho(best)}, {ends(best)}){clean_words}",
        (f"Surely with it: {listing(sure, 9)}. " if sure else "None goes with it surely. ")
        + (f"Surely against it: {listing(wrong, 9)}." if wrong else "None goes surely against it."),
    ]
    if better:
        sentences.append(f"Surely better foretold than by clean accuracy: by {listing(better, 9)}.")
    return sentences


def _every_model(names: Sequence[str], metrics: Sequence[Metric], values: Mapping[str, MetricValues]) -> Finding:
    short = short_names(names)
    table: dict[str, Any] = {"model": [short[name] for name in names]}
    columns = [Column("model", "Model")]
    for metric in metrics:
        key = metric.key.replace(" ", "_")
        own = values[metric.key]
        low, high = interval(own.resampled)
        table |= {key: own.measured, f"{key}_low": low, f"{key}_high": high}
        columns.append(ranged(key, metric.title, metric.kind, 3 if metric.kind == "number" else 1))
    sentence = "Measures keep their own direction. Intervals are over images, for these models."
    return Finding("Every model", [sentence], pd.DataFrame(table), columns)


def _what_was_measured(
    metrics: Sequence[Metric], other: Sequence[Metric], values: Mapping[str, MetricValues], missing: Mapping[str, str]
) -> Finding:
    rows: list[dict[str, Any]] = [
        {"metric": metric.title, "what": metric.what, "images": len(metric.clusters),
         "sources": len(set(metric.clusters)), "reliability": values[metric.key].reliability(),
         "least": np.nanmin(values[metric.key].measured), "most": np.nanmax(values[metric.key].measured)}
        for metric in (*metrics, *other)
    ]  # fmt: skip
    rows += [{"metric": title, "what": f"left out: {why}"} for title, why in missing.items()]
    unsure = [row["metric"] for row in rows if row.get("reliability", 1) < 0.8]
    sentences = [
        "Reliability is the share of the variance between models that is not the sampling of images: what is measured "
        "with little of it cannot correlate highly with anything."
        + (f" It is under 0.8 for {listing(unsure, 9)}." if unsure else " It is 0.8 or more for all of them.")
    ]
    if any(metric.key == "hard" for metric in metrics):
        sentences.append(
            "No model has a say in the hard set it is judged on. If the models choose for each other, each has a "
            "set of its own, and that of a strong model, chosen by weaker ones, is the easier: the metric exaggerates. "
            "Surrogates that are not under test make one set for all (--set surrogates=A,B,C)."
        )
    sentences += [f"{title} was left out: {why}." for title, why in missing.items()]
    columns = [
        *plain("text", metric="Metric", what="What it is"),
        Column("images", "Images", "integer"),
        Column("sources", "Sources", "integer", hint="scenes, images or prompts: what is resampled"),
        Column("reliability", "Reliability", "number", digits=2),
    ]
    return Finding("What was measured", sentences, pd.DataFrame(rows), columns)


def correlation_chart(frame: pd.DataFrame, width: int, *, rows: Sequence[str], columns: Sequence[str]) -> Chart:
    """Return Spearman's ρ as shades from −1 to 1, with the number and, if it fits, its interval."""
    desk = width >= WIDE
    label = room(rows, 170 if desk else 96, 12 if desk else 10)
    size = min(104, (width - label - (110 if desk else 12)) // len(columns))
    axis: Chart = {"ticks": False, "domain": False, "title": None, "labelLimit": label, "labelPadding": 4}
    axis |= {} if desk else {"labelFontSize": 10}
    above = min(room(columns, 170 if desk else 96, 12 if desk else 10), label)
    top = axis | {"orient": "top", "labelAngle": -40 if desk else -90, "minExtent": round(0.75 * above)}
    place = {"x": nominal("column", columns, axis=top), "y": nominal("row", rows, axis=axis | {"minExtent": label})}
    scale = {"domain": [-1, 0, 1], "range": [OPPOSED, NEITHER, ALIKE]}
    legend = {"title": "Spearman's ρ", "gradientThickness": 10, "gradientLength": 120, "values": [-1, 0, 1]}
    shade = {"field": "spearman", "type": "quantitative", "scale": scale, "legend": legend if desk else None}
    numbers = {"spearman": "Spearman's ρ", "low": "95 % from", "high": "to"}
    tip = tooltip({"row": "metric", "column": "with"}, numbers, ".2f")
    ink = {"condition": {"test": "abs(datum.spearman) > 0.72", "value": "white"}, "value": INK}
    with_interval = size >= 78
    text = place | {"text": {"field": "shown" if desk else "brief"}, "color": ink}
    layers = [
        layer("rect", place | {"color": shade, "tooltip": tip}, stroke="white", strokeWidth=1),
        layer("text", text, fontSize=13 if with_interval else 10.5, dy=-7 if with_interval else 0),
    ]
    if with_interval:
        layers.append(layer("text", place | {"text": {"field": "span"}, "color": ink}, fontSize=10, dy=9))
    known = frame.dropna(subset=["spearman"])
    numbered = known.assign(
        shown=[number(value, 2) for value in known["spearman"]],
        brief=[number(value, 1) for value in known["spearman"]],
        span=[f"{number(low)} to {number(high)}" for low, high in zip(known["low"], known["high"], strict=True)],
    )
    height = {"step": 44 if with_interval else 30}
    return chart_of(numbered, 3, width={"step": size}, height=height, layer=layers)
