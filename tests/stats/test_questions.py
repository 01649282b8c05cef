"""Accuracies of answers against closed forms, statsmodels, models whose ways are known, and simulation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from holdfast.core.errors import UserError
from holdfast.core.schema import ANSWERS, PREDICTIONS
from holdfast.stats.hard.questions import answered, examples, image_pairs, questions, questions_of_rows

CLASSES = tuple("abcdef")
Says = Callable[[list[str], str], str | None]


def made(
    says: Says, *, photos: int = 40, kind: str = "two_way", model: str = "m", both: bool = False, per_photo: int = 1,
    status: Callable[[int], str] = lambda one: "ok", seed: int = 0,
) -> tuple[pa.Table, pa.Table]:  # fmt: skip
    """Rows and details in which a model names what ``says(options, truth)`` returns; None is unmatched."""
    rng = np.random.default_rng(seed)
    rows, details = [], []
    for one in range(photos * per_photo):
        truth = CLASSES[one % len(CLASSES)]
        wrong = rng.choice([name for name in CLASSES if name != truth])
        if kind == "full_list":
            asked = [("full_list", [CLASSES[place] for place in rng.permutation(len(CLASSES))])]
        else:
            orders = [("two_way:truth_first", [truth, wrong]), ("two_way:truth_second", [wrong, truth])]
            asked = orders if both else [orders[int(rng.integers(2))]]
        for protocol, options in asked:
            said = says(options, truth)
            name = f"{model}-{kind}-{one}-{protocol}"
            rows.append(
                {
                    "task": "question", "condition": "original" if one % 2 else "background", "model": model,
                    "protocol": protocol, "label": truth, "sample_id": f"s{one}", "source_id": f"p{one // per_photo}",
                    "status": status(one), "parameters": "{}", "raw_text": said or "hm", "row_id": name,
                    "correct": said == truth,
                }
            )  # fmt: skip
            if status(one) == "ok":
                details.append(
                    {
                        "row_id": name, "strict": said == truth, "lenient": said == truth, "matched": said,
                        "refusal": False, "unmatched": said is None, "options": options,
                        "truth_place": options.index(truth) + 1,
                        "distractor": None if kind == "full_list" else wrong,
                    }
                )  # fmt: skip
    return pa.Table.from_pylist(rows, schema=PREDICTIONS), pa.Table.from_pylist(details, schema=ANSWERS)


def measured(says: Says, **options: object) -> dict:
    (row,) = questions_of_rows(*made(says, **options)).to_dict("records")  # type: ignore[arg-type]
    return row


def test_who_always_says_the_first_has_half_and_a_bias_of_one() -> None:
    for both in (False, True):
        row = measured(lambda options, truth: options[0], photos=41, both=both)
        assert row["strict"] == row["lenient"] == 0.5
        assert row["strict_corrected"] == 0 and row["strict_corrected_low"] < 0 < row["strict_corrected_high"]
        assert row["position_bias"] == 1 and row["position_bias_low"] > 0.7 and row["position_bias_high"] == 1
        assert row["says_first"] == 1
    assert measured(lambda options, truth: options[1])["position_bias"] == -1


def test_one_order_alone_does_not_tell_who_always_says_the_first_from_who_sees() -> None:
    rows, answers = made(lambda options, truth: options[0], photos=12, both=True)
    kept = rows.filter(pc.field("protocol") == "two_way:truth_first")
    row = questions_of_rows(kept, answers).to_dict("records")[0]
    assert row["n"] == 12 and row["strict_low"] < 0.5 and row["strict_corrected_low"] < 0
    assert np.isnan(row["position_bias"])
    other = rows.filter(pc.field("protocol") == "two_way:truth_second")
    assert questions_of_rows(other, answers)["strict_high"].item() > 0.5


def test_who_is_always_right_or_never() -> None:
    right = measured(lambda options, truth: truth, photos=30)
    assert (right["strict"], right["strict_corrected"], right["position_bias"]) == (1, 1, 0)
    assert right["strict_high"] == 1 and right["strict_low"] < 1
    wrong = measured(lambda options, truth: next(one for one in options if one != truth))
    assert (wrong["strict"], wrong["strict_corrected"]) == (0, -1)
    mute = measured(lambda options, truth: None)
    assert (mute["strict"], mute["unmatched"], mute["refusal"]) == (0, 1, 0)
    assert np.isnan(mute["says_first"])


@pytest.mark.parametrize("kind", ["two_way", "full_list"])
def test_a_guess_is_worth_nothing(kind: str) -> None:
    rng = np.random.default_rng(1)
    row = measured(lambda options, truth: str(rng.choice(options)), photos=4000, kind=kind)
    chance = 0.5 if kind == "two_way" else 1 / 6
    assert row["choices"] == 1 / chance
    assert row["strict"] == pytest.approx(chance, abs=0.03)
    assert row["strict_corrected"] == pytest.approx(0, abs=0.06)
    assert row["strict_corrected_low"] < 0 < row["strict_corrected_high"]
    assert row["position_bias_low"] < 0 < row["position_bias_high"]
    assert row["says_first"] == pytest.approx(chance, abs=0.03)


def test_intervals_are_wilsons_and_newcombes() -> None:
    rng = np.random.default_rng(2)
    frame = answered(*made(lambda options, truth: truth if rng.random() < 0.7 else None, photos=90, kind="full_list"))
    (row,) = questions(frame).to_dict("records")
    right = int(frame["strict"].sum())
    assert (row["strict_low"], row["strict_high"]) == pytest.approx(proportion_confint(right, 90, method="wilson"))
    for end in ("", "_low", "_high"):
        assert row[f"strict_corrected{end}"] == pytest.approx((row[f"strict{end}"] - 1 / 6) / (5 / 6))
    halves = [frame[frame["truth_place"] <= 3], frame[frame["truth_place"] > 3]]
    hits = [int(half["lenient"].sum()) for half in halves]
    assert row["position_bias"] == pytest.approx(hits[0] / len(halves[0]) - hits[1] / len(halves[1]))
    expected = confint_proportions_2indep(
        hits[0], len(halves[0]), hits[1], len(halves[1]), method="newcomb", compare="diff"
    )
    assert (row["position_bias_low"], row["position_bias_high"]) == pytest.approx(expected)


def test_an_uneven_draw_of_orders_does_not_matter() -> None:
    rows, details = made(lambda options, truth: options[0], photos=60)
    frame = answered(rows, details)
    uneven = frame[(frame["protocol"] == "two_way:truth_first") | (frame.index < 15)]
    assert (uneven["place"] == "first").mean() > 0.7
    assert questions(uneven)["strict"].iloc[0] == 0.5


def test_several_images_of_a_photo_do_not_count_as_photos() -> None:
    """Images of one prompt that are all right or all wrong together know as much as one of them."""
    draws = np.random.default_rng(3).random(50) < 0.6
    single = iter(draws)
    one = measured(lambda options, truth: truth if next(single) else None, photos=50, kind="full_list")
    repeated = iter(np.repeat(draws, 4))
    four = measured(lambda options, truth: truth if next(repeated) else None, photos=50, per_photo=4, kind="full_list")
    assert (four["n"], four["photos"]) == (200, 50)
    assert four["strict"] == pytest.approx(one["strict"])
    ours, theirs = (row["strict_high"] - row["strict_low"] for row in (four, one))
    assert ours == pytest.approx(theirs, rel=0.03)


def test_intervals_cover(accuracy: float = 0.9) -> None:
    """95 % intervals of accuracy and of bias, two-way, 60 images, two images each that share half of their luck."""
    rng = np.random.default_rng(int(1000 * accuracy))
    covered = {"strict": 0, "position_bias": 0}
    trials = 60
    for trial in range(trials):
        shared: dict[int, bool] = {}
        count = iter(range(10_000))

        def says(options: list[str], truth: str, shared=shared, count=count) -> str | None:  # type: ignore[no-untyped-def]
            photo = next(count) // 2
            common = shared.setdefault(photo, bool(rng.random() < accuracy))
            return truth if (common if rng.random() < 0.5 else rng.random() < accuracy) else None

        row = measured(says, photos=60, per_photo=2, seed=trial)
        covered["strict"] += row["strict_low"] <= accuracy <= row["strict_high"]
        covered["position_bias"] += row["position_bias_low"] <= 0 <= row["position_bias_high"]
    assert covered["strict"] / trials > 0.88
    assert covered["position_bias"] / trials > 0.88


def test_errors_are_counted_apart_and_conditions_split() -> None:
    rows, details = made(
        lambda options, truth: truth, photos=20, kind="full_list", status=lambda one: "error" if one % 5 == 0 else "ok"
    )
    (row,) = questions_of_rows(rows, details).to_dict("records")
    assert (row["n"], row["errors"], row["strict"]) == (16, 4, 1)
    split = questions_of_rows(rows, details, by=["condition"])
    assert list(split["condition"]) == ["background", "original"] and list(split["n"] + split["errors"]) == [10, 10]
    silent = questions_of_rows(*made(lambda options, truth: truth, status=lambda one: "error"))
    assert silent["n"].iloc[0] == 0 and np.isnan(silent["strict"].iloc[0])


def test_rows_without_questions_or_details() -> None:
    rows, details = made(lambda options, truth: truth)
    with pytest.raises(UserError, match="no question"):
        questions_of_rows(rows.slice(0, 0), details)
    with pytest.raises(UserError, match="details/answers"):
        questions_of_rows(rows, details.slice(1))


def test_rows_of_several_runs() -> None:
    rows, details = made(lambda options, truth: truth)
    twice = questions_of_rows(rows, pa.concat_tables([details, details]))
    assert twice["n"].iloc[0] == 40
    other = rows.set_column(
        rows.schema.get_field_index("parameters"), rows.schema.field("parameters"),
        pa.array(["{}"] * 39 + ['{"template": "x"}']).cast(rows.schema.field("parameters").type),
    )  # fmt: skip
    with pytest.raises(UserError, match="different words"):
        questions_of_rows(other, details)


def test_examples_are_the_most_common() -> None:
    rows, details = made(lambda options, truth: None if truth in "ab" else truth, photos=30)
    found = examples(answered(rows, details), "unmatched", 5)
    assert list(found["raw_text"]) == ["hm"] and list(found["n"]) == [10]
    assert examples(answered(rows, details), "refusal", 5).empty


@pytest.mark.parametrize("kind", ["full_list", "two_way"])
def test_pairs_of_images_are_counted_as_by_hand(kind: str) -> None:
    frame = answered(*made(lambda options, truth: options[0] if truth in "abc" else truth, kind=kind, photos=60))
    counted = right = 0
    rows = frame.to_dict("records")
    for place, first in enumerate(rows):
        for second in rows[:place]:
            if first["label"] != second["label"] and set(first["options"]) == set(second["options"]):
                counted += 1
                right += bool(first["lenient"]) and bool(second["lenient"])
    figures = image_pairs(frame)
    assert figures["pairs"] == counted > 10 and figures["pairs_right"] == pytest.approx(right / counted)
    assert figures["pairs_right_low"] <= figures["pairs_right"] <= figures["pairs_right_high"]


def test_who_says_the_same_of_every_image_gets_no_credit_for_pairs() -> None:
    blind = answered(*made(lambda options, truth: "a", kind="full_list"))
    assert questions(blind)["lenient"][0] == pytest.approx(1 / 6, abs=0.02) and image_pairs(blind)["pairs_right"] == 0
