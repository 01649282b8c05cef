"""accuracy ~ model + scenario + class, with everything a reader needs to judge the fit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd, scipy_stats
from holdfast.core.names import unknown
from holdfast.core.numbers import number, percent
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.bootstrap import Floats
from holdfast.stats.core.grid import own_cells
from holdfast.stats.core.reduce import Counts, Outcome, right_column
from holdfast.stats.regression.clusters import NORMALITY, RESIDUALS, cluster_errors, normality, residual_table

Family = Literal["ols", "poisson"]

FACTORS = {"model": "model", "condition": "scenario", "label": "class"}  # Column of the cells → name in the terms
MOST_CLASSES = 100  # Above this, classes are accounted for but not listed: their columns would not fit in memory

COEFFICIENTS = ["term", "estimate", "standard_error", "low", "high", "t", "p", "stars"]
NAN = float("nan")
_PERFECT = 1e-20  # residual sum of squares over total below which nothing is left over


@dataclass(frozen=True)
class Regression:
    """The fitted model. If nothing could be fitted, ``reason`` says why, tables are empty and numbers NaN.

    ``coefficients``: a row per term: ``term`` (``scenario[blue]``), ``estimate`` (of accuracy, 0..1; of log accuracy
    for Poisson), ``standard_error``, ``low`` and ``high`` (at the level ``confidence``), ``t`` (z for Poisson), ``p``,
    ``stars``.
    ``normality``: a row per test of the residuals: ``test``, ``statistic``, ``p``, ``passed`` (p ≥ .05), ``reason``.
    ``residuals``: a row per cell: ``fitted``, ``residual``, ``absolute``, ``quantile`` (of a normal with the residual
    standard deviation, for the Q–Q plot), ``order``. ``errors``: what standard errors, intervals, t, p and stars rest
    on: ``published`` (cells are independent), or the clusters that are (``photo``, ``photo and donor``); the published
    ones then are next to them in ``published_standard_error``, ``published_low`` and so on.
    """

    reason: str  # why there is none
    family: Family  # ``ols`` or ``poisson``
    coefficients: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=COEFFICIENTS))
    sentences: tuple[str, ...] = ()  # one per coefficient, in the same order
    references: dict[str, str] = field(default_factory=dict)  # column → the level that every other is compared with
    confidence: float = 0.95  # level of the intervals
    r_squared: float = NAN  # 1 − SS/SS of the mean (for Poisson 1 − deviance/null deviance)
    adjusted_r_squared: float = NAN  # 1 − (1 − R²)(N − 1)/df
    rmse: float = NAN  # √(SS/N), in accuracy
    sy_x: float = NAN  # √(SS/df), the residual standard deviation
    sum_of_squares: float = NAN  # SS, of the residuals, in accuracy
    aicc: float = NAN  # N ln(SS/N) + 2K + 2K(K + 1)/(N − K − 1), K = parameters + 1; from the likelihood for Poisson
    n: int = 0  # cells
    degrees_of_freedom: int = 0  # N − parameters
    # a row per term without the intercept: ``term``, ``vif``
    variance_inflation: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=["term", "vif"]))
    parameter_correlation: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=[]))  # terms by terms
    normality: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=NORMALITY))
    residuals: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=RESIDUALS))
    # cells fitted below 0 or above 1: ``model``, ``condition``, ``label``, ``fitted``
    outside: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=[*FACTORS, "fitted"]))
    notes: tuple[str, ...] = ()  # what a reader has to know about this fit
    errors: str = "published"

    @property
    def multiple_r(self) -> float:
        """Return the multiple correlation coefficient R: √R², NaN if the fit is worse than the mean."""
        return float(np.sqrt(self.r_squared)) if self.r_squared >= 0 else NAN

    @property
    def level(self) -> str:
        """Return the level of the intervals as ``95 %``."""
        return f"{100 * self.confidence:.6g} %"

    def __repr__(self) -> str:
        if self.reason:
            return f"No regression: {self.reason}"
        explained = f"{percent(self.adjusted_r_squared, 0)} of the variance between {self.n} cells explained"
        about = f"Accuracy, {self.level} intervals ({explained}; errors: {self.errors}); .coefficients has the numbers:"
        return "\n".join([about, *self.sentences, *self.notes])


@dataclass(frozen=True)
class _Design:
    """Treatment coding: ``matrix`` (cells, terms), what each column means, and how many parameters are spent."""

    matrix: Floats
    terms: list[tuple[str, str]]  # (column, level); ("", "") is the intercept
    references: dict[str, str]
    parameters: int
    absorbed: NDArray[np.intp] | None  # class numbers, if classes are taken out by their means
    notes: tuple[str, ...]


def cells_from_counts(
    counts: Counts, *, outcome: Outcome = "full", conditions: Sequence[str] | None = None
) -> pd.DataFrame:
    """Return accuracy (0..1) and ``n`` per model × condition × label; repeated images count once.

    Conditions without the object are left out unless named in ``conditions``.
    """
    cells = own_cells(counts, conditions)
    cells = cells[~cells["condition"].isin(list(counts.same_images))]
    summed = cells.groupby(["model", "condition", "label"], observed=True)[["n", right_column(outcome)]].sum()
    summed = summed.reset_index()
    summed["condition"] = pd.Categorical(summed["condition"].astype(str), counts.conditions, ordered=True)
    summed = summed.sort_values(["model", "condition", "label"], ignore_index=True)
    for column in FACTORS:
        summed[column] = summed[column].astype(str)
    summed["accuracy"] = summed[right_column(outcome)] / summed["n"]
    return summed[["model", "condition", "label", "accuracy", "n"]]


def fit(
    cells: pd.DataFrame,
    *,
    references: Mapping[str, str] | None = None,
    family: Family = "ols",
    photos: pd.DataFrame | None = None,
    confidence: float = 0.95,
) -> Regression:
    """Fit accuracy ~ model + scenario + class, additive, with treatment coding.

    Ordinary least squares on the cells' accuracies, each cell counting once. The Poisson option fits right answers with
    a log link and log n as offset, with errors robust to the variance (HC1), so that exp(estimate) is a ratio of
    accuracies. ``references``: by default the original and the first model and class. ``photos``: answers image by
    image (``clusters.photo_rows``): the errors of ``ols`` are then clustered by image and donor, next to the published
    ones. ``confidence``: level of the intervals, between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise UserError(f"--confidence {confidence:g}: expected a number between 0 and 1, such as 0.9")
    table = cells[~cells["accuracy"].isna()].reset_index(drop=True)
    wanted = dict(references or {})
    _check_references(table, wanted)
    if not len(table):
        return Regression("There is no cell with an answer.", family)
    if family == "poisson" and table["label"].nunique() > MOST_CLASSES:
        return Regression(f"The Poisson option lists every class, and takes at most {MOST_CLASSES}.", family)
    design = _design(table, wanted, family)
    if not [term for term in design.terms if term[0]]:
        return Regression("There is one model, one scenario and one class: nothing to compare.", family)
    absorbed = 0 if design.absorbed is None else len(np.unique(design.absorbed))
    if design.parameters > int(np.linalg.matrix_rank(design.matrix)) + absorbed:
        return Regression(
            "Some models, scenarios or classes never meet, so that their effects cannot be distinguished.", family
        )
    if len(table) <= design.parameters:
        return Regression(
            f"{len(table)} cells cannot carry {design.parameters} parameters: more classes or scenarios are needed.",
            family,
        )
    if family == "ols":
        return _least_squares(table, design, photos, confidence)
    return _poisson(table, design, confidence)


