"""The bootstrap against variances known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm, t
from statsmodels.stats.sandwich_covariance import cov_cluster_2groups

from holdfast.stats.core.bootstrap import (
    cluster_freedom,
    codes,
    deviations,
    donor_noise,
    interval,
    resampled_sums,
    two_way,
)


@given(st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1))
def test_codes_number_the_labels(labels: list[str]) -> None:
    numbers, count = codes(labels)
    assert count == len(set(labels))
    assert set(numbers.tolist()) == set(range(count))
    assert len(set(zip(labels, numbers.tolist(), strict=True))) == count


@pytest.mark.parametrize("kind", ["few values", "all different", "very many"])
def test_resampled_sums_have_the_mean_and_variance_of_the_bootstrap(kind: str) -> None:
    rng = np.random.default_rng(1)
    count = 20_000 if kind == "very many" else 300
    values = rng.integers(0, 2, count).astype(float) if kind == "few values" else rng.normal(2, 1, count)
    sums = resampled_sums(values, np.arange(count), resamples=4000, seed=3)[:, 0]
    expected = np.sqrt(np.square(values - values.mean()).sum())
    assert sums.mean() == pytest.approx(values.sum(), abs=4 * expected / np.sqrt(4000))
    assert sums.std() == pytest.approx(expected, rel=0.05)


def test_clusters_stay_together() -> None:
    values = np.repeat([1.0, 0.0, 1.0, 0.0], 25)
    one_by_one = resampled_sums(values, np.arange(100), resamples=4000)[:, 0]
    together = resampled_sums(values, np.repeat(np.arange(4), 25), resamples=4000)[:, 0]
    assert set(np.unique(together)) <= {0, 25, 50, 75, 100}
    assert together.std() == pytest.approx(5 * one_by_one.std(), rel=0.1)


def test_columns_are_resampled_together() -> None:
    values = np.random.default_rng(0).integers(0, 3, (500, 1)).astype(float)
    sums = resampled_sums(np.hstack([values, 2 * values]), np.arange(500), resamples=100)
    np.testing.assert_allclose(sums[:, 1], 2 * sums[:, 0])


def test_two_way_variance_is_that_of_statsmodels() -> None:
    rng = np.random.default_rng(7)
    first, second = rng.integers(0, 50, 400), rng.integers(0, 20, 400)
    values = rng.normal(size=400) + rng.normal(size=50)[first] + rng.normal(size=20)[second]
    fitted = sm.OLS(values, np.ones(400)).fit()
    theirs = cov_cluster_2groups(fitted, first, second, use_correction=False)[0].item()
    residual, share = values - values.mean(), np.bincount(second) / 400
    over_second = np.bincount(second, residual)
    jackknifed = theirs * 400**2 + (over_second**2 * (1 / (1 - share) ** 2 - 1)).sum()
    assert two_way(residual, first, second)[1] == pytest.approx(jackknifed)


def test_noise_of_donors_is_the_two_way_variance_beyond_that_of_photos() -> None:
    rng = np.random.default_rng(8)
    photo, donor = np.arange(400), rng.integers(0, 20, 400)
    values = rng.normal(size=400) + 2 * rng.normal(size=20)[donor]
    values -= values.mean()
    rows = donor_noise(values, photo, donor, np.zeros(400, np.intp), 1)
    stretch = t.ppf(0.975, cluster_freedom(donor)) / norm.ppf(0.975)
    assert (rows**2).sum() == pytest.approx((two_way(values, photo, donor)[1] - (values**2).sum()) * stretch**2)
    assert len(donor_noise(rng.permutation(values) * 1e-9, photo, photo, np.zeros(400, np.intp), 1)) <= 1


def test_uneven_clusters_are_worth_fewer() -> None:
    assert cluster_freedom(np.arange(12)) == pytest.approx(11)
    assert cluster_freedom(np.repeat(np.arange(12), [100, *[1] * 11])) < 2


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_deviations_have_the_two_way_variance(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = np.repeat(np.arange(80), 3), rng.integers(0, 50, 240)
    values = rng.normal(size=240) + rng.normal(size=50)[second]
    values -= values.mean()
    strayed = deviations(values, first, second, resamples=4000, seed=seed)
    few = t.ppf(0.975, min(cluster_freedom(second), 79)) / norm.ppf(0.975)
    assert strayed.std() == pytest.approx(few * np.sqrt(two_way(values, first, second)[1]), rel=0.08)


def test_nothing_strays_where_nothing_varies_but_imagined_clusters_do() -> None:
    assert deviations(np.zeros(20), np.arange(20), resamples=100).std() == 0
    strayed = deviations(np.zeros(100), np.arange(100), extra=[1.0, -1.0], resamples=4000)
    assert strayed.std() == pytest.approx(np.sqrt(2), rel=0.06)


def test_the_seed_decides() -> None:
    values = np.random.default_rng(0).normal(size=50)
    once, again, other = (resampled_sums(values, np.arange(50), resamples=50, seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(once, again)
    assert not np.array_equal(once, other)


def test_interval_leaves_out_what_is_not_a_number() -> None:
    low, high = interval(np.append(np.linspace(0, 1, 1001), np.nan), level=0.9)
    assert (float(low), float(high)) == pytest.approx((0.05, 0.95))
