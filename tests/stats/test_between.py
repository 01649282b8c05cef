import gc
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_grid import clustered, counts_of
from made_rows import table
from scipy.stats import binomtest, kendalltau, t
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests

from holdfast.core.errors import UserError
from holdfast.stats.core.bootstrap import resampled_sums
from holdfast.stats.core.grid import averages, grid, holm, judged
from holdfast.stats.core.reduce import reduce
from holdfast.stats.models.between import common, kendall, pairs, rank_agreement, ranking
from holdfast.stats.models.ranks import _taus
from holdfast.stats.models.relative import effective_robustness, relative_error, relative_robustness

LOGITS = np.array([1.5, 1.0, 0.9])[:, None] + np.array([0.0, -0.8])[None, :]


@pytest.fixture(scope="module")
def right() -> np.ndarray:
    return clustered(LOGITS, 240, 1.0, np.random.default_rng(0))


def test_differences_are_means_of_paired_photos(right):
    micro = pairs(counts_of(right, classes=7), average="micro").table.set_index(["first", "second"])
    macro = pairs(counts_of(right, classes=7), average="macro").table.set_index(["first", "second"])
    number = np.arange(240) % 7
    for first, second in combinations(range(3), 2):
        row = (f"m{first:02}", f"m{second:02}")
        gain = (right[:, first] - right[:, second]).mean(axis=1)
        assert micro.loc[row, "difference"] == pytest.approx(gain.mean())
        assert macro.loc[row, "difference"] == pytest.approx(np.mean([gain[number == k].mean() for k in range(7)]))
        half = 1.97 * gain.std(ddof=1) / np.sqrt(240)
        assert (micro.loc[row, "high"] - micro.loc[row, "low"]) / 2 == pytest.approx(half, rel=0.04)
        assert micro.loc[row, "n"] == 240
        assert (micro.loc[row, "p"] < 0.05) == (not micro.loc[row, "low"] <= 0 <= micro.loc[row, "high"])


def test_equal_models_are_told_apart_in_five_percent_over_classes_of_uneven_size():
    """The interval is Welch's, but for resampling; t with images − 1 degrees of freedom distinguishes them in 8.0 %."""
    rng, sizes = np.random.default_rng(0), (60, 3, 3, 3, 3)
    number = np.repeat(np.arange(len(sizes)), sizes)
    ours, theirs = (rng.normal(size=(len(number), 8000)) for _ in range(2))
    difference, parts = averages(ours - theirs, number, "macro")
    moved = resampled_sums(parts, np.arange(len(number)), resamples=1000, seed=1)
    low, high, p = judged(difference, moved, len(number))
    assert (p < 0.05).mean() <= 0.058 and ((low <= 0) & (high >= 0)).mean() >= 0.942
    shares = 1 / np.array(sizes) ** 1.0
    freedom = shares.sum() ** 2 / (shares**2 / (np.array(sizes) - 1.0)).sum()
    spread = np.stack([(ours - theirs)[number == k].var(axis=0, ddof=1) / size for k, size in enumerate(sizes)])
    half = t.ppf(0.975, freedom) * np.sqrt(spread.sum(axis=0)) / len(sizes)
    assert np.median((high - low) / 2 / half) == pytest.approx(1, abs=0.03)


def test_by_condition_is_exact_mcnemar(right):
    result = pairs(counts_of(right), by_condition=True, average="micro").table
    assert len(result) == 6 and list(result["condition"].unique()) == ["original", "c1"]
    for row in result.to_dict("records"):
        first, second = (right[:, int(row[key][1:]), int(row["condition"] == "c1")] for key in ("first", "second"))
        square = [[np.sum((first == a) & (second == b)) for b in (1, 0)] for a in (1, 0)]
        assert row["p"] == pytest.approx(mcnemar(square, exact=True).pvalue)
        assert (row["first_only"], row["second_only"]) == (square[0][1], square[1][0])
        assert row["difference"] == pytest.approx((first - second).mean())
    assert result["p_holm"].to_numpy() == pytest.approx(holm_of_statsmodels(result["p"]))


def holm_of_statsmodels(values):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "collect", lambda: 0)  # it does so in every call, which takes a second in a large process
        return multipletests(values, method="holm")[1]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=30))
def test_holm_is_statsmodels_holm(values):
    assert holm(np.array(values)) == pytest.approx(holm_of_statsmodels(values))


def test_holm_passes_over_gaps():
    assert holm(np.array([0.01, np.nan, 0.03])) == pytest.approx([0.02, np.nan, 0.03], nan_ok=True)


