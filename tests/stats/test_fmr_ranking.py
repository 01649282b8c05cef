"""Ranks by FMR: known orders are found, chance is not, and few survivors prove nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from holdfast.stats.walks.fmr import fmr, fmr_influence, fmr_ranking


def images(
    survival: dict[str, float], n: int, seed: int, *, standard: float = 0.9, validation: float = 0.8, twice: int = 1
) -> pd.DataFrame:
    """``twice`` images of each of ``n`` images, with chances of surviving an accepted walk; images differ."""
    rng = np.random.default_rng(seed)
    hard = rng.normal(0, 0.1, n)
    parts = []
    for model, keeps in survival.items():
        photo = np.repeat(np.arange(n), twice)
        right = rng.random(len(photo)) < standard
        parts.append(
            pd.DataFrame(
                {
                    "model": model,
                    "label": "fox",
                    "source_id": [f"p{one}" for one in photo],
                    "sample_id": [f"s{one}" for one in range(len(photo))],
                    "right_original": right,
                    "validated": rng.random(len(photo)) < validation,
                    "right_perturbed": right & (rng.random(len(photo)) < np.clip(keeps + hard[photo], 0, 1)),
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def test_models_far_apart_are_ranked_and_equal_ones_share_ranks() -> None:
    found = fmr_ranking(images({"weak": 0.2, "strong": 0.8, "also strong": 0.8}, 400, 1), resamples=500)
    ranks = found.table.set_index("model")["rank"].to_dict()
    assert ranks == {"strong": "1–2", "also strong": "1–2", "weak": "3"}
    assert found.reason == "" and found.sentence == "2 models share the first rank."


def test_estimates_are_those_of_the_family() -> None:
    made = images({"a": 0.5, "b": 0.6}, 60, 2)
    family = fmr(made).query("label == '' and measure == 'fmr'").set_index("model")
    table = fmr_ranking(made, resamples=200).table.set_index("model")
    for model in ("a", "b"):
        assert table.loc[model, "fmr"] == family.loc[model, "estimate"]
        assert (table.loc[model, "low"], table.loc[model, "high"]) == tuple(family.loc[model, ["low", "high"]])


def test_the_influence_is_the_derivative_of_fmr() -> None:
    made = images({"a": 0.5}, 25, 3, twice=2)
    value = fmr(made).query("label == '' and measure == 'fmr'")["estimate"].iloc[0]
    influence = fmr_influence(made)
    for place, source in enumerate(sorted(made["source_id"].unique())):
        # Weigh one image a little more, by repeating all 2,000 times and that image once more.
        counts = made["source_id"].eq(source)
        sums = {}
        for name, part in (
            ("right", made["right_original"]),
            ("validated", made["validated"]),
            ("survived", made["validated"] & made["right_perturbed"]),
            ("n", pd.Series(True, made.index)),
        ):
            sums[name] = 2000 * part.sum() + (part & counts).sum()
        moved = (sums["survived"] / sums["validated"]) / (sums["right"] / sums["n"])
        assert 2000 * (moved - value) == pytest.approx(influence[place], abs=2e-4)


def test_few_survivors_prove_nothing() -> None:
    # Four accepted images of one model, all wrong: its resampled FMR never moves from 0.
    made = images({"seldom accepted": 0.5, "other": 0.5}, 60, 4)
    few = made["model"] == "seldom accepted"
    made.loc[few, "validated"] = np.arange(few.sum()) < 4
    made.loc[few, "right_perturbed"] = False
    assert set(fmr_ranking(made, resamples=500).table["rank"]) == {"1–2"}


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"models": {"a": 0.5}}, "There is one model only."),
        ({"validation": 0.0}, "Fewer than two models have an FMR."),
        ({"standard": 0.0}, "Fewer than two models have an FMR."),
        ({"apart": True}, "No image was walked for every model."),
    ],
)
def test_what_cannot_be_ranked_says_why(change: dict[str, object], reason: str) -> None:
    change = dict(change)
    models, apart = change.pop("models", {"a": 0.5, "b": 0.5}), change.pop("apart", False)
    made = images(models, 20, 5, **change)  # type: ignore[arg-type]
    if apart:
        made["sample_id"] += made["model"]
    found = fmr_ranking(made, resamples=100)
    assert found.reason == reason and found.table.empty
