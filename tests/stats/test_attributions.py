"""Shares, their intervals and their correlation with lost accuracy, on tables whose truth is known."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy.sparse import csr_array
from scipy.stats import spearmanr

from holdfast.core.schema import ATTRIBUTIONS
from holdfast.stats.effects.attributions import (
    COLUMNS,
    _rhos,
    cascades,
    correlations,
    drops_of,
    looks,
    ratio_of_sums,
    sanity,
    shares,
)


def made(models: int = 5, photos: int = 30, seed: int = 0, slope: float = 0.8) -> pd.DataFrame:
    """Models that look at the object by 0.2 … 0.9; under a change each loses the more the less it looks at it."""
    rng = np.random.default_rng(seed)
    rows = []
    for model in range(models):
        looks_at = 0.2 + 0.7 * model / max(models - 1, 1)
        for photo in range(photos):
            for condition in ("original", "blur", "swap"):
                right = condition == "original" or rng.random() > slope * (1 - looks_at)
                rows.append({
                    "row_id": f"{model}-{photo}-{condition}", "method": "gradcam", "target": "label",
                    "target_class": "a", "layer": "", "model": f"m{model}", "trained_on": "", "condition": condition,
                    "label": f"c{photo % 3}", "source_id": f"p{photo}", "sample_id": f"p{photo}", "status": "ok",
                    "error": None, "share": float(np.clip(looks_at + rng.normal(0, 0.05), 0, 1)), "area": 0.25,
                    "hit": looks_at > 0.5, "correct": right, "prediction": "c0", "rank_correlation": 0.1 * model,
                    "structural_similarity": 0.2, "share_randomised": 0.25, "picture": "",
                })  # fmt: skip
    return pd.DataFrame(rows)


def test_shares_are_means_with_intervals_over_photos() -> None:
    frame = made()
    frame["ratio"] = frame["share"] / frame["area"]
    table = shares(frame, resamples=500).set_index(["model", "condition"])
    own = frame[(frame["model"] == "m2") & (frame["condition"] == "blur")]
    row = table.loc[("m2", "blur")]
    assert row["share"] == pytest.approx(own["share"].mean())
    assert row["ratio"] == pytest.approx(own["share"].mean() / 0.25)
    half = 1.96 * own["share"].std() / np.sqrt(30)
    assert (row["high"] - row["low"]) / 2 == pytest.approx(half, rel=0.15)
    assert row["low"] < row["share"] < row["high"] and row["n"] == row["photos"] == 30
    before = frame[(frame["model"] == "m2") & (frame["condition"] == "original")]
    assert row["change"] == pytest.approx(own["share"].mean() - before["share"].mean())
    assert np.isnan(table.loc[("m2", "original"), "change"])


def test_empty_maps_have_no_share_and_one_photo_no_interval() -> None:
    frame = made(1, 2)
    frame.loc[frame["source_id"] == "p0", ["status", "share"]] = ["empty", np.nan]
    table = shares(frame, resamples=100)
    assert (table["empty"] == 1).all() and (table["n"] == 1).all()
    assert table["low"].isna().all() and table["share"].notna().all()
    frame["status"] = "empty"
    assert (shares(frame, resamples=100)["n"] == 0).all()


def test_repeated_pictures_of_a_photo_do_not_count_as_photos() -> None:
    rng = np.random.default_rng(1)
    level = rng.random(20)
    once = ratio_of_sums(level, np.ones(20), np.arange(20), resamples=2000, seed=0)
    often = ratio_of_sums(np.repeat(level, 5), np.ones(100), np.repeat(np.arange(20), 5), resamples=2000, seed=0)
    assert often == pytest.approx(once, rel=0.03)


def test_correlations_find_what_was_put_in() -> None:
    frame = made()
    found = correlations(frame, resamples=200).set_index("over")
    assert found.loc["models", "rho"] == -1 and found.loc["models", "n"] == 5
    assert found.loc["conditions", "high"] < 0 and found.loc["conditions", "n"] == 10
    assert found.loc["classes", "n"] == 15 and found.loc["images", "n"] == 300
    means = shares(frame, resamples=50).merge(drops_of(frame), on=["model", "trained_on", "condition"])
    assert found.loc["conditions", "rho"] == pytest.approx(spearmanr(means["share"], means["drop"]).statistic)
    merged = frame[frame["condition"] != "original"].merge(
        frame[frame["condition"] == "original"], on=["model", "source_id"], suffixes=("", "_before")
    )
    lost = merged["correct_before"].astype(float) - merged["correct"].astype(float)
    assert found.loc["images", "rho"] == pytest.approx(spearmanr(merged["share_before"], lost).statistic)
    none = correlations(made(slope=0.0), resamples=20)  # no one loses anything
    assert none["rho"].isna().all()
    few = correlations(made(models=1), resamples=20).set_index("over")
    assert np.isnan(few.loc["models", "rho"]) and np.isnan(few.loc["conditions", "rho"])


def test_intervals_of_unrelated_numbers_hold_zero() -> None:
    held = 0
    for seed in range(20):
        frame = made(seed=seed)
        frame["share"] = np.random.default_rng(seed + 100).random(len(frame))
        row = correlations(frame, resamples=100, seed=seed).set_index("over").loc["images"]
        held += row["low"] <= 0 <= row["high"]
    assert held >= 17


def test_sanity_says_which_maps_did_not_change() -> None:
    frame = made(models=8)
    found = sanity(frame, resamples=50).set_index("model")
    assert found["changed"].tolist() == [True] * 5 + [False] * 3
    assert found.loc["m3", "rank_correlation"] == pytest.approx(0.3)
    frame["rank_correlation"] = np.nan
    assert sanity(frame).empty


def test_conditions_are_named_as_in_the_counts() -> None:
    base = {"sample_id": "s", "source_id": "s", "model": "m", "trained_on": "", "label": "a", "correct": True,
            "prediction": "a", "donor_id": None}  # fmt: skip
    rows = [
        base | {"row_id": "1", "condition": "blur", "variant": "paper", "parameters": "{}"},
        base | {"row_id": "2", "condition": "blur", "variant": "severity_2", "parameters": "{}"},
        base | {"row_id": "3", "condition": "grey", "variant": "paper", "parameters": '{"a":1}'},
        base | {"row_id": "4", "condition": "grey", "variant": "paper", "parameters": '{"a":2}'},
        base | {"row_id": "5", "condition": "red", "variant": "paper", "parameters": "{}"},
    ]
    maps = pa.Table.from_pylist(
        [{"row_id": str(one), "method": "gradcam", "target": "label", "status": "ok"} for one in range(1, 5)],
        schema=ATTRIBUTIONS,
    )
    frame = looks(pa.Table.from_pylist(rows).select(COLUMNS), maps)
    assert frame["condition"].tolist() == ["blur", "blur@severity_2", 'grey {"a":1}', 'grey {"a":2}']


def test_tables_do_not_depend_on_the_order_in_which_maps_were_made() -> None:
    frame = made(models=2, photos=6)
    rows = pa.Table.from_pandas(frame.assign(variant="paper", parameters="{}", donor_id=None), preserve_index=False)
    maps = pa.Table.from_pandas(frame.assign(ratio=frame["share"] / frame["area"]), preserve_index=False)
    maps = maps.select([name for name in ATTRIBUTIONS.names if name in maps.column_names])
    mixed = maps.take(np.random.default_rng(0).permutation(len(maps)))
    first, second = (shares(looks(rows.select(COLUMNS), each), resamples=50) for each in (maps, mixed))
    pd.testing.assert_frame_equal(first, second)
    assert first["condition"].tolist() == ["original", "original", "blur", "swap", "blur", "swap"]


def test_correlations_of_resamples_leave_out_cells_that_were_not_drawn() -> None:
    rng = np.random.default_rng(3)
    photo, cell = rng.integers(0, 9, 60), rng.integers(0, 12, 60)
    share, drop = rng.integers(0, 4, 60) / 4, rng.integers(-1, 2, 60).astype(float)  # with ties
    weights = rng.integers(0, 2, (25, 9)).astype(float)
    sums = [csr_array((one, (photo, cell)), shape=(9, 12)) for one in (np.ones(60), share, drop)]
    found = _rhos(sums, weights)
    for row, value in zip(weights, found, strict=True):
        heavy = row[photo]
        cells = [at for at in range(12) if heavy[cell == at].sum() > 0]
        means = [[np.average(one[cell == at], weights=heavy[cell == at]) for at in cells] for one in (share, drop)]
        assert value == pytest.approx(spearmanr(*np.round(means, 12)).statistic)


def test_a_cascade_is_a_mean_by_depth_and_counts_maps_of_zeros() -> None:
    frame = made(2, 10)
    assert cascades(frame).empty
    original = frame["condition"] == "original"
    series = [[0.9, 0.1 * place, 0.0] for place in range(10)] * 2
    for name in ("cascade", "cascade_similarity"):
        frame[name] = None
        frame.loc[original, name] = pd.Series(series, index=frame.index[original])
    table = cascades(frame, resamples=200).set_index(["model", "stage"])
    assert len(table) == 6 and (table["n"] == 10).all()
    row = table.loc[("m1", 1)]
    assert row["rank_correlation"] == pytest.approx(0.45) and row["low"] < 0.45 < row["high"]
    assert table.loc[("m0", 2), "zero"] == 10 and table.loc[("m0", 0), "zero"] == 0
    frame["rank_correlation"] = np.where(frame["model"] == "m0", 0.0, 0.2)
    assert sanity(frame, resamples=50).set_index("model")["zero"].to_dict() == {"m0": 30, "m1": 0}