def test_only_photos_both_answered_count(right):
    gaps = right.copy()
    gaps[:40, 1] = np.nan
    gaps[:, 2, 1] = np.nan
    rows = pairs(counts_of(gaps), average="micro").table.set_index(["first", "second"])
    assert rows.loc[("m00", "m01"), "n"] == 200
    assert rows.loc[("m00", "m01"), "difference"] == pytest.approx((right[40:, 0] - right[40:, 1]).mean())
    assert rows.loc[("m00", "m02"), "difference"] == pytest.approx((right[:, 0, 0] - right[:, 2, 0]).mean())
    never = right[:, :2].copy()
    never[:, 0, 0] = never[:, 1, 1] = np.nan
    assert "No two models" in pairs(counts_of(never)).reason
    assert "no image that every model" in ranking(counts_of(never)).reason


def test_class_with_one_photo_still_has_an_error():
    rate = np.array([[1.0], [0.0], [1.0], [0.0], [0.0]])
    estimate, parts = averages(rate, np.array([0, 0, 0, 0, 1]), "macro")
    assert estimate[0] == pytest.approx(0.25) and parts[4, 0] != 0


def test_judged_is_honest_where_all_photos_agree():
    low, high, p = judged(np.array([1.0, 0.0]), np.zeros((500, 2)), 5)
    assert p.tolist() == [0.0625, 1.0]
    room = 1 - 0.025 ** (1 / 5)
    assert low == pytest.approx([1 - room, -room]) and high == pytest.approx([1, room])
    assert binomtest(5, 5).pvalue == p[0]


def test_tail_reaches_beyond_the_resamples():
    moved = np.random.default_rng(0).normal(0, 0.01, (1000, 1))
    _, _, p = judged(np.array([0.1]), moved, 400)
    assert 0 < p[0] < 1e-15


def test_ranks_are_shared_where_models_cannot_be_told_apart():
    logits = np.array([1.5, 1.48, -0.5, -2.5])[:, None]
    result = ranking(counts_of(clustered(logits, 400, 1.0, np.random.default_rng(1)))).table.set_index("model")
    assert result.loc[["m00", "m01", "m02", "m03"], "rank"].tolist() == ["1–2", "1–2", "3", "4"]
    assert (result["low"] < result["accuracy"]).all() and (result["accuracy"] < result["high"]).all()
    same = np.repeat(clustered(logits[:1], 50, 1.0, np.random.default_rng(1)), 3, axis=1)
    assert set(ranking(counts_of(same)).table["rank"]) == {"1–3"}


def test_ranking_of_certain_and_of_few_photos():
    clear = np.stack([np.ones((30, 1)), np.zeros((30, 1))], axis=1)
    assert ranking(counts_of(clear)).table["rank"].tolist() == ["1", "2"]
    assert set(ranking(counts_of(clear[:3])).table["rank"]) == {"1–2"}


def test_one_model_and_twenty():
    rng = np.random.default_rng(2)
    one = counts_of(clustered(LOGITS[:1], 30, 1.0, rng))
    assert "one model" in pairs(one).reason and len(pairs(one).table) == 0
    assert "one model" in ranking(one).reason and ranking(one).table["rank"].tolist() == ["1"]
    assert "one model" in relative_robustness(one, reference="m00").reason
    assert "one model" in relative_error(one, reference="m00").reason
    assert "1 models" in effective_robustness(one).reason
    assert "two models" in str(rank_agreement(one, ["original"], ["c1"])["reason"])
    logits = np.linspace(-1, 1, 20)[:, None] + np.array([0, -0.5, -1.0])[None, :]
    many = counts_of(clustered(logits, 100, 1.0, rng), classes=5)
    assert len(pairs(many).table) == 190 and len(pairs(many, by_condition=True, resamples=200).table) == 570
    ranks = ranking(many).table
    assert len(ranks) == 20 and ranks["rank_low"].min() == 1 and ranks["rank_high"].max() == 20
    assert len(effective_robustness(many).table) == 40
    assert len(relative_robustness(many, reference="m03").table) == 19 * 3


def test_common_keeps_what_every_model_answered(right):
    gaps = right.copy()
    gaps[:10, 0, 0] = np.nan
    shared = common(counts_of(gaps), average="micro", resamples=50)
    assert shared.n.tolist() == [230, 240] and shared.photos == 240
    assert shared.accuracy[1] == pytest.approx([right[10:, 1, 0].mean(), right[:, 1, 1].mean()])
    assert shared.resampled.shape == (50, 3, 2)


