"""Section: the regression of accuracy, its plots, and the interaction of model and scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.report.page import charts, regression_charts
from holdfast.report.page.evidence import Evidence
from holdfast.report.page.figures import Figure
from holdfast.report.page.parts import Heading, Listing, Notice, Part, Section, Text
from holdfast.report.page.regression_charts import GROUPS, term_parts
from holdfast.report.page.tables import CONDITION, Column, Table
from holdfast.report.page.words import condition_label, listing, number, percent, plural, points, span
from holdfast.stats.effects.interaction import Interaction
from holdfast.stats.regression.fit import Regression

if TYPE_CHECKING:
    import pandas as pd

LISTED = 30
"""Classes drawn in the figure of coefficients; the table has all of them."""


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
        section.lead.append(_sentence(evidence, fitted))
        section.parts += _fitted(evidence, fitted)
    section.parts.append(Heading("Do models differ in what a scenario costs them?"))
    section.parts += _interaction(evidence)
    return section


def _coefficients(evidence: Evidence, fitted: Regression) -> pd.DataFrame:
    """Return the coefficients with ``group`` and ``row`` (names as words)."""
    frame = fitted.coefficients.copy()
    kind, level = term_parts(frame["term"])
    frame["group"] = kind.map(GROUPS)
    words = level.where(kind != "scenario", level.map(condition_label, na_action="ignore"))
    frame["row"] = words.where(kind != "model", level.map(evidence.name, na_action="ignore"))
    frame["row"] = frame["row"].fillna("intercept")
    return frame


def _sentence(evidence: Evidence, fitted: Regression) -> str:
    frame = _coefficients(evidence, fitted)
    scenarios = frame[(frame["group"] == GROUPS["scenario"]) & frame["low"].notna()]
    text = (
        f"The additive model explains {percent(fitted.adjusted_r_squared, 0)} of the variance between "
        f"{plural(fitted.n, 'cell')} (adjusted R²); what is left over has a standard deviation of "
        f"{points(fitted.sy_x)}."
    )
    if len(scenarios):
        worst = scenarios.sort_values("estimate").iloc[0]
        direction = "lowers" if worst["estimate"] < 0 else "raises"
        text += (
            f" Against {condition_label(fitted.references['condition'])}, {worst['row']} {direction} accuracy most, by "
            f"{points(abs(worst['estimate']))} (95 % interval {span(worst['low'], worst['high'])})."
        )
    return text


def _fitted(evidence: Evidence, fitted: Regression) -> list[Part]:
    frame = _coefficients(evidence, fitted)
    references = fitted.references
    against = ", ".join(
        f"{name} {evidence.short.get(references[key], references[key]) if key == 'model' else references[key]}"
        for key, name in (("model", "model"), ("condition", "scenario"), ("label", "class")) if key in references
    )  # fmt: skip
    drawn = frame[frame["group"].notna() & frame["low"].notna()].sort_values("estimate", kind="stable")
    parts: list[Part] = []
    groups = [name for name in GROUPS.values() if (drawn["group"] == name).any()]
    if groups:
        kept = [drawn[drawn["group"] == name] for name in groups]
        import pandas as pd

        tidy = pd.concat(
            [
                part if len(part) <= LISTED else pd.concat([part.head(LISTED // 2), part.tail(LISTED // 2)])
                for part in kept
            ]
        )
        tidy = tidy[["group", "row", "estimate", "low", "high", "stars"]]
        figure = Figure(
            "coefficients",
            "Coefficients of the regression in points of accuracy, with 95 % intervals",
            _sentence(evidence, fitted),
            lambda width: regression_charts.coefficients(tidy, width, groups=groups),
            f"Against the reference: {against}. Hollow marks may be chance (p ≥ .05).",
        )
        parts.append(figure)
    parts.append(_coefficient_table(frame, fitted))
    parts.append(Listing("Every coefficient in a sentence", fitted.sentences))
    parts.append(_quality(fitted))
    notes = list(fitted.notes)
    if len(fitted.outside):
        cells = [
            f"{evidence.name(row['model'])}, {condition_label(row['condition'])}, {row['label']} "
            f"({percent(row['fitted'])})"
            for row in fitted.outside.to_dict("records")
        ]
        notes.append(
            "A linear model of accuracies can leave 0 to 100 %: it does for "
            f"{plural(len(cells), 'cell')}, {listing(cells)}."
        )
    if notes:
        parts.append(Text([" ".join(notes)]))
    if len(fitted.residuals) and fitted.sum_of_squares > 0:
        parts += _residual_parts(fitted)
    return parts


def _coefficient_table(frame: pd.DataFrame, fitted: Regression) -> Table:
    merged = frame.merge(fitted.variance_inflation, on="term", how="left")
    columns = [
        Column("row", "Term"),
        Column("group", "Kind"),
        Column("estimate", "Estimate", "points", "low", "high"),
        Column("standard_error", "Standard error", "points", digits=2),
        Column("t", "t", "number", digits=2),
        Column("p", "p", "p"),
        Column("stars", "Stars"),
        Column("vif", "VIF", "number", digits=2, hint="variance inflation: 1 when a term is unrelated to the others"),
    ]
    note = "ns p ≥ .05, * < .05, ** < .01, *** < .001, **** < .0001."
    return Table("coefficients", "Coefficients", merged, columns, note, folded=True)


def _quality(fitted: Regression) -> Table:
    import pandas as pd

    rows = [
        ("Cells", number(fitted.n, 0)),
        ("Degrees of freedom", number(fitted.degrees_of_freedom, 0)),
        ("R²", number(fitted.r_squared, 4)),
        ("Adjusted R²", number(fitted.adjusted_r_squared, 4)),
        ("RMSE", number(fitted.rmse, 4)),
        ("Sy.x", number(fitted.sy_x, 4)),
        ("Sum of squares", number(fitted.sum_of_squares, 4)),
        ("AICc", number(fitted.aicc, 1)),
    ]
    for row in fitted.normality.to_dict("records"):
        result = row["reason"] or f"p = {number(row['p'], 4)}, {'passed' if row['passed'] else 'not normal'}"
        rows.append((f"Normality of residuals: {row['test']}", result))
    frame = pd.DataFrame(rows, columns=["measure", "value"])
    return Table(
        "regression_quality",
        "How well the model fits",
        frame,
        [Column("measure", "Measure"), Column("value", "Value")],
        folded=True,
    )


def _residual_parts(fitted: Regression) -> list[Part]:
    tested = fitted.normality[fitted.normality["reason"] == ""]
    failed = int((~tested["passed"].astype(bool)).sum())
    said = (
        f"{failed} of {len(tested)} tests reject that the residuals are normal."
        if len(tested)
        else "Too few cells to test the residuals."
    )
    more = len(fitted.residuals) > regression_charts.RESIDUALS_SHOWN
    figure = Figure(
        "residuals",
        "The four residual plots",
        f"Residuals of the regression. {said}",
        lambda width: regression_charts.residuals(fitted.residuals, width),
        said + (" The plots show a regular part of the cells." if more else ""),
    )
    columns = [
        Column("term", "Term"),
        Column("other", "Other term"),
        Column("correlation", "Correlation", "number", digits=3),
    ]
    caption = "Correlation of the parameters, the strongest first"
    table = Table("parameter_correlation", caption, _correlations(fitted), columns, shown=12, folded=True)
    return [figure, table]


def _correlations(fitted: Regression) -> pd.DataFrame:
    import numpy as np
    import pandas as pd

    matrix = fitted.parameter_correlation
    first, second = np.triu_indices(len(matrix), 1)
    values = matrix.to_numpy()[first, second]
    names = matrix.index.to_numpy()
    frame = pd.DataFrame({"term": names[first], "other": names[second], "correlation": values})
    return frame.sort_values("correlation", key=abs, ascending=False, kind="stable").reset_index(drop=True)


def _interaction(evidence: Evidence) -> list[Part]:
    tested = evidence.interaction
    if isinstance(tested, str):
        return [Notice(tested)]
    if tested.reason:
        return [Notice(tested.reason)]
    parts: list[Part] = [
        Text(
            [f"The regression above has one effect per scenario for all models. {tested.sentence}", tested.explanation]
        ),
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
