from __future__ import annotations

import numpy as np
import pytest

from holdfast.core.errors import UserError
from holdfast.stats.walks.ordering import SimulatedModel, SimulatedOracle, fmr_ordering

FIVE = [SimulatedModel(0.8, survival) for survival in (0.2, 0.25, 0.3, 0.35, 0.4)]


def test_an_oracle_that_errs_alike_for_all_models_keeps_their_order() -> None:
    perfect = fmr_ordering(FIVE, SimulatedOracle(), images=1350)
    np.testing.assert_allclose(perfect.limits, perfect.true_fmr)
    assert perfect.right_order > 0.95
    for oracle in (SimulatedOracle(0.0, 0.3), SimulatedOracle(0.5, 0.3), SimulatedOracle(0.1, 0.1, 0.2)):
        assert fmr_ordering(FIVE, oracle, images=1350).tau_in_the_limit == pytest.approx(1)


def test_a_relative_of_the_worst_model_turns_the_order() -> None:
    oracles = [SimulatedOracle(0.1, 0.1, 0.5), *[SimulatedOracle(0.1, 0.1)] * 4]
    turned = fmr_ordering(FIVE, oracles, images=1350)
    assert turned.tau_in_the_limit < 0.7 and turned.right_order < 0.05
    assert fmr_ordering(FIVE, oracles, images=100_000, samples=200).right_order < 0.05, "more images do not help"


def test_false_acceptance_can_turn_models_of_different_accuracy() -> None:
    """With b > 0 of the accepted images right for no reason, (a R + b) / SA favours a low SA."""
    models = [SimulatedModel(0.5, 0.10, 0.5, 0.6), SimulatedModel(0.9, 0.19, 0.5, 0.6)]
    assert fmr_ordering(models, SimulatedOracle(), images=100).tau_in_the_limit == pytest.approx(1)
    assert fmr_ordering(models, SimulatedOracle(1.0), images=100).tau_in_the_limit == pytest.approx(-1)


def test_the_limit_is_what_many_images_give() -> None:
    oracle = SimulatedOracle(0.3, 0.2, 0.1)
    model = SimulatedModel(0.7, 0.4, 0.8, 0.2)
    rng = np.random.default_rng(1)
    count = 400_000
    intact = rng.random(count) < model.intact
    right = rng.random(count) < np.where(intact, model.survival, model.stale)
    accepted = rng.random(count) < np.where(intact, 1 - oracle.false_rejection, oracle.false_acceptance)
    accepted = np.where(rng.random(count) < oracle.kinship, right, accepted)
    limit = fmr_ordering([model, SimulatedModel(0.7, 0.1)], oracle, images=10).limits[0]
    assert limit == pytest.approx(right[accepted].mean() / 0.7, abs=0.01)


@pytest.mark.parametrize(
    ("models", "oracle", "images", "sentence"),
    [
        (FIVE[:1], SimulatedOracle(), 10, "two models"),
        (FIVE, [SimulatedOracle()], 10, "one for each"),
        (FIVE, SimulatedOracle(1.5), 10, "share from 0 to 1"),
        (FIVE, SimulatedOracle(), 0, "1 or more"),
        ([FIVE[0], FIVE[0]], SimulatedOracle(), 10, "another true FMR"),
        ([FIVE[0], SimulatedModel(0.0, 0.1)], SimulatedOracle(), 10, "no FMR"),
    ],
)
def test_bad_input(models, oracle, images: int, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        fmr_ordering(models, oracle, images=images)
