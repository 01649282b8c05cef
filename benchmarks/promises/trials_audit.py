"""Trials of the auditor: slips planted into clean tables, and alarms on clean ones."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from holdfast_evidence.printed_tables import AuditFinding, audit, check_claims
from promises.printed_tables import KINDS, Case, Columns, regression, scores, walks
from promises.promise import Counted

TABLES: dict[str, Callable[..., Case]] = {"regression": regression, "fmr": walks, "score": scores}


def made_of(table: str, rng: np.random.Generator) -> Columns:
    """Return a correct table with all its columns, in plain print, of any decimals or significant digits."""
    return TABLES[table](rng, whole=True).table


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
    """Return whether a finding is at the cell, or at a figure of its row that is computed from it."""
    places = {f"{label}, {name}" for name in DERIVED.get(column, (column,))}
    return any(finding.where in places for finding in findings)


def slips(rng: np.random.Generator, draws: int, *, table: str, column: str, units: int) -> Counted:
    """A slip of so many units of the last digit in one cell of the column."""
    seen = tried = 0
    while tried < draws:
        made = made_of(table, rng)
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
        made = made_of("regression", rng)
        row = int(rng.choice([row for row, text in enumerate(made["t"]) if abs(float(text)) >= 0.1]))
        text = made[column][row]
        made[column][row] = text[1:] if text.startswith("-") else f"-{text}"
        seen += at_the_cell(audit(pd.DataFrame(made)), made["term"][row], "estimate")
    return {"seen": [seen, draws]}


def wrong_stars(rng: np.random.Generator, draws: int) -> Counted:
    """One star too many or too few."""
    seen = 0
    for _ in range(draws):
        made = made_of("regression", rng)
        row = int(rng.integers(len(made["stars"])))
        count = len(made["stars"][row])
        made["stars"][row] = "*" * (count + (1 if count == 0 else -1 if count == 4 else int(rng.choice([-1, 1]))))
        seen += at_the_cell(audit(pd.DataFrame(made)), made["term"][row], "stars")
    return {"seen": [seen, draws]}


def printed_twice(rng: np.random.Generator, draws: int, *, units: int) -> Counted:
    """A second table of the paper quotes two columns in another order, one figure of them with a slip."""
    seen = 0
    for _ in range(draws):
        made = made_of("fmr", rng)
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
        made = made_of("fmr", rng)
        names, values = made["class"], np.array([float(text) for text in made["sa"]])
        first, second = (int(row) for row in rng.choice(len(values) - 1, 2, replace=False))
        rows = [
            (f"{values[first]:.2f}", f"cell({names[first]}; sa)"),
            (f"{values.mean():.2f}", "mean(sa)"),
            (f"{values[first] - values[second]:.2f}", f"difference({names[first]}; {names[second]}; sa)"),
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


def clean(rng: np.random.Generator, draws: int) -> Counted:
    """Correct tables of all kinds and styles: those in which something is found."""
    made = (KINDS[int(rng.integers(len(KINDS)))](rng) for _ in range(draws))
    return {"alarms": [sum(bool(audit(case.frame(), **case.options)) for case in made), draws]}
