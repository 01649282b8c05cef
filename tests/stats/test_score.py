"""Scores from counts: parts, noise, intervals, stability, warnings."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from made_rows import table
from scipy.stats import norm, shapiro

from holdfast.core.errors import UserError
from holdfast.stats.core.bootstrap import resampled_sums
from holdfast.stats.core.reduce import Counts, reduce
from holdfast.stats.effects.score import robustness_score, scores
from holdfast.stats.effects.spread_interval import spread_interval

DROPS = np.array([0.02, 0.05, 0.1, 0.08, 0.5, 0.25])
CONDITIONS = ["original", *[f"scene_{number}" for number in range(len(DROPS))]]


def answers(rng: np.random.Generator, shape: tuple[int, ...], drops: np.ndarray, base: float = 0.85) -> np.ndarray:
    """Right or wrong (…, images, conditions), correlated within an image; the original first."""
    shared = rng.standard_normal((*shape, 1))
    own = rng.standard_normal((*shape, len(drops) + 1))
    return np.sqrt(0.5) * (shared + own) < norm.ppf(np.r_[base, base - drops])


def rows(right: np.ndarray, *, classes: int = 4, model: str = "m", trained_on: str = "", **more: Any) -> list[Any]:
    """A row per image × condition."""
    return [
        {
            "model": model,
            "trained_on": trained_on,
            "condition": name,
            "label": f"class_{photo % classes}",
            "source_id": f"photo_{photo:03}",
            "correct": bool(right[photo, column]),
            **more,
        }
        for photo in range(len(right))
        for column, name in enumerate(CONDITIONS)
    ]


def counted(made: list[Any]) -> Counts:
    return reduce(table(made))


@pytest.fixture(scope="module")
def right() -> np.ndarray:
    return answers(np.random.default_rng(3), (80,), DROPS)


def test_score_is_the_formula_on_the_accuracies(right: np.ndarray) -> None:
    mean = right.mean(axis=0)
    for ddof, signed in ((0, False), (1, False), (0, True)):
        got = scores(counted(rows(right)), ddof=ddof, signed=signed, resamples=200).iloc[0]
        expected = robustness_score(
            dict(zip(CONDITIONS[1:], mean[1:], strict=True)), mu_cross=mean[0], ddof=ddof, signed=signed
        )
        assert got["score"] == pytest.approx(expected.score)
        assert got["variance_cross"] == pytest.approx(expected.variance_cross)
    assert got["accuracy_original"] == pytest.approx(mean[0])
    assert (got["parts"], got["n"], got["n_conditions"], got["warning"]) == ("cross", 80, len(DROPS), "")
    assert np.isnan(got["variance_inner"])
    assert got["low"] <= got["debiased"] <= got["high"]
    assert got["normality_p"] == pytest.approx(shapiro(mean[1:]).pvalue)


def test_debiased_is_the_closed_form_for_paired_photos(right: np.ndarray) -> None:
    got = scores(counted(rows(right, classes=1)), resamples=100).iloc[0]
    differences = right[:, 1:].astype(float) - right[:, :1]
    noise = differences.var(axis=0, ddof=1) / len(right)  # of a mean of paired differences
    assert got["debiased"] == pytest.approx(got["score"] + noise.mean())
    # Micro does not care about classes; macro takes the noise within classes.
    micro = scores(counted(rows(right)), average="micro", resamples=100).iloc[0]
    assert micro["debiased"] == pytest.approx(got["debiased"])
    macro = scores(counted(rows(right)), resamples=100).iloc[0]
    within = np.mean([differences[k::4].var(axis=0, ddof=1) for k in range(4)], axis=0) / len(right)
    assert macro["debiased"] == pytest.approx(macro["score"] + within.mean())


def test_debiased_is_unbiased_and_plain_is_not() -> None:
    rng = np.random.default_rng(0)
    drops = np.array([0.0, 0.02, 0.05])
    truth = (drops**2).mean()
    many = answers(rng, (4000, 60), drops).astype(float)
    differences = many[..., 1:] - many[..., :1]
    plain = (differences.mean(axis=1) ** 2).mean(axis=-1)
    debiased = plain - (differences.var(axis=1, ddof=1) / 60).mean(axis=-1)
    error = debiased.std() / np.sqrt(4000)
    assert abs(debiased.mean() - truth) < 4 * error
    assert plain.mean() - truth > 10 * error


@pytest.mark.parametrize("photos", [1, 3, 24, 240])
def test_a_score_without_any_change_keeps_the_doubt_of_its_photos(photos: int) -> None:
    """With no change in n images, a share of 1 − 0.025^(1/n) might still have changed."""
    made = rows(np.ones((photos, len(CONDITIONS)), bool), classes=1)
    got = scores(counted(made), resamples=200).iloc[0]
    assert (got["score"], got["high"]) == (1, 1)
    assert got["low"] <= 1 - (1 - 0.025 ** (1 / photos)) ** 2
    assert got["low"] >= 0


def test_inner_part_is_the_mean_of_folds(right: np.ndarray) -> None:
    rng = np.random.default_rng(5)
    inner = rng.random(right.shape) < 0.7
    made = rows(right, trained_on="original", classes=1)
    expected = {}
    for column, name in enumerate(CONDITIONS[1:], start=1):
        folds = np.r_[np.zeros(20, int), np.ones(60, int)]  # unequal, so that a pooled mean would differ
        expected[name] = np.mean([inner[folds == fold, column].mean() for fold in (0, 1)])
        made += [
            {**row, "trained_on": name, "fold": int(folds[photo]), "correct": bool(inner[photo, column])}
            for photo, row in enumerate(row for row in rows(right, classes=1) if row["condition"] == name)
        ]
    # Tested elsewhere than trained: neither part.
    made += rows(right, trained_on="scene_0", classes=1)[:1]
    got = scores(counted(made), resamples=100).iloc[0]
    mean = right.mean(axis=0)
    whole = robustness_score(dict(zip(CONDITIONS[1:], mean[1:], strict=True)), expected, mu_cross=mean[0])
    assert got["parts"] == "cross+inner"
    assert got["score"] == pytest.approx(whole.score)
    assert got["variance_inner"] == pytest.approx(whole.variance_inner)


def test_scenario_and_class_version(right: np.ndarray) -> None:
    got = scores(counted(rows(right)), components="scenario_class", resamples=500).iloc[0]
    by_class = {f"class_{k}": right[k::4, 1:].mean() for k in range(4)}
    mean = right.mean(axis=0)
    scenario = dict(zip(CONDITIONS[1:], mean[1:], strict=True))
    expected = robustness_score(scenario, by_class, mu_cross=mean[0], components="scenario_class")
    assert got["score"] == pytest.approx(expected.score)
    assert got["parts"] == "scenario+class"
    assert got["debiased"] > got["score"]
    assert got["low"] <= got["debiased"] <= got["high"]


def test_leaving_out_the_odd_class_moves_the_score_most() -> None:
    right = np.ones((80, len(CONDITIONS)), bool)
    right[2::4, 1:] = False  # one class loses everything
    right[0::8, 3] = False
    got = scores(counted(rows(right)), resamples=100).iloc[0]
    kept = right[np.arange(80) % 4 != 2].mean(axis=0)
    assert got["stability_class"] == "class_2"
    assert got["stability_high"] == pytest.approx(1 - ((kept[1:] - kept[0]) ** 2).mean())
    assert got["stability_low"] < got["score"] < got["stability_high"]


def test_identical_conditions_count_once(right: np.ndarray) -> None:
    made = rows(right)
    twin = [{**row, "condition": "twin"} for row in made if row["condition"] == "scene_4"]
    for row in (*made, *twin):
        row["image_sha256"] = row["source_id"] + row["condition"].replace("twin", "scene_4")
    counts = counted([*made, *twin])
    assert counts.same_images == {"twin": "scene_4"}
    both = scores(counts, resamples=50).iloc[0]
    assert both["score"] == pytest.approx(scores(counted(made), resamples=50)["score"][0])
    chosen = scores(counts, conditions=["scene_4"], resamples=50).iloc[0]
    assert chosen["n_conditions"] == 1


def test_constant_and_chance_classifiers_are_called_out() -> None:
    constant = [
        {**row, "prediction": "class_0", "correct": row["label"] == "class_0"}
        for row in rows(np.zeros((80, len(CONDITIONS)), bool))
    ]
    got = scores(counted(constant), resamples=50).iloc[0]
    assert (got["score"], got["high"]) == (1, 1)
    assert 0.99 < got["low"] < 1
    assert "constant" in got["warning"] and "chance" in got["warning"]
    assert np.isnan(got["normality_p"])
    guesses = np.random.default_rng(0).random((80, len(CONDITIONS))) < 0.25
    assert "not above chance" in scores(counted(rows(guesses)), resamples=50)["warning"][0]


def test_conditions_of_other_photos_are_called_out() -> None:
    """Class a is always right, b never; b was not run under c1: nothing is lost, and yet c1 differs from original."""
    made = [
        {"model": "m", "condition": condition, "label": label, "source_id": f"{label}{i}", "correct": label == "a"}
        for condition in ("original", "c1", "c2")
        for label in "ab"
        for i in range(10)
        if (condition, label) != ("c1", "b")
    ]
    warning = scores(counted(made), resamples=200)["warning"].iloc[0]
    assert "not tested on the same images" in warning and "10 of 20 originals under c1" in warning
    whole = [row for row in made if row["condition"] != "c1"]
    assert "same images" not in scores(counted(whole), resamples=200)["warning"].iloc[0]


def test_a_model_without_a_score_leaves_the_others_theirs(right: np.ndarray) -> None:
    only_original = [row for row in rows(right, model="poor") if row["condition"] == "original"]
    frame = scores(counted(rows(right, model="m") + only_original), resamples=200).set_index("model")
    assert frame.loc["m", "score"] > 0 and frame.loc["m", "warning"] == ""
    assert np.isnan(frame.loc["poor", "score"]) and "no score" in frame.loc["poor", "warning"]


def test_misspelt_conditions_and_outcomes_are_refused(right: np.ndarray) -> None:
    with pytest.raises(UserError, match="No condition 'blurr'"):
        scores(counted(rows(right)), conditions=[CONDITIONS[1], "blurr"], resamples=50)
    with pytest.raises(UserError, match="full or restricted"):
        scores(counted(rows(right)), outcome="strict", resamples=50)  # type: ignore[arg-type]


def test_a_class_of_one_photo_still_has_noise(right: np.ndarray) -> None:
    got = scores(counted(rows(right, classes=80)), resamples=50).iloc[0]
    assert got["debiased"] > got["score"]


def test_several_models_and_missing_originals(right: np.ndarray) -> None:
    made = [*rows(right), *rows(~right, model="other")]
    assert list(scores(counted(made), resamples=50)["model"]) == ["m", "other"]
    with pytest.raises(UserError, match="needs the original"):
        scores(counted([row for row in made if row["condition"] != "original"]), resamples=50)


@pytest.mark.parametrize("seed", range(3))
def test_the_quadratic_spread_is_the_plain_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    influence = rng.normal(size=(50, 6)) / 50
    epsilon = resampled_sums(influence, np.arange(50), resamples=500)
    for scale in (0.0, 0.005, 0.02, 0.3):  # from drowned in noise to far above it
        deviations = scale * rng.normal(size=6)

        def squares(values: Any) -> Any:
            return np.asarray((values**2).sum(axis=-1))

        slow = spread_interval(deviations, epsilon, influence.T @ influence, squares)
        fast = spread_interval(deviations, epsilon, influence.T @ influence, squares, quadratic=True)
        assert fast == pytest.approx(slow, abs=1e-9)
