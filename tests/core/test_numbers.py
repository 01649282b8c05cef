"""Numbers are rounded one way, no matter what prints them: half away from zero, as people do it by hand."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.lazy import pd
from holdfast.core.numbers import number, p_value, percent, points, span
from holdfast.reports.page.tables import Column, Table
from holdfast.stats.effects.drops import Effect
from holdfast.stats.effects.verdict_words import background_words

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"


def by_hand(share: Fraction, digits: int) -> str:
    """Per cent of an exact share, rounded by whole numbers only."""
    whole = math.floor(abs(share) * 100 * 10**digits + Fraction(1, 2))
    text = f"{whole // 10**digits}" + (f".{whole % 10**digits:0{digits}d}" if digits else "")
    return f"−{text}" if share < 0 and whole else text


@given(st.integers(-500, 500), st.integers(1, 500), st.integers(0, 3))
def test_counted_shares_are_rounded_as_by_hand(right: int, of: int, digits: int) -> None:
    share = Fraction(right, of)
    assert number(100 * (right / of), digits).replace(",", "") == by_hand(share, digits)
    difference = right / of + 0.7 - 0.7  # with the noise that differences of accuracies have
    assert number(100 * difference, digits).replace(",", "") == by_hand(share, digits)


@given(st.integers(0, 96), st.integers(1, 96))
def test_sentences_and_tables_print_the_same_number(right: int, of: int) -> None:
    share = min(right, of) / of
    wanted = by_hand(Fraction(min(right, of), of), 1)
    cell = Table("t", "", pd.DataFrame({"a": [share]}), [Column("a", "A", "percent")]).rows[0][0].text
    words = background_words("accuracy", Effect(of, share, 0.0, share, share, share, 0, 0, 1.0))
    falls = r"falls by ([\d.]+) points? \(([\d.]+) to ([\d.]+) lost.*: ([\d.]+) % on a same"
    stays = r"does not change \(([\d.]+) to ([\d.]+) points lost.*: ([\d.]+) % on a same"
    shown = re.findall(falls if right else stays, words)[0]
    assert {cell, *shown, percent(share).removesuffix(" %")} == {wanted}


def test_known_answers() -> None:
    assert percent(45 / 48) == "93.8 %" and points(-3 / 48) == "−6.3 points" and points(0.01, 0) == "1 point"
    assert number(-0.04, 1) == "0.0" and number(-0.04, 1, sign=True) == "+0.0" and number(float("nan")) == "–"
    assert number(1234.5, 0) == "1,235" and number(2.675, 2) == "2.68"
    assert span(0.0005, 1, sign=True) == "+0.1 to +100.0"
    assert p_value(0.00005) == "< .0001" and p_value(0.0005) == ".0005" and p_value(0.0125) == ".013"


NOT_SHARES = {"audit", "forecast", "tensors", "numbers.py", "plan.py", "power.py"}
"""Rooms and files whose per cent are of printed tables, of time or of pixels."""


def test_nobody_rounds_shares_otherwise() -> None:
    own = re.compile(r":[+,\d]*\.\d%|100 \* [^{}]*:[+,]*\.\df")
    files = [file for file in SOURCE.rglob("*.py") if not NOT_SHARES & {file.name, *file.parts}]
    assert len(files) > 300
    assert not [f"{file.name}: {hit}" for file in files for hit in own.findall(file.read_text(encoding="utf8"))]
