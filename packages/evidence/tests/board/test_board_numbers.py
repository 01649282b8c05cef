"""Scores of an entry: the same numbers, to the last digit kept, as those of the report and the notebook."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_board import CLASSES, hard_rows, static_rows, table_of, trained_rows, walk_rows

from holdfast.core.errors import UserError
from holdfast.results import background_conditions, static_conditions
from holdfast.stats.core.answers import from_table
from holdfast.stats.core.cells import accuracies, summary
from holdfast.stats.core.reduce import reduce
from holdfast.stats.effects.drops import paired_effect
from holdfast.stats.effects.score import WHOLE, score_parts, scores
from holdfast.stats.walks.walk_rows import fmr_of_rows
from holdfast_evidence.board.numbers import DIGITS, numbers
from holdfast_evidence.board.numbers import settings as settings_of


def _rounded(*values: float) -> tuple[float, ...]:
    return tuple(round(float(value), DIGITS) for value in values)


def _by_name(table: pa.Table, protocol: str) -> dict[str, Any]:
    return {score.name: score for score in numbers(table, protocol)}


@pytest.mark.parametrize("made", [static_rows, trained_rows, hard_rows])
def test_accuracies_are_those_of_the_summary(made: Any) -> None:
    table = table_of(made("m", seed=3))
    found = accuracies(from_table(table))
    slow = summary(reduce(table))
    assert len(found) == len(slow)
    for row in slow.itertuples():
        one = found[row.trained_on, row.condition]
        assert _rounded(one.value, one.low, one.high) == _rounded(row.accuracy, row.low, row.high)
        assert one.n == row.n


def test_repeated_pastes_widen_intervals_as_they_do_there() -> None:
    rows = static_rows("m", seed=1)
    again = [row | {"row_id": "x" + row["row_id"][1:], "seed": 1} for row in rows if row["condition"] == "grey"]
    table = table_of([*rows, *again])
    slow = summary(reduce(table)).set_index("condition").loc["grey"]
    one = accuracies(from_table(table))["", "grey"]
    assert _rounded(one.value, one.low, one.high) == _rounded(slow.accuracy, slow.low, slow.high)


@pytest.mark.parametrize("made", [static_rows, trained_rows])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_robustness_score_is_that_of_the_report(made: Any, seed: int) -> None:
    table = table_of(made("m", seed=seed))
    counts = reduce(table)
    found = _by_name(table, "static")
    for name, chosen in (
        ("robustness_score", static_conditions),
        ("robustness_score_background", background_conditions),
    ):
        slow = scores(counts, conditions=chosen(counts)).iloc[0]
        one = found[name]
        assert (one.estimate, one.low, one.high) == _rounded(slow.score, slow.low, slow.high)
        assert one.n == slow.n
    if made is trained_rows:
        slow = scores(counts, conditions=static_conditions(counts), resamples=100).iloc[0]
        assert found["variance_cross"].estimate == round(slow.variance_cross, DIGITS)
        assert found["variance_inner"].estimate == round(slow.variance_inner, DIGITS)
        parts = score_parts(counts, conditions=static_conditions(counts)).set_index(["part", "condition"])
        for part in ("cross", "inner"):
            whole, one = parts.loc[part, WHOLE], found[f"variance_{part}"]
            assert (one.estimate, one.low, one.high) == _rounded(whole.squared, whole.low, whole.high)
        assert "accuracy_within:grey" in found


def test_accuracy_under_corruptions_is_the_mean_of_their_accuracies() -> None:
    rows = static_rows("m")
    names = {"blur_object": "fog", "grey": "gaussian_noise"}
    extra = [
        row | {"condition": names[row["condition"]], "row_id": f"c{row['row_id'][1:]}",
               "image_sha256": f"c{row['image_sha256'][1:]}"}
        for row in static_rows("m", seed=1, share=0.4) if row["condition"] in names
    ]  # fmt: skip
    assert "corrupted_accuracy" not in _by_name(table_of(rows), "static")
    found = _by_name(table_of(rows + extra), "static")
    each = accuracies(from_table(table_of(rows + extra)))
    corrupted = [each["", name].value for name in names.values()]
    assert found["corrupted_accuracy"].estimate == pytest.approx(sum(corrupted) / 2)
    assert found["mean_accuracy"].estimate == _by_name(table_of(rows), "static")["mean_accuracy"].estimate


def test_conditions_with_the_same_pictures_count_once() -> None:
    rows = static_rows("m", seed=2)
    for row in rows:
        if row["condition"] == "grey":
            row["image_sha256"] = next(
                one["image_sha256"] for one in rows
                if one["sample_id"] == row["sample_id"] and one["condition"] == "blur_background"
            )  # fmt: skip
    table = table_of(rows)
    counts = reduce(table)
    assert set(counts.same_images) == set(from_table(table).same_images)
    slow = scores(counts, conditions=static_conditions(counts), resamples=100).iloc[0]
    assert _by_name(table, "static")["robustness_score"].estimate == round(slow.score, DIGITS)


def test_variants_and_parameters_name_conditions_as_they_do_there() -> None:
    rows = static_rows("m")
    extra = [
        row | {"variant": variant, "parameters": told, "row_id": f"{number}{row['row_id'][2:]}"}
        for number, (variant, told) in enumerate([("released", "{}"), ("paper", '{"sigma":9}')], start=10)
        for row in rows
        if row["condition"] == "blur_background"
    ]
    table = table_of([*rows, *extra])
    assert set(from_table(table).conditions) == set(reduce(table).conditions)


@pytest.mark.parametrize("seed", range(3))
def test_the_background_effect_is_the_paired_one(seed: int) -> None:
    table = table_of(static_rows("m", photos=60, seed=seed))
    cells = reduce(table).cells
    part = {name: cells[cells["condition"] == name] for name in ("same_class_background", "random_background")}
    slow = paired_effect(*part.values(), "right")
    found = _by_name(table, "static")["background_effect"]
    assert (found.estimate, found.low, found.high) == _rounded(slow.value, slow.low, slow.high)
    assert found.n == slow.n


@pytest.mark.parametrize("seed", range(3))
def test_walks_are_those_of_fmr(seed: int) -> None:
    table = table_of(walk_rows("m", photos=40, seed=seed))
    slow = fmr_of_rows(table)
    slow = slow[slow["label"] == ""].set_index("measure")
    for score in numbers(table, "dynamic"):
        row = slow.loc[score.name]
        assert (score.estimate, score.low, score.high) == _rounded(row.estimate, row.low, row.high)


def test_a_walk_that_nothing_survives_has_no_perturbed_accuracy() -> None:
    rows = walk_rows("m")
    table = table_of([row | ({"status": "rejected"} if row["condition"] == "perturbed" else {}) for row in rows])
    found = _by_name(table, "dynamic")
    assert "fmr" not in found
    assert found["validation_rate"].estimate == 0


def test_hard_sets_pool_their_pictures_and_cluster_on_the_prompt() -> None:
    rows = hard_rows("m", photos=48, seed=5)
    found = _by_name(table_of(rows), "hard")
    right = {label: [row["correct"] for row in rows if row["label"] == label] for label in CLASSES}
    assert found["accuracy"].estimate == pytest.approx(np.mean([np.mean(one) for one in right.values()]))
    assert set(found) == {"accuracy", "accuracy_restricted", "accuracy:background", "accuracy:texture"}
    # the same answers to images of as many prompts say more
    alone = [row | {"source_id": row["sample_id"], "correct": bool(number // 2 % 2), "correct_restricted": False}
             for number, row in enumerate(rows)]  # fmt: skip
    twins = [row | {"source_id": f"p{number // 2}"} for number, row in enumerate(alone)]
    narrow, wide = (_by_name(table_of(one), "hard")["accuracy"] for one in (alone, twins))
    assert wide.high - wide.low > narrow.high - narrow.low


def test_the_same_rows_in_any_order_give_the_same_digits() -> None:
    rows = static_rows("m", seed=7)
    mixed = [rows[place] for place in np.random.default_rng(0).permutation(len(rows))]
    assert numbers(table_of(rows), "static") == numbers(table_of(mixed), "static")


def test_rows_with_an_error_do_not_count() -> None:
    rows = static_rows("m", seed=7)
    failed = [row | {"row_id": "f" * 32, "status": "error", "correct": None, "correct_restricted": None}
              for row in rows[:1]]  # fmt: skip
    clean = _by_name(table_of(rows[1:]), "static")
    assert _by_name(table_of([*rows[1:], *failed]), "static") == clean


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 40), st.floats(0, 1))
def test_every_interval_holds_its_number(seed: int, photos: int, share: float) -> None:
    for score in numbers(table_of(static_rows("m", photos=photos, seed=seed, share=share)), "static"):
        assert score.low is not None
        assert score.high is not None
        assert score.low <= score.high
        if not score.name.startswith("robustness_score"):  # a debiased interval may leave out a noisy point
            assert score.low - 1e-9 <= score.estimate <= score.high + 1e-9


def test_a_mean_without_errors_keeps_a_width() -> None:
    table = table_of([row | {"correct": True} for row in static_rows("m")])
    found = _by_name(table, "static")["mean_accuracy"]
    assert found.estimate == pytest.approx(1)
    assert found.low is not None
    assert found.low < 0.95


@pytest.mark.parametrize(
    ("rows", "protocol", "words"),
    [
        ([], "static", "no answered row"),
        ([row for row in static_rows("m") if row["condition"] == "grey"], "static", "needs the originals"),
        (walk_rows("m", steps=5) + walk_rows("m", steps=6), "dynamic", "walks of 2 settings"),
        (static_rows("m"), "dynamic", "walks of 0 settings"),
        (static_rows("m"), "fast", "the protocol must be"),
        ([row | {"condition": "x" * 300} if row["condition"] == "grey" else row for row in static_rows("m")], "static",
         "cannot be a score"),
    ],
)  # fmt: skip
def test_what_cannot_be_counted_is_a_sentence(rows: list[dict[str, Any]], protocol: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        numbers(table_of(rows), protocol)


def test_numbers_have_no_digits_that_another_machine_would_not_have() -> None:
    """Ten classes of one image: the sum of ten tenths is 0.9999999999999999."""
    rows = [row | {"label": f"class {number // 6}", "correct": True} for number, row in
            enumerate(static_rows("m", photos=10))]  # fmt: skip
    found = _by_name(table_of(rows), "static")
    assert (found["accuracy"].estimate, found["mean_accuracy"].estimate) == (1.0, 1.0)


def test_repeated_pictures_are_a_setting() -> None:
    """A score leaves them out: claimed falsely, they would make any model perfect next to those that claim none."""
    rows = static_rows("m")
    told = [row | ({"image_sha256": str(row["sample_id"])} if row["condition"] in ("original", "grey") else {})
            for row in rows]  # fmt: skip
    assert "repeated" not in settings_of(table_of(rows), "static")
    assert settings_of(table_of(told), "static")["repeated"] == ["grey"]