def _check_references(table: pd.DataFrame, references: Mapping[str, str]) -> None:
    for column, level in references.items():
        if column not in FACTORS:
            raise UserError(f"No factor {column!r}: reference levels are for {', '.join(FACTORS)}.")
        levels = set(table[column].astype(str))
        if level not in levels:
            raise unknown(f"{FACTORS[column]} of the regression", level, levels)


def _design(table: pd.DataFrame, wanted: Mapping[str, str], family: Family) -> _Design:
    columns: list[Floats] = [np.ones(len(table))]
    terms = [("", "")]
    references: dict[str, str] = {}
    notes: list[str] = []
    absorbed: NDArray[np.intp] | None = None
    parameters = 1
    for column, name in FACTORS.items():
        values = table[column].astype(str).to_numpy()
        levels = list(dict.fromkeys(values))
        first = ORIGINAL if column == "condition" and ORIGINAL in levels else levels[0]
        references[column] = wanted.get(column, first)
        others = [level for level in levels if level != references[column]]
        parameters += len(others)
        if not others:
            notes.append(f"There is one {name} only ({references[column]}), so it has no term.")
        if column == "label" and len(levels) > MOST_CLASSES and family == "ols":
            absorbed = np.unique(values, return_inverse=True)[1]
            notes.append(f"{len(levels)} classes are accounted for, but not listed; nor is the intercept.")
            continue
        terms += [(column, level) for level in others]
        columns += [(values == level).astype(np.float64) for level in others]
    pairs = [table[column].nunique() for column in FACTORS]
    empty = int(np.prod(pairs)) - len(table)
    if empty > 0:
        notes.append(
            f"{empty} of {int(np.prod(pairs))} cells are empty: the effects are adjusted for that, not balanced."
        )
    matrix = np.column_stack(columns)
    if absorbed is not None:
        matrix, terms = _within(matrix[:, 1:], absorbed), terms[1:]
    return _Design(matrix, terms, references, parameters, absorbed, tuple(notes))


