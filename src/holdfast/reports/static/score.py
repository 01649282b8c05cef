"""Tables of the robustness score: its parts, what each scenario adds, and the convention it was computed by."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.lazy import pd
from holdfast.core.numbers import number, span
from holdfast.core.types import ORIGINAL
from holdfast.reports.page.evidence import Evidence
from holdfast.reports.page.parts import Listing, Notice, Part
from holdfast.reports.page.tables import Column, Table, model_column, ranged
from holdfast.reports.page.words import condition_label, listing, plural
from holdfast.stats.effects.score import WHOLE

_FORMULAS = {
    "cross_inner": "S = 1 − (σ²cross + σ²inner), each σ² the mean squared deviation of the scenario accuracies from "
    "the accuracy on originals μ: cross of models trained on originals, inner of models trained within each scenario "
    "(none: the cross part alone)",
    "scenario_class": "S = 1 − (σi + σe), the paper's earlier score with standard deviations: over scenarios around "
    "the accuracy on originals μ, and over classes around their mean",
    "scenario_class_variance": "S = 1 − (σi + σe), the paper's earlier score with variances in place of standard "
    "deviations: over scenarios around the accuracy on originals μ, and over classes around their mean",
}

_PARTS = {
    "cross_inner": ("Cross part, σ²", "Inner part, σ²"),
    "scenario_class": ("σ over scenarios", "σ over classes"),
    "scenario_class_variance": ("Variance over scenarios", "Variance over classes"),
}


def convention(evidence: Evidence) -> str:
    """Return how the score was computed: formula, conditions, divisor, and what a gain does."""
    rule = evidence.analysis
    names = [name for name in evidence.scored if name not in evidence.counts.same_images]
    divisor = (
        "Sums of squares are divided by their number n (ddof 0), as in the paper's equations"
        if rule.ddof == 0
        else f"Sums of squares are divided by n − {rule.ddof} (ddof {rule.ddof}), as in the paper's printed tables"
    )
    gains = (
        "only losses count: a gain over μ counts as 0"
        if rule.losses_only
        else "a gain over μ lowers the score like a loss"
    )
    conditions = f"{plural(len(names), 'condition')}: {listing([condition_label(name) for name in names], 20)}"
    return f"{_FORMULAS[rule.score]}. Over {conditions}. {divisor}; {gains}."


def robustness_columns(short: Mapping[str, str]) -> list[Column]:
    """Return the columns of robustness scores as shown."""
    return [
        model_column(short),
        Column("score", "Score", "number", "low", "high", digits=4),
        Column("debiased", "Debiased", "number", digits=4, hint="without the noise that squaring adds"),
        Column("variance_cross", "Variance over scenarios", "number", digits=4),
        Column(
            "variance_inner",
            "Second variance",
            "number",
            digits=4,
            hint="of models trained and tested within a scenario; over classes in the earlier score",
        ),
        Column("stability_low", "Least without one class", "number", digits=4),
        Column("stability_high", "Most without one class", "number", digits=4),
        Column("normality_p", "Scenarios normal? p", "p", hint="Shapiro–Wilk test of the scenario accuracies"),
        Column("n_conditions", "Conditions", "integer"),
    ]


def score_parts(evidence: Evidence) -> list[Part]:
    """Return the tables of the score and the warnings about it, or why there is none."""
    robust = evidence.scores
    if isinstance(robust, str):
        return [Notice(f"The robustness score. {robust}")]
    warnings = [
        f"{evidence.name(row['model'])} {row['warning']}." for row in robust.to_dict("records") if row["warning"]
    ]
    parts: list[Part] = []
    if warnings:
        parts.append(Listing("Robustness scores that do not mean robustness", warnings, open=True))
    if not evidence.score_parts.empty:
        parts += [_parts_table(evidence, parts_frame(evidence)), _scenario_table(evidence)]
    note = (
        f"{convention(evidence)} A constant classifier scores 1: read the score together with the accuracies. "
        "Conditions that blur or light the object reward a model that relies on the background; the score over the "
        "background alone does not have them."
    )
    columns = robustness_columns(evidence.short)
    return [*parts, Table("robustness_score", "The robustness score in detail", robust, columns, note, folded=True)]


def parts_frame(evidence: Evidence) -> pd.DataFrame:
    """Return a row per model, the best score first: accuracy on originals, both parts, score and parameters."""
    assert not isinstance(evidence.scores, str)
    frame = evidence.score_parts
    parts = _wide(frame[frame["condition"] == WHOLE]).drop(columns="condition")
    robust = evidence.scores[["model", "score", "low", "high", "debiased", "accuracy_original", "n_conditions"]]
    robust = robust.rename(columns={"low": "score_low", "high": "score_high"})
    summary = evidence.summary[evidence.summary["condition"] == ORIGINAL]
    original = summary[["model", "low", "high"]].rename(columns={"low": "original_low", "high": "original_high"})
    table = robust.merge(parts, on="model").merge(original, on="model", how="left")
    known = table["model"].map({name: cost.parameters for name, cost in evidence.analysis.costs.items()}).astype(float)
    if known.notna().any():
        table["parameters"] = known / 1e6
    return table.sort_values("score", ascending=False, kind="stable").reset_index(drop=True)


def parts_words(evidence: Evidence, row: pd.Series) -> str:
    """Return a model's score as one minus its parts."""
    ends = span(row["score_low"], row["score_high"], 3, 1)
    parts = f"1 − ({number(row['cross'], 4)} + {number(row['inner'], 4)})" if "inner" in row else "across only"
    return f"{evidence.name(str(row['model']))} {number(row['score'], 3)} ({ends}) = {parts}"


