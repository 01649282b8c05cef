"""Failure points: curves by hand, models that turn, and images that come back."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pyarrow as pa
import pytest

from holdfast.core.schema import PREDICTIONS
from holdfast.pipeline.evaluate.search import next_severity
from holdfast.stats.core.reduce import Counts, reduce
from holdfast.stats.effects.failure_point import breaking_photos, failure_differences, failure_points


def counts(**right: np.ndarray) -> Counts:
    """Model → (images, 1 + severities): whether each answer is right, originals first."""
    rows = [
        {
            "row_id": f"{model}/{photo}/{severity}", "task": "classify", "kind": "photo", "dataset": "d",
            "sample_id": f"p{photo}", "source_id": f"p{photo}", "condition": "fog" if severity else "original",
            "variant": f"severity_{severity}" if severity else "paper", "parameters": "{}", "model": model,
            "trained_on": "", "label": "cat", "prediction": "x", "prediction_restricted": "x", "status": "ok",
            "correct": bool(hit), "correct_restricted": bool(hit), "fold": -1,
        }
        for model, table in right.items()
        for photo, answers in enumerate(table)
        for severity, hit in enumerate(answers)
    ]  # fmt: skip
    return reduce(pa.Table.from_pylist(rows, schema=PREDICTIONS))


def test_curves_medians_and_photos_that_come_back_by_hand() -> None:
    table = np.array([
        [1, 1, 1, 1, 1, 1],  # never fails
        [1, 1, 1, 0, 0, 0],  # at 3
        [1, 0, 1, 1, 1, 1],  # at 1, and comes back
        [0, 1, 1, 1, 1, 1],  # wrong as it is: not counted
        [1, 1, 1, 0, 0, 0],
    ])  # fmt: skip
    curve = failure_points(counts(model=table), resamples=200)
    assert curve.curves["survived"].tolist() == [0.75, 0.75, 0.25, 0.25, 0.25]
    point = curve.points.iloc[0]
    assert (point["n"], point["median"], point["mean"], point["back"], point["never"]) == (4, 3, 2.25, 1, 1)
    assert point["mean_low"] <= point["mean"] <= point["mean_high"]
    assert "25 % of images are right again" in curve.sentence and curve.orders.empty


def test_a_model_that_never_fails_has_a_median_beyond_the_strongest() -> None:
    point = failure_points(counts(model=np.ones((6, 6), int)), resamples=50).points.iloc[0]
    assert (point["median"], point["mean"], point["never"]) == (6, 5, 6)


def test_order_of_models_that_turns_with_severity_is_seen_and_a_constant_one_is_not() -> None:
    rng = np.random.default_rng(0)
    early = np.c_[np.ones(300, int), np.repeat(rng.random((300, 1)) < 0.6, 5, axis=1)]  # 40 % fail at once, then none
    late = np.c_[np.ones((300, 4), int), np.zeros((300, 2), int)]  # all fail at 4
    turned = failure_points(counts(early=early, late=late), resamples=500).orders.iloc[0]
    assert turned["turns"] and turned["n"] == 300
    better = np.c_[np.ones(300, int), np.repeat(rng.random((300, 1)) < 0.9, 5, axis=1)]
    same = failure_points(counts(early=early, later=better), resamples=500).orders.iloc[0]
    assert not same["turns"] and same["high"] < 0


def test_mean_is_covered() -> None:
    """95 % intervals of the mean number of severities survived, each image failing at a severity drawn for it."""
    rng = np.random.default_rng(4)
    shares = np.array([0.2, 0.1, 0.2, 0.1, 0.1, 0.3])  # fails at 1 … 5, never
    truth, inside = float(shares @ [0, 1, 2, 3, 4, 5]), 0
    ends = {f"model {seed}": rng.choice(6, 80, p=shares) for seed in range(100)}
    every = counts(**{model: np.c_[np.ones(80, int), np.arange(5) < end[:, None]] for model, end in ends.items()})
    for seed, model in enumerate(ends):
        own = dataclasses.replace(every, cells=every.cells[every.cells["model"] == model], models=[model])
        point = failure_points(own, resamples=300, seed=seed).points.iloc[0]
        inside += point["mean_low"] <= truth <= point["mean_high"]
    assert inside >= 86


def test_two_runs_are_compared_on_the_photos_that_both_recognise() -> None:
    old = np.array([[1, 1, 1, 1], [1, 1, 0, 0], [0, 1, 1, 1], [1, 1, 1, 0]])
    new = np.array([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1]])
    row = failure_differences(counts(old=old), counts(new=new), resamples=200).iloc[0]
    together = failure_points(counts(new=new, old=old), resamples=200).orders.iloc[0]
    assert (row["first"], row["second"]) == ("new", "old")
    assert (row["n"], row["difference"]) == (3, pytest.approx(-1 / 3)) and row["difference"] == together["difference"]
    assert failure_differences(counts(old=old), counts(new=new[:, :3])).empty  # not the same severities


def test_a_photo_that_breaks_where_most_do() -> None:
    table = np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [1, 0, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0]])
    both_models = counts(strong=np.ones((4, 6), int), weak=table)
    (photo,) = breaking_photos(both_models, failure_points(both_models, resamples=20), ["fog"])
    assert (photo.model, photo.source, photo.alike) == ("weak", "p1", 2)
    assert photo.conditions == ("original", "fog@severity_2", "fog@severity_3")
    assert breaking_photos(counts(strong=np.ones((4, 6), int)), failure_points(counts(strong=np.ones((4, 6), int))),
                           ["fog"]) == []  # fmt: skip


def test_two_severities_are_no_curve() -> None:
    curve = failure_points(counts(model=np.ones((4, 3), int)))
    assert curve.points.empty and curve.sentence == "No scenario has three severities or more."


@pytest.mark.parametrize(("missing", "counted"), [(0, 4), (3, 5), (5, 4)])
def test_photos_whose_failure_is_not_pinned_are_left_out(missing: int, counted: int) -> None:
    whole = counts(model=np.ones((5, 6), int))
    cells = whole.cells
    name = "original" if missing == 0 else f"fog@severity_{missing}"
    gone = (cells["source_id"].astype(str) == "p0") & (cells["condition"].astype(str) == name)
    point = failure_points(dataclasses.replace(whole, cells=cells[~gone]), resamples=20).points.iloc[0]
    assert (point["n"], point["whole"]) == (counted, 4)


@pytest.mark.parametrize("count", [3, 5, 8])
def test_bisection_gives_the_failure_points_of_the_grid_on_monotone_photos(count: int) -> None:
    rng = np.random.default_rng(count)
    ends = rng.integers(0, count + 1, 60)
    grid = np.c_[np.ones(60, int), np.arange(count) < ends[:, None]]
    whole = counts(model=grid)
    asked: list[dict[int, bool]] = [{} for _ in ends]  # place → right, as bisection asks
    for photo, answers in zip(grid[:, 1:].astype(bool).tolist(), asked, strict=True):
        while (place := next_severity(answers, count)) is not None:
            answers[place] = photo[place]
    most = math.ceil(math.log2(count + 1))
    assert max(map(len, asked)) <= most and sum(map(len, asked)) <= most * 60 < count * 60
    kept = [
        name == "original" or int(name[-1]) - 1 in asked[int(source[1:])]
        for source, name in zip(whole.cells["source_id"].astype(str), whole.cells["condition"].astype(str), strict=True)
    ]
    searched = dataclasses.replace(whole, cells=whole.cells[kept])
    by_grid, by_search = (failure_points(each, resamples=100) for each in (whole, searched))
    columns = ["n", "median", "mean", "mean_low", "mean_high", "never"]
    assert by_grid.points[columns].equals(by_search.points[columns]) and by_grid.curves.equals(by_search.curves)
    assert by_search.points["whole"].iloc[0] < 60 and "taken to be monotone" in by_search.sentence
