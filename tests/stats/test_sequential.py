"""Confidence sequences: a reference by hand, and the rates that they promise, looked at after every round."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import binom

from holdfast.core.schema import PREDICTIONS
from holdfast.stats.core.answers import Answers
from holdfast.stats.core.reduce import Counts, reduce
from holdfast.stats.effects.sequential import (
    ALPHA,
    STAKES,
    SequentialEvidence,
    _tested,
    log_capital,
    running_interval,
    sequential_gate,
    simulated_decisions,
)

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


def test_borders_are_those_of_every_hypothesis_of_the_grid() -> None:
    """The search for a border skips hypotheses; here the capital is asked about each of the 3,999."""
    rng = np.random.default_rng(9)
    for case in range(30):
        least, alpha = (-1.0, 0.0)[case % 2], (0.025, 0.05)[case % 3 == 0]
        count = int(rng.integers(1, 400))
        values = rng.choice([least, 0.5, 1.0], count, p=rng.dirichlet([1, 1, 1])) if case % 5 else np.full(count, 1.0)
        grid = np.linspace(least, 1, 4001)[1:-1]
        too_low, too_high = (
            grid[log_capital(values, grid, least=least, most=1, above=above) >= -np.log(alpha)]
            for above in (True, False)
        )
        got = running_interval(values, least=least, alpha=alpha, before=None)
        assert (got.low, got.high) == (max(too_low, default=least), min(too_high, default=1.0))


@pytest.mark.parametrize(
    ("shares", "classes"),
    [((0.025, 0.925, 0.05), 1), ((0.1, 0.65, 0.25), 1), ((0.1, 0.65, 0.25), 12)],
    ids=["rare changes", "many changes", "classes that differ"],
)
def test_true_mean_is_inside_at_every_look(shares: tuple[float, float, float], classes: int) -> None:
    """Twelve classes with means of their own, two images of each per round: the mean over classes is covered, too."""
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


def test_simulated_decisions_are_those_of_the_intervals() -> None:
    """The simulation behind plan, against a check of every look's interval, image by image."""
    rng = np.random.default_rng(21)
    sizes, runs, decided, photos = [24, 24, 24, 12], 300, 0, 0
    for _ in range(runs):
        values = rng.choice([1.0, -1.0, 0.0], sum(sizes), p=[0.25, 0.05, 0.7])
        look, seen = None, 0
        for size in sizes:
            seen += size
            look = running_interval(values[:seen], before=look)
            if look.low >= 0.05:
                break
        decided += look is not None and look.low >= 0.05
        photos += seen
    yes, no, mean = simulated_decisions(0.2, 0.3, sizes, runs=4000)
    assert no < 0.01 and abs(yes - decided / runs) < 4 * math.sqrt(0.25 / runs) and abs(mean - photos / runs) < 5
    least = simulated_decisions(0.1, 0.2, [24] * 4, runs=2000)[0]
    assert least < simulated_decisions(0.1, 0.2, [24] * 16, runs=2000)[0] < simulated_decisions(0.3, 0.4, [24] * 16)[0]