def test_kendall_is_scipys_with_and_without_ties():
    rng = np.random.default_rng(0)
    ours, theirs = rng.integers(0, 4, (40, 6)).astype(float), rng.integers(0, 4, (40, 6)).astype(float)
    expected = [kendalltau(a, b).statistic for a, b in zip(ours, theirs, strict=True)]
    assert _taus(ours, theirs) == pytest.approx(expected, nan_ok=True)
    result = kendall({"a": 1, "b": 2, "c": 3, "x": 0}, {"c": 30, "a": 20, "b": 10})
    assert result["tau"] == pytest.approx(1 / 3) and result["n"] == 3
    assert "same score" in str(kendall({"a": 1, "b": 1}, {"a": 1, "b": 2})["reason"])
    samples = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    turned = kendall(
        {"a": 1, "b": 2, "c": 3}, {"c": 3, "b": 2, "a": 1}, first_samples=samples, second_samples=samples[:, ::-1]
    )
    assert (turned["tau"], turned["low"], turned["high"]) == (1, 1, 1)


def test_a_resample_without_an_order_may_have_had_any() -> None:
    """Two models that 12 images hardly distinguish: resamples with ties leave the order open."""
    rng = np.random.default_rng(0)
    right = np.zeros((12, 2))
    right[:1, 0] = 1.0  # one image makes the first model better
    drawn = right[rng.integers(0, 12, (2_000, 12))].mean(axis=1)
    assert 0.3 < (drawn[:, 0] == drawn[:, 1]).mean() < 0.4
    scores = dict(zip("ab", right.mean(axis=0), strict=True))
    unsure = kendall(scores, scores, first_samples=drawn, second_samples=drawn)
    assert (unsure["tau"], unsure["low"], unsure["high"]) == (1, -1, 1) and np.isnan(float(unsure["p"]))
    clear = np.array([[0.9, 0.1]]).repeat(100, axis=0)
    sure = kendall(scores, scores, first_samples=clear, second_samples=clear)
    assert (sure["low"], sure["high"]) == (1, 1)


def test_rank_agreement_tells_stable_from_unsure_orders():
    rng = np.random.default_rng(3)
    apart = np.linspace(-2, 2, 5)[:, None] + np.array([0.0, -0.3])[None, :]
    stable = rank_agreement(counts_of(clustered(apart, 500, 1.0, rng)), ["original"], ["c1"], resamples=500)
    assert stable["tau"] == pytest.approx(1) and stable["low"] > 0.7
    equal = rank_agreement(counts_of(clustered(np.zeros((5, 2)), 100, 1.0, rng)), ["original"], ["c1"], resamples=500)
    assert equal["high"] - equal["low"] > 0.6
    with pytest.raises(UserError, match="at least one condition"):
        rank_agreement(counts_of(np.ones((3, 2, 2))), [], ["c1"])
    with pytest.raises(UserError, match="No condition 'x'"):
        rank_agreement(counts_of(np.ones((3, 2, 2))), ["x"], ["c1"])


def test_effective_robustness_finds_the_model_above_the_line():
    """Four models are on logit(shifted) = logit(clean) − 1; the fifth is 12 points better than that."""
    clean = np.array([-0.5, 0.3, 1.0, 1.8, 0.6])
    logits = np.stack([clean, clean - 1], axis=1)
    promised = 1 / (1 + np.exp(-logits[4, 1]))
    logits[4, 1] = np.log((promised + 0.12) / (1 - promised - 0.12))
    counts = counts_of(clustered(logits, 4000, 1.0, np.random.default_rng(5)))
    result = effective_robustness(counts, baseline=["m00", "m01", "m02", "m03"], resamples=500).table.set_index("model")
    assert result.loc["m04", "effective"] == pytest.approx(0.12, abs=0.02) and result.loc["m04", "low"] > 0.08
    assert (result.loc[["m00", "m01", "m02", "m03"], "effective"].abs() < 0.02).all()
    assert result["slope"].iloc[0] == pytest.approx(1, abs=0.08)
    # against NumPy's own line
    accuracy = result.loc[["m00", "m01", "m02", "m03"], ["clean", "shifted"]].to_numpy()
    x, y = (np.log((4000 * column + 0.5) / (4000 * (1 - column) + 0.5)) for column in accuracy.T)
    assert np.polyfit(x, y, 1)[0] == pytest.approx(result["slope"].iloc[0])
    assert "2 models" in effective_robustness(counts, baseline=["m00", "m01"]).reason
    level = np.repeat(clustered(logits[:1], 50, 1.0, np.random.default_rng(0)), 3, axis=1)
    assert "equally right" in effective_robustness(counts_of(level)).reason


