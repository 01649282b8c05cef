"""Sections: models compared with each other, their ranks, what each condition costs; and the regression of accuracy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd
from holdfast.core.names import without_object
from holdfast.core.numbers import alike, number, p_words, percent, points, span
from holdfast.core.types import ORIGINAL
from holdfast.reports.page import charts
from holdfast.reports.page.evidence import Evidence
from holdfast.reports.page.figures import Figure
from holdfast.reports.page.parts import Heading, Notice, Part, Section, Text
from holdfast.reports.page.regression import fitted_sentence, regression_parts
from holdfast.reports.page.sections import ReportSection, usual
from holdfast.reports.page.tables import CONDITION, Column, Table, model_column, plain
from holdfast.reports.page.words import DAGGER, class_words, condition_label, listing, plural
from holdfast.stats.effects.interaction import Interaction, interaction
from holdfast.stats.models.between import pairs
from holdfast.stats.models.power import donors_of, sample_sizes
from holdfast.stats.regression.clusters import photo_rows
from holdfast.stats.regression.fit import cells_from_counts
from holdfast.stats.regression.fit import fit as fit_regression


def comparison(evidence: Evidence) -> Section:
    """Return ranks, pairs and drops, all paired on the image."""
    section = Section("comparison", "Paired comparison")
    section.lead = [
        "Models are compared on the same images, so that what makes an image hard cancels out. p-values are corrected "
        "by Holm within each family: the pairs of models are one, the drops under the conditions another."
    ]
    if len(evidence.models) == 1:
        section.lead = [
            "What each condition costs, on the same images as the original. p-values are corrected by Holm over all "
            "drops. There is one model only, so there are no ranks and no pairs."
        ]
        section.parts = drop_parts(evidence)
        return section
    section.parts = [*_ranks(evidence), *_pairs(evidence), *drop_parts(evidence)]
    return section


def _ranks(evidence: Evidence) -> list[Part]:
    ranking = evidence.ranking
    if ranking.reason:
        return [Heading("Ranks"), Notice(ranking.reason)]
    table = ranking.table
    short = evidence.short
    labels = [f"{rank} · {short.get(name, name)}" for name, rank in zip(table["model"], table["rank"], strict=True)]
    tidy = table.assign(model="", row=labels, estimate=table["accuracy"])
    sentence = _rank_sentence(evidence, table)
    title = "Models by mean accuracy over the conditions, with simultaneous 95 % intervals and possible ranks"
    note = "The number before a name is its rank; a span of ranks means that the images do not decide between them."
    figure = charts.dot_figure("ranks", title, sentence, tidy, axis="mean accuracy over conditions", note=note)
    columns = [
        *plain("text", model="Model", rank="Rank"),
        Column("accuracy", "Mean accuracy", "percent", "low", "high"),
        Column("n", "Images", "integer"),
    ]
    shown_table = Table("ranking", "Ranks; models that cannot be distinguished share one", table, columns, folded=True)
    return [Heading("Ranks"), Text([sentence]), figure, shown_table]


def _rank_sentence(evidence: Evidence, table: pd.DataFrame) -> str:
    first = table[table["rank_low"] == 1]
    photos = plural(int(table["n"].iloc[0]), "image")
    names = [
        f"{evidence.name(row['model'])} ({percent(row['accuracy'])}, {span(row['low'], row['high'])})"
        for row in first.to_dict("records")
    ]
    if len(first) == 1:
        return f"{names[0]} is first, clearly ahead of the others on {photos}."
    return f"{len(first)} models share the first rank: {listing(names)} cannot be distinguished on {photos}."


def _pairs(evidence: Evidence) -> list[Part]:
    compared = pairs(evidence.counts, **evidence.settings)
    if compared.reason:
        return [Heading("Every two models"), Notice(compared.reason)]
    table = compared.table
    parts: list[Part] = [Heading("Every two models"), Text([_pair_sentence(evidence, table)])]
    if len(evidence.models) > 2:
        parts.append(_matrix(evidence, table, str(parts[1].texts[0])))  # type: ignore[union-attr]
    columns = [
        Column("first", "First", show=evidence.name),
        Column("second", "Second", show=evidence.name),
        Column("difference", "First − second", "points", "low", "high"),
        *plain("p", p="p", p_holm="p (Holm)"),
        Column("first_only", "First better", "integer", hint="images on which the first was right more often"),
        Column("second_only", "Second better", "integer", hint="images on which the second was right more often"),
    ]
    ordered = table.sort_values("p_holm", kind="stable")
    parts.append(
        Table("pairs", "Differences of mean accuracy, paired on the image", ordered, columns, folded=len(table) > 6)
    )
    detail = pairs(evidence.counts, by_condition=True, **evidence.settings).table
    detail = detail.sort_values(["p_holm", "p"], kind="stable")
    caption = "Differences of accuracy by condition (McNemar), the clearest first"
    return [*parts, Table("pairs_by_condition", caption, detail, [CONDITION, *columns], shown=30, folded=True)]


def _pair_sentence(evidence: Evidence, table: pd.DataFrame) -> str:
    apart = table[table["p_holm"] < 0.05]
    if len(table) == 1:
        row = table.iloc[0]
        verdict = "a difference that chance does not explain" if len(apart) else "which may be chance"
        first, second = (evidence.name(row[key]) for key in ("first", "second"))
        if alike(row["difference"], 0):
            ends = span(row["low"], row["high"])
            return f"Over all conditions, {first} and {second} are equally accurate (difference {ends})."
        more = "more" if row["difference"] >= 0 else "less"
        return (
            f"Over all conditions, {first} is {points(abs(row['difference']))} {more} accurate than {second} "
            f"(difference {span(row['low'], row['high'])}, {p_words(row['p_holm'])}), {verdict}."
        )
    largest = table.sort_values("difference", key=abs).iloc[-1]
    if alike(largest["difference"], 0):
        return f"All {len(evidence.models)} models are equally accurate over all conditions."
    first, second = (evidence.short.get(largest[key], largest[key]) for key in ("first", "second"))
    return (
        f"{len(apart)} of {len(table)} pairs can be distinguished after Holm's correction; the largest difference is "
        f"{points(largest['difference'])} ({span(largest['low'], largest['high'])}), {first} against {second}."
    )


def _matrix(evidence: Evidence, table: pd.DataFrame, sentence: str) -> Figure:
    short = evidence.short
    rows = table.assign(row=table["first"], column=table["second"], estimate=table["difference"])
    mirrored = rows.assign(
        row=rows["column"], column=rows["row"], estimate=-rows["estimate"], low=-rows["high"], high=-rows["low"]
    )
    both = pd.concat([rows, mirrored], ignore_index=True)
    both["clear"] = both["p_holm"] < 0.05
    pairs = list(zip(both["estimate"], both["clear"], strict=True))
    for column, digits in (("shown", 1), ("brief", 0)):
        both[column] = [number(100 * value, digits) + ("*" if clear else "") for value, clear in pairs]
    for column in ("row", "column"):
        both[column] = both[column].map(evidence.name)
    tidy = both[["row", "column", "estimate", "low", "high", "clear", "shown", "brief"]]
    models = [short[name] for name in evidence.models if short[name] in set(tidy["row"])]
    return Figure(
        "pairs",
        "How many points the model of the row is more accurate than the model of the column",
        sentence,
        lambda width: charts.matrix(tidy, width, models=models),
        "A star (or a dot in small cells) marks differences that remain significant after Holm's correction.",
    )


def drop_parts(evidence: Evidence) -> list[Part]:
    """Return what each condition costs, as a chart and a table."""
    heading = Heading("What each condition costs")
    if ORIGINAL not in evidence.conditions:
        missing = "The originals were not among the conditions, so there is nothing to measure a drop from."
        return [heading, Notice(missing)]
    frame = evidence.drops
    if frame.empty:
        return [heading, Notice("There is no condition other than the original.")]
    kept = evidence.with_object(frame)
    sentence = _drop_sentence(evidence, kept)
    order = [name for name in evidence.conditions if name != ORIGINAL and not without_object(name)]
    rows = [condition_label(name) for name in order if name in set(kept["condition"])]
    parts: list[Part] = [heading, Text([sentence, *_power(kept, donors_of(evidence.counts))])]
    if rows:
        figure = charts.model_figure(
            "drops", "Points of accuracy lost against the original on the same images, with 95 % intervals", sentence,
            kept.assign(solid=kept["p_holm"] < 0.05), "drop", short=evidence.short, rows=rows,
            axis="points lost (to the right) or gained", zero=True,
            note="Filled marks: the loss or gain remains significant after Holm's correction over all drops. Hollow: "
            "it may be chance.",
        )  # fmt: skip
        parts.append(figure)
    ordered = evidence.in_order(frame, "condition")
    columns = drop_columns(evidence.short)
    if frame["wide_class"].astype(bool).any():
        hint = "the class that makes up most of the variance"
        columns.append(Column("wide_class", "Wide because of", show=class_words, hint=hint))
    note = DAGGER if frame["condition"].map(without_object).any() else ""
    table = Table(
        "drops", "Accuracy lost against the original, paired on the image", ordered, columns, note, folded=True
    )
    return [*parts, table]


def drop_columns(short: Mapping[str, str]) -> list[Column]:
    """Return the columns of drops as shown."""
    return [
        CONDITION,
        model_column(short),
        Column("drop", "Lost", "points", "low", "high"),
        Column("lost", "Images lost", "integer", hint="right on the original, wrong here"),
        Column("gained", "Images gained", "integer", hint="wrong on the original, right here"),
        *plain("p", p="p (McNemar)", p_holm="p (Holm)"),
        Column("n", "Images", "integer"),
    ]


def _power(kept: pd.DataFrame, donors: dict[str, int]) -> list[str]:
    """Return a sentence on how small a drop these images can show."""
    if kept.empty:
        return []
    sizes = sample_sizes(kept, difference=0.02, donors=donors)
    needed = ""
    if len(sizes) >= 4:
        fewest, most = (int(sizes["photos_needed"].quantile(share)) for share in (0.25, 0.75))
        needed = f"; a drop of 2 points would need {fewest:,} to {most:,}, as half of the comparisons have it"
    return [
        f"In the middle of these comparisons, {plural(int(sizes['n'].median()), 'image')} find a drop of "
        f"{points(sizes['detectable'].median())} four times in five{needed}."
    ]


def _drop_sentence(evidence: Evidence, kept: pd.DataFrame) -> str:
    if kept.empty:
        return "No condition but the original keeps the object, so there is no drop to test."
    sure = kept[(kept["p_holm"] < 0.05) & (kept["drop"] > 0)].sort_values("drop", ascending=False)
    if sure.empty:
        return (
            f"None of {plural(len(kept), 'drop')} remains significant after Holm's correction: these images do not "
            "show that any single condition costs accuracy. Families and the regression pool conditions."
        )
    row = sure.iloc[0]
    conditions = list(dict.fromkeys(condition_label(name) for name in sure["condition"]))
    return (
        f"{len(sure)} of {plural(len(kept), 'drop')} {'remains' if len(sure) == 1 else 'remain'} significant after "
        f"Holm's correction, under {listing(conditions)}. The largest: {evidence.name(row['model'])} loses "
        f"{points(row['drop'])} ({span(row['low'], row['high'])}) under {condition_label(row['condition'])}."
    )


def fit(evidence: Evidence) -> Section:
    """Return the additive regression, and the interaction that it leaves out."""
    section = Section("regression", "Regression")
    section.lead = [
        "How much of the accuracy goes with the model, the scenario and the class, each with the others held; and "
        "whether models differ in what a scenario costs them."
    ]
    fitted = fit_regression(
        cells_from_counts(evidence.counts, outcome=evidence.outcome),
        references=evidence.analysis.references,
        family=evidence.analysis.regression,
        confidence=evidence.analysis.confidence,
        photos=photo_rows(evidence.counts, outcome=evidence.outcome),
    )
    section.parts.append(Heading("Accuracy ~ model + scenario + class"))
    if fitted.reason:
        section.parts.append(Notice(fitted.reason))
    else:
        section.lead.insert(0, fitted_sentence(fitted, evidence.name, "accuracy"))
        section.parts += regression_parts(fitted, evidence.name, digits=evidence.analysis.digits)
    section.parts.append(Heading("Do models differ in what a scenario costs them?"))
    section.parts += _interaction(evidence)
    return section


def _interaction(evidence: Evidence) -> list[Part]:
    try:
        tested = interaction(evidence.counts, outcome=evidence.outcome, **evidence.resampling)
    except UserError as error:
        return [Notice(str(error))]
    if tested.reason:
        return [Notice(tested.reason)]
    above = "The regression above has one effect per scenario for all models."
    parts: list[Part] = [Text([f"{above} {tested.sentence}", tested.explanation])]
    parts += _differences(evidence, tested)
    columns = [
        CONDITION,
        Column("first", "First", show=evidence.name),
        Column("second", "Second", show=evidence.name),
        *plain("points", drop_first="First loses", drop_second="Second loses"),
        Column("difference", "Difference", "points", "low", "high"),
        *plain("p", p="p", p_holm="p (Holm)"),
        Column("odds_ratio", "Ratio of odds ratios", "number", digits=2),
    ]
    ordered = tested.pairs.sort_values("p_holm", kind="stable")
    caption = "Differences between the drops of two models, the clearest first"
    return [*parts, Table("interaction", caption, ordered, columns, shown=30, folded=True)]


def _differences(evidence: Evidence, tested: Interaction) -> list[Figure]:
    """Return the drops of the other models against the first one's; of many models, those that differ most."""
    frame = tested.pairs
    base = next((name for name in evidence.models if name in set(frame["first"]) | set(frame["second"])), None)
    if base is None:
        return []
    mine = frame[(frame["first"] == base) | (frame["second"] == base)]
    turned = mine["first"] == base  # shown is the other model's drop minus the base's
    tidy = mine.assign(
        model=mine["second"].where(turned, mine["first"]).map(evidence.name),
        row=mine["condition"].map(condition_label),
        estimate=mine["difference"].where(~turned, -mine["difference"]),
        low=mine["low"].where(~turned, -mine["high"]),
        high=mine["high"].where(~turned, -mine["low"]),
        solid=mine["p_holm"] < 0.05,
    )
    most = tidy.assign(size=tidy["estimate"].abs()).groupby("model")["size"].max().sort_values(ascending=False)
    chosen = set(most.index[: charts.SIDE_BY_SIDE])
    models = [evidence.short[name] for name in evidence.models if evidence.short[name] in chosen]
    tidy = tidy[tidy["model"].isin(chosen)][["model", "row", "estimate", "low", "high", "solid"]]
    present = set(tidy["row"])
    rows = [condition_label(name) for name in evidence.conditions if condition_label(name) in present]
    few = f" Of {len(most)} models it shows the {len(chosen)} that differ most." if len(most) > len(chosen) else ""
    who = f"{models[0]} loses" if len(models) == 1 else "the others lose"
    title = f"How many points more {who} than {evidence.name(base)} under each scenario, with 95 % intervals"
    note = f"Filled marks are significant after Holm's correction over pairs and scenarios; hollow: maybe chance.{few}"
    axis = f"points lost beyond those of {evidence.short[base]}"
    look: dict[str, Any] = {"note": note, "models": models, "rows": rows, "axis": axis, "zero": True}
    return [charts.dot_figure("interaction", title, tested.sentence, tidy, **look)]


COMPARISON = ReportSection(lambda report: comparison(report.classified), usual, measures=("drops",))
REGRESSION = ReportSection(lambda report: fit(report.classified), usual)
