"""Trials of the auditor: slips planted into clean tables, and alarms on clean ones."""

from __future__ import annotations

import numpy as np
import pandas as pd
from scipy.stats import t as student

from holdfast.stats.audit import AuditFinding, audit, check_claims
from promises.promise import Counted

Table = dict[str, list[str]]


def regression_table(rng: np.random.Generator, *, significant: bool = False) -> Table:
    """Return estimates with standard errors, t, p, intervals and stars, rounded as papers do."""
    rows, df = int(rng.integers(6, 16)), int(rng.choice([5, 8, 14, 20, 50, 60, 80, 150, 415]))
    errors = np.full(rows, rng.uniform(0.01, 0.05)) if rng.random() < 0.5 else rng.uniform(0.01, 0.05, rows)
    estimates = errors * rng.normal(0, 3, rows)
    ratio = estimates / errors
    p = 2 * student.sf(np.abs(ratio), df)
    half = student.ppf(0.975, df) * errors
    shown = (lambda x: f"{x:#.4g}") if significant else (lambda x: f"{x:.4f}")
    return {
        "term": [f"term {k}" for k in range(rows)],
        "estimate": [shown(x) for x in estimates],
        "standard_error": [shown(x) for x in errors],
        "t": [f"{x:.2f}" for x in ratio],
        "p": ["<.0001" if x < 1e-4 else f"{x:.4f}" for x in p],
        "low": [shown(x) for x in estimates - half],
        "high": [shown(x) for x in estimates + half],
        "stars": ["*" * int(sum(x < limit for limit in (0.05, 0.01, 0.001, 0.0001))) for x in p],
    }


def fmr_table(rng: np.random.Generator) -> Table:
    """Return classes of 150 images with a total."""
    rows, n = int(rng.integers(4, 10)), 150
    right = rng.integers(90, n + 1, rows)
    validated = rng.integers(60, n + 1, rows)
    survived = np.array([rng.integers(5, v + 1) for v in validated])
    right, validated, survived = (np.r_[part, part.sum()] for part in (right, validated, survived))
    size = np.r_[np.full(rows, n), n * rows]
    return {
        "class": [*[f"class {k}" for k in range(rows)], "Total"],
        "n": [str(x) for x in size],
        "sa": [f"{100 * x:.2f}" for x in right / size],
        "vr": [f"{100 * x:.2f}" for x in validated / size],
        "pa": [f"{100 * x:.2f}" for x in survived / validated],
        "fmr": [f"{100 * x:.2f}" for x in survived / validated / (right / size)],
    }


def score_table(rng: np.random.Generator) -> Table:
    """Return squared deviations of scenarios for several models, with their variance and score."""
    models, scenarios = int(rng.integers(2, 8)), int(rng.integers(4, 12))
    squares = (rng.uniform(0.4, 1.0, (models, scenarios)) - rng.uniform(0.7, 1.0, (models, 1))) ** 2
    variance = squares.mean(axis=1)
    columns = {f"scene_{k}": [f"{x:.4f}" for x in squares[:, k]] for k in range(scenarios)}
    names = {"model": [f"m{k}" for k in range(models)]}
    return names | columns | {"variance": [f"{x:.4f}" for x in variance], "score": [f"{1 - x:.4f}" for x in variance]}


def significant_table(rng: np.random.Generator) -> Table:
    """Return a regression with significant digits."""
    return regression_table(rng, significant=True)


TABLES = {
    "regression": regression_table,
    "significant": significant_table,
    "fmr": fmr_table,
    "score": score_table,
}
SHARES = ("p", "sa", "vr", "pa", "fmr")  # which cannot lie outside 0 to 100
DERIVED = {
    "estimate": ("estimate", "t", "low", "high", "p"),
    "standard_error": ("t", "low", "high", "p"),
    "t": ("t", "p"),
    "p": ("p", "stars"),
    "sa": ("sa", "fmr"),
    "vr": ("vr", "fmr"),
    "pa": ("pa", "fmr"),
}
"""Column → columns of the same row that are computed from it: no arithmetic tells which of the two is wrong."""


def moved(text: str, units: int) -> str:
    """Return the figure with its last digit moved."""
    decimals = len(text.partition(".")[2])
    return f"{float(text) + units * 10.0**-decimals:.{decimals}f}"


def at_the_cell(findings: list[AuditFinding], label: str, column: str) -> bool:
    """Return whether a finding stands at the cell, or at a figure of its row that is computed from it."""
    places = {f"{label}, {name}" for name in DERIVED.get(column, (column,))}
    return any(finding.where in places for finding in findings)


