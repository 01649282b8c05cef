"""When FMR puts models in the right order: its value for endless images, and chances for as many as there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.lazy import scipy_stats


@dataclass(frozen=True)
class SimulatedModel:
    """What decides a model's FMR; every value is a share, 0 to 1.

    ``survival``: right on a changed image that still shows its class. FMR with a perfect oracle is survival / accuracy.
    """

    accuracy: float  # right on originals (SA)
    survival: float
    intact: float = 0.9  # changed images that still show their class
    stale: float = 0.1  # answers with the old class if the class is gone


@dataclass(frozen=True)
class SimulatedOracle:
    """How an oracle errs; every value is a share, 0 to 1."""

    false_acceptance: float = 0.0  # images without the class that it accepts
    false_rejection: float = 0.0  # images with the class that it rejects
    kinship: float = 0.0  # images on which it judges as the model does, accepting those that the model gets right


@dataclass(frozen=True)
class OrderingForecast:
    """How FMR orders models."""

    true_fmr: tuple[float, ...]  # of each model, with a perfect oracle
    limits: tuple[float, ...]  # FMR with this oracle and endless images
    tau_in_the_limit: float  # Kendall's τ between the two; 1 if the oracle changes no order
    tau: float  # its mean over simulated samples
    right_order: float  # share of the samples in which all models are in the true order


def fmr_ordering(
    models: Sequence[SimulatedModel],
    oracle: SimulatedOracle | Sequence[SimulatedOracle],
    *,
    images: int,
    samples: int = 2000,
    seed: int = 0,
) -> OrderingForecast:
    """Return how FMR would order models of known robustness.

    ``oracle``: one for all models, or one for each (a relative of one of them, say). ``images``: in a sample, the same
    number for each model; samples of the models are independent.
    """
    oracles = [oracle] * len(models) if isinstance(oracle, SimulatedOracle) else list(oracle)
    if len(models) < 2 or len(oracles) != len(models):
        raise UserError("an order needs two models or more, and one oracle for all or one for each")
    if images < 1 or samples < 1:
        raise UserError(f"images and samples must be 1 or more, not {images} and {samples}")
    for values in [*(asdict(model) for model in models), *(asdict(judge) for judge in oracles)]:
        for name, value in values.items():
            if not 0 <= value <= 1:
                raise UserError(f"{name} is a share from 0 to 1, not {value}")
    if not all(model.accuracy for model in models):
        raise UserError("a model whose accuracy is 0 has no FMR")
    truth = [model.survival / model.accuracy for model in models]
    if len(set(truth)) < len(truth):
        raise UserError("every model needs another true FMR, and two have the same")
    shares = [_accepted(model, judge) for model, judge in zip(models, oracles, strict=True)]
    limits = [
        right / (right + wrong) / model.accuracy if right + wrong else float("nan")
        for model, (right, wrong) in zip(models, shares, strict=True)
    ]
    rng = np.random.default_rng(seed)
    drawn = []
    for model, (right, wrong) in zip(models, shares, strict=True):
        counts = rng.multinomial(images, [right, wrong, max(0.0, 1 - right - wrong)], samples)
        originals = rng.binomial(images, model.accuracy, samples) / images
        with np.errstate(invalid="ignore", divide="ignore"):
            drawn.append(counts[:, 0] / (counts[:, 0] + counts[:, 1]) / originals)
    estimates = np.nan_to_num(np.stack(drawn, 1), nan=0.0, posinf=0.0)
    taus = [_tau(truth, row) for row in estimates]
    order = np.argsort(truth)
    in_order = (np.diff(estimates[:, order], axis=1) > 0).all(1)
    return OrderingForecast(
        tuple(truth), tuple(limits), _tau(truth, limits), float(np.mean(taus)), float(in_order.mean())
    )


def _accepted(model: SimulatedModel, oracle: SimulatedOracle) -> tuple[float, float]:
    """Return the shares of images that are accepted and answered rightly, and accepted and answered wrongly."""
    right = wrong = 0.0
    for share, chance, accepted in (
        (model.intact, model.survival, 1 - oracle.false_rejection),
        (1 - model.intact, model.stale, oracle.false_acceptance),
    ):
        right += share * chance * ((1 - oracle.kinship) * accepted + oracle.kinship)
        wrong += share * (1 - chance) * (1 - oracle.kinship) * accepted
    return right, wrong


def _tau(truth: Sequence[float], estimates: Sequence[float]) -> float:
    value = float(scipy_stats.kendalltau(truth, estimates).statistic)
    return 0.0 if np.isnan(value) else value