@pytest.mark.parametrize("ring", [3, 4, 6])
def test_photos_that_lend_to_each_other_in_a_ring(ring: int) -> None:
    """Right on a background of the class only if its light fits; a light belongs to both object and background."""
    rng = np.random.default_rng(11)
    fits = 0.5 * 1.5  # chance that two independent lights differ by less than a half
    missed = 0
    for _ in range(RUNS):
        light = rng.random((240 // ring, ring))
        values = (np.abs(light - np.roll(light, 1, axis=1)) < 0.5).astype(float).reshape(-1)
        looks = [running_interval(values[:end], least=0, before=None) for end in range(24, 241, 72)]
        missed += not all(look.low <= fits <= look.high for look in looks)
    assert missed <= MOST_WRONG


def grid_answers(shares: np.ndarray, answered: np.ndarray, place: dict[str, tuple[int, str]]) -> Answers:
    """Answers on two pasted conditions: always right on the own class's background, by ``shares`` on another's."""
    sources = sorted(place)
    count = len(sources)
    both = np.concatenate([np.arange(count), np.arange(count)])
    condition = np.repeat([1, 0], count)  # same_class_background, random_background
    right = np.concatenate([np.ones(count), shares])
    kept = np.concatenate([answered, answered])
    none = np.full(int(kept.sum()), -1)
    zeros = np.zeros(int(kept.sum()))
    return Answers(
        conditions=["random_background", "same_class_background"], condition=condition[kept], trained=[""],
        trained_on=np.zeros_like(none), labels=["a", "b"], label=np.zeros_like(none), sources=sources,
        source=both[kept], donor=none, donor_labels=[], donor_label=none, fold=none, n=zeros + 1, right=right[kept],
        right_restricted=right[kept], captured=zeros, captured_before=zeros, given=np.zeros((1, 2, 2)),
        same_images=frozenset(),
    )  # fmt: skip


def test_classes_stay_even_where_photos_have_no_answer() -> None:
    """Class a loses everything, class b nothing; most images of a have no answer: the effect is still one half."""
    place = {f"{label}{number:03}": (number // 10, label) for label in "ab" for number in range(40)}
    sources = sorted(place)
    lost = np.array([0.0 if name.startswith("a") else 1.0 for name in sources])
    answered = np.array([not (name.startswith("a") and int(name[1:]) % 10 > 2) for name in sources])
    evidence = SequentialEvidence(["a", "b"], place)
    effect = evidence.look(grid_answers(lost, answered, place)).background
    assert (effect.value, effect.n, evidence.left_out) == (0.5, 24, 28)
    answered &= np.array([not (name.startswith("a") and place[name][0] == 2) for name in sources])
    assert SequentialEvidence(["a", "b"], place).look(grid_answers(lost, answered, place)).background.n == 18


def test_an_empty_interval_decides_nothing_and_is_told() -> None:
    place = {f"{label}{number:03}": (number // 50, label) for label in "ab" for number in range(400)}
    evidence = SequentialEvidence(["a", "b"], place)
    sources = sorted(place)
    first = np.array([place[name][0] == 0 for name in sources])
    assert evidence.look(grid_answers(np.zeros(800), first, place)).background.low > 0.5
    later = evidence.look(grid_answers(np.where(first, 0.0, 1.0), np.ones(800, bool), place)).background
    assert evidence.contradiction and (later.low, later.high) == (-1.0, 1.0)


def counts_of(right_old: np.ndarray, right_new: np.ndarray, donors: np.ndarray | None = None) -> tuple[Counts, Counts]:
    """Two runs on the same images under one condition."""
    tables = []
    for name, right in (("old", right_old), ("new", right_new)):
        lent = None if donors is None else [f"donor{number}" for number in donors]
        tables.append(reduce(made_table(name, right, lent)))
    return tables[0], tables[1]


def made_table(model: str, right: np.ndarray, donors: list[str] | None) -> pa.Table:
    rows = [
        {
            "row_id": f"{model}{place}", "task": "classify", "kind": "photo", "dataset": "d",
            "sample_id": f"image{place}", "source_id": f"image{place}", "condition": "random_background",
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
    assert few.verdict == "undecided" and "add images and look again" in few.sentence
    row = few.conditions.iloc[0]
    assert row["low"] < 0 < row["high"] and row["n"] == 40
    shared = sequential_gate(*counts_of(right, worse, np.zeros(400, int)), margin=0.02)
    assert shared.verdict == "undecided" and "share backgrounds: random_background" in shared.sentence


@pytest.mark.parametrize("ring", [3, 8])
def test_gate_in_rounds_whose_photos_lend_to_each_other(ring: int) -> None:
    """Old and new are right if the lights of object and background fit, new less often, by exactly the margin."""
    rng = np.random.default_rng(13)
    fits = [1 - (1 - width) ** 2 for width in (0.5, 0.4)]  # two uniform lights differ by less than the width
    margin, runs, passed, failed = fits[0] - fits[1], 400, 0, 0
    for _ in range(runs):
        light = rng.random((480 // ring, ring))
        gap = np.abs(light - np.roll(light, 1, axis=1)).reshape(-1)
        values = (gap < 0.4).astype(float) - (gap < 0.5)
        looks = [_tested(values[:end], margin, 0.05)[:2] for end in range(24, 481, 24)]
        passed += any(p_pass <= 0.05 for p_pass, _ in looks)
        failed += any(p_fail <= 0.05 for _, p_fail in looks)
    most = int(binom.ppf(0.9999, runs, 0.05))
    assert passed <= most and failed <= most


def test_gate_of_a_model_at_the_margin_passes_in_at_most_5_percent_of_series_of_looks() -> None:
    rng = np.random.default_rng(5)
    runs, passed, failed = 300, 0, 0
    for _ in range(runs):
        values = rng.choice([1.0, -1.0, 0.0], 450, p=[0.1, 0.2, 0.7])  # mean −0.1
        ending = ""
        for end in range(45, 451, 45):
            p_pass, p_fail, low, high = _tested(values[:end], 0.1, 0.05)
            assert low < high
            ending = ending or ("passed" if p_pass <= 0.05 else "failed" if p_fail <= 0.05 else "")
        passed += ending == "passed"
        failed += ending == "failed"
    most = int(binom.ppf(0.9999, runs, 0.05))
    assert passed <= most and failed <= most
