from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import curve_fit
from sklearn.metrics import cohen_kappa_score, jaccard_score

from holdfast.stats.hard import mining_curve
from holdfast.stats.hard.mining_curve import Curve, choose_k, choose_m, fit_curve, leave_one_out, stand_in_curve
from holdfast.stats.hard.mining_overlap import by_kin, intraclass, overlap, persistence

MODELS = ("a", "b", "c", "d", "e")


def made_failures(
    prompts: int = 150, repeats: int = 3, models: tuple[str, ...] = MODELS, seed: int = 0
) -> tuple[pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(seed)
    images = pd.DataFrame({"prompt_id": np.repeat([f"p{number}" for number in range(prompts)], repeats)})
    images["valid"] = rng.random(len(images)) < 0.8
    chance = np.repeat(rng.beta(0.6, 0.9, prompts), repeats)
    return images, pd.DataFrame({model: rng.random(len(images)) < chance for model in models})


def test_the_curve_is_found_again() -> None:
    k = np.arange(1, 8)
    truth = Curve(0.2, 0.7, 0.6, 0.0)
    found = fit_curve(k, truth.at(k))
    assert found is not None
    assert (found.floor, found.fall, found.rate) == pytest.approx((0.2, 0.7, 0.6), rel=0.02)
    assert found.error < 1e-3


def test_the_curve_is_scipys() -> None:
    k = np.arange(1, 7)
    noisy = 0.15 + 0.8 * np.exp(-0.7 * k) + np.random.default_rng(0).normal(0, 0.01, 6)
    ours = fit_curve(k, noisy)
    (a, b, c), _ = curve_fit(lambda x, a, b, c: a + b * np.exp(-c * x), k, noisy, p0=(0.1, 0.5, 0.5))
    assert ours is not None
    np.testing.assert_allclose(ours.at(k), a + b * np.exp(-c * k), atol=1e-3)
    assert ours.error == pytest.approx(np.sqrt(np.mean((a + b * np.exp(-c * k) - noisy) ** 2)), abs=1e-5)


def test_a_floor_is_an_accuracy() -> None:
    straight = fit_curve([1, 2, 3, 4, 5], [0.42, 0.27, 0.15, 0.06, 0.0])
    assert straight is not None and straight.floor == 0
    assert fit_curve([1, 2], [0.4, 0.3]) is None
    assert fit_curve([1, 2, 3], [0.4, np.nan, 0.3]) is None


def test_the_floors_interval_covers() -> None:
    k, rng = np.arange(1, 7), np.random.default_rng(3)
    covered = 0
    for _ in range(40):
        noise = rng.normal(0, 0.01, 6)
        values = 0.2 + 0.6 * np.exp(-0.8 * k) + noise
        found = fit_curve(k, values, values + rng.normal(0, 0.01, (100, 6)))
        assert found is not None
        covered += found.floor_low <= 0.2 <= found.floor_high
    assert covered >= 34


def test_k_is_where_the_curve_flattens() -> None:
    curve = Curve(0.1, 0.5, 1.0, 0.0)
    falls = [float(curve.at(k) - curve.at(k + 1)) for k in range(1, 9)]
    assert choose_k(curve, 8, fall=0.01) == next(k for k in range(2, 9) if falls[k - 1] < 0.01) == 4
    assert choose_k(curve, 3, fall=0.01) == 3
    assert choose_k(None, 5) == 5
    assert choose_k(Curve(0.1, 0.0, 1.0, 0.0), 5) == 2


def test_m_is_the_largest_that_leaves_enough() -> None:
    images, failed = made_failures()
    counts = {m: int(((failed.sum(axis=1) >= m) & images["valid"]).sum()) for m in range(1, 6)}
    for least in (1, counts[5] + 1, counts[3], 10**6):
        fitting = [m for m in range(2, 6) if counts[m] >= least]
        chosen, table = choose_m(images, failed, MODELS, least=least)
        assert chosen == (max(fitting) if fitting else 2)
        assert dict(zip(table["m"], table["valid"], strict=True)) == counts


def test_stand_ins_by_brute_force() -> None:
    images, failed = made_failures(prompts=60)
    ours = stand_in_curve(images, failed, MODELS[:4]).set_index("k")["estimate"]
    for k in (1, 2, 3):
        found = [
            1 - failed.loc[failed[list(others)].all(axis=1), own].mean()
            for own in MODELS[:4]
            for others in itertools.combinations([one for one in MODELS[:4] if one != own], k)
        ]
        assert ours[k] == pytest.approx(np.nanmean(found))


def test_many_surrogates_are_drawn_not_enumerated(monkeypatch: pytest.MonkeyPatch) -> None:
    images, failed = made_failures(prompts=40, models=tuple("abcdefghi"))
    exact = mining_curve.subset_accuracies(images, failed, "abcdefgh", "i", resamples=2)[1]
    monkeypatch.setattr(mining_curve, "MOST_SUBSETS", 60)
    drawn = mining_curve.subset_accuracies(images, failed, "abcdefgh", "i", resamples=2)[1]
    assert drawn["subsets"].max() <= 60 < exact["subsets"].max()
    np.testing.assert_allclose(drawn["estimate"], exact["estimate"], atol=0.05)


def test_all_wrong_is_not_certainty() -> None:
    images, failed = made_failures(prompts=10, repeats=2)
    failed["e"] = True
    summary = mining_curve.subset_accuracies(images, failed, MODELS[:3], "e")[1]
    assert (summary["estimate"] == 0).all() and (summary["high"] > 0.05).all()
    failed[list(MODELS[:3])] = False
    empty = mining_curve.subset_accuracies(images, failed, MODELS[:3], "e", resamples=20)[1]
    assert empty["estimate"].isna().all() and (empty["subsets"] == 0).all()


def test_leaving_one_out_by_hand() -> None:
    images, failed = made_failures()
    table = leave_one_out(images, failed, MODELS[:4], ["e"], 4)
    whole = failed[list(MODELS[:4])].all(axis=1)
    for out in MODELS[:4]:
        hard = failed[[one for one in MODELS[:4] if one != out]].all(axis=1)
        rows = table[table["left_out"] == out].set_index("role")
        assert rows.at["left out", "estimate"] == pytest.approx(1 - failed.loc[hard, out].mean())
        assert rows.at["target", "estimate"] == pytest.approx(1 - failed.loc[hard, "e"].mean())
        assert rows.at["target", "jaccard"] == pytest.approx(whole.sum() / hard.sum())
    assert table["jaccard"][0] == 1 and table["left_out"][0] == ""


def test_overlap_is_sklearns() -> None:
    images, failed = made_failures()
    table = overlap(images, failed, MODELS, resamples=300)
    assert len(table) == 10
    for row in table.to_dict("records"):
        one, other = failed[row["first"]], failed[row["second"]]
        assert row["jaccard"] == pytest.approx(jaccard_score(one, other))
        assert row["kappa"] == pytest.approx(cohen_kappa_score(one, other))
        assert row["second_given_first"] == pytest.approx(other[one].mean())
        assert row["first_given_second"] == pytest.approx(one[other].mean())
        assert row["jaccard_low"] < row["jaccard"] < row["jaccard_high"]
        assert row["kappa_low"] < row["kappa"] < row["kappa_high"]


def test_independent_failures_overlap_by_chance() -> None:
    rng = np.random.default_rng(5)
    images = pd.DataFrame({"prompt_id": np.arange(40_000)})
    failed = pd.DataFrame({"a": rng.random(40_000) < 0.3, "b": rng.random(40_000) < 0.5})
    row = overlap(images, failed, ["a", "b"], resamples=50).iloc[0]
    assert row["by_chance"] == pytest.approx(0.15 / 0.65, abs=0.01)
    assert row["jaccard"] == pytest.approx(row["by_chance"], abs=0.01)
    assert row["kappa"] == pytest.approx(0, abs=0.02)


def test_a_model_that_never_fails_has_no_kappa() -> None:
    images, failed = made_failures(prompts=20)
    failed["a"] = False
    row = overlap(images, failed, ["a", "b"], resamples=50).iloc[0]
    assert row["jaccard"] == 0 and np.isnan(row["second_given_first"])
    failed["b"] = False
    both = overlap(images, failed, ["a", "b"], resamples=50).iloc[0]
    assert np.isnan(both["jaccard"]) and np.isnan(both["kappa"]) and np.isnan(both["kappa_low"])


def kin_world(shared: float, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Six models of two families; a family has failures of its own, ``shared`` of each member's."""
    rng = np.random.default_rng(seed)
    images = pd.DataFrame({"prompt_id": np.arange(600)})
    own = {family: rng.random(600) < 0.4 for family in "xy"}
    failed, facts = {}, {}
    for number in range(6):
        family = "xy"[number % 2]
        mixed = np.where(rng.random(600) < shared, own[family], rng.random(600) < 0.4)
        failed[f"m{number}"], facts[f"m{number}"] = mixed, {"family": family, "data": "same", "objective": ""}
    return images, pd.DataFrame(failed), pd.DataFrame(facts).T


def test_kin_agree_more_where_they_do() -> None:
    images, failed, facts = kin_world(0.8)
    names = list(failed)
    table = by_kin(images, failed, names[:4], names[4:], facts, resamples=300).set_index("fact")
    family = table.loc["family"]
    kappas = {
        same: np.mean(
            [
                cohen_kappa_score(failed[one], failed[other])
                for one in names[:4]
                for other in names[4:]
                if (facts.at[one, "family"] == facts.at[other, "family"]) == same
            ]
        )
        for same in (True, False)
    }
    assert (family["same"], family["different"]) == pytest.approx((kappas[True], kappas[False]))
    assert family["pairs_same"] == family["pairs_different"] == 4
    assert 0 < family["low"] < family["estimate"] < family["high"]
    assert table.at["data", "reason"] == "all pairs are alike"
    assert table.at["objective", "reason"] == "no pair shares it" and table.at["objective", "pairs_same"] == 0


def test_p_is_the_share_of_dealings_by_brute_force() -> None:
    images, failed, facts = kin_world(0.6, seed=2)
    names = list(failed)
    table = by_kin(images, failed, names[:4], names[4:], facts[["family"]], resamples=20)
    pairs = [(one, other) for one in names[:4] for other in names[4:]]
    kappa = {pair: cohen_kappa_score(failed[pair[0]], failed[pair[1]]) for pair in pairs}

    def gap(told: dict[str, str]) -> float:
        groups = {same: [kappa[p] for p in pairs if (told[p[0]] == told[p[1]]) == same] for same in (True, False)}
        return np.mean(groups[True]) - np.mean(groups[False]) if groups[True] and groups[False] else np.nan

    observed = abs(gap(dict(facts["family"])))
    gaps = [gap(dict(zip(names, order, strict=True))) for order in itertools.permutations(facts["family"])]
    expected = np.mean([abs(one) >= observed - 1e-12 for one in gaps if np.isfinite(one)])
    assert table["p"][0] == pytest.approx(expected)


def frame(prompts: np.ndarray, failed: np.ndarray) -> pd.DataFrame:
    return pd.DataFrame({"prompt_id": prompts, "failed": failed})


@pytest.mark.parametrize("lasting", [0.0, 0.5, 1.0])
def test_persistence_tells_prompt_from_luck(lasting: float) -> None:
    """A share of prompts always fails or never; the others toss a coin. What lasts is that share, and no more."""
    rng = np.random.default_rng(7)
    prompts = np.arange(4000)
    fixed = rng.random(4000) < lasting
    always = rng.random(4000) < 0.3

    def toss() -> np.ndarray:
        return np.where(fixed, always, rng.random(4000) < 0.3)

    first = toss()
    mined = first
    again = frame(np.repeat(prompts[mined], 3), np.concatenate([toss()[mined][:, None] for _ in range(3)], 1).ravel())
    row = persistence(frame(prompts, first), frame(prompts[mined], first[mined]), again, resamples=300)
    assert row["mined"] == 1 and row["pool"] == pytest.approx(0.3, abs=0.03)
    assert row["lasting"] == pytest.approx(lasting, abs=0.05)
    assert row["lasting_low"] - 0.02 <= lasting <= row["lasting_high"] + 0.02
    assert row["estimate"] == pytest.approx(0.3 + 0.7 * lasting, abs=0.04)


def test_nothing_mined_has_nothing_to_last() -> None:
    same = frame(np.arange(10), np.ones(10, bool))
    row = persistence(same, same, same, resamples=20)
    assert np.isnan(row["lasting"]) and row["estimate"] == 1


def test_intraclass_is_the_analysis_of_variance() -> None:
    rng = np.random.default_rng(8)
    prompts = np.repeat(np.arange(80), 4)
    hits = rng.random(320) < np.repeat(rng.beta(0.5, 0.5, 80), 4)
    table = hits.reshape(80, 4).astype(float)
    between = 4 * table.mean(axis=1).var(ddof=1)
    within = table.var(axis=1, ddof=1).mean()
    ours = intraclass(hits, prompts, resamples=200)
    assert ours["estimate"] == pytest.approx((between - within) / (between + 3 * within))
    assert ours["low"] < ours["estimate"] < ours["high"]


def test_intraclass_of_a_known_world() -> None:
    """Beta(a, b) chances correlate images of a prompt by 1 / (a + b + 1)."""
    rng = np.random.default_rng(9)
    sizes = rng.integers(2, 6, 6000)
    prompts = np.repeat(np.arange(6000), sizes)
    hits = rng.random(sizes.sum()) < np.repeat(rng.beta(1, 2, 6000), sizes)
    assert intraclass(hits, prompts, resamples=20)["estimate"] == pytest.approx(1 / 4, abs=0.02)
    assert intraclass(rng.random(12_000) < 0.4, np.arange(12_000) // 3, resamples=20)["estimate"] == pytest.approx(
        0, abs=0.03
    )
    assert np.isnan(intraclass([1, 0, 1], ["a", "b", "c"], resamples=20)["estimate"])
