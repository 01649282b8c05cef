"""Accuracy lost from one dataset to another: Newcombe's interval, classes, clusters, and the line of other models."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from made_grid import counts_of
from statsmodels.stats.proportion import confint_proportions_2indep

from holdfast.core.errors import UserError
from holdfast.stats.core.reduce import Counts
from holdfast.stats.models.datasets import dataset_drops, question_drops


def answers(shares: list[float], n: int, *, classes: int = 1) -> Counts:
    """Return counts in which model i is right on the first ``shares[i]`` of the images of every class."""
    place = np.arange(n) // classes / (n / classes)
    return counts_of((place[:, None] < np.array(shares)).astype(float)[:, :, None], classes=classes)


def test_the_drop_has_newcombes_interval_and_says_which_is_first() -> None:
    lost = dataset_drops({"photos": answers([0.9], 50), "hard": answers([0.375], 80)}, average="micro")
    row = lost.drops.iloc[0]
    assert row["drop"] == pytest.approx(0.9 - 0.375)
    assert (row["low"], row["high"]) == pytest.approx(confint_proportions_2indep(45, 50, 30, 80, method="newcomb"))
    assert lost.sentence.startswith("m00 loses 52.5 points (")
    assert np.isnan(row["class_low"])  # one class says nothing about others


def test_pictures_of_one_prompt_count_as_one_cluster() -> None:
    sets = {"photos": answers([0.9], 50), "hard": answers([0.375], 80)}
    prompts = {"hard": {f"image{at:05}": f"prompt{at // 8}" for at in range(80)}}
    plain, clustered = (dataset_drops(sets, average="micro", clusters=given) for given in ({}, prompts))
    assert np.ptp(clustered.drops[["low", "high"]].to_numpy()) > 1.5 * np.ptp(plain.drops[["low", "high"]].to_numpy())


def test_only_shared_classes_count_and_the_interval_over_classes_is_that_of_t() -> None:
    rng = np.random.default_rng(3)
    first, second = (
        counts_of((rng.random((n, 2, 1)) < p).astype(float), classes=6) for n, p in ((240, 0.9), (180, 0.5))
    )
    second = replace(second, cells=second.cells[second.cells["label"] != "class5"])
    lost = dataset_drops({"a": first, "b": second})
    assert lost.shared == [f"class{k}" for k in range(5)] and lost.left_out == {"a": ["class5"]}
    drops = lost.classes[lost.classes["model"] == "m00"]["drop"].to_numpy()
    row = lost.drops[lost.drops["model"] == "m00"].iloc[0]
    assert len(drops) == 5 and row["drop"] == pytest.approx(drops.mean())
    from scipy import stats

    theirs = stats.t.interval(0.95, 4, loc=drops.mean(), scale=stats.sem(drops))
    assert (row["class_low"], row["class_high"]) == pytest.approx(theirs)


def test_a_model_above_the_line_of_the_others_is_found_and_the_line_leaves_it_out() -> None:
    rng = np.random.default_rng(5)
    logit = np.array([0.2, 0.6, 1.0, 1.4, 1.8, 2.2])
    shifted = logit - 1.5
    shifted[3] += 1.5  # this one loses nothing

    def made(values: np.ndarray, n: int) -> Counts:
        return counts_of((rng.random((n, 6, 1)) < 1 / (1 + np.exp(-values))[:, None]).astype(float), classes=3)

    lost = dataset_drops({"a": made(logit, 3000), "b": made(shifted, 3000)}, resamples=500)
    table = lost.effective.table.set_index("model")
    assert table.loc["m03", "effective"] == pytest.approx(1 / (1 + np.exp(-1.4)) - 1 / (1 + np.exp(0.1)), abs=0.05)
    assert table.loc["m03", "low"] > 0.2
    assert table.loc["m03", "models"] == 5 and table.loc["m03", "slope"] == pytest.approx(1.0, abs=0.15)
    without = dataset_drops(
        {"a": made(logit, 300), "b": made(shifted, 300)}, baseline=["m00", "m01", "m02"], resamples=200
    )
    sizes = without.effective.table.set_index("model")["models"]
    assert (sizes["m05"] == 3 and sizes["m00"] == 2) or without.effective.reason


def test_what_cannot_be_compared_is_said() -> None:
    first = answers([0.9, 0.8], 40, classes=2)
    with pytest.raises(UserError, match="needs two"):
        dataset_drops({"a": first})
    other = replace(first, cells=first.cells.assign(label="else"))
    with pytest.raises(UserError, match="no class name in common"):
        dataset_drops({"a": first, "b": other})
    other = replace(first, cells=first.cells.assign(model="another"))
    with pytest.raises(UserError, match="No model was evaluated on all"):
        dataset_drops({"a": first, "b": other})
    other = replace(first, cells=first.cells.assign(condition="grey"))
    with pytest.raises(UserError, match="--scenarios original"):
        dataset_drops({"a": first, "b": other})
    with pytest.raises(UserError, match="baseline names nobody"):
        dataset_drops({"a": first, "b": first}, baseline=["nobody"])
    assert "three others" in dataset_drops({"a": first, "b": first}).effective.reason
    alike = answers([0.5] * 5, 40)
    assert "equally right" in dataset_drops({"a": alike, "b": alike}, resamples=100).effective.reason


def test_kinds_of_nuisance_are_parts_with_their_own_classes() -> None:
    hard = answers([0.4], 60, classes=3)
    cells = hard.cells.assign(
        kind="generated", condition=np.where(hard.cells["label"] == "class0", "texture", "material")
    )
    lost = dataset_drops({"photos": answers([0.9], 60, classes=3), "hard": replace(hard, cells=cells)})
    assert set(lost.drops["part"]) == {"", "texture", "material"}
    assert int(lost.drops.set_index("part").loc["texture", "n_reference"]) == 20


def test_questions_lose_by_newcombe() -> None:
    import pandas as pd

    row = {"model": "m", "kind": "two_way", "n": 50, "strict": 0.9, "strict_low": 0.79, "strict_high": 0.957}
    hard = row | {"n": 80, "strict": 0.375, "strict_low": 0.277, "strict_high": 0.485}
    table = question_drops({"a": pd.DataFrame([row]), "b": pd.DataFrame([hard])})
    theirs = confint_proportions_2indep(45, 50, 30, 80, method="newcomb")
    assert table.iloc[0]["drop"] == pytest.approx(0.525)
    assert (table.iloc[0]["low"], table.iloc[0]["high"]) == pytest.approx(theirs, abs=0.005)
