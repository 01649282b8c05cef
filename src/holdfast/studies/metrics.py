"""``holdfast study metrics``: do all metrics of robustness measure the same thing?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.core.errors import UserError
from holdfast.report.page.tables import Column
from holdfast.report.page.words import listing, number, plural, short_names, span
from holdfast.report.study import DRAWN_WORLD, Finding, StudyResult
from holdfast.stats.core.bootstrap import interval
from holdfast.studies import metrics_measures as measures
from holdfast.studies.metrics_agreement import (
    LEAST_MODELS,
    Metric,
    Values,
    correlate,
    mean_correlation,
    mean_of,
    more_than,
    resample,
    with_holm,
)
from holdfast.studies.metrics_chart import correlations
from holdfast.studies.study import Setting, Study, StudyOptions

if TYPE_CHECKING:
    import pandas as pd

SETTINGS = (
    Setting(
        "models", ("embedded",), "embedded stands for ours, local-dir:FOLDER/* for all in a folder; others by name",
        ("embedded:resnet_rho0", "embedded:resnet_rho95", "embedded:mobilenet_rho95", "embedded:resnet_rho95_strong"),
    ),
    Setting("data", "", "images that the metrics are measured on; empty: drawn scenes"),
    Setting("masks", "", "folder of their masks"),
    Setting("labels", "", "CSV that maps classes to model outputs"),
    Setting("other", (measures.DRAWN,), "other data to be right on; drawn stands for drawn scenes of other kinds"),
    Setting("scenes", 240, "images for clean accuracy, score and background effect", 24),
    Setting("context", 0.95, "how strongly class and background go together in the drawn scenes, 0 to 1"),
    Setting("corrupted", 120, "images for the corruptions", 12),
    Setting("severities", (1.0, 2.0, 3.0, 4.0, 5.0), "of each corruption", (3.0,)),
    Setting("attacked", 120, "images for the attack", 12),
    Setting("attack", "pgd", "the attack, a scenario by name", "pgd?steps=2"),
    Setting("walked", 36, "images for the walks behind FMR", 12),
    Setting("steps", 10, "of a walk, at most", 2),
    Setting("step_size", 0.05, "of a walk, in units of the generator's latent"),
    Setting("generator", "", "what makes images of latents; empty: embedded:vqgan for drawn scenes", "pixel:"),
    Setting("oracle", "", "who judges walks and pool; empty: clip:embedded for drawn scenes"),
    Setting("pool", "", "folder of generated images to mine; empty: the one that comes along, for drawn scenes"),
    Setting("pool_images", 0, "at most so many of them; 0 for all", 72),
    Setting(
        "surrogates", (measures.ITSELF,),
        "who chooses the hard set; models stands for those under test, each judged by what the others fail",
    ),
    Setting("other_scenes", 480, "images of each other data", 24),
)  # fmt: skip
MEAN = "Mean of these"
NARROW = "\u00a0"
"""A space that no line breaks at."""

_RHO = [
    Column("spearman", "Spearman's ρ", "number", "low", "high", digits=2, hint="interval for other images and models"),
    Column("images", "These models", hint="95 % interval of ρ over images alone"),
    Column("without", "One left out", hint="smallest and largest ρ when one model is left out"),
    Column("tau", "Kendall's τ", "number", "tau_low", "tau_high", digits=2, hint="over images and models"),
    Column("p_holm", "p", "p", hint="of Kendall's τ, exact over models; Holm's correction over the table"),
]


def run(options: StudyOptions) -> StudyResult:
    """Measure everything on every model, and correlate."""
    _check(options.settings)
    models = measures.load_models(options, least=LEAST_MODELS)
    metrics, left_out = _measured(options, models)
    other = measures.others(options, models)
    values = resample([*metrics, *other], seed=options.seed)
    own = {metric.key: values[metric.key] for metric in metrics}
    findings = [_against_each_other(metrics, own, options.seed)]
    if other:
        findings.append(_against_other_data(metrics, other, values, options.seed))
    findings += [
        _every_model(models.names, [*metrics, *other], values),
        _what_was_measured(metrics, other, values, left_out),
    ]
    drawn = measures.is_drawn(options.settings)
    return StudyResult(
        title="Metrics of robustness",
        question=_question(len(models.names), bool(other)),
        findings=findings,
        facts=[
            (str(len(models.names)), "models"), (str(len(metrics)), "metrics"), (str(len(other)), "other data"),
            (str(len(metrics[0].clusters)), "images"),
        ],
        note=" ".join(
            ([DRAWN_WORLD] if drawn else [])
            + (["A rehearsal, with too few images and models to say anything."] if options.quick else [])
        ),
        runs=[f"runs/{folder.name}" for folder in sorted((options.out / "runs").iterdir())],
    )  # fmt: skip


STUDY = Study(run, SETTINGS)


def _check(settings: Mapping[str, Any]) -> None:
    for name, least in (("scenes", 2), ("corrupted", 2), ("attacked", 2), ("walked", 2), ("other_scenes", 2)):
        if settings[name] < least:
            raise UserError(f"{name} must be {least} or more")
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
        "are never narrower than Bonett and Wright's for so many models. Nobody drew these models at random, so "
        "‘other models’ means others of this kind. Surrogates of the hard set stay as they are in a resample."
    )


def _measured(options: StudyOptions, models: measures.Models) -> tuple[list[Metric], dict[str, str]]:
    """The metrics there are, and title → why there is none."""
    metrics, left_out = measures.static(options, models)
    metrics.append(measures.corruptions(options, models))
    for title, made in (
        ("PGD accuracy", measures.attack(options, models)),
        ("FMR", measures.walks(options, models)),
        ("Hard-set accuracy", measures.hard_set(options, models)),
    ):
        if isinstance(made, str):
            left_out[title] = made
        else:
            metrics.append(made)
    return metrics, left_out


def _row(first: Metric | str, second: Metric | str, found: Mapping[str, Any]) -> dict[str, Any]:
    titles = [one if isinstance(one, str) else one.title for one in (first, second)]
    return {
        "first": titles[0], "second": titles[1], **found,
        "images": span(found["images_low"], found["images_high"], 2, 1).replace(" ", NARROW),
        "without": span(found["least"], found["most"], 2, 1).replace(" ", NARROW),
    }  # fmt: skip


def _against_each_other(metrics: Sequence[Metric], values: Mapping[str, Values], seed: int) -> Finding:
    import pandas as pd

    rows = with_holm(
        [
            _row(one, other, correlate(values[one.key], values[other.key], seed=seed))
            for one, other in combinations(metrics, 2)
        ]
    )
    frame = pd.DataFrame(rows)
    titles = [metric.title for metric in metrics]
    return Finding(
        "Metrics against each other",
        _agreement_in_words(frame, mean_correlation(values, seed=seed)),
        frame.sort_values("spearman", ascending=False, ignore_index=True),
        [Column("first", "Metric"), Column("second", "and"), *_columns(frame)],
        chart=lambda width: correlations(_square(frame), width, rows=titles, columns=titles),
        caption="Rank correlation of every two metrics over models, each turned so that more is better",
    )


def _columns(frame: pd.DataFrame) -> list[Column]:
    """How correlations are shown; the number of models and the reason only where they differ."""
    extra = [Column("n", "Models", "integer")] if frame["n"].nunique() > 1 else []
    return [*_RHO, *extra, *([Column("reason", "Why there is none")] if frame["reason"].any() else [])]


def _square(frame: pd.DataFrame) -> pd.DataFrame:
    """Each pair both ways, as cells of a map."""
    import pandas as pd

    numbers = frame[["spearman", "low", "high"]]
    return pd.concat(
        [
            numbers.assign(row=frame["first"], column=frame["second"]),
            numbers.assign(row=frame["second"], column=frame["first"]),
        ]
    )


def _agreement_in_words(frame: pd.DataFrame, mean: tuple[float, float, float]) -> list[str]:
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
    ends = ranked.iloc[-1], ranked.iloc[0]
    here, same_here = _opposed(known), int((known["images_low"] > 0).sum())
    holds = int((known["p_holm"] < 0.05).sum())
    wide = float((known["high"] - known["low"]).median())
    return [
        f"{verdict} Each interval speaks for itself; with Holm's correction over all pairs {holds or 'none'} of "
        f"Kendall's τ differ from 0. The mean of the correlations is {number(mean[0])} "
        f"({span(mean[1], mean[2], 2, 1)}).",
        f"Of these {plural(n, 'model')} themselves, images alone resampled, {same_here} pairs are surely alike and "
        f"{len(here)} surely opposed" + (f" ({listing(here, 9)})." if here else "."),
        f"The closest are {_pair(ends[0])}; the farthest apart {_pair(ends[1])}.",
        f"With {plural(n, 'model')} an interval of ρ is {number(wide)} wide in the middle: a sign is what can be read, "
        "hardly a size. More models make it narrower (--set models=embedded,local-dir:FOLDER/*).",
    ]


def _opposed(known: pd.DataFrame) -> list[str]:
    """The metrics that have a part in pairs that are opposed for these very models, with whom."""
    rows = known[known["images_high"] < 0]
    return [f"{one} against {other}" for one, other in zip(rows["first"], rows["second"], strict=True)]


def _pair(row: Any) -> str:
    return f"{row['first']} and {row['second']} (ρ = {number(row['spearman'])}, {span(row['low'], row['high'], 2, 1)})"


def _against_other_data(
    metrics: Sequence[Metric], other: Sequence[Metric], values: Mapping[str, Values], seed: int
) -> Finding:
    """How well each metric foretells the order of the models on other data."""
    import pandas as pd

    targets = {metric.title: values[metric.key] for metric in other}
    if len(other) > 1:
        targets[MEAN] = mean_of(list(targets.values()))
    rows = []
    for title, target in targets.items():
        for metric in metrics:
            row = _row(metric, title, correlate(values[metric.key], target, seed=seed))
            base = values["clean"]
            more = (np.nan,) * 3 if metric.key == "clean" else more_than(values[metric.key], base, target, seed=seed)
            rows.append(row | dict(zip(("more", "more_low", "more_high"), more, strict=True)))
    frame = pd.DataFrame(with_holm(rows))
    cells = frame.assign(row=frame["first"], column=frame["second"])
    columns = [
        Column("second", "Accuracy on"), Column("first", "Metric"), *_columns(frame),
        Column("more", "ρ above that of clean accuracy", "number", "more_low", "more_high", digits=2),
    ]  # fmt: skip
    return Finding(
        "Metrics and accuracy on other data",
        _foretold_in_words(frame, list(targets)[-1]),
        frame,
        columns,
        chart=lambda width: correlations(
            cells, width, rows=[metric.title for metric in metrics], columns=list(targets)
        ),
        caption="Rank correlation of each metric with accuracy on other data, over models",
    )  # fmt: skip


def _foretold_in_words(frame: pd.DataFrame, last: str) -> list[str]:
    whole = frame[(frame["second"] == last) & frame["spearman"].notna()]
    if whole.empty:
        return ["No metric could be correlated with accuracy on other data."]
    best = whole.sort_values("spearman").iloc[-1]
    clean = whole[whole["first"] == "Clean accuracy"]
    what = "the mean accuracy on other data" if last == MEAN else f"accuracy on {last}"
    said = [
        f"With {what}, {best['first']} goes best (ρ = {number(best['spearman'])}, "
        f"{span(best['low'], best['high'], 2, 1)})"
        + (f"; clean accuracy has ρ = {number(clean['spearman'].iloc[0])} "
           f"({span(clean['low'].iloc[0], clean['high'].iloc[0], 2, 1)})." if len(clean) else ".")
    ]  # fmt: skip
    sure = [str(name) for name in whole.loc[whole["low"] > 0, "first"]]
    wrong = [str(name) for name in whole.loc[whole["high"] < 0, "first"]]
    said.append(
        (f"Surely with it: {listing(sure, 9)}. " if sure else "None goes with it surely. ")
        + (f"Surely against it: {listing(wrong, 9)}." if wrong else "None goes surely against it.")
    )
    better = [str(name) for name in whole.loc[whole["more_low"] > 0, "first"]]
    if better:
        said.append(f"Surely better foretold than by clean accuracy: by {listing(better, 9)}.")
    return said


def _every_model(names: Sequence[str], metrics: Sequence[Metric], values: Mapping[str, Values]) -> Finding:
    import pandas as pd

    short = short_names(names)
    frame = pd.DataFrame({"model": [short[name] for name in names]})
    for metric in metrics:
        key = metric.key.replace(" ", "_")
        low, high = _ends(values[metric.key])
        frame[key], frame[f"{key}_low"], frame[f"{key}_high"] = values[metric.key].found, low, high
    columns = [Column("model", "Model")]
    for metric in metrics:
        key = metric.key.replace(" ", "_")
        digits = 3 if metric.kind == "number" else 1
        columns.append(Column(key, metric.title, metric.kind, f"{key}_low", f"{key}_high", digits=digits))
    lines = ["Values as they are, not turned; intervals over images, these models fixed."]
    return Finding("Every model", lines, frame, columns)


def _ends(values: Values) -> tuple[Any, Any]:
    known = np.asarray(np.isfinite(values.resampled).any(axis=0))
    low, high = (np.full(known.shape, np.nan) for _ in range(2))
    if known.any():
        low[known], high[known] = interval(values.resampled[:, known])
    return low, high


def _what_was_measured(
    metrics: Sequence[Metric], other: Sequence[Metric], values: Mapping[str, Values], left_out: Mapping[str, str]
) -> Finding:
    import pandas as pd

    rows: list[dict[str, Any]] = [
        {"metric": one.title, "what": one.what, "images": len(one.clusters), "sources": len(set(one.clusters)),
         "reliability": values[one.key].reliability(), "least": np.nanmin(values[one.key].found),
         "most": np.nanmax(values[one.key].found)}
        for one in (*metrics, *other)
    ]  # fmt: skip
    rows += [{"metric": title, "what": f"left out: {why}"} for title, why in left_out.items()]
    frame = pd.DataFrame(rows)
    unsure = [row["metric"] for row in rows if row.get("reliability", 1) < 0.8]
    said = [
        "Reliability is the share of the variance between models that is not the sampling of images: what is measured "
        "with little of it cannot correlate highly with anything."
        + (f" It is under 0.8 for {listing(unsure, 9)}." if unsure else " It is 0.8 or more for all of them.")
    ]
    if any(metric.key == "hard" for metric in metrics):
        said.append(
            "No model has a say in the hard set it is judged on. Where the models choose for each other, each has a "
            "set of its own, and that of a strong model, chosen by weaker ones, is the easier: the metric exaggerates. "
            "Surrogates that are not under test make one set for all (--set surrogates=A,B,C)."
        )
    said += [f"{title} was left out: {why}." for title, why in left_out.items()]
    columns = [
        Column("metric", "Metric"), Column("what", "What it is"), Column("images", "Images", "integer"),
        Column("sources", "Sources", "integer", hint="scenes, photos or prompts: what is resampled"),
        Column("reliability", "Reliability", "number", digits=2),
    ]  # fmt: skip
    return Finding("What was measured", said, frame, columns)
