from __future__ import annotations

import numpy as np
import pytest

from holdfast.stats.core.bootstrap import paired_change


def test_the_change_is_the_mean_and_counts_are_counts() -> None:
    before, after = [1, 0, 0, 1, 1], [1, 1, 1, 0, 1]
    found = paired_change(before, after, ["a", "a", "b", "c", "d"], resamples=500)
    assert (found["n"], found["prompts"], found["gained"], found["lost"]) == (5, 4, 2, 1)
    assert found["before"] == pytest.approx(0.6) and found["after"] == pytest.approx(0.8)
    assert found["estimate"] == pytest.approx(0.2) and found["low"] < 0.2 < found["high"]


def test_nothing_changed_is_no_proof_that_nothing_changes() -> None:
    found = paired_change([1] * 50, [1] * 50, range(50), resamples=500)
    assert found["estimate"] == 0 and -0.2 < found["low"] < 0 < found["high"] < 0.2
    nothing = paired_change([], [], [])
    assert nothing["n"] == 0 and np.isnan(nothing["estimate"])
