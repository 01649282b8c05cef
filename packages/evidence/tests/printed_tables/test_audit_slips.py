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
from holdfast_evidence.printed_tables import audit, check_claims


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


def test_claims_of_differences_between_two_cells() -> None:
    """The published 11.28 and 27.95 are VGG 89.92 − 78.64 and ViT 90.77 − 62.82, each between two scenarios."""
    table = pd.DataFrame(
        {"experiment": ["EX1", "EX1", "EX2"], "model": ["VGG-16", "ViT", "ViT"],
         "blur_background": ["89.92", "88.44", "71.51"], "blur_object": ["89.91", "90.77", "70.21"],
         "image_g": ["78.64", "65.87", "74.77"], "image_b": ["70.46", "62.82", "75.96"]}
    )  # fmt: skip
    columns = ["text", "value", "table", "how"]
    vgg = "difference(EX1 VGG-16; blur_background; EX1 VGG-16; image_g)"
    vit = "difference(EX1 ViT; blur_object; EX1 ViT; image_b)"
    rows = [("drops 11.28", "11.28", "t", vgg), ("drops 27.95", "27.95", "t", vit), ("drops 28.95", "28.95", "t", vit)]
    found = check_claims(pd.DataFrame(rows, columns=columns), {"t": table})
    assert [(finding.where, finding.expected) for finding in found] == [("claim 3", "27.95")]
    ratio = ("a third more", "1.35", "t", "ratio(EX1 ViT; blur_background; EX1 ViT; image_g)")
    assert [one.expected for one in check_claims(pd.DataFrame([ratio], columns=columns), {"t": table})] == ["1.34"]


@pytest.mark.parametrize(
    ("value", "table", "how", "words"),
    [
        ("many", "t", "cell(A; x)", "not a number"),
        ("1", "u", "cell(A; x)", "no table 'u'"),
        ("1", "t", "__import__(os)", "is none of"),
        ("1", "t", "cell(B; x)", "0 rows"),
        ("1", "t", "mean(y)", "no column 'y'"),
        ("1", "t", "cell(A)", "cell takes a row and a column"),
        ("1", "t", "difference(A; x; A; x; x)", "ROW; COLUMN; ROW; COLUMN"),
    ],
)
def test_claims_that_cannot_be_read(value: str, table: str, how: str, words: str) -> None:
    claims = pd.DataFrame([("…", value, table, how)], columns=["text", "value", "table", "how"])
    with pytest.raises(UserError, match=words.replace("(", r"\(")):
        check_claims(claims, {"t": pd.DataFrame({"model": ["A"], "x": ["1"]})})
