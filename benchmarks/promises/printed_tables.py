"""Correct tables as papers print them, in mixed styles of print: of every kind that the auditor knows, and others.

All values are computed unrounded and rounded once. Nothing here calls the auditor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm
from scipy.stats import t as student

Columns = dict[str, list[str]]
Rng = np.random.Generator
Floats = NDArray[np.float64]

CONVENTIONS = (
    (0.05, 0.01, 0.001),
    (0.05, 0.01, 0.001, 0.0001),
    (0.1, 0.05, 0.01),
    (0.05,),
    (0.01, 0.001),
    (0.05, 0.01),
)


@dataclass(frozen=True)
class Case:
    """A table and what the auditor is given with it."""

    kind: str
    table: Columns
    options: dict[str, Any] = field(default_factory=dict)

    def frame(self) -> pd.DataFrame:
        """Return the table as the auditor reads it."""
        return pd.DataFrame(self.table)


@dataclass(frozen=True)
class Style:
    """How one paper prints figures: the minus, the plus, the thousands, the leading zero."""

    minus: str
    plus: bool
    thousands: str
    bare: bool  # .05 instead of 0.05
    decimal: str
    stripped: bool  # trailing zeros were lost in a spreadsheet

    @classmethod
    def of(cls, rng: Rng) -> Style:
        """Draw one."""
        comma = bool(rng.random() < 0.1)
        return cls(
            minus=str(rng.choice(["-", "−", "–"], p=[0.7, 0.2, 0.1])),
            plus=bool(rng.random() < 0.15),
            thousands=str(rng.choice([".", " ", ""] if comma else [",", " ", "'", ""])),
            bare=bool(rng.random() < 0.1),
            decimal="," if comma else ".",
            stripped=bool(rng.random() < 0.15),
        )

    def write(self, value: float, decimals: int, *, signed: bool = False, suffix: str = "") -> str:
        """Return a figure rounded to so many decimals."""
        text = f"{abs(value):,.{decimals}f}"
        negative = value < 0 and float(text.replace(",", "")) > 0
        whole, _, rest = text.partition(".")
        if self.stripped:
            rest = rest.rstrip("0")
        whole = "" if self.bare and whole == "0" and rest else whole.replace(",", self.thousands)
        sign = self.minus if negative else "+" if signed and self.plus else ""
        return f"{sign}{whole}{self.decimal if rest else ''}{rest}{suffix}"

    def column(self, values: Sequence[float] | Floats, decimals: int, **how: Any) -> list[str]:
        """Return a column."""
        return [self.write(float(value), decimals, **how) for value in values]

    def significant(self, values: Floats, digits: int) -> list[str]:
        """Return figures with a number of significant digits."""
        return [f"{value:#.{digits}g}".rstrip(".").replace(".", self.decimal) for value in values]


PLAIN = Style("-", False, "", False, ".", False)


def names(rng: Rng, word: str, count: int) -> list[str]:
    """Return names of rows."""
    return [f"{word} {k + 1}" for k in range(count)] if rng.random() < 0.5 else [f"{word}[{k}]" for k in range(count)]


def either(rng: Rng, *choices: str) -> str:
    """Return one of the names."""
    return str(rng.choice(choices))


def regression(rng: Rng, *, whole: bool = False) -> Case:
    """Return coefficients with some of standard errors, t, p, intervals and stars; ``whole``: all, in plain print."""
    rows, df = int(rng.integers(6 if whole else 2, 16)), int(rng.choice([4, 8, 14, 20, 50, 80, 150, 415, 10**6]))
    style = PLAIN if whole else Style.of(rng)
    scale = 10.0 ** rng.integers(-2, 1 if whole else 2)
    errors = np.full(rows, rng.uniform(1, 5)) if rng.random() < 0.4 else rng.uniform(1, 5, rows)
    errors *= scale
    estimates = errors * rng.normal(0, 3, rows)
    ratio = estimates / errors
    p = 2 * student.sf(np.abs(ratio), df)
    half = student.ppf((1 + (0.95 if rng.random() < 0.8 else 0.9)) / 2, df) * errors
    digits = int(rng.integers(2 if whole else 1, 5))
    decimals = max(digits - 1 - int(np.floor(np.log10(scale))), 0)
    by_digits = rng.random() < 0.3

    def shown(values: Floats) -> list[str]:
        return style.significant(values, digits + 1) if by_digits else style.column(values, decimals, signed=True)

    def called(*choices: str) -> str:
        return choices[0] if whole else either(rng, *choices)

    spss = not whole and rng.random() < 0.15
    keep = 2.0 if whole else 0.75
    columns: Columns = {"term": names(rng, "term", rows)}
    columns["B" if spss else called("estimate", "Estimate", "coef", "coefficient")] = shown(estimates)
    if rng.random() < keep:
        brackets = not whole and rng.random() < 0.15
        cells = shown(errors)
        name = called("standard_error", "Std. Error", "SE", "std err")
        columns[name] = [f"({text})" for text in cells] if brackets else cells
    if spss:
        columns["Beta"] = style.column(ratio / np.sqrt(ratio**2 + df), 3, signed=True)
    if rng.random() < keep:
        absolute = not whole and rng.random() < 0.2
        printed = style.column(abs(ratio) if absolute else ratio, int(rng.integers(1, 4)))
        columns[called("t", "t value", "t Ratio", "t-stat")] = printed
    if rng.random() < keep:
        name = "Sig." if spss else called("p", "p-value", "Pr(>|t|)", "Prob>|t|", "P>|t|")
        columns[name] = probabilities(rng, p, style, plain=whole)
    if rng.random() < keep - 0.25:
        ends = [("low", "high"), ("ci_lower", "ci_upper"), ("[0.025", "0.975]")]
        low, high = ends[0 if whole else int(rng.integers(3))]
        columns |= {low: shown(estimates - half), high: shown(estimates + half)}
    if rng.random() < keep - 0.35 and not spss:
        limits = CONVENTIONS[0 if rng.random() < 0.5 else int(rng.integers(len(CONVENTIONS)))]
        marks = ["*" * int(sum(x < limit for limit in limits)) for x in p]
        if whole or rng.random() < 0.5:
            columns["stars"] = marks
        else:
            first = list(columns)[1]
            columns[first] = [text + mark for text, mark in zip(columns[first], marks, strict=True)]
    return Case("regression", columns)


def probabilities(rng: Rng, p: Floats, style: Style, *, plain: bool = False) -> list[str]:
    """Return p-values in one of the usual ways."""
    decimals = int(rng.choice([2, 3, 4]))
    way = 1.0 if plain else rng.random()
    if way < 0.15:
        return [f"{x:.{decimals - 1}e}".replace(".", style.decimal) for x in p]
    if way < 0.3:
        return [f"{x:.3g}".replace(".", style.decimal) for x in p]
    least = 10.0**-decimals
    below = either(rng, "<", "< ", "<=") if rng.random() < 0.8 else ""
    return [f"{below}{style.write(least, decimals)}" if below and x < least else style.write(x, decimals) for x in p]


def tests(rng: Rng) -> Case:
    """Return t-tests, each with its own degrees of freedom, which are printed or not; one- or two-sided."""
    rows, style = int(rng.integers(2, 12)), Style.of(rng)
    whole = bool(rng.random() < 0.5)
    df = rng.integers(3, 200, rows).astype(float) if whole else rng.uniform(3, 60, rows)
    ratio = rng.normal(0, 2.5, rows)
    one_sided = rng.random() < 0.2
    p = student.sf(ratio, df) if one_sided else 2 * student.sf(abs(ratio), df)
    columns: Columns = {"comparison": names(rng, "test", rows), "t": style.column(ratio, int(rng.integers(1, 4)))}
    if rng.random() < 0.6 and not one_sided:
        columns["df"] = style.column(df, 0 if whole else 1)
    return Case("tests", columns | {"p": probabilities(rng, p, style)})


def odds(rng: Rng) -> Case:
    """Return a logistic regression whose interval is that of the odds ratio."""
    rows, style = int(rng.integers(2, 10)), Style.of(rng)
    errors = rng.uniform(0.1, 0.6, rows)
    b = errors * rng.normal(0, 2, rows)
    columns = {
        "term": names(rng, "term", rows),
        "coef": style.column(b, 3),
        "se": style.column(errors, 3),
        "z": style.column(b / errors, 2),
        "p": probabilities(rng, 2 * norm.sf(abs(b / errors)), style),
        "odds_ratio": style.column(np.exp(b), 2),
        "low": style.column(np.exp(b - 1.96 * errors), 2),
        "high": style.column(np.exp(b + 1.96 * errors), 2),
    }
    return Case("odds", columns)


def bootstrapped(rng: Rng) -> Case:
    """Return estimates with their standard errors and percentile intervals, which are not symmetric."""
    rows, style, decimals = int(rng.integers(3, 12)), Style.of(rng), int(rng.integers(1, 4))
    columns: dict[str, list[float]] = {"estimate": [], "standard_error": [], "low": [], "high": []}
    for _ in range(rows):
        sample = rng.gamma(rng.uniform(1, 8), 1.0, 30) if rng.random() < 0.5 else rng.normal(3, 2, 30)
        means = rng.choice(sample, (400, 30)).mean(axis=1)
        ends = np.quantile(means, [0.025, 0.975])
        for name, value in zip(columns, (sample.mean(), means.std(ddof=1), *ends), strict=True):
            columns[name].append(float(value))
    return Case(
        "bootstrapped", {"term": names(rng, "x", rows)} | {k: style.column(v, decimals) for k, v in columns.items()}
    )


def changes(rng: Rng) -> Case:
    """Return old, new and their change: in points, in percent, as a fraction, as a factor; times or accuracies."""
    rows, style, decimals = int(rng.integers(1, 10)), Style.of(rng), int(rng.integers(1, 3))
    shares = bool(rng.random() < 0.6)
    old, new = (
        (rng.uniform(20, 95, rows) for _ in range(2)) if shares else (rng.uniform(20, 60_000, rows) for _ in "ab")
    )
    if not shares:
        new = old * rng.uniform(0.4, 1.3, rows)
    unit = 100 if shares and rng.random() < 0.3 else 1
    old, new = old / unit, new / unit
    places = decimals + (2 if unit == 100 else 0)
    before, after = [("old", "new"), ("before", "after"), ("dense", "sparse"), ("accuracy_before", "accuracy_after")][
        int(rng.integers(4))
    ]
    columns: Columns = {"model": names(rng, "model", rows)}
    if rng.random() < 0.2:
        columns |= {"seconds_before": style.column(rng.uniform(5, 90, rows), 1)}
        columns |= {"seconds_after": style.column(rng.uniform(5, 90, rows), 1)}
        before, after = "accuracy_before", "accuracy_after"
    columns |= {before: style.column(old, places), after: style.column(new, places)}
    way, name = int(rng.integers(6)), either(rng, "change", "improvement", "difference", "delta")
    turned = bool(rng.random() < 0.4)
    if turned:
        name = either(rng, "saving", "reduction", "drop")
    sign = -1 if turned else 1
    suffix = either(rng, "", " %", "%")
    if way == 0:
        cells = style.column(sign * (new - old), places, signed=True)
    elif way == 1:
        cells = style.column(sign * 100 * (new - old) / old, decimals, signed=True, suffix=suffix)
    elif way == 2:
        cells = style.column(sign * (new - old) / old, 3, signed=True)
    elif way == 3:
        points = 100 if unit == 100 else 1
        cells = style.column(sign * points * (new - old), decimals, signed=True, suffix=" pp" if points == 100 else "")
    elif way == 4:
        name, cells = "speedup", style.column(old / new, 2, suffix=either(rng, "", "×", "x"))
    else:
        name, cells = "speedup", style.column(100 * (old / new - 1), 1, suffix=suffix or " %")
    return Case("changes", columns | {name: cells})


def averages(rng: Rng) -> Case:
    """Return changes with a row of their means: the mean of relative changes is not the change of the means."""
    made = changes(rng)
    rows, style = int(rng.integers(3, 8)), Style.of(rng)
    old, new = rng.uniform(50, 500, rows), rng.uniform(50, 500, rows)
    saving = 100 * (1 - new / old)
    columns = {
        "dataset": [*names(rng, "set", rows), either(rng, "Mean", "Average")],
        "before": style.column([*old, old.mean()], 1),
        "after": style.column([*new, new.mean()], 1),
        "saving": style.column([*saving, saving.mean()], 1, suffix=either(rng, "", " %")),
    }
    return Case("averages", columns if rng.random() < 0.7 else made.table)


def walks(rng: Rng, *, whole: bool = False) -> Case:
    """Return SA, validated share, PA and FMR of classes with a total; in percent or as fractions."""
    rows, n = int(rng.integers(2 if not whole else 4, 10)), 150 if whole else int(rng.choice([40, 150, 1000]))
    style = PLAIN if whole else Style.of(rng)
    right = rng.integers(int(0.6 * n), n + 1, rows)
    validated = rng.integers(int(0.4 * n), n + 1, rows)
    hard = bool(not whole and rng.random() < 0.2)  # hardly anything survives: every PA below 2 %
    survived = np.array(
        [rng.integers(0 if hard else min(5, v), (max(int(0.02 * v), 1) if hard else v) + 1) for v in validated]
    )
    sizes = np.full(rows, n) if whole or rng.random() < 0.5 else rng.integers(n, 3 * n, rows)
    sums = [np.r_[part, part.sum()] for part in (right, validated, survived, sizes)]
    right, validated, survived, sizes = (part.astype(float) for part in sums)
    sa, vr, pa = right / sizes, validated / sizes, survived / validated
    unit = 100 if whole or rng.random() < 0.8 else 1
    decimals = int(rng.choice([1, 2])) + (2 if unit == 1 else 0)
    suffix = "" if whole or unit == 1 else either(rng, "", " %")

    def column(values: Floats) -> list[str]:
        return style.column(unit * values, decimals, suffix=suffix)

    columns: Columns = {"class": [*names(rng, "class", rows), either(rng, "Total", "Overall", "All")]}
    counted = whole or bool(rng.random() < 0.6)
    if counted:
        columns["n"] = style.column(sizes, 0)
    parts = {"sa": sa, "vr": vr, "pa": pa, "fmr": pa / sa}
    kept = [name for name in parts if whole or rng.random() < 0.8]
    columns |= {name: column(parts[name]) for name in kept}
    if whole and decimals == 1:
        columns |= {name: style.column(100 * parts[name], 2) for name in parts}
    if rng.random() < 0.2 and not whole and not counted:  # the mean of the classes instead of a total
        columns["class"][-1] = "Mean"
        columns |= {name: column(np.r_[parts[name][:-1], parts[name][:-1].mean()]) for name in kept}
    return Case("walks", columns)


def walked_models(rng: Rng) -> Case:
    """Return PA and FMR of several generators, with SA in a column or nowhere."""
    rows, style = int(rng.integers(2, 10)), Style.of(rng)
    sa = rng.uniform(60, 99, rows)
    columns: Columns = {"model": names(rng, "model", rows)}
    if rng.random() < 0.5:
        columns["standard_accuracy"] = style.column(sa, 2)
    for maker in ("adm", "vqgan", "gan")[: int(rng.integers(1, 4))]:
        pa = rng.uniform(0.2, 0.95, rows) * sa
        columns |= {f"{maker}_pa": style.column(pa, 2), f"{maker}_fmr": style.column(100 * pa / sa, 2)}
    return Case("walked models", columns)


def scores(rng: Rng, *, whole: bool = False) -> Case:
    """Return squared deviations of scenarios with variance and score; with the accuracies or not."""
    models, scenarios = int(rng.integers(1 if not whole else 2, 8)), int(rng.integers(4, 12))
    style = PLAIN if whole else Style.of(rng)
    unit = 1 if whole or rng.random() < 0.5 else 100
    table: Columns = {
        "model": [],
        "kind": [],
        **{f"scene_{k}": [] for k in range(scenarios)},
        "variance": [],
        "score": [],
    }
    accuracies: Columns = {"model": [], "kind": [], **{f"scene_{k}": [] for k in range(scenarios)}}
    for model in range(models):
        mu = round(float(rng.uniform(0.7, 1.0)), 4)
        parts = [np.round(rng.uniform(0.4, 1.0, scenarios), 4) for _ in range(2)]
        squares = [(part - mu) ** 2 for part in parts]
        score = 1 - sum(part.mean() for part in squares)
        for kind, part, square in zip(("external", "internal"), parts, squares, strict=True):
            cells = style.column(unit * square, 2 if unit == 100 else 4)
            row = [f"m{model}", kind, *cells, style.write(square.mean(), 4), style.write(score, 4)]
            for name, cell in zip(table, row, strict=True):
                table[name].append(cell)
            row = [f"m{model}", kind, *style.column(100 * part, 2)]
            for name, cell in zip(accuracies, row, strict=True):
                accuracies[name].append(cell)
    given = {"reference": pd.DataFrame(accuracies)} if not whole and rng.random() < 0.4 else {}
    return Case("scores", table, given)


def spreads(rng: Rng) -> Case:
    """Return values with a variance that is none of squared deviations, and a score that has nothing to do with it."""
    rows, style = int(rng.integers(1, 12)), Style.of(rng)
    runs = rng.normal(rng.uniform(20, 90, (rows, 1)), rng.uniform(0.2, 6, (rows, 1)), (rows, 8))
    columns: Columns = {"model": names(rng, "model", rows)}
    if rng.random() < 0.5:
        columns |= {f"run {k}": style.column(runs[:, k], 2) for k in range(8)}
        columns["variance"] = style.column(runs.var(axis=1, ddof=int(rng.integers(2))), 2)
    else:
        columns |= {"mean": style.column(runs.mean(axis=1), 2), "min": style.column(runs.min(axis=1), 2)}
        columns |= {"max": style.column(runs.max(axis=1), 2), "variance": style.column(runs.var(axis=1), 3)}
    if rng.random() < 0.5:
        columns[either(rng, "f1_score", "score", "dice score")] = style.column(rng.uniform(0.3, 1, rows), 3)
    return Case("spreads", columns)


def means(rng: Rng) -> Case:
    """Return means that are not shares of the images, with their number in a column or given."""
    rows, style = int(rng.integers(2, 12)), Style.of(rng)
    n = int(rng.choice([20, 40, 150]))
    columns: Columns = {"group": names(rng, "group", rows)}
    own = bool(rng.random() < 0.4)
    if own:
        columns[either(rng, "n", "images")] = [str(int(x)) for x in rng.integers(n, 2 * n, rows)]
    kinds = {
        "mean": (0, 100, 2), "rating": (1, 7, 2), "seconds": (0, 60, 1), "mAP": (10, 80, 1), "sd": (0, 9, 2),
        "hue": (0, 1, 3), "median": (0, 50, 1), "loss": (0, 3, 3), "auc": (0.5, 1, 3),
    }  # fmt: skip
    for name in rng.choice(list(kinds), int(rng.integers(1, 5)), replace=False):
        low, high, decimals = kinds[str(name)]
        columns[str(name)] = style.column(rng.uniform(low, high, rows), decimals)
    if rng.random() < 0.2:
        columns["group"][-1] = either(rng, "Total", "All", "Mean")
    return Case("means", columns, {} if own else {"n": n})


def seeds(rng: Rng) -> Case:
    """Return accuracies of n images, or their means over several trainings."""
    rows, style, n = int(rng.integers(2, 12)), Style.of(rng), int(rng.choice([40, 120, 150]))
    runs, decimals = int(rng.choice([1, 1, 3, 5])), int(rng.integers(1, 3))
    share = rng.integers(int(0.4 * n) * runs, n * runs + 1, (rows, 3)) / (n * runs)
    scenes = [either(rng, "accuracy", "Top-1", "blur"), "grey", "random_background"]
    columns = {name: style.column(100 * share[:, k], decimals) for k, name in enumerate(scenes)}
    if runs > 1:
        columns["std"] = style.column(rng.uniform(0.1, 4, rows), decimals)
    rows_given = rows >= 5 or runs == 1  # of few rows no one can tell how many trainings there were
    return Case("seeds", {"model": names(rng, "model", rows), **columns}, {"n": n} if rows_given else {})


def counted(rng: Rng) -> Case:
    """Return classes with counts that add up, accuracies, and averages over classes in a row All."""
    rows, style = int(rng.integers(2, 9)), Style.of(rng)
    sizes = rng.integers(5, 60, rows)
    correct = np.array([rng.integers(1, size + 1) for size in sizes])
    ap = rng.uniform(10, 90, rows)
    total = either(rng, "Total", "All", "Overall")
    columns = {
        "class": [*names(rng, "class", rows), total],
        "n": [str(x) for x in (*sizes, sizes.sum())],
        "correct": [str(x) for x in (*correct, correct.sum())],
        "accuracy": style.column(100 * np.r_[correct / sizes, correct.sum() / sizes.sum()], 1),
        "mAP50": style.column([*ap, ap.mean()], 1),
        "recall": style.column(100 * np.r_[correct / sizes, (correct / sizes).mean()], 1),
    }
    for name in ("n", "correct", "accuracy", "mAP50", "recall"):
        if rng.random() < 0.3:
            del columns[name]
    return Case("counted", columns)


def intervals(rng: Rng) -> Case:
    """Return accuracies with the ends of their intervals, next to figures that the intervals are not of."""
    rows, style = int(rng.integers(1, 10)), Style.of(rng)
    n, decimals = int(rng.choice([40, 150, 1000])), int(rng.integers(0, 3))
    k = rng.integers(0, n + 1, rows)
    z = 1.96
    middle, half = (k + z**2 / 2) / (n + z**2), z * np.sqrt(k * (n - k) / n + z**2 / 4) / (n + z**2)
    name = either(rng, "accuracy", "standard_accuracy", "value", "estimate")
    columns = {"model": names(rng, "model", rows), name: style.column(100 * k / n, decimals)}
    if rng.random() < 0.5:
        columns["seconds"] = style.column(rng.uniform(0, 500, rows), 1)
    columns |= {
        "low": style.column(100 * (middle - half), decimals),
        "high": style.column(100 * (middle + half), decimals),
    }
    return Case("intervals", columns, {"n": n} if rng.random() < 0.5 and name != "estimate" else {})


def variance_analysis(rng: Rng) -> Case:
    """Return an analysis of variance: squares, F and p, where the auditor knows p only."""
    rows, style = int(rng.integers(2, 6)), Style.of(rng)
    df, squares = rng.integers(1, 12, rows), rng.uniform(0.1, 400, rows)
    columns = {
        "source": names(rng, "factor", rows), "df": [str(x) for x in df], "sum_sq": style.column(squares, 3),
        "mean_sq": style.column(squares / df, 3), "F": style.column(squares / df / 3, 2),
        "p": probabilities(rng, rng.uniform(0, 1, rows), style),
    }  # fmt: skip
    return Case("variance analysis", columns, {"n": 150} if rng.random() < 0.5 else {})


def quoted(rng: Rng) -> Case:
    """Return two tables that print some of the same figures, with other decimals or another unit."""
    rows, style, other = int(rng.integers(2, 9)), Style.of(rng), Style.of(rng)
    values = rng.uniform(5, 95, (rows, 2))
    labels = names(rng, "model", rows)
    unit = either(rng, "percent", "fraction")
    order = rng.permutation(rows)
    second = {"model": [labels[k] for k in order]}
    for k, name in enumerate(("accuracy", "recall")):
        shown = values[order, k] / (1 if unit == "percent" else 100)
        second[name] = other.column(shown, int(rng.integers(1, 3)) + (0 if unit == "percent" else 2))
    first = {"model": labels, "accuracy": style.column(values[:, 0], 2), "recall": style.column(values[:, 1], 2)}
    return Case("quoted", first, {"also": {"other": pd.DataFrame(second)}})


KINDS: tuple[Callable[[Rng], Case], ...] = (
    regression, regression, tests, odds, bootstrapped, changes, changes, averages, walks, walks, walked_models, scores,
    spreads, means, seeds, counted, intervals, variance_analysis, quoted,
)  # fmt: skip


def cases(count: int, seed: int = 0) -> list[Case]:
    """Return so many correct tables, the kinds in turn."""
    rng = np.random.default_rng(seed)
    return [KINDS[k % len(KINDS)](rng) for k in range(count)]