def _wide(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row per model and condition; ``cross`` and ``inner`` with ``_low`` and ``_high``."""
    wide = None
    for part, own in frame.groupby("part", sort=True):
        names = {"squared": str(part), "low": f"{part}_low", "high": f"{part}_high", "deviation": f"{part}_deviation"}
        named = own[["model", "condition", *names]].rename(columns=names)
        wide = named if wide is None else wide.merge(named, on=["model", "condition"], how="outer")
    assert wide is not None
    return wide


def _parts_table(evidence: Evidence, table: pd.DataFrame) -> Table:
    first, second = _PARTS[evidence.analysis.score]
    columns = [
        model_column(evidence.short),
        Column("parameters", "Parameters (M)", "number", digits=2, hint="millions of learned numbers"),
        Column("accuracy_original", "Originals, μ", "percent", "original_low", "original_high"),
        ranged("cross", first, "number", 4),
        ranged("inner", second, "number", 4),
        ranged("score", "Score", "number", 4),
        Column("debiased", "Debiased", "number", digits=4, hint="without the noise that squaring adds"),
        Column("n_conditions", "Conditions", "integer"),
    ]
    note = f"{convention(evidence)} Intervals treat images as independent and do not include other trainings."
    kept = [column for column in columns if column.key in table]
    return Table("score_parts", "The robustness score and its parts", table, kept, note)


def _scenario_table(evidence: Evidence) -> Table:
    frame = evidence.score_parts
    known = {*evidence.counts.conditions}
    wide = _wide(frame[(frame["condition"] != WHOLE) & frame["condition"].isin(known)])
    worst = wide.groupby("condition")["cross"].mean()
    place = {name: at for at, name in enumerate(evidence.models)}
    wide = wide.assign(place=-wide["condition"].map(worst), own=wide["model"].map(place))
    wide = wide.sort_values(["place", "own"], kind="stable").drop(columns=["place", "own"]).reset_index(drop=True)
    columns = [
        Column("condition", "Scenario", show=condition_label),
        model_column(evidence.short),
        Column("cross_deviation", "Trained on originals: less μ", "points"),
        ranged("cross", "squared", "percent", 2),
        Column("inner_deviation", "Trained within: less μ", "points"),
        ranged("inner", "squared", "percent", 2),
    ]
    kept = [column for column in columns if column.key in wide]
    caption = "What each scenario adds: squared deviations from the accuracy on originals, in per cent"
    return Table("score_scenarios", caption, wide, kept, shown=60, folded=True)
