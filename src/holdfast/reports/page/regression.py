"""A regression on a page: its sentence, coefficients, quality and residual plots; the same for every measure."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from holdfast.core.lazy import pd
from holdfast.core.numbers import alike, number, p_words, percent, points, span
from holdfast.reports.page import charts
from holdfast.reports.page.figures import COLOURS, WIDE, Chart, Figure
from holdfast.reports.page.parts import Listing, Part, Text
from holdfast.reports.page.tables import Column, Table, plain
from holdfast.reports.page.words import class_names, class_words, condition_label, listing, plural
from holdfast.stats.regression.fit import Regression

GROUPS = {"model": "Models", "scenario": "Scenarios", "class": "Classes"}
"""Kinds of terms, and the headings of their panels."""

RESIDUALS_SHOWN = 400
"""Dots of a residual plot; if there are more, every n-th is drawn, so that the page stays small."""


def term_parts(terms: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Return the kind (model, scenario, class) and the level of each term such as ``class[dog]``."""
    parts = terms.str.extract(re.compile(r"^(model|scenario|class)\[(.*)\]$", re.DOTALL))
    return parts[0], parts[1]


def coefficients(frame: pd.DataFrame, width: int, *, groups: Sequence[str], unit: str = "points") -> Chart:
    """Return coefficients with intervals in points, with a panel per group (models, scenarios, classes)."""
    low, high = float(frame["low"].min()), float(frame["high"].max())
    scale = {"domain": [min(low, 0.0), max(high, 0.0)], "nice": True}
    axis = charts.SIGNED | {"domain": False, "ticks": False, "tickCount": 8 if width >= WIDE else 4}
    label = charts.row_axis(list(frame["row"]), width)[1]
    inner = width - label - 24
    parts = []
    for group in groups:
        part = frame[frame["group"] == group]
        title = f"{unit} against the reference" if group == groups[-1] else None
        x = {"type": "quantitative", "scale": scale, "axis": axis | {"title": title}}
        y = charts.row_axis(list(part["row"]), width)[0]
        y["axis"] |= {"labelLimit": label, "minExtent": label}
        tip = charts.tooltip({"row": group, "stars": "stars"}, charts.INTERVAL, "+.1%")
        place = {"x": x | {"field": "estimate"}, "y": y}
        ends = {"x": x | {"field": "low"}, "x2": {"field": "high"}, "y": y}
        layers = [
            charts.rule_at(0),
            charts.layer("rule", ends, strokeWidth=1.7, color=COLOURS[0]),
            charts.dot_layer(place | {"tooltip": tip}, 50, color=COLOURS[0]),
            charts.dot_layer(place, 14, "datum.stars === 'ns'", color="white"),
        ]
        heading = {"text": group, "anchor": "start", "frame": "group", "offset": 4}
        chosen = [{"filter": {"field": "group", "equal": group}}]
        size = {"width": inner, "height": {"step": 16}}
        parts.append({"title": heading, "transform": chosen, "layer": layers, **size})
    return charts.chart_of(frame, vconcat=parts, spacing=14, resolve={"scale": {"y": "independent"}})


