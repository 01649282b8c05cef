"""Which model to take: known answers on simulated counts, and references written another way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_grid import counts_of

from holdfast.core.errors import UserError
from holdfast.stats.models.choice import ModelCost, Weight, choose, front, weigh
from holdfast.stats.models.recommendation import recommend

BOTH = [Weight("original", 1.0, ("original",)), Weight("c1", 3.0, ("c1",))]


def answers(chances: list[list[float]], photos: int, seed: int) -> np.ndarray:
    """Right answers (images, models, conditions) that share each image's difficulty."""
    rng = np.random.default_rng(seed)
    hard = rng.random((photos, 1, 1))
    own = rng.random((photos, len(chances), len(chances[0])))
    return (0.5 * hard + 0.5 * own < _quantiles(np.array(chances))).astype(float)


def _quantiles(chance: np.ndarray) -> np.ndarray:
    """Of the mean of two uniform numbers, so that each answer is right with this chance."""
    return np.where(chance < 0.5, np.sqrt(chance / 2), 1 - np.sqrt((1 - chance) / 2))


def test_weighted_accuracy_is_the_weighted_mean() -> None:
    right = np.zeros((8, 2, 2))
    right[:6, 0, 0] = right[:2, 0, 1] = 1  # 75 % and 25 %
    right[:4, 1, 0] = right[:4, 1, 1] = 1  # 50 % and 50 %
    found = choose(counts_of(right), BOTH, resamples=200)
    table = found.models.set_index("model")
    assert table.loc["m00", "accuracy"] == pytest.approx((0.75 + 3 * 0.25) / 4)
    assert table.loc["m01", "accuracy"] == pytest.approx(0.5)
    assert found.best == "m01" and list(found.weights["weight"]) == [0.25, 0.75] and found.photos == 8
    assert table.loc["m00", "difference"] == pytest.approx(-0.125)
    assert table["best"].sum() == pytest.approx(1)


def test_a_clear_winner_is_taken_and_its_lead_covered() -> None:
    found = choose(counts_of(answers([[0.8, 0.8], [0.7, 0.7], [0.5, 0.5]], 1500, 0)), BOTH, resamples=1000)
    table = found.models.set_index("model")
    assert found.decided and found.best == "m00" and table.loc["m00", "best"] > 0.999
    assert table.loc["m01", "difference_low"] < -0.1 < table.loc["m01", "difference_high"] < 0
    said = recommend(found)
    assert said.model == "m00" and said.sentences[0].startswith("Take m00: ")
    assert found.more_photos is None and list(table["told_apart"]) == [False, True, True]


def test_advice_on_photos_is_a_range_around_what_would_be_enough_or_nothing() -> None:
    near = choose(counts_of(answers([[0.7, 0.7], [0.7, 0.7]], 100, 1)), BOTH, resamples=1000)
    assert near.more_photos is None and "images in all" not in recommend(near).sentences[0]
    for seed in range(40):
        apart = choose(counts_of(answers([[0.72, 0.72], [0.64, 0.64]], 150, seed)), BOTH, resamples=400)
        if not apart.decided and apart.more_photos is not None:
            fewest, most = apart.more_photos
            assert 0 < fewest < most <= 10 * fewest
            assert f"{fewest:,} to {most:,} images in all" in recommend(apart).sentences[0]
            return
    raise AssertionError("no table of these is open with advice")


def test_the_data_do_not_decide_and_cost_does() -> None:
    counts = counts_of(answers([[0.7, 0.7], [0.7, 0.7]], 100, 1))
    found = choose(counts, BOTH, resamples=1000, costs={"m00": ModelCost(10, 40, 5.0), "m01": ModelCost(10, 40, 1.0)})
    said = recommend(found)
    assert not found.decided and set(found.together) == {"m00", "m01"}
    assert "do not decide" in said.sentences[0] and said.model == "m01" and "the fastest" in said.sentences[0]
    split = choose(counts, BOTH, resamples=200, costs={"m00": ModelCost(10, 40, 5.0), "m01": ModelCost(20, 80, 1.0)})
    assert recommend(split).model == "" and "the one whose cost matters" in recommend(split).sentences[0]
    overlapping = {"m00": ModelCost(10, 40, 5.0, 1.0, 9.0), "m01": ModelCost(10, 40, 4.0, 2.0, 6.0)}
    open_end = recommend(choose(counts, BOTH, resamples=200, costs=overlapping))
    assert open_end.model == "" and "do not decide either" in open_end.sentences[0]
    unknown = recommend(choose(counts, BOTH, resamples=200, costs={"m00": ModelCost(reason="no such file")}))
    assert unknown.model == "" and any("Speed is not known" in text for text in unknown.sentences)


def test_standard_errors_match_a_bootstrap_written_out() -> None:
    right = answers([[0.8, 0.6], [0.7, 0.7]], 200, 3)
    found = choose(counts_of(right), BOTH, resamples=4000)
    rng = np.random.default_rng(0)
    share = right @ np.array([0.25, 0.75])
    drawn = np.stack([share[rng.integers(0, 200, 200)].mean(axis=0) for _ in range(4000)])
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    table = found.models.sort_values("model")
    assert np.allclose(table["high"] - table["low"], high - low, rtol=0.1)
    wins = (drawn[:, 0] > drawn[:, 1]).mean() + (drawn[:, 0] == drawn[:, 1]).mean() / 2
    assert table["best"].iloc[0] == pytest.approx(wins, abs=0.04)


