"""Section: the regression, its plots, and the model × scenario interaction."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from holdfast.report.page import charts, plots
from holdfast.report.page.figures import Figure
from holdfast.report.page.parts import Heading, Listing, Notice, Part, Section, ShownFigure, ShownTable, Text
from holdfast.report.page.tables import Column, Table
from holdfast.report.page.words import listing, number, percent, plural, points, span
from holdfast.report.static.evidence import Evidence, shown
from holdfast.stats.effects.interaction import Interaction
from holdfast.stats.regression.fit import Regression

if TYPE_CHECKING:
    import pandas as pd

GROUPS = {"model": "Models", "scenario": "Scenarios", "class": "Classes"}
LISTED = 30
"""Classes drawn in the figure of coefficients; the table has them all."""


def fit(evidence: Evidence) -> Section:
    """The additive regression and what it cannot say: the interaction."""
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
    """With ``group`` and ``row`` (names as words), sorted by size within the group."""
    frame = fitted.coefficients.copy()
    found = frame["term"].str.extract(re.compile(r"^(model|scenario|class)\[(.*)\]$", re.DOTALL))
    frame["group"] = found[0].map(GROUPS)
    level = found[1]
    words = level.where(found[0] != "scenario", level.map(shown, na_action="ignore"))
    frame["row"] = words.where(found[0] != "model", level.map(evidence.name, na_action="ignore"))
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
            f" Against {shown(fitted.references['condition'])}, {worst['row']} {direction} accuracy most, by "
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
            lambda width: plots.coefficients(tidy, width, groups=groups),
            f"Against the reference: {against}. Hollow marks may be chance (p ≥ .05).",
        )
        parts.append(ShownFigure(figure))
    parts.append(ShownTable(_coefficient_table(frame, fitted)))
    parts.append(Listing("Every coefficient in a sentence", fitted.sentences))
    parts.append(ShownTable(_quality(fitted)))
    notes = list(fitted.notes)
    if len(fitted.outside):
        cells = [
            f"{evidence.name(row['model'])}, {shown(row['condition'])}, {row['label']} ({percent(row['fitted'])})"
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
        said = row["reason"] or f"p = {number(row['p'], 4)}, {'passed' if row['passed'] else 'not normal'}"
        rows.append((f"Normality of residuals: {row['test']}", said))
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
    more = len(fitted.residuals) > plots.RESIDUALS_SHOWN
    figure = Figure(
        "residuals",
        "The four residual plots",
        f"Residuals of the regression. {said}",
        lambda width: plots.residuals(fitted.residuals, width),
        said + (" The plots show a regular part of the cells." if more else ""),
    )
    columns = [
        Column("term", "Term"),
        Column("other", "Other term"),
        Column("correlation", "Correlation", "number", digits=3),
    ]
    caption = "Correlation of the parameters, the strongest first"
    table = Table("parameter_correlation", caption, _correlations(fitted), columns, shown=12, folded=True)
    return [ShownFigure(figure), ShownTable(table)]


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
    found = evidence.interaction
    if isinstance(found, str):
        return [Notice(found)]
    if found.reason:
        return [Notice(found.reason)]
    parts: list[Part] = [
        Text([f"The regression above has one effect per scenario for all models. {found.sentence}", found.explanation]),
    ]
    figure = _differences(evidence, found)
    if figure:
        parts.append(ShownFigure(figure))
    columns = [
        Column("condition", "Condition", show=shown),
        Column("first", "First", show=evidence.name),
        Column("second", "Second", show=evidence.name),
        Column("drop_first", "First loses", "points"),
        Column("drop_second", "Second loses", "points"),
        Column("difference", "Difference", "points", "low", "high"),
        Column("p", "p", "p"),
        Column("p_holm", "p (Holm)", "p"),
        Column("odds_ratio", "Ratio of odds ratios", "number", digits=2),
    ]
    ordered = found.pairs.sort_values("p_holm", kind="stable")
    caption = "Differences between the drops of two models, the clearest first"
    table = Table("interaction", caption, ordered, columns, shown=30, folded=True)
    return [*parts, ShownTable(table)]


def _differences(evidence: Evidence, found: Interaction) -> Figure | None:
    """Drops of the other models against the first one's; of many models those that differ most."""
    frame = found.pairs
    base = next((name for name in evidence.models if name in set(frame["first"]) | set(frame["second"])), None)
    if base is None:
        return None
    mine = frame[(frame["first"] == base) | (frame["second"] == base)]
    turned = mine["first"] == base  # the other model's drop minus the base's
    tidy = mine.assign(
        model=mine["second"].where(turned, mine["first"]).map(evidence.name),
        row=mine["condition"].map(shown),
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
    rows = [shown(name) for name in evidence.conditions if shown(name) in present]
    few = f" Of {len(most)} models it shows the {len(chosen)} that differ most." if len(most) > len(chosen) else ""
    who = f"{models[0]} loses" if len(models) == 1 else "the others lose"
    return Figure(
        "interaction",
        f"How many points more {who} than {evidence.name(base)} under each scenario, with 95 % intervals",
        found.sentence,
        lambda width: charts.dots(
            tidy,
            width,
            models=models,
            rows=rows,
            title=f"points lost beyond those of {evidence.short[base]}",
            zero=True,
        ),
        f"Filled marks stand after Holm's correction over all pairs and scenarios; hollow ones may be chance.{few}",
    )
