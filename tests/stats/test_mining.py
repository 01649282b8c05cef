from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from statsmodels.stats.proportion import proportion_confint

from holdfast.core.errors import UserError
from holdfast.stats.hard import mining
from holdfast.stats.hard.mining import CHOOSE, EXACTLY_ONE, FEWER, REPORT, capped, half_of, matched_control

MODELS = ("a", "b", "c", "d")


def made_pool(prompts: int = 60, repeats: int = 3, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Images of prompts that are hard to different degrees; models fail with the prompt's chance, independently."""
    rng = np.random.default_rng(seed)
    rows = [
        {
            "prompt_id": f"p{number:04d}",
            "category": "xyz"[number % 3],
            "kind": ("background", "texture")[number // 3 % 2],
            "nuisance": f"n{number // 6 % 5}",
            "half": half_of(f"p{number:04d}"),
            "valid": bool(rng.random() < 0.8),
            "name": f"p{number:04d}-{repeat}",
        }
        for number in range(prompts)
        for repeat in range(repeats)
    ]
    images = pd.DataFrame(rows).set_index("name")
    chance = np.repeat(rng.beta(0.7, 1.0, prompts), repeats)
    failed = pd.DataFrame({model: rng.random(len(images)) < chance for model in MODELS}, index=images.index)
    return images, failed


def test_shared_failures_are_counted_as_one_would_by_hand() -> None:
    _, failed = made_pool()
    for m in range(1, 4):
        ours = mining.shared(failed, MODELS[:3], m)
        theirs = [sum(row[model] for model in MODELS[:3]) >= m for row in failed.to_dict("records")]
        assert list(ours) == theirs
    with pytest.raises(UserError, match=r"at_least must be between 1 and .* \(3\), not 4"):
        mining.shared(failed, MODELS[:3], 4)


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_a_share_of_independent_images_has_wilsons_interval(hits: list[bool]) -> None:
    ours = mining.share(hits, range(len(hits)))
    low, high = proportion_confint(sum(hits), len(hits), method="wilson")
    assert ours["estimate"] == pytest.approx(np.mean(hits)) and ours["n"] == ours["prompts"] == len(hits)
    effect = len(hits) / max(len(hits) - 1, 1)  # the estimated variance divides by n − 1
    if 0 < sum(hits) < len(hits):
        mean = np.mean(hits)
        low, high = proportion_confint(mean * len(hits) / effect, len(hits) / effect, method="wilson")
    assert (ours["low"], ours["high"]) == pytest.approx((max(low, 0), min(high, 1)), abs=1e-9)


def test_copies_of_an_image_tell_nothing_new() -> None:
    hits = np.random.default_rng(1).random(50) < 0.3
    once = mining.share(hits, range(50))
    thrice = mining.share(np.repeat(hits, 3), np.repeat(range(50), 3))
    assert thrice["n"] == 150 and thrice["prompts"] == 50
    assert (thrice["low"], thrice["high"]) == pytest.approx((once["low"], once["high"]))
    none = mining.share(np.zeros(30), np.repeat(range(10), 3))
    assert none["low"] == 0 and none["high"] == pytest.approx(proportion_confint(0, 10, method="wilson")[1])
    assert np.isnan(mining.share([], [])["estimate"])


def test_a_difference_is_newcombes() -> None:
    """Newcombe (1998), method 10: 56/70 against 48/80 has 0.2000, 0.0524 to 0.3339."""
    ends = [(hits / n, *proportion_confint(hits, n, method="wilson")) for hits, n in ((56, 70), (48, 80))]
    pairs = [dict(zip(("estimate", "low", "high"), values, strict=True)) for values in ends]
    assert mining.difference(*pairs) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


def test_accuracies_and_drops_by_hand() -> None:
    images, failed = made_pool()
    hard = mining.shared(failed, MODELS[:3], 3)
    sets = {"pool": pd.Series(True, images.index), "hard": hard}
    table = mining.accuracies(images, failed, sets, ["d"])
    by_set = table.set_index("set")
    assert by_set.at["hard", "estimate"] == pytest.approx(1 - failed.loc[hard, "d"].mean())
    assert by_set.at["pool", "n"] == len(images) and by_set.at["hard", "n"] == hard.sum()
    lost = mining.drops(table)
    assert list(lost["against"]) == ["pool"]
    assert lost["estimate"][0] == pytest.approx(by_set.at["pool", "estimate"] - by_set.at["hard", "estimate"])
    assert lost["low"][0] < lost["estimate"][0] < lost["high"][0]


def test_rates_by_brute_force_and_what_stands_out() -> None:
    images, failed = made_pool(prompts=240)
    hard = failed["a"].copy()
    hard[images["category"] == "x"] = True
    table = mining.rates(images, hard, "category")
    for row in table.to_dict("records"):
        inside = images["category"] == row["value"]
        assert row["hard"] == hard[inside].sum() and row["n"] == inside.sum()
        assert row["excess"] == pytest.approx(hard[inside].mean() - hard[~inside].mean())
        assert row["excess_low"] < row["excess"] < row["excess_high"]
    assert table["value"][0] == "x" and table["stands_out"][0] == "over"
    assert set(table["stands_out"][1:]) == {"under"}
    single = mining.rates(images.assign(kind="background"), hard, "kind")
    assert np.isnan(single["excess"][0]) and single["stands_out"][0] == ""


def test_nothing_stands_out_by_chance() -> None:
    """Of 60 pools whose nuisances are all alike, about one in twenty may name one; not one nuisance in twenty."""
    named = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        images = pd.DataFrame({"prompt_id": np.arange(400), "nuisance": np.arange(400) % 20})
        table = mining.rates(images, pd.Series(rng.random(400) < 0.3), "nuisance")
        named += bool((table["stands_out"] != "").any())
    assert named <= 8


def test_validity_by_group() -> None:
    images, failed = made_pool()
    groups = {"pool": pd.Series(True, images.index), "none": pd.Series(False, images.index), "failed": failed["a"]}
    table = mining.validity(images, groups).set_index("set")
    assert table.at["pool", "estimate"] == pytest.approx(images["valid"].mean())
    assert table.at["failed", "n"] == failed["a"].sum() and table.at["none", "n"] == 0


def test_halves_are_even_and_follow_the_prompt_alone() -> None:
    halves = [half_of(f"prompt {number}") for number in range(2000)]
    assert abs(halves.count(REPORT) - 1000) < 4 * np.sqrt(500)
    assert set(halves) == {CHOOSE, REPORT} and half_of("prompt 7") == halves[7]
    other = [half_of(f"prompt {number}", seed=1) for number in range(2000)]
    assert 800 < sum(one != two for one, two in zip(halves, other, strict=True)) < 1200


def test_caps_keep_valid_images_first() -> None:
    images, failed = made_pool(prompts=120)
    hard = mining.shared(failed, MODELS, 2)
    kept = capped(images, hard, per_category=9, per_pair=3)
    assert not (kept & ~hard).any()
    for category, part in images[kept].groupby("category"):
        wanting = images[hard & (images["category"] == category)]
        assert len(part) <= 9 and part.groupby(["kind", "nuisance"]).size().max() <= 3
        for pair, own in part.groupby(["kind", "nuisance"]):
            valid = wanting[(wanting["kind"] == pair[0]) & (wanting["nuisance"] == pair[1])]["valid"].sum()
            assert own["valid"].all() or own["valid"].sum() == min(valid, 3)
    balanced = images[capped(images, hard, balance=True)].groupby("category").size()
    assert balanced.nunique() == 1 and balanced.iloc[0] == images[hard].groupby("category").size().min()
    assert capped(images, hard).equals(hard)
    one_less = images.drop(index=images.index[~hard][:5])
    again = capped(one_less, hard.loc[one_less.index], per_category=9, per_pair=3)
    assert again.equals(kept.loc[one_less.index])  # who else is in the pool does not matter


def test_a_control_is_matched_and_used_once() -> None:
    images, failed = made_pool(prompts=300)
    failures = failed[list(MODELS)].sum(axis=1)
    hard = failures >= 3
    everyone = pd.Series(True, images.index)
    found = matched_control(images, hard, failures, everyone)
    assert found["hard"].is_unique and found["control"].is_unique
    assert not hard[found["control"]].any() and hard[found["hard"]].all()
    ours, theirs = images.loc[found["hard"]], images.loc[found["control"]]
    keys = ["category", "kind", "half"]
    for column in keys:
        assert list(ours[column]) == list(theirs[column])
    same = ours["nuisance"].to_numpy() == theirs["nuisance"].to_numpy()
    assert list(found["same_nuisance"]) == list(same) and same.any()
    counts = failures[found["control"]].to_numpy()
    assert (counts[found["why"] == EXACTLY_ONE] == 1).all() and (counts[found["why"] == FEWER] == 2).all()
    # Greedy by tier: for a vote that got a worse one, nothing better was left in its cell.
    left = everyone & ~hard & (failures == 1) & ~images.index.isin(found["control"])
    for row in found[found["why"] == FEWER].to_dict("records"):
        cell = (images[keys] == images.loc[row["hard"], keys]).all(axis=1)
        assert not (left & cell).any()
    unmatched = set(images.index[hard]) - set(found["hard"])
    for name in unmatched:
        cell = (images[keys] == images.loc[name, keys]).all(axis=1)
        assert not (cell & ~hard & failures.between(1, 2) & ~images.index.isin(found["control"])).any()
    only_valid = matched_control(images, hard & images["valid"], failures, images["valid"])
    assert images.loc[only_valid["control"], "valid"].all()


def test_no_candidate_is_no_control() -> None:
    images, failed = made_pool(prompts=6)
    everything = pd.Series(True, images.index)
    assert matched_control(images, everything, failed.sum(axis=1), everything).empty


def test_subsets_mean_orders() -> None:
    """The mean accuracy over all orders of adding surrogates is the mean over subsets, as the curve takes it."""
    from holdfast.stats.hard.mining_curve import subset_accuracies

    images, failed = made_pool(prompts=100)
    subsets, summary, draws = subset_accuracies(images, failed, MODELS[:3], "d", resamples=50)
    for k in (1, 2, 3):
        by_order = []
        for order in itertools.permutations(MODELS[:3]):
            hard = failed[list(order[:k])].all(axis=1)
            by_order.append(1 - failed.loc[hard, "d"].mean())
        assert summary["estimate"][k - 1] == pytest.approx(np.mean(by_order))
        own = subsets[subsets["k"] == k]
        assert summary["spread"][k - 1] == pytest.approx(own["accuracy"].std(ddof=0))
        for row in own.to_dict("records"):
            hard = failed[row["surrogates"].split("+")].all(axis=1)
            assert row["n"] == hard.sum() and row["accuracy"] == pytest.approx(1 - failed.loc[hard, "d"].mean())
    assert draws.shape == (50, 3) and (summary["low"] <= summary["estimate"]).all()