def test_doubling_a_weight_turns_the_choice() -> None:
    right = answers([[0.9, 0.5], [0.6, 0.74]], 4000, 5)
    even = [Weight("original", 1.0, ("original",)), Weight("c1", 1.0, ("c1",))]
    found = choose(counts_of(right), even, resamples=400)
    assert found.best == "m00"
    rows = found.sensitivity.set_index(["name", "factor"])
    assert rows.loc[("c1", 2.0), "best"] == "m01" and rows.loc[("original", 0.5), "best"] == "m01"
    assert not rows.loc[("original", 2.0), "changed"] and not rows.loc[("c1", 0.5), "changed"]
    assert any("m01 with c1 doubled" in text for text in recommend(found).sentences)
    assert choose(counts_of(right), even[:1], resamples=200).sensitivity.empty


def test_limits_leave_models_out_and_unknown_costs_do_not_hold_them() -> None:
    counts = counts_of(answers([[0.9, 0.9], [0.7, 0.7], [0.6, 0.6]], 400, 7))
    costs = {"m00": ModelCost(10, 80, 50.0), "m01": ModelCost(10, 40, 1.0)}
    found = choose(counts, BOTH, costs=costs, limit_milliseconds=10, resamples=200)
    table = found.models.set_index("model")
    assert found.best == "m01" and recommend(found).model == "m01"
    assert table.loc["m00", "why_not"] == "time above the limit" and table.loc["m02", "why_not"] == "time unknown"
    assert table.loc["m00", "best"] == 0 and table.loc["m01", "best"] == 1
    none = choose(counts, BOTH, costs=costs, limit_bytes=1, resamples=200)
    assert none.best == "" and none.together == () and "No model is known" in recommend(none).sentences[0]
    assert none.models["difference"].isna().all() and none.sensitivity.empty


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4) | st.none()), min_size=1, max_size=6),
)
def test_the_front_is_what_nobody_beats(models: list[tuple[int, int | None]]) -> None:
    accuracy = np.array([a / 4 for a, _ in models])
    cost = np.array([np.nan if c is None else float(c) for _, c in models])
    on, share = front(accuracy, accuracy[None], cost)
    for place, (a, c) in enumerate(models):
        if c is None:
            assert not on[place] and np.isnan(share[place])
            continue
        beaten = any(
            other is not None and better >= a and other <= c and (better > a or other < c) for better, other in models
        )
        assert on[place] == (not beaten) == bool(share[place])


def test_names_of_weights() -> None:
    counts = counts_of(np.ones((2, 1, 4)))
    members = {"blur": ["c1", "c2"]}
    found = weigh({"blur": 2.0, "c3": 3.0}, counts, members)
    assert [(one.name, one.weight, one.conditions) for one in found] == [
        ("original", 1.0, ("original",)), ("blur", 2.0, ("c1", "c2")), ("c3", 3.0, ("c3",)),
    ]  # fmt: skip
    shares = choose(counts, found, resamples=100).weights
    assert list(shares["weight"]) == pytest.approx([1 / 6, 1 / 6, 1 / 6, 3 / 6])
    assert [one.name for one in weigh({}, counts, {})] == ["original", "c1", "c2", "c3"]
    assert weigh({"c1": 1.0}, counts, {}, accuracy_weight=5.0)[0].weight == 5
    assert [one.name for one in weigh({"original": 0.0, "c1": 1.0}, counts, {})] == ["c1"]
    for asked, message in (
        ({"blur": 1.0, "c1": 1.0}, "weighted twice"),
        ({"c9": 1.0}, "is called 'c9'"),
        ({"c1": -1.0}, "a number from 0 on"),
        ({"c1": float("nan")}, "a number from 0 on"),
        ({"original": 0.0, "c1": 0.0}, "all weights are 0"),
    ):
        with pytest.raises(UserError, match=message):
            weigh(asked, counts, members)
    with pytest.raises(UserError, match="give one"):
        weigh({"original": 1.0}, counts, {}, accuracy_weight=2.0)


def test_photos_and_conditions_that_not_all_answered() -> None:
    right = answers([[0.8, 0.8], [0.6, 0.6]], 50, 2)
    right[:10, 1, :] = np.nan
    found = choose(counts_of(right), BOTH, resamples=200)
    assert found.photos == 40 and found.dropped == 10
    assert any(text.startswith("10 images") for text in recommend(found).sentences)
    right[:, 1, 1] = np.nan
    with pytest.raises(UserError, match="m01 gave none"):
        choose(counts_of(right), BOTH, resamples=200)


def test_one_model_and_models_that_agree_on_every_photo() -> None:
    alone = choose(counts_of(np.ones((5, 1, 2))), BOTH, resamples=200)
    assert "one model" in recommend(alone).sentences[0] and alone.models["best"].iloc[0] == 1
    same = choose(counts_of(np.ones((5, 2, 2))), BOTH, resamples=200)
    assert len(same.together) == 2 and list(same.models["best"]) == [0.5, 0.5] and same.more_photos is None
    assert (same.models["low"] < 1).all() and same.models["difference_low"].iloc[1] < 0