def _within(values: Floats, groups: NDArray[np.intp]) -> Floats:
    """Return values minus their group's mean (Frisch–Waugh–Lovell: the same as a column per group)."""
    count = np.bincount(groups)
    means = np.stack([np.bincount(groups, column) / count for column in values.T], axis=1)
    return values - means[groups]


def _least_squares(table: pd.DataFrame, design: _Design, photos: pd.DataFrame | None, confidence: float) -> Regression:
    import statsmodels.api as sm

    observed = table["accuracy"].to_numpy(np.float64)
    target = observed if design.absorbed is None else _within(observed[:, None], design.absorbed)[:, 0]
    model = sm.OLS(target, design.matrix)
    model.df_resid = len(table) - design.parameters  # absorbed classes have spent theirs, too
    result = model.fit()
    residual = np.asarray(result.resid)
    total = float(((observed - observed.mean()) ** 2).sum())
    squares = float((residual**2).sum())
    if squares <= _PERFECT * max(total, 1.0):
        # Rounding is all that is left; standard errors, t and p of it would be noise that looks like a finding.
        squares, residual = 0.0, np.zeros(len(table))
        design = replace(
            design, notes=(*design.notes, "The fit is perfect: no residuals, so no intervals and no tests.")
        )
    n, df = len(table), len(table) - design.parameters
    r_squared = 1 - squares / total if total > 0 else float("nan")
    aicc = _aicc(n * np.log(squares / n), design.parameters + 1, n) if squares else NAN  # the residual variance is one
    covariance = np.asarray(result.cov_params()) if squares else np.full((len(design.terms),) * 2, np.nan)
    inverse = np.asarray(result.normalized_cov_params)
    published = _assembled(
        table, design, "ols", np.asarray(result.params), covariance, scipy_stats.t(df), observed - residual, residual,
        r_squared, aicc, inverse, confidence,
    )  # fmt: skip
    return published if photos is None else _clustered(published, table, design, inverse, photos)


def _clustered(
    published: Regression, table: pd.DataFrame, design: _Design, inverse: Floats, photos: pd.DataFrame
) -> Regression:
    """Return the fit with errors clustered by image and donor, the published ones next to them."""
    fitted = published.residuals["fitted"].to_numpy(np.float64)
    error, freedom, names = cluster_errors(table, inverse @ design.matrix.T, fitted, photos)
    error = np.where(error > 0, error, np.nan)  # every answer as fitted: nothing to test with
    old = published.coefficients
    columns = _tested(old["estimate"].to_numpy(np.float64), error, scipy_stats.t(freedom), published.confidence)
    beside = {f"published_{name}": old[name] for name in columns}
    coefficients = old.assign(**columns, **beside)
    return replace(
        published, coefficients=coefficients, sentences=_sentences(design, coefficients, "ols"), errors=names
    )


def _aicc(deviance: float, parameters: int, n: int) -> float:
    """Return −2 log likelihood + 2K + 2K(K + 1)/(N − K − 1); NaN if there are too few cells."""
    room = n - parameters - 1
    return float(deviance + 2 * parameters + 2 * parameters * (parameters + 1) / room) if room > 0 else NAN


def _tested(estimate: Floats, error: Floats, distribution: Any, confidence: float) -> dict[str, Any]:
    """Return standard errors, intervals, t, p and stars."""
    half, t = distribution.ppf((1 + confidence) / 2) * error, estimate / error
    p = 2 * distribution.sf(np.abs(t))
    return {
        "standard_error": error, "low": estimate - half, "high": estimate + half, "t": t, "p": p,
        "stars": [stars(value) for value in p],
    }  # fmt: skip


def _poisson(table: pd.DataFrame, design: _Design, confidence: float) -> Regression:
    import statsmodels.api as sm
    from statsmodels.tools.sm_exceptions import ConvergenceWarning, PerfectSeparationWarning

    accuracy = table["accuracy"].to_numpy(np.float64)
    for column in FACTORS:
        never = table.groupby(column, observed=True, sort=False)["accuracy"].max()
        if (never == 0).any():
            level = never.index[never == 0][0]
            return Regression(
                f"{level} is never right: its logarithm does not exist, so Poisson cannot be fitted.", "poisson"
            )
    size = table["n"].to_numpy(np.float64) if "n" in table else np.ones(len(table))
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        warnings.simplefilter("error", PerfectSeparationWarning)
        try:
            result = sm.GLM(accuracy * size, design.matrix, family=sm.families.Poisson(), offset=np.log(size)).fit(
                cov_type="HC1"
            )
        except (ConvergenceWarning, PerfectSeparationWarning):
            return Regression("The Poisson fit does not converge, or fits perfectly.", "poisson")
    fitted = np.asarray(result.fittedvalues) / size
    r_squared = 1 - result.deviance / result.null_deviance if result.null_deviance > 0 else float("nan")
    aicc = _aicc(-2 * result.llf, design.parameters, len(table))
    inverse = np.asarray(np.linalg.inv(design.matrix.T @ design.matrix), np.float64)
    return _assembled(
        table, design, "poisson", np.asarray(result.params), np.asarray(result.cov_params()), scipy_stats.norm(),
        fitted, accuracy - fitted, float(r_squared), aicc, inverse, confidence,
    )  # fmt: skip


