"""No finding in 2,000 correct tables of every kind, in mixed styles of print."""

from __future__ import annotations

from collections import Counter

import pandas as pd
import pytest
from promises.printed_tables import KINDS, cases

from holdfast_evidence.printed_tables import audit


def test_no_alarm_in_two_thousand_correct_tables() -> None:
    made = cases(2_000, seed=2026)
    assert len({case.kind for case in made}) == len({kind.__name__ for kind in KINDS})
    alarms = {
        f"{number} ({case.kind})": [finding.sentence for finding in found]
        for number, case in enumerate(made)
        if (found := audit(case.frame(), **case.options))
    }
    assert alarms == {}


CHANGES = {
    "points": ("old,new,change\n63.4,55.8,−7.6\n70.1,71.0,+0.9\n55.0,50.0,-5.0", "−7.6", "−7.9"),
    "share": ("old,new,change\n63.4,55.8,-12.0 %\n70.1,71.0,1.3 %\n55.0,50.0,-9.1 %", "-12.0", "-13.0"),
    "fraction": ("old,new,change\n0.634,0.558,-0.120\n0.701,0.710,0.013\n0.550,0.500,-0.091", "-0.120", "-0.136"),
    "points of fractions": (
        "old,new,change\n0.634,0.558,-7.6 pp\n0.701,0.710,0.9 pp\n0.55,0.5,-5.0 pp", "-7.6", "-12.0",
    ),
    "factor": ("before,after,speedup\n52.1,40.2,1.30×\n90.0,30.0,3.00×\n10.0,8.0,1.25×", "3.00", "2.00"),
    "two pairs": (
        "seconds_before,seconds_after,accuracy_before,accuracy_after,saving\n"
        "50,40,90,80,20 %\n80,60,70,69,25 %\n9,6,1,2,33 %",
        "25 %", "20 %",
    ),
}  # fmt: skip


def frame(text: str) -> pd.DataFrame:
    """The rows of a table, with names."""
    header, *rows = [line.split(",") for line in text.split("\n")]
    return pd.DataFrame([[f"m{k}", *row] for k, row in enumerate(rows)], columns=["model", *header])


@pytest.mark.parametrize("kind", CHANGES)
def test_changes_are_points_shares_or_factors_and_one_that_is_neither_is_seen(kind: str) -> None:
    text, right, wrong = CHANGES[kind]
    assert audit(frame(text)) == []
    assert [finding.printed.startswith(wrong[:4]) for finding in audit(frame(text.replace(right, wrong)))] == [True]


def test_a_mean_is_no_share_of_the_images_but_an_accuracy_is() -> None:
    rows = "\n".join(f"{value:.2f},{100 * k / 40:.1f}" for k, value in enumerate((3.41, 57.13, 8.77, 22.99, 61.03), 20))
    assert audit(frame("mean,accuracy\n" + rows), n=40) == []
    found = audit(frame("mean,accuracy\n" + rows.replace("52.5", "52.6")), n=40)
    assert [one.where for one in found] == ["m1, accuracy"]


def test_a_t_value_in_the_p_column_is_one_finding() -> None:
    """As in the published regression of segmentation, where stars were right and t stood for p."""
    rows = [
        "0.134,0.022,6.09,***", "-0.049,0.022,0.027,*", "0.040,0.022,0.070,", "0.165,0.022,7.50,***",
        "-0.070,0.022,0.0016,**", "0.010,0.022,0.65,", "0.100,0.022,4.55,***", "-0.301,0.022,<.001,***",
    ]  # fmt: skip
    found = audit(frame("estimate,standard_error,p,stars\n" + "\n".join(rows)))
    assert Counter(one.kind for one in found) == {"t_in_p": 3}


def test_tables_with_decimal_commas_are_read() -> None:
    table = frame("sa;pa;fmr\n90,00;45,00;50,00\n80,00;20,00;35,00".replace(",", ".").replace(";", ","))
    found = audit(table.map(lambda text: text.replace(".", ",")))
    assert [(one.where, one.expected) for one in found] == [("m1, fmr", "25.00")]
