"""FMR corrected by people, on a simulation whose truth is known and against plain counting."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from holdfast.core.errors import UserError
from holdfast.stats.walks.fmr import fmr, from_counts
from holdfast.stats.walks.fmr_people import NONE_CONFIRMED, fmr_corrected

SA, VALID, RIGHT = 0.9, 0.8, {"easy": 0.6, "hard": 0.3}
CONFIRMED = {("easy", True): 0.98, ("easy", False): 0.9, ("hard", True): 0.9, ("hard", False): 0.5}


def truth() -> dict[str, float]:
    """Of endless images, half of them of each class."""
    right = sum(RIGHT[label] * CONFIRMED[label, True] for label in RIGHT) / 2
    both = right + sum((1 - RIGHT[label]) * CONFIRMED[label, False] for label in RIGHT) / 2
    accuracy = right / both
    return {
        "false_accepts": 1 - both,
        "validation_rate": VALID * both,
        "perturbed_accuracy": accuracy,
        "fmr": accuracy / SA,
    }


def walks(rng: np.random.Generator, n: int, judged: dict[str, int]) -> pd.DataFrame:
    """Images of two classes, of whose accepted ones people judge so many, drawn by chance within the class."""
    label = np.where(np.arange(n) % 2 == 0, "easy", "hard")
    valid = rng.random(n) < VALID
    right = rng.random(n) < np.vectorize(RIGHT.get)(label)
    verdict = rng.random(n) < np.array([CONFIRMED[one, bool(two)] for one, two in zip(label, right, strict=True)])
    confirmed = np.full(n, np.nan)
    for name, count in judged.items():
        chosen = rng.permutation(np.flatnonzero(valid & (label == name)))[:count]
        confirmed[chosen] = verdict[chosen]
    return pd.DataFrame(
        {
            "model": "m", "label": label, "source_id": [f"s{one}" for one in range(n)],
            "right_original": rng.random(n) < SA, "validated": valid,
            "right_perturbed": np.where(valid, right.astype(float), np.nan), "confirmed": confirmed,
        }
    )  # fmt: skip


def pooled(frame: pd.DataFrame, **options: int) -> pd.DataFrame:
    table = fmr_corrected(frame, **options)
    return table[table["label"] == ""].set_index("measure")


def test_all_judged_is_counting() -> None:
    frame = walks(np.random.default_rng(0), 400, {"easy": 400, "hard": 400})
    table = pooled(frame, resamples=200)
    kept = frame[frame["confirmed"] == 1]
    counts = from_counts(400, int(frame["right_original"].sum()), len(kept), int(kept["right_perturbed"].sum()))
    assert table.loc["fmr", "estimate"] == pytest.approx(counts.fmr)
    assert table.loc["perturbed_accuracy", "estimate"] == pytest.approx(counts.perturbed_accuracy)
    assert table.loc["validation_rate", "estimate"] == pytest.approx(counts.validation_rate)
    accepted = int(frame["validated"].sum())
    assert table.loc["false_accepts", "estimate"] == pytest.approx(1 - len(kept) / accepted)
    assert (table["judged"] == accepted).all() and (table["confirmed"] == len(kept)).all()
    plain = fmr(frame).set_index(["label", "measure"])["estimate"]
    assert table.loc["fmr", "by_oracle"] == pytest.approx(plain["", "fmr"])
    by_class = fmr_corrected(frame, resamples=50)
    assert set(by_class["label"]) == {"", "easy", "hard"}


def test_a_sample_is_unbiased_and_its_intervals_cover() -> None:
    """Classes are sampled at very different rates, as a campaign that takes the same number of each does."""
    wanted, rounds = truth(), 150
    estimates, hits = {name: [] for name in wanted}, dict.fromkeys(wanted, 0)
    for seed in range(rounds):
        frame = walks(np.random.default_rng(seed), 300, {"easy": 100, "hard": 40})
        table = pooled(frame, resamples=300, seed=seed)
        for name, value in wanted.items():
            estimates[name].append(table.loc[name, "estimate"])
            hits[name] += bool(table.loc[name, "low"] <= value <= table.loc[name, "high"])
    for name, value in wanted.items():
        spread = np.std(estimates[name]) / np.sqrt(rounds)
        assert np.mean(estimates[name]) == pytest.approx(value, abs=4 * spread + 0.004), name
        assert hits[name] >= 0.9 * rounds, name
    # Without the correction the very same runs are off by a tenth of the value.
    raw = (RIGHT["easy"] + RIGHT["hard"]) / 2 / SA
    assert abs(raw - wanted["fmr"]) > 0.06


def test_no_false_accept_found_leaves_an_interval() -> None:
    frame = walks(np.random.default_rng(3), 100, {"easy": 10, "hard": 10})
    frame["confirmed"] = frame["confirmed"].where(frame["confirmed"].isna(), 1.0)
    table = pooled(frame, resamples=500)
    row = table.loc["false_accepts"]
    assert row["estimate"] == 0 and row["low"] == 0 and 0.02 < row["high"] < 0.4
    assert table.loc["fmr", "estimate"] == pytest.approx(table.loc["fmr", "by_oracle"])


def test_why_there_is_no_value() -> None:
    frame = walks(np.random.default_rng(4), 60, {"easy": 30, "hard": 30})
    judged = frame["confirmed"].notna()
    only_right = frame.assign(confirmed=frame["confirmed"].where(frame["right_perturbed"] == 1))
    assert "gets wrong" in pooled(only_right, resamples=50).loc["fmr", "reason"]
    none = frame.assign(confirmed=np.where(judged, 0.0, np.nan))
    assert pooled(none, resamples=50).loc["fmr", "reason"] == NONE_CONFIRMED
    with pytest.raises(UserError, match="none of the run's accepted images"):
        fmr_corrected(frame.assign(confirmed=np.nan))


def test_photos_walked_twice_count_as_one() -> None:
    frame = walks(np.random.default_rng(5), 120, {"easy": 60, "hard": 60})
    twice = pd.concat([frame, frame], ignore_index=True)
    once, again = pooled(frame, resamples=400), pooled(twice, resamples=400)
    assert again.loc["fmr", "estimate"] == pytest.approx(once.loc["fmr", "estimate"])
    width = [one.loc["fmr", "high"] - one.loc["fmr", "low"] for one in (once, again)]
    assert width[1] == pytest.approx(width[0], rel=0.15)
