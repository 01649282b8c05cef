"""Flips and equivalence of two models with planted answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from made_rows import table

from holdfast.core.errors import UserError
from holdfast.stats.core.reduce import reduce
from holdfast.stats.models.parity import Parity, parity


def _made(n: int, lost: int, gained: int, other: int = 0, *, condition: str = "original") -> list[dict[str, Any]]:
    """``n`` images: the new model loses the first, gains the next, and is wrong in another way on ``other`` more."""
    rows = []
    for place in range(n):
        gains, both_wrong = lost <= place < lost + gained, lost + gained <= place < lost + gained + other
        right = {"old": not (gains or both_wrong), "new": not (place < lost or both_wrong)}
        for model, correct in right.items():
            answer = "cat" if correct else f"wrong {model}" if both_wrong else "dog"
            rows.append({
                "model": model, "source_id": f"image {place}", "condition": condition, "label": "cat",
                "correct": correct, "prediction": answer, "confidence": 0.9, "image_sha256": f"{condition}{place}",
            })  # fmt: skip
    return rows


def _parity(rows: list[dict[str, Any]], **options: Any) -> Parity:
    made = table(rows)
    return parity(made, reduce(made), "old", "new", **options)


def test_flips_are_counted_whatever_they_do_to_accuracy() -> None:
    outcome = _parity(_made(100, 6, 4, other=5), margin=0.2)
    row = outcome.conditions.iloc[0]
    assert (row["flipped"], row["n"], row["lost"], row["gained"]) == (15, 100, 6, 4)
    assert row["difference"] == pytest.approx(-0.02)
    share, z, n = 0.15, 1.959964, 100  # Wilson's interval, by hand
    middle, half = share + z * z / (2 * n), z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    assert (row["flips_low"], row["flips_high"]) == pytest.approx(
        ((middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)), abs=1e-4
    )
    assert list(outcome.flips["lost"]) == [True] * 6 + [False] * 9  # what is lost comes first
    assert outcome.verdict == "equivalent"


@pytest.mark.parametrize(
    ("n", "lost", "gained", "margin", "verdict"),
    [
        (58, 0, 0, 0.05, "undecided"),  # 0.95 ** 58 is 0.051
        (59, 0, 0, 0.05, "equivalent"),
        (100, 0, 0, 0.02, "undecided"),
        (200, 60, 0, 0.05, "different"),
        (200, 0, 60, 0.05, "different"),  # a better model is another model
        (200, 30, 30, 0.05, "undecided"),
    ],
)
def test_both_directions_have_to_exclude_the_margin(
    n: int, lost: int, gained: int, margin: float, verdict: str
) -> None:
    outcome = _parity(_made(n, lost, gained), margin=margin)
    assert outcome.verdict == verdict, outcome.conditions.to_string()


def test_the_interval_is_that_of_the_other_direction_mirrored() -> None:
    rows = _made(80, 7, 2)
    swapped = [row | {"model": {"old": "new", "new": "old"}[row["model"]]} for row in rows]
    there, back = _parity(rows, margin=0.1).conditions.iloc[0], _parity(swapped, margin=0.1).conditions.iloc[0]
    assert (there["low"], there["high"]) == pytest.approx((-back["high"], -back["low"]))
    assert there["low"] < there["difference"] < there["high"]


def test_one_condition_decides_for_all_and_pictures_without_the_object_only_flip() -> None:
    rows = _made(200, 1, 1) + _made(200, 60, 0, condition="grey") + _made(200, 9, 0, condition="only_background")
    outcome = _parity(rows, margin=0.05)
    verdicts = dict(zip(outcome.conditions["condition"], outcome.conditions["verdict"], strict=True))
    assert verdicts == {"original": "equivalent", "grey": "different", "only_background": ""}
    assert outcome.verdict == "different" and "under grey" in outcome.sentence


def test_other_pictures_are_no_flips() -> None:
    rows = _made(60, 0, 0)
    for row in rows[:20]:  # as an attack makes them, one per model
        row["image_sha256"] = f"{row['model']} {row['source_id']}"
    assert _parity(rows, margin=0.1).conditions["n"].item() == 50


def test_a_model_without_answers_is_a_sentence() -> None:
    made = table([row for row in _made(10, 0, 0) if row["model"] == "old"])
    with pytest.raises(UserError, match="new has no answers in this run"):
        parity(made, reduce(made), "old", "new")
