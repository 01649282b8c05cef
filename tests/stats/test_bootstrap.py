"""The bootstrap against variances known in closed form."""

from __future__ import annotations

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.sandwich_covariance import cov_cluster_2groups

from holdfast.stats.core.bootstrap import cluster_variance, codes, deviations, interval, resampled_sums


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


def test_photos_pasted_once_are_resampled_by_donor() -> None:
    rng = np.random.default_rng(5)
    donors = rng.integers(0, 40, 400)
    values = rng.normal(size=400) + rng.normal(size=40)[donors]
    values -= values.mean()
    sums = resampled_sums(values, np.arange(400), second=donors, resamples=4000)[:, 0]
    groups = np.bincount(donors, values)
    assert sums.std() == pytest.approx(np.sqrt(np.square(groups - groups.mean()).sum()), rel=0.05)


def test_crossed_resampling_is_never_narrower_than_either_way() -> None:
    rng = np.random.default_rng(6)
    first, second = np.repeat(np.arange(60), 6), rng.integers(0, 30, 360)
    values = rng.normal(size=360) + rng.normal(size=60)[first] + rng.normal(size=30)[second]
    values -= values.mean()
    both = resampled_sums(values, first, second=second, resamples=2000)[:, 0].std()
    assert both > resampled_sums(values, first, resamples=2000)[:, 0].std()
    assert both > resampled_sums(values, second, resamples=2000)[:, 0].std()


def test_two_way_variance_is_that_of_statsmodels() -> None:
    rng = np.random.default_rng(7)
    first, second = rng.integers(0, 50, 400), rng.integers(0, 20, 400)
    values = rng.normal(size=400) + rng.normal(size=50)[first] + rng.normal(size=20)[second]
    fitted = sm.OLS(values, np.ones(400)).fit()
    theirs = cov_cluster_2groups(fitted, first, second, use_correction=False)[0].item()
    assert cluster_variance(values - values.mean(), first, second) / 400**2 == pytest.approx(theirs)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_deviations_have_the_two_way_variance(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = np.repeat(np.arange(80), 3), rng.integers(0, 50, 240)
    values = rng.normal(size=240) + rng.normal(size=50)[second]
    values -= values.mean()
    strayed = deviations(values, first, second, resamples=4000, seed=seed)
    # the factors for few clusters: √(50 / 49) and t(49) over normal
    few = np.sqrt(50 / 49) * 2.0096 / 1.95996
    assert strayed.std() == pytest.approx(few * np.sqrt(cluster_variance(values, first, second)), rel=0.08)


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