def residuals(frame: pd.DataFrame, width: int) -> Chart:
    """Return the four plots: residuals, their absolute values, the Q–Q plot, residuals in order."""
    step = -(-len(frame) // RESIDUALS_SHOWN)
    shown = frame.iloc[::step]
    columns = 4 if width >= WIDE else 2
    inner = (width - columns * 58) // columns
    plots = (
        ("Residuals", "fitted", "residual", "fitted accuracy", 0.0),
        ("|Residuals|", "fitted", "absolute", "fitted accuracy", None),
        ("Normal Q–Q", "quantile", "residual", "expected if normal", None),
        ("In order", "order", "residual", "cell", 0.0),
    )
    tip = [{"field": name} for name in ("model", "condition", "label")]
    parts = []
    for title, across, up, axis, zero in plots:
        small = {"tickCount": 3, "labelFontSize": 10, "titleFontSize": 10, "domain": False, "ticks": False}
        encoding = {
            "x": {"field": across, "type": "quantitative", "title": axis, "scale": {"zero": False}, "axis": small},
            "y": {"field": up, "type": "quantitative", "title": None, "axis": small},
            "tooltip": tip,
        }
        layers = [charts.dot_layer(encoding, 9, opacity=0.45, color=COLOURS[0])]
        if zero is not None:
            layers.insert(0, charts.rule_at(zero, "y"))
        if across == "quantile":
            ends = [float(shown["quantile"].min()), float(shown["quantile"].max())]
            layers.insert(0, charts.dashed_line([{"x": end, "y": end} for end in ends]))
        parts.append({"title": {"text": title, "fontSize": 12}, "width": inner, "height": 150, "layer": layers})
    return charts.chart_of(shown, concat=parts, columns=columns, spacing=14, resolve={"scale": {"x": "independent"}})


LISTED = 30  # Levels of a factor drawn in the figure of coefficients; the table has all of them


def fitted_sentence(fitted: Regression, name: Callable[[str], str], measure: str) -> str:
    """Return how much the regression explains, and the scenario that changes most."""
    if not math.isfinite(fitted.adjusted_r_squared):
        return f"All {plural(fitted.n, 'cell')} have the same {measure}, so there is nothing to explain."
    text = (
        f"The additive model explains {percent(fitted.adjusted_r_squared, 0)} of the variance between "
        f"{plural(fitted.n, 'cell')} (adjusted R²); what is left over has a standard deviation of "
        f"{points(fitted.sy_x)}."
    )
    frame = _named_terms(fitted, name)
    scenarios = frame[(frame["group"] == GROUPS["scenario"]) & frame["low"].notna()]
    if scenarios.empty:
        return text
    worst = scenarios.sort_values("estimate").iloc[0]
    if alike(scenarios["estimate"].abs().max(), 0):
        return f"{text} No scenario changes {measure}."
    most = " most," if len(scenarios) > 1 and not alike(*scenarios["estimate"].agg(["min", "max"])) else ""
    verb = "lowers" if worst["estimate"] < 0 else "raises"
    by = percent(abs(worst["estimate"])) if fitted.family == "poisson" else points(abs(worst["estimate"]))
    return (
        f"{text} Against {condition_label(fitted.references['condition'])}, {worst['row']} {verb} {measure}{most} by "
        f"{by} ({fitted.level} interval {span(worst['low'], worst['high'])})."
    )


def regression_parts(
    fitted: Regression,
    name: Callable[[str], str],
    *,
    measure: str = "accuracy",
    prefix: str = "",
    digits: int | None = None,
) -> list[Part]:
    """Return coefficients, fit, normality tests and residual plots of a regression.

    ``fitted``: the regression, which must have a fit. ``name``: returns the name of a model as shown. ``prefix``: of
    the names of figures and tables, so that two regressions may be on a page. ``digits``: of the numbers in the
    tables after the decimal point; None: 1 to 4, as each number needs.
    """
    frame = _named_terms(fitted, name)
    references = fitted.references
    against = ", ".join(
        f"{word} {(name if key == 'model' else class_words)(references[key])}"
        for key, word in (("model", "model"), ("condition", "scenario"), ("label", "class")) if key in references
    )  # fmt: skip
    drawn = frame[frame["group"].notna() & frame["low"].notna()].sort_values("estimate", kind="stable")
    groups = [title for title in GROUPS.values() if (drawn["group"] == title).any()]
    scale = "per cent" if fitted.family == "poisson" else "points"
    unit = f"{scale} of {measure}"
    parts: list[Part] = []
    if groups:
        kept = [drawn[drawn["group"] == title] for title in groups]
        few = [
            part if len(part) <= LISTED else part.iloc[[*range(LISTED // 2), *range(-LISTED // 2, 0)]] for part in kept
        ]
        tidy = pd.concat(few)[["group", "row", "estimate", "low", "high", "stars"]]
        parts.append(
            Figure(
                f"{prefix}coefficients",
                f"Coefficients of the regression in {unit}, with {fitted.level} intervals",
                fitted_sentence(fitted, name, measure),
                lambda width: coefficients(tidy, width, groups=groups, unit=scale),
                f"Against the reference: {against}. Hollow marks may be chance (p ≥ .05).",
            )
        )
    parts += [_coefficient_table(frame, fitted, prefix, unit, digits), _sentences(fitted, measure)]
    parts.append(_quality(fitted, prefix, digits))
    notes = list(fitted.notes)
    if len(fitted.outside):
        cells = [
            f"{name(row['model'])}, {condition_label(row['condition'])}, {class_words(row['label'])} "
            f"({percent(row['fitted'])})"
            for row in fitted.outside.to_dict("records")
        ]
        notes.append(
            f"A linear model of {measure} can leave 0 to 100 %: it does for {plural(len(cells), 'cell')}, "
            f"{listing(cells)}."
        )
    if notes:
        parts.append(Text([" ".join(notes)]))
    if len(fitted.residuals) and fitted.sum_of_squares > 0:
        parts += _residual_parts(fitted, prefix)
    return parts


def _named_terms(fitted: Regression, name: Callable[[str], str]) -> pd.DataFrame:
    """Return the coefficients with ``group`` and ``row`` (names as words); of Poisson, as changes exp(b) − 1."""
    frame = fitted.coefficients.copy()
    kind, level = term_parts(frame["term"])
    frame["group"] = kind.map(GROUPS)
    words = level.where(kind != "scenario", level.map(condition_label, na_action="ignore"))
    words = words.where(kind != "model", level.map(name, na_action="ignore"))
    frame["row"] = words.where(kind != "class", level.map(class_names(level[kind == "class"])))
    frame["row"] = frame["row"].fillna("intercept")
    if fitted.family == "poisson":
        import numpy as np

        frame[["estimate", "low", "high"]] = np.expm1(frame[["estimate", "low", "high"]].astype(float))
    return frame


def _coefficient_table(frame: pd.DataFrame, fitted: Regression, prefix: str, unit: str, digits: int | None) -> Table:
    merged = frame.merge(fitted.variance_inflation, on="term", how="left")
    ratio = fitted.family == "poisson"
    columns = [
        *plain("text", row="Term", group="Kind"),
        Column("estimate", "Change" if ratio else "Estimate", "percent" if ratio else "points", "low", "high"),
        Column("standard_error", "Standard error (log)" if ratio else "Standard error",
               "number" if ratio else "points", digits=3 if ratio else 2),
        Column("t", "z" if ratio else "t", "number", digits=2),
        Column("p", "p", "p"),
        Column("stars", "Stars"),
        *(_PUBLISHED if "published_stars" in fitted.coefficients else ()),
        Column("vif", "VIF", "number", digits=2, hint="variance inflation: 1 when a term is unrelated to the others"),
    ]  # fmt: skip
    if digits is not None:
        columns = [column if column.kind in ("text", "p") else replace(column, digits=digits) for column in columns]
    note = f"Intervals are at the {fitted.level} level. {_STARS}" + _about_errors(fitted)
    return Table(f"{prefix}coefficients", f"Coefficients, in {unit}", merged, columns, note, folded=True)


_PUBLISHED = (
    Column("published_standard_error", "Published error", "points", digits=2, hint="OLS with independent cells"),
    Column("published_p", "Published p", "p"),
    Column("published_stars", "Published stars"),
)  # The errors of the paper, if others are before them


_STARS = "ns p ≥ .05, * < .05, ** < .01, *** < .001, **** < .0001."


def _about_errors(fitted: Regression) -> str:
    if fitted.errors == "published":
        return ""
    return (
        f" Errors are clustered by {fitted.errors}, because answers on one image depend on each other; the published "
        "ones take every cell for independent, and make classes look surer than their images are."
    )


def _sentences(fitted: Regression, measure: str) -> Listing:
    kind, level = term_parts(fitted.coefficients["term"])
    classes = [*level[kind == "class"], fitted.references.get("label", "")]
    renamed = {label: words for label, words in class_names(filter(None, classes)).items() if label != words}
    texts = list(fitted.sentences)
    if renamed:
        raw = re.compile("|".join(map(re.escape, renamed)))
        texts = [raw.sub(lambda match: renamed[match[0]], text) for text in texts]
    if measure != "accuracy":
        texts = [text.replace("an accuracy", f"an {measure}").replace("accuracy", measure) for text in texts]
    return Listing("Every coefficient in a sentence", texts)


def _quality(fitted: Regression, prefix: str, digits: int | None) -> Table:
    shown = 4 if digits is None else digits
    rows = [
        ("Cells", number(fitted.n, 0)),
        ("Degrees of freedom", number(fitted.degrees_of_freedom, 0)),
        ("Multiple R", number(fitted.multiple_r, shown)),
        ("R²", number(fitted.r_squared, shown)),
        ("Adjusted R²", number(fitted.adjusted_r_squared, shown)),
        ("RMSE", number(fitted.rmse, shown)),
        ("Sy.x", number(fitted.sy_x, shown)),
        ("Sum of squares", number(fitted.sum_of_squares, shown)),
        ("AICc", number(fitted.aicc, 1 if digits is None else digits)),
    ]
    for row in fitted.normality.to_dict("records"):
        result = row["reason"] or f"{p_words(row['p'])}, {'passed' if row['passed'] else 'not normal'}"
        rows.append((f"Normality of residuals: {row['test']}", result))
    frame = pd.DataFrame(rows, columns=["measure", "value"])
    columns = [*plain("text", measure="Measure", value="Value")]
    return Table(f"{prefix}regression_quality", "How well the model fits", frame, columns, folded=True)


def _residual_parts(fitted: Regression, prefix: str) -> list[Part]:
    tested = fitted.normality[fitted.normality["reason"] == ""]
    failed = int((~tested["passed"].astype(bool)).sum())
    said = (
        f"{failed} of {len(tested)} tests reject that the residuals are normal."
        if len(tested)
        else "Too few cells to test the residuals."
    )
    more = len(fitted.residuals) > RESIDUALS_SHOWN
    figure = Figure(
        f"{prefix}residuals",
        "The four residual plots",
        f"Residuals of the regression. {said}",
        lambda width: residuals(fitted.residuals, width),
        said + (" The plots show a regular part of the cells." if more else ""),
    )
    columns = [
        *plain("text", term="Term", other="Other term"),
        Column("correlation", "Correlation", "number", digits=3),
    ]
    caption = "Correlation of the parameters, the strongest first"
    table = Table(f"{prefix}parameter_correlation", caption, _correlations(fitted), columns, shown=12, folded=True)
    return [figure, table]


def _correlations(fitted: Regression) -> pd.DataFrame:
    import numpy as np

    matrix = fitted.parameter_correlation
    first, second = np.triu_indices(len(matrix), 1)
    values = matrix.to_numpy()[first, second]
    names = matrix.index.to_numpy()
    frame = pd.DataFrame({"term": names[first], "other": names[second], "correlation": values})
    return frame.sort_values("correlation", key=abs, ascending=False, kind="stable").reset_index(drop=True)
