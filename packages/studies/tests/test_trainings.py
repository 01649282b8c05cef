"""Intervals over trainings and scenes, and trends, against references of their own."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from scipy import stats
from statsmodels.formula.api import ols

from holdfast.core.errors import UserError
from holdfast.stats.effects.score import robustness_score
from holdfast_studies.trained.statistics import cross_part_pseudo_values, mean_over_trainings, trend


def drawn(rng: np.random.Generator, trainings: int, scenes: int, spread: float, rest: float = 0.5) -> np.ndarray:
    """A crossed sample with mean 0.3: trainings differ by ``spread``, scenes by 0.3."""
    between = rng.normal(0, spread, (trainings, 1))
    return 0.3 + between + rng.normal(0, 0.3, (1, scenes)) + rng.normal(0, rest, (trainings, scenes))


def test_the_interval_is_that_of_the_analysis_of_variance() -> None:
    values = drawn(np.random.default_rng(1), 4, 30, 0.2)
    frame = pd.DataFrame({"value": values.ravel(), "training": np.repeat(range(4), 30), "scene": np.tile(range(30), 4)})
    fitted = ols("value ~ C(training) + C(scene)", frame).fit()
    table = sm.stats.anova_lm(fitted)
    squares = table["sum_sq"] / table["df"]
    total = squares["C(training)"] + squares["C(scene)"] - squares["Residual"]
    freedom = total**2 / (squares["C(training)"] ** 2 / 3)
    half = stats.t.ppf(0.975, freedom) * np.sqrt(total / values.size)
    found = mean_over_trainings(values)
    assert found == pytest.approx((values.mean(), values.mean() - half, values.mean() + half))


@pytest.mark.parametrize(("trainings", "spread"), [(3, 0.1), (3, 0.0), (5, 0.3)])
def test_the_interval_covers_the_truth(trainings: int, spread: float) -> None:
    rng = np.random.default_rng(7)
    found = [mean_over_trainings(drawn(rng, trainings, 60, spread)) for _ in range(800)]
    covered = np.mean([one.low <= 0.3 <= one.high for one in found])
    assert 0.93 <= covered <= 0.995
    # Scenes alone would pretend that the few trainings were all there are.
    if spread >= 0.1:
        naive = np.array([one.high - one.low for one in found]).mean()
        alone = np.array(
            [2 * 1.96 * drawn(rng, trainings, 60, spread).mean(axis=0).std(ddof=1) / np.sqrt(60) for _ in range(200)]
        ).mean()
        assert naive > alone


def test_one_training_speaks_of_scenes_only() -> None:
    values = drawn(np.random.default_rng(3), 1, 40, 0.0)
    found = mean_over_trainings(values)
    low, high = stats.t.interval(0.95, 39, values.mean(), stats.sem(values[0]))
    assert (found.low, found.high) == pytest.approx((low, high))


def test_no_spread_is_an_interval_of_no_width() -> None:
    assert mean_over_trainings(np.ones((3, 10))) == (1, 1, 1)
    # Trainings that answer alike leave the scenes' own uncertainty.
    alike = np.tile(np.arange(10.0) % 2, (3, 1))
    found = mean_over_trainings(alike)
    assert found.high - found.low == pytest.approx(2 * 1.959964 * alike[0].std(ddof=1) / np.sqrt(10), rel=1e-4)


def test_one_scene_is_refused() -> None:
    with pytest.raises(UserError, match="two scenes"):
        mean_over_trainings(np.ones((3, 1)))


def test_pseudo_values_are_the_jackknife_of_the_score() -> None:
    rng = np.random.default_rng(5)
    right = (rng.random((2, 4, 25)) < np.array([0.9, 0.8, 0.5, 0.7])[None, :, None]).astype(float)

    def cross(chosen: np.ndarray) -> float:
        accuracy = chosen.mean(axis=1)
        named = {f"condition {place}": float(value) for place, value in enumerate(accuracy[1:])}
        return robustness_score(named, mu_cross=float(accuracy[0])).variance_cross

    found = cross_part_pseudo_values(right)
    for training in range(2):
        whole = cross(right[training])
        expected = [25 * whole - 24 * cross(np.delete(right[training], scene, axis=1)) for scene in range(25)]
        assert found[training] == pytest.approx(expected)


def test_the_mean_of_pseudo_values_is_without_the_noise_of_squaring() -> None:
    rng = np.random.default_rng(11)
    # Two conditions alike: the true cross part is 0, and the plain one is not.
    samples = (rng.random((2000, 2, 30)) < 0.7).astype(float)
    plain = np.square(samples[:, 1].mean(axis=1) - samples[:, 0].mean(axis=1))
    assert plain.mean() > 0.01
    assert abs(cross_part_pseudo_values(samples).mean()) < 0.001


def test_a_trend_by_enumeration() -> None:
    doses = np.array([0.0, 0.0, 0.5, 0.5, 1.0, 1.0])
    values = np.array([0.1, 0.3, 0.2, 0.5, 0.4, 0.4])
    found = trend(doses, values)

    def concordant(order: tuple[float, ...]) -> float:
        counted = [
            stats.mannwhitneyu(np.array(order)[doses == high], np.array(order)[doses == low]).statistic
            for low, high in ((0, 0.5), (0, 1), (0.5, 1))
        ]
        return float(sum(counted)) / 12

    assert found.concordant == pytest.approx(concordant(tuple(values)))
    as_far = [concordant(order) >= found.concordant - 1e-9 for order in itertools.permutations(values)]
    assert found.p == pytest.approx(np.mean(as_far), abs=0.01)
    assert found.spearman == pytest.approx(stats.spearmanr(doses, values).statistic)


def test_trends_that_are_none() -> None:
    doses = np.repeat([0.0, 0.5, 1.0], 3)
    falling = trend(doses, -np.arange(9.0))
    assert (falling.concordant, falling.p) == (0, 1)
    flat = trend(doses, np.ones(9))
    assert flat == (0, 0.5, 1)
    with pytest.raises(UserError, match="two doses"):
        trend(np.zeros(4), np.arange(4.0))


def test_a_strict_trend_of_fifteen_models_is_clear() -> None:
    found = trend(np.repeat([0.0, 0.5, 0.8, 0.95, 1.0], 3), np.arange(15.0))
    assert found.concordant == 1
    assert found.p < 0.001