def test_relative_robustness_and_error_against_a_chosen_model(right):
    counts = counts_of(right)
    drop = right[:, :, 0].mean(axis=0) - right[:, :, 1].mean(axis=0)
    error = 1 - right[:, :, 1].mean(axis=0)
    robust = relative_robustness(counts, reference="m00", average="micro").table.set_index(["model", "condition"])
    errors = relative_error(counts, reference="m00", average="micro").table.set_index(["model", "condition"])
    for model in (1, 2):
        row = robust.loc[(f"m{model:02}", "c1")]
        assert (
            row["difference"] == pytest.approx(drop[model] - drop[0]) and row["low"] < row["difference"] < row["high"]
        )
        assert row["ratio"] == pytest.approx(drop[model] / drop[0])
        assert errors.loc[(f"m{model:02}", "c1"), "ratio"] == pytest.approx(error[model] / error[0])
        assert errors.loc[(f"m{model:02}", "mean"), "ratio"] == pytest.approx(error[model] / error[0])
    with pytest.raises(UserError, match="No model 'x'"):
        relative_error(counts, reference="x")


def test_mean_error_ratio_is_over_conditions_and_ratios_to_nothing_are_left_out(right):
    wide = np.concatenate([right, right[:, :, ::-1], np.ones((240, 3, 1))], axis=2)
    table_ = relative_error(counts_of(wide), reference="m00", average="micro", resamples=300).table
    rows = table_[table_["model"] == "m01"].set_index("condition")["ratio"]
    assert np.isnan(rows["c4"])
    assert rows["mean"] == pytest.approx(rows[["c1", "c2", "c3"]].mean())
    steady = np.ones((60, 2, 2))
    steady[:9, 1, 1] = 0
    robust = relative_robustness(counts_of(steady), reference="m00").table
    assert robust["ratio"].isna().all() and robust["difference"].iloc[0] == pytest.approx(0.15)


def test_models_trained_on_scenarios_are_another_experiment():
    def row(trained_on: str, condition: str, photo: int, model: str) -> dict:
        key = {"model": model, "trained_on": trained_on, "condition": condition}
        return {**key, "source_id": f"s{photo}", "label": "x", "correct": True}

    both = [row(trained, c, i, m) for trained, c in (("original", "original"), ("original", "red"), ("red", "red"))
            for i in range(5) for m in "ab"]  # fmt: skip
    assert grid(reduce(table(both))).models == ["a", "b"]
    assert grid(reduce(table(both))).n.max() == 1
    inner = grid(reduce(table([one for one in both if one["trained_on"] == "red"])))
    assert inner.models == ["a trained on red", "b trained on red"]


def test_nothing_at_all():
    rows = [
        {"model": "m", "condition": "original", "source_id": "s", "label": "x", "status": "error", "error": "broken"}
    ]
    counts = reduce(table(rows))
    assert pairs(counts).reason and ranking(counts).reason


@pytest.mark.parametrize("by_condition", [False, True])
def test_shared_donors_make_differences_less_sure(by_condition: bool) -> None:
    """Two models, one of which fails on a third of twelve donors; the same answers, with and without donors known."""
    rng = np.random.default_rng(4)
    donor = np.stack([np.full(120, -1), rng.integers(0, 12, 120)], axis=1)
    right = np.ones((120, 2, 2))
    right[:, 1, 1] = donor[:, 1] > 3
    right[rng.random(right.shape) < 0.1] = 0
    blind, aware = (
        pairs(counts_of(right, donor=known), by_condition=by_condition).table.iloc[-1] for known in (None, donor)
    )
    assert aware["difference"] == blind["difference"]
    assert aware["high"] - aware["low"] > 1.5 * (blind["high"] - blind["low"])
    assert aware["p"] > blind["p"]
    ranks = [ranking(counts_of(right, donor=known)).table for known in (None, donor)]
    assert (ranks[1]["high"] - ranks[1]["low"]).max() > 1.5 * (ranks[0]["high"] - ranks[0]["low"]).max()


def test_donors_of_their_own_change_little() -> None:
    rng = np.random.default_rng(5)
    right = (rng.random((200, 3, 2)) < 0.7).astype(float)
    donor = np.stack([np.full(200, -1), np.arange(200)], axis=1)
    ours, theirs = (pairs(counts_of(right, donor=known)).table for known in (None, donor))
    assert np.allclose(ours[["low", "high"]], theirs[["low", "high"]], atol=1e-3)


def test_resamples_that_agree_less_than_the_models_widen_kendalls_interval_to_both_sides() -> None:
    names = {"a": 0.0, "b": 1.0, "c": 2.0}
    reversed_often = np.where(np.arange(100)[:, None] < 40, [[2.0, 1.0, 0.0]], [[0.0, 1.0, 2.0]])
    same = np.tile([[0.0, 1.0, 2.0]], (100, 1))
    found = kendall(names, names, first_samples=same, second_samples=reversed_often)
    assert (found["tau"], found["low"], found["high"]) == (1, -1, 1)
    other = {"a": 0.0, "b": 2.0, "c": 1.0}  # one pair is exchanged: τ = 1/3, and every resample says −1
    found = kendall(names, other, first_samples=same, second_samples=same[:, ::-1])
    assert found["low"] == -1 and found["high"] == 1
