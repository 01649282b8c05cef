"""Paired differences, against closed forms, statsmodels and simulations with known truth."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_rows import table
from scipy.stats import t
from statsmodels.stats.contingency_tables import mcnemar as reference_mcnemar

from holdfast.cli.listing import print_accuracy
from holdfast.core.errors import UserError
from holdfast.stats.core.bootstrap import mcnemar
from holdfast.stats.core.reduce import Counts, reduce
from holdfast.stats.effects.drops import corrected_resampled_interval, drops, paired_effect
from holdfast.store import Run


def cells(labels: np.ndarray, right: np.ndarray, donors: np.ndarray | None = None) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "source_id": [f"s{i}" for i in range(len(labels))],
            "fold": -1,
            "label": labels.astype(str),
            "donor_id": [None] * len(labels) if donors is None else [f"d{i}" for i in donors],
            "n": 1,
            "right": right.astype(int),
        }
    )


def pairs(both: int, lost: int, gained: int, neither: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    before = np.repeat([1, 1, 0, 0], [both, lost, gained, neither])
    after = np.repeat([1, 0, 1, 0], [both, lost, gained, neither])
    labels = np.zeros(len(before), int)
    return cells(labels, before), cells(labels, after)


@given(st.integers(0, 60), st.integers(0, 60))
def test_mcnemar_is_that_of_statsmodels(lost: int, gained: int) -> None:
    theirs = reference_mcnemar([[5, lost], [gained, 5]], exact=True).pvalue
    assert mcnemar(lost, gained) == pytest.approx(theirs, abs=1e-12)


@pytest.mark.parametrize("table_", [(80, 30, 6, 4), (110, 5, 5, 0), (60, 0, 0, 60), (300, 60, 0, 40), (100, 9, 0, 11)])
def test_interval_agrees_with_bonett_and_price(table_: tuple[int, int, int, int]) -> None:
    _, lost, gained, _ = table_
    n = sum(table_)
    effect = paired_effect(*pairs(*table_), "right")
    up, down = (lost + 1) / (n + 2), (gained + 1) / (n + 2)
    half = 1.96 * np.sqrt((up + down - (up - down) ** 2) / (n + 2))
    assert (effect.n, effect.fell, effect.rose) == (n, lost, gained)
    assert effect.value == pytest.approx((lost - gained) / n)
    # a bootstrap of so few changes has coarse steps of 1 / n
    assert effect.low == pytest.approx(up - down - half, abs=1.3 / n)
    assert effect.high == pytest.approx(up - down + half, abs=1.3 / n)


def test_nothing_changed_still_leaves_a_doubt() -> None:
    effect = paired_effect(*pairs(100, 0, 0, 0), "right", average="micro")
    assert effect.low < -0.02 < 0.02 < effect.high
    everything = paired_effect(*pairs(0, 100, 0, 0), "right")
    assert 0.9 < everything.low < 0.99
    assert everything.high == 1


def test_pairing_on_the_photo_and_averaging_by_class() -> None:
    before, after = pairs(2, 2, 0, 0)
    before["label"] = after["label"] = ["a", "a", "a", "b"]
    shuffled = after.sample(frac=1, random_state=0)
    alone = cells(np.array([0]), np.array([1])).assign(source_id="only here")
    effect = paired_effect(pd.concat([before, alone]), shuffled, "right")
    assert effect.n == 4
    assert effect.value == pytest.approx((1 / 3 + 1) / 2)
    assert paired_effect(before, shuffled, "right", average="micro").value == pytest.approx(0.5)
    assert paired_effect(before, alone, "right").n == 0


def test_several_pastes_of_a_photo_count_once() -> None:
    before, after = pairs(30, 30, 0, 0)
    many = pd.concat([after.assign(donor_id=f"d{copy}") for copy in range(5)])
    once, often = paired_effect(before, after, "right"), paired_effect(before, many, "right")
    assert (often.n, often.value, often.fell) == (60, once.value, 30)
    assert often.high - often.low == pytest.approx(once.high - once.low, rel=0.5)
    assert often.high - often.low > 0.9 * (once.high - once.low)


def made(folds: dict[int, list[tuple[bool, bool]]], trained_on: str = "") -> Counts:
    rows = []
    for fold, answers in folds.items():
        for i, (before, after) in enumerate(answers):
            common = {"model": "m", "trained_on": trained_on, "source_id": f"{fold}/{i}", "fold": fold, "label": "a"}
            rows += [
                common | {"condition": "original", "correct": before},
                common | {"condition": "grey", "correct": after},
            ]
    return reduce(table(rows))


def test_drops_table() -> None:
    counts = made({-1: [(True, True)] * 6 + [(True, False)] * 3 + [(False, True)]})
    row = drops(counts).iloc[0]
    assert (row["condition"], row["n"], row["lost"], row["gained"]) == ("grey", 10, 3, 1)
    assert row["original"] - row["accuracy"] == pytest.approx(row["drop"]) == pytest.approx(0.2)
    assert row["low"] < 0 < row["drop"] < row["high"]
    assert row["p"] == pytest.approx(reference_mcnemar([[6, 3], [1, 0]], exact=True).pvalue)
    assert row["method"] == "bootstrap over images"
    assert drops(counts).equals(drops(counts))


def test_a_drop_that_is_wide_because_of_one_class_says_which(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"model": "m", "condition": name, "source_id": f"{label}{n}", "label": label,
         "correct": name == "original" or label != "rare" or n > 0}
        for name in ("original", "grey")
        for label, count in (("cat", 40), ("dog", 40), ("rare", 3))
        for n in range(count)
    ]  # fmt: skip
    run = Run(tmp_path / "run")
    run.begin({"verb": "evaluate", "dataset": "d", "classes": ["cat", "dog", "rare"], "models": ["m"], "seed": 0})
    run.predictions.write(table(rows))
    print_accuracy(run)
    said = capsys.readouterr().out
    assert "88.9 % / 88.9 %" in said  # the mean of 1, 1 and 2/3, as in the report
    assert drops(reduce(table(rows))).iloc[0]["wide_class"] == "rare"
    assert drops(reduce(table(rows)), average="micro").iloc[0]["wide_class"] == ""
    common = [row for row in rows if row["label"] != "rare"]
    assert drops(reduce(table(common))).iloc[0]["wide_class"] == ""  # of two classes one is always ahead


def test_drops_without_originals_are_empty() -> None:
    counts = reduce(table([{"model": "m", "condition": "grey", "source_id": "1", "label": "a", "correct": True}]))
    assert drops(counts).empty


def test_prompt_pairs_are_clusters() -> None:
    counts = made({-1: [(True, i // 4 % 2 == 0) for i in range(80)]})
    pair_of = {f"-1/{i}": f"pair {i // 4}" for i in range(80)}
    plain, clustered = drops(counts).iloc[0], drops(counts, clusters=pair_of).iloc[0]
    assert plain["drop"] == clustered["drop"] == pytest.approx(0.5)
    assert clustered["high"] - clustered["low"] > 1.7 * (plain["high"] - plain["low"])
    assert (clustered["lost"], clustered["method"]) == (10, "bootstrap over clusters")


def test_trained_models_get_an_interval_over_trainings() -> None:
    folds = {fold: [(True, i >= 2 + fold) for i in range(20)] for fold in range(5)}
    row = drops(made(folds, trained_on="original")).iloc[0]
    differences = np.array([0.1, 0.15, 0.2, 0.25, 0.3])
    half = t.ppf(0.975, 4) * np.sqrt((1 / 5 + 1 / 4) * differences.var(ddof=1))
    assert row["drop"] == pytest.approx(0.2)
    assert (row["low"], row["high"]) == pytest.approx((0.2 - half, 0.2 + half))
    assert "Nadeau" in row["method"]
    # folds of a model that was not trained on them are just images
    assert drops(made(folds)).iloc[0]["method"] == "bootstrap over images"


def test_corrected_interval_covers_for_overlapping_training_sets() -> None:
    rng = np.random.default_rng(24)
    k, share = 10, 0.2
    # runs correlated as Nadeau and Bengio assume: test share ρ
    common = rng.normal(size=(2000, 1)) * np.sqrt(share)
    runs = common + rng.normal(size=(2000, k)) * np.sqrt(1 - share)
    ends = np.array([corrected_resampled_interval(run, test_share=share) for run in runs])
    assert 0.93 <= np.mean((ends[:, 0] <= 0) & (ends[:, 1] >= 0)) <= 0.97
    with pytest.raises(UserError, match="two runs"):
        corrected_resampled_interval([0.1], test_share=0.2)
    with pytest.raises(UserError, match="test_share"):
        corrected_resampled_interval([0.1, 0.2], test_share=1)


@pytest.mark.parametrize("classes", [12, 1000])
def test_the_interval_of_a_hundred_thousand_rows_is_the_normal_one(classes: int) -> None:
    rng = np.random.default_rng(25)
    photos = 50_000
    labels = np.arange(photos) % classes
    first = cells(labels, rng.random(photos) < 0.9)
    second = cells(labels, rng.random(photos) < 0.7, rng.integers(0, photos, photos))
    effect = paired_effect(first, second, "right", resamples=10_000)
    assert effect.low < 0.2 < effect.high
    assert effect.high - effect.low == pytest.approx(2 * 1.96 * np.sqrt((0.09 + 0.21) / photos), rel=0.06)