def slips(rng: np.random.Generator, draws: int, *, table: str, column: str, units: int) -> Counted:
    """A slip of so many units of the last digit in one cell of the column."""
    seen = tried = 0
    while tried < draws:
        made = TABLES[table](rng)
        row = int(rng.choice([row for row, text in enumerate(made[column]) if not text.startswith("<")]))
        text = moved(made[column][row], int(rng.choice([-1, 1])) * units)
        if column in SHARES and not 0 <= float(text) <= 100:
            continue
        made[column][row] = text
        tried += 1
        seen += at_the_cell(audit(pd.DataFrame(made)), next(iter(made.values()))[row], column)
    return {"seen": [seen, tried]}


def flipped_signs(rng: np.random.Generator, draws: int, *, column: str) -> Counted:
    """The sign of an estimate, or of its t, is lost or won."""
    seen = 0
    for _ in range(draws):
        made = regression_table(rng)
        row = int(rng.choice([row for row, text in enumerate(made["t"]) if abs(float(text)) >= 0.1]))
        text = made[column][row]
        made[column][row] = text[1:] if text.startswith("-") else f"-{text}"
        seen += at_the_cell(audit(pd.DataFrame(made)), made["term"][row], "estimate")
    return {"seen": [seen, draws]}


def wrong_stars(rng: np.random.Generator, draws: int) -> Counted:
    """One star too many or too few."""
    seen = 0
    for _ in range(draws):
        made = regression_table(rng)
        row = int(rng.integers(len(made["stars"])))
        count = len(made["stars"][row])
        made["stars"][row] = "*" * (count + (1 if count == 0 else -1 if count == 4 else int(rng.choice([-1, 1]))))
        seen += at_the_cell(audit(pd.DataFrame(made)), made["term"][row], "stars")
    return {"seen": [seen, draws]}


def printed_twice(rng: np.random.Generator, draws: int, *, units: int) -> Counted:
    """A second table of the paper quotes two columns in another order, one figure of them with a slip."""
    seen = 0
    for _ in range(draws):
        made = fmr_table(rng)
        order = rng.permutation(len(made["class"]))
        other = {name: [made[name][row] for row in order] for name in ("class", "sa", "fmr")}
        place, column = int(rng.integers(len(order))), str(rng.choice(["sa", "fmr"]))
        other[column][place] = moved(other[column][place], int(rng.choice([-1, 1])) * units)
        findings = audit(pd.DataFrame(made), also={"other": pd.DataFrame(other)})
        twice = [finding for finding in findings if finding.kind == "printed_twice"]
        seen += len(twice) == 1 and at_the_cell(twice, other["class"][place], column)
    return {"seen": [seen, draws]}


def claimed(rng: np.random.Generator, draws: int, *, units: int) -> Counted:
    """Sentences quote a cell, a mean and a difference; one of the three values has a slip."""
    seen = alarms = 0
    for _ in range(draws):
        made = fmr_table(rng)
        values = np.array([float(text) for text in made["sa"]])
        first, second = (int(row) for row in rng.choice(len(values) - 1, 2, replace=False))
        rows = [
            (f"{values[first]:.2f}", f"cell(class {first}; sa)"),
            (f"{values.mean():.2f}", "mean(sa)"),
            (f"{values[first] - values[second]:.2f}", f"difference(class {first}; class {second}; sa)"),
        ]
        place = int(rng.integers(3))
        texts = [
            (moved(value, int(rng.choice([-1, 1])) * units) if at == place else value)
            for at, (value, _) in enumerate(rows)
        ]
        claims = pd.DataFrame(
            [(f"it is {value}", value, "t", how) for value, (_, how) in zip(texts, rows, strict=True)],
            columns=["text", "value", "table", "how"],
        )
        places = [finding.where for finding in check_claims(claims, {"t": pd.DataFrame(made)})]
        seen += f"claim {place + 1}" in places
        alarms += sum(where != f"claim {place + 1}" for where in places)
    return {"seen": [seen, draws], "alarms": [alarms, 2 * draws]}


def clean(rng: np.random.Generator, draws: int, *, table: str) -> Counted:
    """Tables without a slip: findings, out of so many cells."""
    cells = alarms = 0
    for _ in range(draws):
        made = TABLES[table](rng)
        cells += sum(map(len, made.values()))
        alarms += len(audit(pd.DataFrame(made)))
    return {"alarms": [alarms, cells]}
