"""What the site shows next to scores, against the statistics that the report is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_board import hard_rows, static_rows, table_of, walk_rows

from holdfast.stats.core.answers import coded, codes_of, from_table
from holdfast.stats.core.bootstrap import codes
from holdfast.stats.core.cells import accuracy, class_accuracies, pooled_influence
from holdfast.stats.core.reduce import reduce
from holdfast.stats.effects.score_spread import design_of, score_influence
from holdfast.stats.effects.verdict import evidence_of, what_it_holds
from holdfast.stats.effects.verdict_words import in_words
from holdfast.stats.models.between import ranking
from holdfast.stats.models.ranks import rank_ranges
from holdfast.stats.walks.fmr import fmr_influence
from holdfast.stats.walks.walk_rows import paired, walk_influence, walks_of
from holdfast_evidence.board.numbers import answers_of, background_effect, numbers, scored


@pytest.mark.parametrize("made", [static_rows, hard_rows])
def test_classes_are_those_of_the_report(made: Any) -> None:
    rows = made("m", seed=2)
    table = table_of([*rows, *(row | {"row_id": "x" + row["row_id"][1:], "seed": 1} for row in rows[:20])])
    found = class_accuracies(from_table(table))
    slow = accuracy(reduce(table))
    assert int((found.n > 0).sum()) == len(slow)
    for row in slow.itertuples():
        at = found.conditions.index(row.condition), found.classes.index(row.label)
        wanted = (row.n, row.accuracy, row.low, row.high)
        assert (found.n[at], found.accuracy[at], found.low[at], found.high[at]) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(("share", "answers"), [(0.95, "object"), (0.4, "background"), (0.5, "chance")])
def test_the_verdict_is_that_of_the_report(share: float, answers: str) -> None:
    rows = static_rows("m", photos=150, seed=5, share=share)
    for row in rows:  # a model that follows the background says the donor's class
        if answers == "background" and row.get("donor_label"):
            row.update(prediction=row["donor_label"], prediction_restricted=row["donor_label"])
            row.update(
                correct=row["label"] == row["donor_label"], correct_restricted=row["label"] == row["donor_label"]
            )
    table = table_of(rows)
    answers = from_table(table)
    evidence = evidence_of(answers, "", classes=answers.labels)
    words = in_words(evidence).columns()
    slow = what_it_holds(reduce(table)).iloc[0]
    assert words == {name: slow[name] for name in words}
    for name, one in (("background_effect", evidence.background), ("object_effect", evidence.object),
                      ("paste_effect", evidence.paste), ("capture", evidence.capture)):  # fmt: skip
        wanted = (slow[name], slow[f"{name}_low"], slow[f"{name}_high"])
        assert (one.value, one.low, one.high) == pytest.approx(wanted, abs=1e-12)
    assert evidence.capture.first == pytest.approx(slow["captured"], abs=1e-12)
    for name, excess in (("original_excess", evidence.original), ("same_class_excess", evidence.pasted),
                         ("foreground_evidence", evidence.replaced)):  # fmt: skip
        wanted = (slow[name], slow[f"{name}_low"], slow[f"{name}_high"])
        assert (excess.value, excess.low, excess.high) == pytest.approx(wanted, abs=1e-12)


def test_a_known_difference_is_not_computed_again() -> None:
    table = table_of(static_rows("m", photos=40, seed=3))
    rows = answers_of(table)
    known = background_effect(rows)
    assert background_effect(rows) is known
    options = {"classes": rows.labels}
    assert evidence_of(rows, "", **options, background=known) == evidence_of(rows, "", **options)


def test_answers_are_kept_of_the_last_table_only() -> None:
    first, second = (table_of(static_rows("m", photos=9, seed=seed)) for seed in (0, 1))
    kept = answers_of(first)
    assert answers_of(first) is kept
    assert not np.array_equal(answers_of(second).right, kept.right)
    assert np.array_equal(answers_of(first).right, kept.right)


@given(
    st.lists(st.lists(st.none() | st.sampled_from(["b", "a", "é", "", "😀", "z"]), max_size=6), max_size=3),
    st.booleans(),
)
def test_codes_point_into_the_sorted_words_that_rows_have(chunks: list[list[str | None]], encoded: bool) -> None:
    words = ["z", "unused", "a", "b", "a", "", "é", "😀"]  # one twice, one in no row
    arrays = [pa.array(chunk, pa.string()) for chunk in chunks]
    if encoded:
        places = [[None if word is None else words.index(word) for word in chunk] for chunk in chunks]
        arrays = [pa.DictionaryArray.from_arrays(pa.array(one, pa.int32()), words) for one in places]
    kind = pa.dictionary(pa.int32(), pa.string()) if encoded else pa.string()
    places, names = coded(pa.chunked_array(arrays, kind))
    given_words = [word for chunk in chunks for word in chunk]
    assert names == sorted({word for word in given_words if word is not None})
    assert [None if code < 0 else names[code] for code in places] == given_words


@given(st.lists(st.integers(-3, 9) | st.integers(-(2**40), 2**40), max_size=12))
def test_numbers_are_those_of_unique(values: list[int]) -> None:
    numbers_ = np.array(values, np.intp)
    wanted, number = np.unique(numbers_, return_inverse=True)
    found, count = codes(numbers_)
    assert found.tolist() == number.tolist() and count == len(wanted)


def test_codes_are_kept_of_the_last_table_only() -> None:
    first, second = (table_of(static_rows(name, photos=9)) for name in ("one", "other"))
    assert codes_of(first, "model") is codes_of(first, "model")
    assert codes_of(second, "model")[1] == ["other"]
    assert codes_of(first, "model")[1] == ["one"]
    with pytest.raises(ValueError, match="read-only"):
        codes_of(first, "model")[0][0] = 1


def test_influences_are_derivatives_of_the_scores() -> None:
    """Leaving an image out moves a score as its influence says, to first order."""
    rows = static_rows("m", photos=60, seed=1)
    table = table_of(rows)
    whole = from_table(table)
    design = scored(whole, "static")
    assert design is not None
    score = {one.name: one.estimate for one in numbers(table, "static")}
    for number in (0, 7, 31):
        less = table_of([row for row in rows if row["source_id"] != f"photos/{number:03d}"])
        moved = {one.name: one.estimate for one in numbers(less, "static")}
        at = whole.sources.index(f"photos/{number:03d}")
        for name, influence in score_influence(design).items():
            assert moved[name] - score[name] == pytest.approx(-influence[at], rel=0.3, abs=2e-3)


def test_influences_of_hard_sets_and_walks() -> None:
    rows = from_table(table_of(hard_rows("m", seed=4)))
    by_hand = np.zeros(len(rows.sources))
    for number, label in enumerate(rows.labels):
        own = rows.label == number
        for at in np.flatnonzero(own):
            by_hand[rows.source[at]] += (rows.right[at] - rows.right[own].mean()) / own.sum() / len(rows.labels)
        assert label
    assert pooled_influence(rows) == pytest.approx(by_hand)
    table = table_of(walk_rows("m", seed=4))
    sources, influence = walk_influence(walks_of(table))
    slow = paired(table)
    assert sources == sorted(slow["source_id"])
    assert influence["fmr"] == pytest.approx(fmr_influence(slow))
    parts = influence["perturbed_accuracy"].sum(), influence["standard_accuracy"].sum()
    assert parts == pytest.approx((0, 0), abs=1e-12)


def test_ranks_are_those_of_the_report_where_differences_are_plain() -> None:
    shares = {"a": 0.97, "b": 0.96, "c": 0.7, "d": 0.4, "e": 0.38}
    tables = {
        name: static_rows(name, photos=240, seed=n, share=share) for n, (name, share) in enumerate(shares.items())
    }
    counts = reduce(table_of([row for rows in tables.values() for row in rows]))
    conditions = [name for name in counts.conditions if name not in ("original", "same_class_background")]
    slow = ranking(counts, conditions=conditions).table.set_index("model")
    found, influence = [], []
    for rows in tables.values():
        table = table_of(rows)
        design = design_of(from_table(table), frozenset(conditions))
        assert design is not None
        found.append(next(one for one in numbers(table, "static") if one.name == "mean_accuracy"))
        influence.append(score_influence(design)["mean_accuracy"])
    columns = (np.array([getattr(one, part) for one in found], float) for part in ("estimate", "low", "high"))
    low, high = rank_ranges(*columns, np.stack(influence, axis=1))
    assert [(int(a), int(b)) for a, b in zip(low, high, strict=True)] == [
        (int(slow.loc[name, "rank_low"]), int(slow.loc[name, "rank_high"])) for name in shares
    ]
    assert list(low) == [1, 1, 3, 4, 4]


def test_equal_models_are_told_apart_in_one_board_of_twenty_at_most() -> None:
    rng = np.random.default_rng(0)
    boards, photos, models, wrong = 120, 80, 12, 0
    for _ in range(boards):
        ease = rng.random(photos)[:, None]
        right = (rng.random((photos, models)) < ease).astype(float)
        share = right.mean(axis=0)
        half = 1.96 * np.sqrt(share * (1 - share) / photos)
        low, high = rank_ranges(share, share - half, share + half, (right - share) / photos)
        wrong += bool((low > 1).any() or (high < models).any())
    assert wrong <= 12  # 5 % are allowed: 6 of 120, and twice that is beyond chance


def test_a_model_without_an_interval_is_told_from_no_other() -> None:
    value, nothing = np.array([0.9, 0.1]), np.array([np.nan, 0.05])
    influence = np.random.default_rng(0).normal(0, 1e-4, (50, 2))
    low, high = rank_ranges(value, nothing, np.array([np.nan, 0.15]), influence)
    assert (list(low), list(high)) == ([1, 1], [2, 2])
    low, high = rank_ranges(value, np.array([0.85, 0.05]), np.array([0.95, 0.15]), influence)
    assert (list(low), list(high)) == ([1, 2], [1, 2])
