"""No interval leaves the range of its quantity, none is without width, and shared donors count in all of them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from made_grid import counts_of

from holdfast.stats.core.bootstrap import CHANGE, SHARE
from holdfast.stats.core.cells import summary
from holdfast.stats.core.grid import judged
from holdfast.stats.effects.attributions import shares
from holdfast.stats.effects.drops import drops
from holdfast.stats.effects.failure_point import failure_points


@pytest.mark.parametrize("photos", [2, 3, 10, 30])
@pytest.mark.parametrize(("possible", "value"), [(SHARE, 0.0), (SHARE, 1.0), (CHANGE, -1.0), (CHANGE, 1.0)])
def test_extreme_values_have_bounds_in_their_range(photos: int, possible: tuple[float, float], value: float) -> None:
    for spread in (0.0, 0.01, 0.5):
        moved = spread * np.random.default_rng(0).normal(size=(500, 1))
        (low,), (high,), _ = judged(np.array([value]), moved, photos, possible=possible)
        assert possible[0] <= low < high <= possible[1] and low <= value <= high


@pytest.mark.parametrize("photos", [2, 10, 30])
@pytest.mark.parametrize("after", [0, 1])
def test_everything_or_nothing_lost(photos: int, after: int) -> None:
    right = np.ones((photos, 1, 2))
    right[:, :, 1] = after
    counts = counts_of(right)
    for table, columns in ((summary(counts), SHARE), (drops(counts), CHANGE)):
        assert (columns[0] <= table["low"]).all() and (table["high"] <= columns[1]).all()
        assert (table["low"] < table["high"]).all()


def test_photos_that_never_fail_do_not_promise_that_none_does() -> None:
    counts = counts_of(np.ones((12, 2, 4)))
    names = ["original", *(f"fog@severity_{level}" for level in (1, 2, 3))]
    counts.cells["condition"] = counts.cells["condition"].map(dict(zip(counts.conditions, names, strict=True)))
    counts.conditions[:] = names
    points = failure_points(counts)
    assert (points.curves["high"] == 1).all() and points.curves["low"].between(0.7, 0.8).all()
    assert (points.points["mean_low"] < 3).all() and (points.points["mean_high"] == 3).all()
    assert (points.orders["low"] < 0).all() and (points.orders["high"] > 0).all()


def test_maps_of_images_on_shared_backgrounds() -> None:
    rng = np.random.default_rng(0)
    donor = np.arange(60) % 6
    level = np.array([0.2, 0.8, 0.3, 0.7, 0.4, 0.6])[donor]
    frame = pd.DataFrame({"method": "m", "target": "t", "model": "x", "trained_on": "", "condition": "c"}, range(60))
    frame = frame.assign(status="ok", source_id=[f"s{place}" for place in range(60)], hit=1.0, area=0.5)
    frame["share"] = level + 0.01 * rng.random(60)
    widths = []
    for lent in (None, donor):
        table = shares(frame.assign(donor_id=None if lent is None else [f"d{place}" for place in lent]), resamples=400)
        row = table.iloc[0]
        widths.append(row["high"] - row["low"])
        assert row["hits"] == row["hits_high"] == 1 and row["hits_low"] < 0.97
    assert widths[1] > 2 * widths[0]
