"""``holdfast study pooling``: its formulas against sets whose union is computed directly, and the command."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.errors import UserError
from holdfast_studies.pooling import ImageSet, pooled
from holdfast_studies.study import run_study

SCORES = st.lists(st.integers(0, 5), min_size=1, max_size=9)


@given(st.lists(SCORES, min_size=1, max_size=4))
def test_pooled_moments_are_those_of_the_union(sets: list[list[int]]) -> None:
    found = pooled([ImageSet(len(part), float(np.mean(part)), float(np.var(part))) for part in sets])
    union = np.concatenate(sets)
    assert found.size == len(union)
    assert found.mean == pytest.approx(union.mean()) and found.variance == pytest.approx(union.var())


def test_an_empty_pool_is_refused() -> None:
    with pytest.raises(UserError, match="at least one image"):
        pooled([])


def test_the_simulation_agrees_with_the_formula_and_not_without_the_term_between_sets(tmp_path: Path) -> None:
    page = run_study("pooling", tmp_path / "study", quick=True)
    assert "Proposition A.1" in page.read_text(encoding="utf8")
    moments = pd.read_parquet(tmp_path / "study" / "results" / "mean-and-variance.parquet")
    np.testing.assert_allclose(moments["simulated_mean"], moments["mean"], atol=0.01)
    np.testing.assert_allclose(moments["simulated_variance"], moments["variance"], rtol=0.02)
    assert (moments["variance"] - moments["within_only"])[1:].min() > 0.003


def test_pooling_helps_exactly_between_the_bounds(tmp_path: Path) -> None:
    run_study("pooling", tmp_path / "study", quick=True, assignments=["images=5000", "generated=1", "benchmark=0.7"])
    found = pd.read_parquet(
        tmp_path / "study" / "results" / "when-the-pool-is-nearer-to-the-population.parquet"
    ).set_index("ratio")["nearer"]
    assert (found[[-1.0, 0.0, 0.5]] > 0.99).all() and found[2.0] < 0.01, "with w = 1/2 the lower bound is -3"


@pytest.mark.parametrize("setting", ["generated=-1", "benchmark=0.5", "images=1"])
def test_settings_that_leave_nothing_to_simulate_are_refused(tmp_path: Path, setting: str) -> None:
    with pytest.raises(UserError):
        run_study("pooling", tmp_path / "study", assignments=[setting])
