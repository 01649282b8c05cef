"""The auditor says nothing about tables that are right, however they are rounded."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from scipy.stats import t as student

from holdfast_evidence.printed_tables import audit

generators = st.integers(0, 2**32 - 1).map(np.random.default_rng)


def printed(values: np.ndarray, decimals: int, *, stripped: bool = False) -> list[str]:
    """As printed; ``stripped``: as they look after a journey through floats, without trailing zeros."""
    texts = [f"{value:.{decimals}f}" for value in values]
    return [str(float(text)) for text in texts] if stripped else texts


@settings(max_examples=60, deadline=None)
@given(generators, st.booleans(), st.integers(2, 12))
def test_fmr_tables(rng: np.random.Generator, stripped: bool, rows: int) -> None:
    n = 150
    right = rng.integers(60, n + 1, rows)
    validated = rng.integers(30, n + 1, rows)
    survived = np.array([rng.integers(0, v + 1) for v in validated])
    right, validated, survived = (np.r_[part, part.sum()] for part in (right, validated, survived))
    size = np.r_[np.full(rows, n), n * rows]
    table = pd.DataFrame(
        {
            "class": [*[f"class {k}" for k in range(rows)], "Total"],
            "SA": printed(100 * right / size, 2, stripped=stripped),
            "VR": printed(100 * validated / size, 2, stripped=stripped),
            "PA": printed(100 * survived / validated, 2, stripped=stripped),
            "FMR": printed(100 * (survived / validated) / (right / size), 2, stripped=stripped),
        }
    )
    assert audit(table, n=n) == []
    assert audit(table) == []
    assert audit(table.drop(columns="PA"), n=n) == []
    assert audit(table.drop(columns="VR"), n=n) == []


@settings(max_examples=60, deadline=None)
@given(generators, st.booleans(), st.sampled_from([1, 100]))
def test_score_tables(rng: np.random.Generator, stripped: bool, unit: int) -> None:
    models, scenarios = int(rng.integers(1, 4)), [f"scene_{k}" for k in range(int(rng.integers(3, 12)))]
    accuracies, squares = [], []
    for model in range(models):
        mu = round(rng.uniform(0.7, 1.0), 4)
        parts = {kind: np.round(rng.uniform(0.4, 1.0, len(scenarios)), 4) for kind in ("external", "internal")}
        score = 1 - sum(((part - mu) ** 2).mean() for part in parts.values())
        for kind, part in parts.items():
            cells = printed(unit * (part - mu) ** 2, 2 if unit == 100 else 4, stripped=stripped)
            variance = f"{((part - mu) ** 2).mean():.4f}"
            squares.append([f"m{model}", kind, *cells, variance, f"{score:.4f}"])
            accuracies.append([kind, f"m{model}", *printed(100 * part, 2, stripped=stripped)])
    table = pd.DataFrame(squares, columns=["model", "kind", *scenarios, "variance", "score"])
    assert audit(table) == []
    reference = pd.DataFrame(accuracies, columns=["experiment", "model", *scenarios])
    assert audit(reference) == []
    assert audit(table, reference=reference) == []


@pytest.mark.parametrize(("cut", "low", "high"), [(False, 0, 2), (True, 100, 200)])
def test_cutting_is_told_from_rounding(cut: bool, low: int, high: int) -> None:
    """Twenty variances of eight squares each: at most 1 in 100 rounded tables looks cut, most cut ones do."""
    rng, suspected = np.random.default_rng(0), 0
    for _ in range(200):
        squares = rng.uniform(0, 0.1, (20, 8))
        table = pd.DataFrame([printed(100 * row, 2) for row in squares], columns=list("abcdefgh"))
        table.insert(0, "model", [f"m{k}" for k in range(20)])
        variance = squares.mean(axis=1)
        table["variance"] = printed(np.floor(variance * 1e4) / 1e4 if cut else variance, 4)
        found = audit(table)
        assert {one.kind for one in found} <= {"variance_cut"}
        suspected += len(found)
    assert low <= suspected <= high


@settings(max_examples=60, deadline=None)
@given(generators, st.integers(2, 4))
def test_regression_and_speed_tables(rng: np.random.Generator, decimals: int) -> None:
    estimate, error = rng.normal(0, 0.1, 12), rng.uniform(0.01, 0.05, 12)
    regression = pd.DataFrame(
        {
            "term": [f"term {k}" for k in range(12)],
            "estimate": printed(estimate, decimals + 2),
            "standard_error": printed(error, decimals + 2),
            "t": printed(estimate / error, decimals),
            "p": printed(2 * norm.sf(np.abs(estimate / error)), decimals),
        }
    )
    assert audit(regression) == []
    before, after = rng.uniform(50, 500, 6), rng.uniform(50, 500, 6)
    speed = pd.DataFrame(
        {
            "dataset": list("abcdef"),
            "seconds_before": printed(before, decimals),
            "seconds_after": printed(after, decimals),
            "saving": [f"{100 * (1 - b / a):.1f} %" for a, b in zip(before, after, strict=True)],
        }
    )
    assert audit(speed) == []


@pytest.mark.parametrize("factor", [0.5, 1.5])
def test_and_speaks_when_they_are_not(factor: float) -> None:
    """The clean tables above are within reach of the checks: spoil one figure and it is found."""
    table = pd.DataFrame({"model": ["a", "b"], "SA": ["90.00", "80.00"], "PA": ["45.00", "20.00"]})
    table["FMR"] = ["50.00", f"{25 * factor:.2f}"]
    assert [one.where for one in audit(table)] == ["b, FMR"]


def test_numbers_and_unknown_columns_are_welcome() -> None:
    frame = pd.DataFrame({"name": ["a", "b"], "SA": [90.0, 80.0], "PA": [45.0, 21.0], "FMR": [50.0, 25.0], "note": "x"})
    assert [one.where.split(",")[1] for one in audit(frame)] == [" FMR"]
    assert audit(pd.DataFrame({"anything": ["x"], "else": ["y"]})) == []
    assert audit(pd.DataFrame({"SA": ["90.0", None], "PA": ["45.0", "n/a"], "FMR": ["50.0", "–"]})) == []


@pytest.mark.parametrize("df", [11, 14, 50, 80, 150, 333])
def test_any_degrees_of_freedom_explain_clean_tables(df: int) -> None:
    rng = np.random.default_rng(df)
    for _ in range(12):
        ratio = rng.normal(0, 4, 14)
        errors = rng.uniform(0.01, 0.05, 14)
        p = 2 * student.sf(abs(ratio), df)
        table = pd.DataFrame(
            {"term": [f"t{k}" for k in range(14)], "estimate": printed(errors * ratio, 4),
             "standard_error": printed(errors, 4), "t": printed(ratio, 2), "p": printed(p, 4)}
        )  # fmt: skip
        assert not [finding for finding in audit(table) if finding.kind == "p_off"]


def test_degrees_of_freedom_may_be_fractions() -> None:
    df, ratio = np.array([2.9, 3.7, 11.4]), np.array([2.5, 3.11, 1.2])
    table = pd.DataFrame(
        {"term": list("abc"), "t": printed(ratio, 2), "df": printed(df, 1), "p": printed(2 * student.sf(ratio, df), 4)}
    )
    assert not list(audit(table))
    table["p"] = ["0.0100", "0.9000", "0.2500"]
    assert "p_off" in {finding.kind for finding in audit(table)}
