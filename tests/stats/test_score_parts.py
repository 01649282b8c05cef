"""What each scenario adds to the score: the formula on plain accuracies, and intervals that hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
from made_rows import table
from scipy.stats import norm

from holdfast.stats.core.reduce import reduce
from holdfast.stats.effects.score import WHOLE, robustness_score, score_parts, scores

SCENES = ("original", "a", "b", "c")
ACROSS, WITHIN = np.array([0.9, 0.88, 0.6, 0.3]), np.array([0.9, 0.95, 0.85, 0.5])


def answers(photos: int, seed: int) -> list[dict[str, object]]:
    """Of one network trained on originals and within each scene, correlated within an image."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal(photos)
    rows = []
    for place, scene in enumerate(SCENES):
        for trained_on, accuracy in (("original", ACROSS), (scene, WITHIN)):
            if scene == trained_on == "original" and accuracy is WITHIN:
                continue
            right = np.sqrt(0.5) * (shared + rng.standard_normal(photos)) < norm.ppf(accuracy[place])
            rows += [
                {"model": "m", "trained_on": trained_on, "condition": scene, "label": f"class_{photo % 3}",
                 "source_id": f"photo_{photo}", "correct": bool(right[photo]), "fold": photo % 2}
                for photo in range(photos)
            ]  # fmt: skip
    return rows


def test_parts_are_the_formula_on_the_accuracies() -> None:
    made = answers(120, 0)
    share = {
        (trained_on, scene): np.mean([
            row["correct"] for row in made if (row["trained_on"], row["condition"]) == (trained_on, scene)
        ])
        for trained_on, scene in {(row["trained_on"], row["condition"]) for row in made}
    }  # fmt: skip
    expected = robustness_score(
        {scene: share["original", scene] for scene in SCENES[1:]},
        {scene: share[scene, scene] for scene in SCENES[1:]},
        mu_cross=share["original", "original"],
    )
    counts = reduce(table(made))
    found = score_parts(counts, resamples=200).set_index(["part", "condition"])
    for part, squares, variance in (
        ("cross", expected.squared_cross, expected.variance_cross),
        ("inner", expected.squared_inner, expected.variance_inner),
    ):
        for scene in SCENES[1:]:
            assert found.loc[(part, scene), "squared"] == pytest.approx(squares[scene])
            assert found.loc[(part, scene), "deviation"] ** 2 == pytest.approx(squares[scene])
        assert found.loc[(part, WHOLE), "squared"] == pytest.approx(variance)
    assert (found["low"] <= found["squared"]).all() and (found["squared"] <= found["high"]).all()
    score = scores(counts, resamples=200).iloc[0]
    assert score["score"] == pytest.approx(1 - found.xs(WHOLE, level="condition")["squared"].sum())


def test_intervals_hold_the_truth() -> None:
    true = {("cross", scene): (ACROSS[place] - ACROSS[0]) ** 2 for place, scene in enumerate(SCENES) if place}
    true |= {("inner", scene): (WITHIN[place] - ACROSS[0]) ** 2 for place, scene in enumerate(SCENES) if place}
    for part in ("cross", "inner"):
        true[part, WHOLE] = float(np.mean([true[part, scene] for scene in SCENES[1:]]))
    made = [row | {"model": f"m{seed}"} for seed in range(16) for row in answers(60, seed)]
    found = score_parts(reduce(table(made)), resamples=200).set_index(["part", "condition"])
    assert found["model"].nunique() == 16
    held = [
        row["low"] <= value <= row["high"] for key, value in true.items() for row in found.loc[[key]].to_dict("records")
    ]
    assert len(held) == 128 and 0.88 < np.mean(held) < 1  # intervals of 95 %
