from __future__ import annotations

import numpy as np
import pytest

from holdfast.stats.core.paired import paired_change


def test_the_change_is_the_mean_and_counts_are_counts() -> None:
    before, after = [1, 0, 0, 1, 1], [1, 1, 1, 0, 1]
    found = paired_change(before, after, ["a", "a", "b", "c", "d"], resamples=500)
    assert (found["n"], found["prompts"], found["gained"], found["lost"]) == (5, 4, 2, 1)
    assert found["before"] == pytest.approx(0.6) and found["after"] == pytest.approx(0.8)
    assert found["estimate"] == pytest.approx(0.2) and found["low"] < 0.2 < found["high"]


def test_it_covers_the_truth_where_images_of_a_prompt_go_together() -> None:
    rng = np.random.default_rng(0)
    hits = []
    for seed in range(200):
        prompts = np.repeat(np.arange(40), 4)
        gains = np.repeat(rng.random(40) < 0.3, 4)
        before = rng.random(160) < 0.5
        after = before | gains
        found = paired_change(before, after, prompts, resamples=400, seed=seed)
        hits.append(found["low"] <= 0.15 <= found["high"])  # half of the 30 % were right before
    assert 0.92 <= np.mean(hits) <= 1


def test_nothing_changed_is_no_proof_that_nothing_changes() -> None:
    found = paired_change([1] * 50, [1] * 50, range(50), resamples=500)
    assert found["estimate"] == 0 and -0.2 < found["low"] < 0 < found["high"] < 0.2
    nothing = paired_change([], [], [])
    assert nothing["n"] == 0 and np.isnan(nothing["estimate"])
