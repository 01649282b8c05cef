"""Section: the scores of the models, and the numbers that the verdicts rest on."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.core.lazy import pd
from holdfast.core.numbers import alike, estimate
from holdfast.core.types import ORIGINAL
from holdfast.reports.page.charts import dot_figure
from holdfast.reports.page.evidence import Evidence
from holdfast.reports.page.parts import Part, Section
from holdfast.reports.page.sections import ReportSection, answered
from holdfast.reports.page.tables import Column, Table, model_column, plain, ranged
from holdfast.reports.page.words import plural
from holdfast.reports.static.score import score_parts
from holdfast.stats.effects.verdict_words import score_weakness

_RESTS_ON = (
    ("background_effect", "Background effect", "same-class background minus random background, same images"),
    ("object_effect", "Object effect", "answers with the background's class: object agrees minus object does not"),
    ("paste_effect", "Paste effect", "original minus same-class background"),
    ("capture", "Capture", "answers with the donor's class minus the rate on the originals"),
    ("only_background_excess", "Background alone", "accuracy above the label-permuted rate"),
    ("silhouette_excess", "Silhouette", "accuracy above the label-permuted rate"),
)  # key, title and hint of the numbers that a verdict rests on


def verdict_columns(short: Mapping[str, str]) -> list[Column]:
    """Return the columns of verdicts as shown."""
    return [
        model_column(short),
        Column("headline", "Verdict"),
        *(ranged(key, title, "points", hint=hint) for key, title, hint in _RESTS_ON),
        Column("n", "Images", "integer"),
    ]


def verdict_table(evidence: Evidence) -> Table:
    """Return the table of what the verdicts rest on."""
    frame = evidence.holds
    printed = frame.assign(warnings=["; ".join(texts) for texts in frame["warnings"]])
    kept = [column for column in verdict_columns(evidence.short) if column.key in printed]
    note = "Background effect: what changing only the background costs. Paste effect: what pasting alone costs."
    return Table("verdicts", "What the verdicts rest on", printed, kept, note, folded=not evidence.all_early)


def early_numbers(evidence: Evidence) -> Section:
    """Return the numbers of a page on models that were asked in rounds, all with intervals that hold at any stop."""
    return Section("scores", "What the verdict rests on", parts=[verdict_table(evidence)])


_EFFECTS = {
    "background_effect": "background changed",
    "object_effect": "object changed",
    "paste_effect": "only pasted",
}


def effect_parts(evidence: Evidence) -> list[Part]:
    """Return a chart of what the verdicts rest on; nothing if no effect was measured."""
    holds = evidence.holds
    measured = [key for key in _EFFECTS if key in holds and holds[key].notna().any()]
    frames = [
        pd.DataFrame({
            "model": holds["model"].map(evidence.short), "row": _EFFECTS[key], "estimate": holds[key],
            "low": holds[f"{key}_low"], "high": holds[f"{key}_high"],
        })
        for key in measured
    ]  # fmt: skip
    if not frames:
        return []
    figure = dot_figure(
        "effects", "What the verdicts rest on: points of accuracy, or of answers, that a change moves",
        "What changing only the background, only the object, and nothing but the pasting does to the answers.",
        pd.concat(frames, ignore_index=True), models=[evidence.short[name] for name in evidence.models],
        rows=[_EFFECTS[key] for key in measured], axis="points",
        zero=True, note="0 is best for the background and for pasting, 100 for the object (all predictions follow it).",
    )  # fmt: skip
    return [figure]


def scores(evidence: Evidence) -> Section:
    """Return the table of scores with intervals."""
    section = Section("scores", "Scores")
    frame = score_frame(evidence)
    best = frame.iloc[0]
    own = evidence.classes[(evidence.classes["model"] == best["model"]) & (evidence.classes["condition"] == ORIGINAL)]
    kind = "mean of the classes " if evidence.average == "macro" else ""
    original = (
        f"right on {int(own['right'].sum()):,} of {plural(int(own['n'].sum()), 'original')}, {kind}"
        f"{estimate(best['original'], best['original_low'], best['original_high'])}; "
    )
    if best["original"] != best["original"]:
        original = ""
    order = "The models in order of their mean accuracy over the conditions that keep the object. First comes "
    if len(frame) > 1 and alike(best["mean"], frame["mean"].min()):
        order = "All models have the same mean accuracy over the conditions that keep the object. "
    section.lead = [
        f"{order if len(frame) > 1 else ''}{evidence.name(best['model'])}: {original}"
        f"{estimate(best['mean'], best['mean_low'], best['mean_high'])} over the conditions that keep the object."
    ]
    section.parts = [score_table(evidence, frame), *effect_parts(evidence), verdict_table(evidence)]
    section.parts += score_parts(evidence)
    return section


def score_frame(evidence: Evidence) -> pd.DataFrame:
    """Return a row of scores per model, the best first."""
    frame = pd.DataFrame({"model": evidence.models})
    original = evidence.summary[evidence.summary["condition"] == ORIGINAL].set_index("model")
    for column, key in (("original", "accuracy"), ("original_low", "low"), ("original_high", "high"), ("n", "n")):
        frame[column] = frame["model"].map(original[key]) if len(original) else float("nan")
    ranking = evidence.ranking.table.set_index("model")
    means = evidence.with_object(evidence.summary).groupby("model")["accuracy"].mean()
    frame["mean"] = frame["model"].map(ranking["accuracy"]).fillna(frame["model"].map(means)).astype(float)
    frame["mean_low"], frame["mean_high"] = frame["model"].map(ranking["low"]), frame["model"].map(ranking["high"])
    holds = evidence.holds.set_index("model")
    if len(frame) > 1:  # of one model, the first screen has the verdict
        frame["rank"] = frame["model"].map(ranking["rank"])
        frame["headline"] = frame["model"].map(holds["headline"])
    frame["weakness"] = frame["model"].map(holds["leans"]).map(score_weakness)
    nothing = frame["model"].map(holds["unjudged"]).fillna("").ne("")
    frame.loc[nothing, "weakness"] = "says nothing: guesses and constant answers score high, too"
    for key in ("background_effect", "paste_effect"):
        for part in (key, f"{key}_low", f"{key}_high"):
            frame[part] = frame["model"].map(holds[part])
    if not isinstance(evidence.scores, str):
        robust = evidence.scores.set_index("model")
        for column, key in (("score", "score"), ("score_low", "low"), ("score_high", "high"), ("warning", "warning")):
            frame[column] = frame["model"].map(robust[key])
    for column in ("parameters", "milliseconds", "fast", "slow"):
        values = {name: getattr(cost, column) for name, cost in evidence.analysis.costs.items()}
        known = frame["model"].map(evidence.own_names).map(values).astype(float)
        if known.notna().any():
            frame[column] = known / 1e6 if column == "parameters" else known
    if not isinstance(evidence.background_scores, str):
        kept = evidence.background_scores.set_index("model")
        for column, key in (("background_score", "score"), ("background_low", "low"), ("background_high", "high")):
            frame[column] = frame["model"].map(kept[key])
    return frame


def score_table(evidence: Evidence, frame: pd.DataFrame) -> Table:
    """Return the table of scores as shown."""
    columns = [
        model_column(evidence.short),
        *plain("text", headline="Verdict", rank="Rank"),
        ranged("original", "Originals"),
        ranged("mean", "Conditions", hint="mean accuracy over conditions that keep the object"),
        ranged("background_effect", "Background effect", "points", hint="lost when only the background changes"),
        Column("background_score", "Score, background", "number", "background_low", "background_high", digits=3,
               hint="1 minus the spread of the accuracies over the conditions that leave the object as it is"),
        Column("score", "Robustness score, published", "number", "score_low", "score_high", digits=3, beside="weakness",
               hint="1 minus the spread of the accuracies"),
        Column("parameters", "Parameters (M)", "number", digits=1, hint="millions of learned numbers"),
        Column("milliseconds", "Time (ms)", "number", "fast", "slow", digits=1, hint="per image, with quartiles"),
    ]  # fmt: skip
    columns = [column for column in columns if column.key in frame]
    kind = "Accuracies are means over classes" if evidence.average == "macro" else "Every image counts the same"
    note = (
        f"{kind}; 95 % intervals, those of the mean over conditions hold for all models at once. The background effect "
        f"is a drop: positive is lost. {evidence.analysis.timing}"
    ).strip()
    return Table("scores", "Scores of the models", frame, columns, note)


SCORES = ReportSection(
    lambda report: (early_numbers if report.classified.all_early else scores)(report.classified), answered,
    measures=("scores",),
)  # fmt: skip
