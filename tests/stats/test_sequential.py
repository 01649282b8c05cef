"""Confidence sequences: a reference by hand, and the rates that they promise, looked at after every round."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom

from holdfast.core.schema import PREDICTIONS
from holdfast.stats.core.reduce import Counts, reduce
from holdfast.stats.effects.sequential import ALPHA, STAKES, log_capital, running_interval
from holdfast.stats.effects.sequential_gate import _tested, sequential_gate
from holdfast.stats.models.noninferiority import Differences

RUNS = 600
MOST_WRONG = int(binom.ppf(0.9999, RUNS, 2 * ALPHA))  # of 600 intervals that each miss with a chance of 5 %


def test_capital_is_the_mean_of_the_products_of_all_bets() -> None:
    values = [1.0, 0.0, -1.0, 0.0, 0.5]
    for mean in (-0.3, 0.05, 0.6):
        largest = 1 / (mean + 1)
        products = [math.prod(1 + stake * largest * (value - mean) for value in values) for stake in STAKES]
        got = log_capital(values, mean, least=-1, most=1, above=True)
        assert float(got) == pytest.approx(math.log(sum(products) / len(STAKES)), abs=1e-12)
        mirrored = log_capital([-value for value in values], -mean, least=-1, most=1, above=False)
        assert float(mirrored) == pytest.approx(float(got), abs=1e-12)


def test_interval_does_not_depend_on_the_order_and_never_widens() -> None:
    rng = np.random.default_rng(3)
    values = rng.choice([-1.0, 0.0, 1.0], 300, p=[0.1, 0.6, 0.3])
    first = running_interval(values, before=None)
    assert running_interval(rng.permutation(values), before=None) == first
    assert first.low < values.mean() < first.high
    look = None
    for end in range(24, 301, 24):
        narrower = running_interval(values[:end], before=look)
        assert look is None or (narrower.low >= look.low and narrower.high <= look.high)
        look = narrower
    nothing = running_interval([], before=None)
    assert (nothing.n, nothing.low, nothing.high) == (0, -1.0, 1.0)


@pytest.mark.parametrize(
    ("shares", "classes"),
    [((0.025, 0.925, 0.05), 1), ((0.1, 0.65, 0.25), 1), ((0.1, 0.65, 0.25), 12)],
    ids=["rare changes", "many changes", "classes that differ"],
)
def test_true_mean_is_inside_at_every_look(shares: tuple[float, float, float], classes: int) -> None:
    """Twelve classes with means of their own, two photos of each per round: the mean over classes is covered, too."""
    rng = np.random.default_rng([7, classes, int(1000 * shares[0])])
    values = np.array([-1.0, 0.0, 1.0])
    shift = np.linspace(-1, 1, classes) * 0.9 * min(shares[0], shares[2]) if classes > 1 else np.zeros(1)
    chances = np.array([[shares[0] - move, shares[1], shares[2] + move] for move in shift])
    truth = float((chances @ values).mean())
    missed = 0
    for _ in range(RUNS):
        drawn = rng.random((240 // classes if classes > 1 else 240, classes))
        borders = np.cumsum(chances, axis=1)
        photos = values[(drawn[..., None] > borders).sum(axis=-1)].reshape(-1)
        look, wrong = None, False
        for end in range(24, len(photos) + 1, 24):
            look = running_interval(photos[:end], before=look)
            wrong |= not look.low <= truth <= look.high
        missed += wrong
    assert missed <= MOST_WRONG


def test_photos_that_lend_their_backgrounds_to_each_other() -> None:
    """Each background is lent once: an easy object and its own strong background belong to one photo."""
    rng = np.random.default_rng(11)
    missed, effect = 0, 0.05
    for _ in range(RUNS):
        looks, photos, wrong = None, [], False
        for _ in range(8):
            strength = rng.random(24)  # of the photo's object and of its background, together
            lender = np.roll(np.arange(24), 1)
            change = 4 * effect * strength[lender] * rng.random(24) * (1.5 - strength)  # its mean is the effect
            photos += (rng.random(24) < change).astype(float).tolist()
            looks = running_interval(photos, before=looks)
            wrong |= not looks.low <= effect <= looks.high
        missed += wrong
    assert missed <= MOST_WRONG


def counts_of(right_old: np.ndarray, right_new: np.ndarray, donors: np.ndarray | None = None) -> tuple[Counts, Counts]:
    """Two runs on the same photos under one condition."""
    tables = []
    for name, right in (("old", right_old), ("new", right_new)):
        lent = None if donors is None else [f"donor{number}" for number in donors]
        tables.append(reduce(made_table(name, right, lent)))
    return tables[0], tables[1]


def made_table(model: str, right: np.ndarray, donors: list[str] | None) -> pa.Table:
    rows = [
        {
            "row_id": f"{model}{place}", "task": "classify", "kind": "photo", "dataset": "d",
            "sample_id": f"photo{place}", "source_id": f"photo{place}", "condition": "random_background",
            "variant": "paper", "parameters": "{}",
            "model": model, "trained_on": "", "label": "cat", "prediction": "cat" if hit else "dog", "status": "ok",
            "prediction_restricted": "cat" if hit else "dog", "correct": bool(hit), "correct_restricted": bool(hit),
            "donor_id": donors[place] if donors else None, "fold": -1,
        }
        for place, hit in enumerate(right)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows, schema=PREDICTIONS)


def test_gate_decides_on_what_is_clear_and_waits_otherwise() -> None:
    right = np.ones(400, bool)
    worse = right.copy()
    worse[:80] = False
    assert sequential_gate(*counts_of(right, worse), margin=0.02).verdict == "failed"
    assert sequential_gate(*counts_of(right, right), margin=0.02).verdict == "passed"
    few = sequential_gate(*counts_of(right[:40], right[:40]), margin=0.02)
    assert few.verdict == "undecided" and "add photos and look again" in few.sentence
    row = few.conditions.iloc[0]
    assert row["low"] < 0 < row["high"] and row["n"] == 40
    shared = sequential_gate(*counts_of(right, worse, np.zeros(400, int)), margin=0.02)
    assert shared.verdict == "undecided"  # one donor for all photos is one value
    spread = sequential_gate(*counts_of(right, worse, np.arange(400) // 2), margin=0.02)
    assert spread.verdict == "failed" and spread.conditions.iloc[0]["donors"] == 200


def test_gate_of_a_model_at_the_margin_passes_in_at_most_5_percent_of_series_of_looks() -> None:
    rng = np.random.default_rng(5)
    runs, passed, failed = 300, 0, 0
    for _ in range(runs):
        strength = rng.random(150)  # donors that three photos share each: some flip all, some none
        flips = rng.random(450) < 0.3 * np.repeat(strength, 3) / 0.5
        better = rng.random(450) < 1 / 3
        values = np.where(flips, np.where(better, 1.0, -1.0), 0.0)  # mean −0.1
        photos = np.arange(450)
        ending = ""
        for end in range(45, 451, 45):
            seen = Differences(values[:end], photos[:end], photos[:end] // 3, values[:end], np.ones(end))
            p_pass, p_fail, low, high = _tested(seen, 0.1, 0.05)
            assert low < high
            ending = ending or ("passed" if p_pass <= 0.05 else "failed" if p_fail <= 0.05 else "")
        passed += ending == "passed"
        failed += ending == "failed"
    most = int(binom.ppf(0.9999, runs, 0.05))
    assert passed <= most and failed <= most
