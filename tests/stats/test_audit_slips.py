"""Slips that the auditor has to see, one by one; the register of promises has what share of planted ones it sees."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from promises.printed_tables import Columns as Table
from promises.printed_tables import regression

from holdfast.core.errors import UserError
from holdfast.stats.audit import audit, check_claims


def plant(table: Table, column: str, row: int, change: Callable[[str], str]) -> Table:
    other = copy.deepcopy(table)
    other[column][row] = change(other[column][row])
    return other


def test_wrong_probabilities_of_the_published_figure() -> None:
    table = regression(np.random.default_rng(3), whole=True).table
    large = next(row for row, text in enumerate(table["p"]) if text[0] == "0" and 0.3 < float(text) < 0.9)
    for row, wrong in (
        (large, "0.0446"),
        (max(range(len(table["t"])), key=lambda k: abs(float(table["t"][k]))), "0.5"),
    ):
        changed = plant(table, "p", row, lambda _, text=wrong: text)
        assert "p_off" in {finding.kind for finding in audit(pd.DataFrame(changed))}


def test_flipped_signs_and_stars() -> None:
    table = regression(np.random.default_rng(4), whole=True).table
    row = max(range(len(table["t"])), key=lambda k: abs(float(table["t"][k])))
    flipped = plant(table, "estimate", row, lambda text: f"{-float(text):.4f}")
    assert {"sign_off", "outside_interval"} <= {finding.kind for finding in audit(pd.DataFrame(flipped))}
    least = max(range(len(table["p"])), key=lambda k: float(table["p"][k].lstrip("<")))
    starred = plant(table, "stars", least, lambda _: "*")
    found = audit(pd.DataFrame(starred))
    assert {finding.kind for finding in found} == {"stars_off"}
    assert f"{table['term'][least]}, stars" in [finding.where for finding in found]


def test_significant_digits_are_no_lost_zeros() -> None:
    estimates = ["0.1340", "-0.04867", "0.04000", "0.1004", "0.1333", "0.07667", "0.03083", "0.05617", "0.09417"]
    errors = ["0.02238"] * len(estimates)
    ratios = [f"{float(a) / float(b):.2f}" for a, b in zip(estimates, errors, strict=True)]
    ratios[3] = f"{0.10044 / 0.02238:.2f}"  # what 0.1004 was before it was rounded to four significant digits
    table = pd.DataFrame({"term": list("abcdefghi"), "estimate": estimates, "standard_error": errors, "t": ratios})
    assert audit(table) == []


def test_a_figure_that_is_printed_twice() -> None:
    first = pd.DataFrame({"model": ["A", "B"], "accuracy": ["27.11", "80.4"]})
    second = pd.DataFrame({"model": ["B", "A"], "accuracy": ["80.39", "28.11"], "other": ["1", "2"]})
    found = audit(first, name="table 1", also={"table 2": second})
    assert [(finding.kind, finding.printed, finding.expected) for finding in found] == [
        ("printed_twice", "27.11", "28.11")
    ]


def test_claims_follow_from_their_tables() -> None:
    columns = {"model": ["ResNet", "ViT", "Swin"], "kind": ["cnn", "vit", "vit"], "loss": ["11.28", "28.5", "27.4"]}
    table = pd.DataFrame(columns)
    claims = pd.DataFrame(
        [
            ("transformers lose 27.95", "27.95", "t", "mean(loss; kind=vit)"),
            ("ViT loses 28.11", "28.11", "t", "cell(ViT; loss)"),
            ("16.1 points more than the ResNet", "16.1", "t", "difference(Swin; ResNet; loss)"),
            ("2.5 times as much", "2.5", "t", "ratio(ViT; ResNet; loss)"),
            ("at least 11.3", "11.3", "t", "min(loss)"),
        ],
        columns=["text", "value", "table", "how"],
    )
    found = check_claims(claims, {"t": table})
    assert [(finding.where, finding.expected) for finding in found] == [("claim 2", "28.50")]


@pytest.mark.parametrize(
    ("value", "table", "how", "words"),
    [
        ("many", "t", "cell(A; x)", "not a number"),
        ("1", "u", "cell(A; x)", "no table 'u'"),
        ("1", "t", "__import__(os)", "is none of"),
        ("1", "t", "cell(B; x)", "0 rows"),
        ("1", "t", "mean(y)", "no column 'y'"),
        ("1", "t", "cell(A)", "claim 1"),
    ],
)
def test_claims_that_cannot_be_read(value: str, table: str, how: str, words: str) -> None:
    claims = pd.DataFrame([("…", value, table, how)], columns=["text", "value", "table", "how"])
    with pytest.raises(UserError, match=words.replace("(", r"\(")):
        check_claims(claims, {"t": pd.DataFrame({"model": ["A"], "x": ["1"]})})
