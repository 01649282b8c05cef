"""What predicts transfer: planted causes are found, independent models have none."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.metrics import cohen_kappa_score
from sklearn.model_selection import LeaveOneGroupOut, cross_val_predict

from holdfast.stats.hard.transfer import PROPERTIES, transfer_cases, transfer_predictors


def world(
    shared: np.ndarray, *, images: int = 4_000, rate: float = 0.3, seed: int = 0
) -> tuple[pd.DataFrame, pd.Series]:
    """Models that fail with a common cause (by its share per model) or by themselves; a half of the images mined."""
    rng = np.random.default_rng(seed)
    common, own = rng.random(images) < rate, rng.random((images, len(shared))) < rate
    failed = np.where(rng.random((images, len(shared))) < shared, common[:, None], own)
    frame = pd.DataFrame(failed, columns=[f"model {place}" for place in range(len(shared))])
    return frame, pd.Series(np.arange(images) % 2 == 0)


def test_properties_are_those_of_the_other_half() -> None:
    failed, mined = world(np.array([0.9, 0.5, 0.2]))
    cases = transfer_cases(failed, mined, pd.Series({"model 0": "resnet", "model 1": "resnet", "model 2": "vit"}))
    row = cases[cases["target"] == "model 0"].iloc[0]
    known, asked = failed[~mined], failed[mined]
    hard = asked[asked["model 1"] & asked["model 2"]]
    assert (row["n"], row["failed"]) == (len(hard), pytest.approx(hard["model 0"].mean()))
    kappas = [cohen_kappa_score(known["model 0"], known[other]) for other in ("model 1", "model 2")]
    assert row["agreement"] == pytest.approx(np.mean(kappas))
    assert (row["kin"], row["failures"]) == (0.5, pytest.approx(known["model 0"].mean()))


def test_a_planted_common_cause_is_found_in_agreement() -> None:
    failed, mined = world(np.linspace(0.1, 0.9, 8))
    table = transfer_predictors(transfer_cases(failed, mined, pd.Series(dtype=str))).set_index("property")
    assert table.loc["agreement", "gain_low"] > 0.03 and table.loc["agreement", "slope"] > 0
    assert table.loc["agreement", "error"] < 0.5 * table.loc["none", "error"]
    assert abs(table.loc["failures", "gain"]) < 0.05
    assert "kin" not in table.index and (table["targets"] == 8).all()


def test_independent_models_have_nothing_to_predict() -> None:
    gains = []
    for seed in range(20):
        failed, mined = world(np.zeros(7), images=1_500, seed=seed)
        table = transfer_predictors(transfer_cases(failed, mined, pd.Series(dtype=str))).set_index("property")
        gains.append(table.loc["agreement", "gain_low"] > 0)
    assert sum(gains) <= 3


def test_a_left_out_target_is_predicted_as_scikit_learn_does() -> None:
    failed, mined = world(np.linspace(0.2, 0.8, 6))
    cases = transfer_cases(failed, mined, pd.Series(dtype=str))
    weights = (cases["n"] / cases.groupby("target")["n"].transform("sum")).to_numpy()
    predicted = cross_val_predict(
        LinearRegression(), cases[["agreement"]], cases["failed"], groups=cases["target"], cv=LeaveOneGroupOut(),
        params={"sample_weight": weights},
    )  # fmt: skip
    wrong = np.abs(np.clip(predicted, 0, 1) - cases["failed"])
    errors = [np.average(wrong[own.index], weights=own["n"]) for _, own in cases.groupby("target")]
    table = transfer_predictors(cases).set_index("property")
    assert table.loc["agreement", "error"] == pytest.approx(np.mean(errors))


def test_too_few_models_or_images_have_no_table() -> None:
    failed, mined = world(np.full(3, 0.5))
    assert transfer_predictors(transfer_cases(failed, mined, pd.Series(dtype=str))).empty
    assert transfer_cases(failed.iloc[:4], mined.iloc[:4], pd.Series(dtype=str)).empty
    assert set(PROPERTIES) <= set(transfer_cases(failed, mined, pd.Series(dtype=str)).columns)
