"""Three ResNets that differ in the ρ of their training scenes alone are ordered as ρ says."""

from __future__ import annotations

import pandas as pd
import pytest

import holdfast
from holdfast.stats.effects.drops import Effect, paired_effect

MODELS = ["embedded:resnet_rho0", "embedded:resnet_rho80", "embedded:resnet_rho95"]
# At 64 px all three read the object so well that background effects of 0 to 5 points take many more scenes to
# order. At 24 px the object is hard to read, and what a model falls back on shows.
SCENES = "diorama:test?n=192&context=0.95&size=24"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> holdfast.Results:
    conditions = "original,same_class_background,random_background,only_background,blur_background,blur_object"
    out = tmp_path_factory.mktemp("resnets")
    return holdfast.evaluate(SCENES, models=MODELS, out=out, scenarios=conditions, device="cpu", batch_size=64)


def part(run: holdfast.Results, model: str, condition: str) -> pd.DataFrame:
    cells = run.counts.cells
    return cells[(cells["model"] == model) & (cells["condition"] == condition)]


def difference_of_background_effects(run: holdfast.Results, more: str, less: str) -> Effect:
    """Half of it, paired by scene: a scene's share is the mean over its two cells on either side."""
    first = pd.concat([part(run, more, "same_class_background"), part(run, less, "random_background")])
    second = pd.concat([part(run, more, "random_background"), part(run, less, "same_class_background")])
    return paired_effect(first, second, "right", resamples=2000)


@pytest.mark.parametrize(("less", "more"), [(0, 1), (1, 2), (0, 2)])
def test_background_effects_are_ordered(run: holdfast.Results, less: int, more: int) -> None:
    found = difference_of_background_effects(run, MODELS[more], MODELS[less])
    effects = run.verdicts(resamples=200).set_index("model")["background_effect"]
    assert 2 * found.value == pytest.approx(effects[MODELS[more]] - effects[MODELS[less]])
    assert found.low > 0, found


def test_answers_to_backgrounds_alone_are_ordered(run: holdfast.Results) -> None:
    for less, more in ((0, 1), (1, 2)):
        shown = [part(run, MODELS[place], "only_background") for place in (more, less)]
        found = paired_effect(*shown, "right_restricted", resamples=2000)
        assert found.low > 0, found
    nothing_learned = run.verdicts(outcome="restricted", resamples=200).set_index("model").loc[MODELS[0]]
    assert nothing_learned["only_background_excess_low"] < 0.02


def test_the_cross_part_is_ordered_where_the_object_is_kept(run: holdfast.Results) -> None:
    found = run.scores(over="background").set_index("model").loc[MODELS]
    assert set(found["n_conditions"]) == {2}  # blur_background and random_background, not blur_object
    assert found["variance_cross"].is_monotonic_increasing
    assert found["high"].iloc[2] < found["low"].iloc[0]


def test_a_damaged_object_turns_the_published_score_around(run: holdfast.Results) -> None:
    """Why the score over the background is next to the published one.

    With its object blurred, a scene at home rewards anyone who reads homes.
    """
    accuracy = run.accuracy().pivot(index="model", columns="condition", values="accuracy").loc[MODELS]
    assert accuracy["blur_object"].is_monotonic_increasing
    blurred = run.scores(conditions=["blur_object"]).set_index("model")["variance_cross"]
    assert blurred.idxmax() == MODELS[0]
    assert run.scores().set_index("model")["score"].idxmax() != MODELS[0]
