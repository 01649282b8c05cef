"""Section: the regression of accuracy, its plots, and the interaction of model and scenario."""

from __future__ import annotations

from holdfast.report.page import charts
from holdfast.report.page.evidence import Evidence
from holdfast.report.page.figures import Figure
from holdfast.report.page.parts import Heading, Notice, Part, Section, Text
from holdfast.report.page.regression import fitted_sentence, regression_parts
from holdfast.report.page.tables import CONDITION, Column, Table
from holdfast.report.page.words import condition_label
from holdfast.stats.effects.interaction import Interaction


def fit(evidence: Evidence) -> Section:
    """Return the additive regression, and the interaction that it leaves out."""
    section = Section("regression", "Regression")
    section.lead = [
        "How much of the accuracy goes with the model, the scenario and the class, each with the others held; and "
        "whether models differ in what a scenario costs them."
    ]
    fitted = evidence.regression
    section.parts.append(Heading("Accuracy ~ model + scenario + class"))
    if fitted.reason:
        section.parts.append(Notice(fitted.reason))
    else:
        section.lead.insert(0, fitted_sentence(fitted, evidence.name, "accuracy"))
        section.parts += regression_parts(fitted, evidence.name)
    section.parts.append(Heading("Do models differ in what a scenario costs them?"))
    section.parts += _interaction(evidence)
    return section


def _interaction(evidence: Evidence) -> list[Part]:
    tested = evidence.interaction
    if isinstance(tested, str):
        return [Notice(tested)]
    if tested.reason:
        return [Notice(tested.reason)]
    parts: list[Part] = [
        Text(
            [f"The regression above has one effect per scenario for all models. {tested.sentence}", tested.explanation]
        )
    ]
    figure = _differences(evidence, tested)
    if figure:
        parts.append(figure)
    columns = [
        CONDITION,
        Column("first", "First", show=evidence.name),
        Column("second", "Second", show=evidence.name),
        Column("drop_first", "First loses", "points"),
        Column("drop_second", "Second loses", "points"),
        Column("difference", "Difference", "points", "low", "high"),
        Column("p", "p", "p"),
        Column("p_holm", "p (Holm)", "p"),
        Column("odds_ratio", "Ratio of odds ratios", "number", digits=2),
    ]
    ordered = tested.pairs.sort_values("p_holm", kind="stable")
    caption = "Differences between the drops of two models, the clearest first"
    table = Table("interaction", caption, ordered, columns, shown=30, folded=True)
    return [*parts, table]


def _differences(evidence: Evidence, tested: Interaction) -> Figure | None:
    """Return the drops of the other models against the first one's; of many models, those that differ most."""
    frame = tested.pairs
    base = next((name for name in evidence.models if name in set(frame["first"]) | set(frame["second"])), None)
    if base is None:
        return None
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
    return charts.dot_figure(
        "interaction",
        f"How many points more {who} than {evidence.name(base)} under each scenario, with 95 % intervals",
        tested.sentence,
        tidy,
        models=models,
        rows=rows,
        axis=f"points lost beyond those of {evidence.short[base]}",
        zero=True,
        note="Filled marks stand after Holm's correction over all pairs and scenarios; hollow ones may be "
        f"chance.{few}",
    )
