"""Means, jackknife values and trends over several trainings that were tested on the same scenes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.lazy import scipy_stats
from holdfast.stats.core.bootstrap import Estimate, Floats

PERMUTATIONS = 20_000


class Trend(NamedTuple):
    """Tests whether a value grows with a dose.

    ``concordant``: share of the pairs of models with unlike doses in which the model with the higher dose has the
    higher value; a tie counts half (Jonckheere and Terpstra's statistic as a share).
    """

    spearman: float  # rank correlation of value and dose
    concordant: float
    p: float  # one-sided permutation p-value of ``concordant``


def mean_over_trainings(values: Floats) -> Estimate:
    """Return the mean over trainings and scenes, with an interval for other trainings and other scenes.

    Trainings are crossed with scenes, as readers are with cases in radiology (Dorfman, Berbaum and Metz 1992, degrees
    of freedom of Hillis 2007), so few trainings give a wide interval. With one training it covers other scenes only.

    ``values``: (trainings, scenes), or jackknife pseudo-values of a measure that is not a mean.
    """
    trainings, scenes = values.shape
    if scenes < 2:
        raise UserError("an interval needs two scenes or more; test on more scenes")
    mean = float(values.mean())
    by_scene = values.mean(axis=0)
    square_scenes = trainings * float(by_scene.var(ddof=1))
    if trainings == 1:
        half = float(scipy_stats.t.ppf(0.975, scenes - 1)) * float(np.sqrt(square_scenes / scenes))
        return Estimate(mean, mean - half, mean + half)
    by_training = values.mean(axis=1)
    square_trainings = scenes * float(by_training.var(ddof=1))
    rest = values - by_scene - by_training[:, None] + mean
    square_rest = float(np.square(rest).sum()) / ((trainings - 1) * (scenes - 1))
    total = square_trainings + max(square_scenes - square_rest, 0.0)
    if total == 0:
        return Estimate(mean, mean, mean)
    # If trainings do not differ, the interval is that of the scenes alone.
    freedom = (trainings - 1) * (total / square_trainings) ** 2 if square_trainings else float("inf")
    half = float(scipy_stats.t.ppf(0.975, freedom)) * float(np.sqrt(total / (trainings * scenes)))
    return Estimate(mean, mean - half, mean + half)


def cross_part_pseudo_values(right: Floats) -> Floats:
    """Return the jackknife pseudo-values (trainings, scenes) of the cross part of the robustness score.

    Their mean over scenes is the cross part without the sampling noise that squaring adds.

    ``right``: right answers (trainings, conditions, scenes), 0..1; the original is the first condition.
    """
    scenes = right.shape[2]
    sums = right.sum(axis=2, keepdims=True)
    whole = _cross(sums / scenes)
    without = _cross((sums - right) / (scenes - 1))
    return np.asarray(scenes * whole - (scenes - 1) * without)


def _cross(accuracy: Floats) -> Floats:
    """Return the mean square distance of the conditions from the original: (n, conditions, k) → (n, k)."""
    return np.asarray(np.square(accuracy[:, 1:] - accuracy[:, :1]).mean(axis=1))


def trend(doses: Floats, values: Floats, *, seed: int = 0) -> Trend:
    """Test whether ``values`` grow with ``doses``; both hold one number per model."""
    first, second = np.nonzero(doses[:, None] < doses[None, :])
    if not len(first):
        raise UserError("a trend needs models with two doses or more")
    observed = float(_concordant(values[None], first, second)[0])
    rng = np.random.default_rng(seed)
    shuffled = rng.permuted(np.tile(values, (PERMUTATIONS, 1)), axis=1)
    as_far = int((_concordant(shuffled, first, second) >= observed - 1e-12).sum())
    constant = bool(np.all(values == values[0]))
    correlation = 0.0 if constant else float(scipy_stats.spearmanr(doses, values).statistic)
    return Trend(correlation, observed, (1 + as_far) / (1 + PERMUTATIONS))


def _concordant(values: Floats, first: NDArray[np.intp], second: NDArray[np.intp]) -> Floats:
    return np.asarray((np.sign(values[:, second] - values[:, first]) + 1).mean(axis=1) / 2)