def _assembled(
    table: pd.DataFrame, design: _Design, family: Family, estimate: Floats, covariance: Floats, distribution: Any,
    fitted: Floats, residual: Floats, r_squared: float, aicc: float, inverse: Floats, confidence: float,
) -> Regression:  # fmt: skip
    n, df = len(table), len(table) - design.parameters
    names = [f"{FACTORS[column]}[{level}]" if column else "Intercept" for column, level in design.terms]
    error = np.sqrt(np.diag(covariance))
    coefficients = pd.DataFrame(
        {"term": names, "estimate": estimate} | _tested(estimate, error, distribution, confidence)
    )
    # VIF = 1/(1 − R²) of a column on all others = its sum of squares about the mean × its diagonal of (X'X)⁻¹.
    spread = [_spread(table, column, level) for column, level in design.terms]
    inflation = pd.DataFrame({"term": names, "vif": np.array(spread) * np.diag(inverse)})
    place = table[list(FACTORS)].astype(str)
    outside = (fitted < -1e-9) | (fitted > 1 + 1e-9)
    squares = float((residual**2).sum())
    return Regression(
        coefficients=coefficients,
        sentences=_sentences(design, coefficients, family),
        references=design.references,
        confidence=confidence,
        r_squared=r_squared,
        adjusted_r_squared=1 - (1 - r_squared) * (n - 1) / df,
        rmse=float(np.sqrt(squares / n)),
        sy_x=float(np.sqrt(squares / df)),
        sum_of_squares=squares,
        aicc=aicc,
        n=n,
        degrees_of_freedom=df,
        variance_inflation=inflation[inflation["term"] != "Intercept"].reset_index(drop=True),
        parameter_correlation=pd.DataFrame(covariance / np.outer(error, error), index=names, columns=names),
        normality=normality(residual),
        residuals=residual_table(place, fitted, residual, np.sqrt(squares / df)),
        outside=place.assign(fitted=fitted)[outside].reset_index(drop=True),
        notes=design.notes,
        reason="",
        family=family,
    )


def _spread(table: pd.DataFrame, column: str, level: str) -> float:
    """Return Σ(x − mean)² of a column of zeros and ones."""
    share = float((table[column].astype(str) == level).mean()) if column else 0.0
    return len(table) * share * (1 - share)


def stars(p: float) -> str:
    """Return ``ns``, ``*`` < .05, ``**`` < .01, ``***`` < .001, ``****`` < .0001; '' without a p-value."""
    if np.isnan(p):
        return ""
    return "*" * sum(p < limit for limit in (0.05, 0.01, 0.001, 0.0001)) or "ns"


def _sentences(design: _Design, coefficients: pd.DataFrame, family: Family) -> tuple[str, ...]:
    rows = zip(design.terms, coefficients.to_dict("records"), strict=True)
    return tuple(_sentence(term, row, design.references, family) for term, row in rows)


def _sentence(term: tuple[str, str], row: Mapping[Any, Any], references: Mapping[str, str], family: Family) -> str:
    column, level = term
    low, high, estimate = float(row["low"]), float(row["high"]), float(row["estimate"])
    if not column:
        place = f"{references['model']} on {references['label']} under {references['condition']}"
        value = np.exp(estimate) if family == "poisson" else estimate
        return f"{place} is fitted at {percent(value)}."
    shown = [
        f"{np.exp(value):.3g}" if family == "poisson" else number(100 * value, 1, sign=True)
        for value in (estimate, low, high)
    ]
    against = "times the accuracy of" if family == "poisson" else "points against"
    interval = "" if np.isnan(low) else f" ({shown[1]} to {shown[2]})"
    if set(shown) <= {"+0.0", "+nan"}:
        return f"{level}: no difference from {references[column]}."
    doubt = ", may be chance" if row["stars"] == "ns" else ""
    return f"{level}: {shown[0]} {against} {references[column]}{interval}{doubt}."
