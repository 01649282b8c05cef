"""Does one model lose more than another under a scenario? The model × scenario interaction, clustered on images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd, scipy_stats
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.bootstrap import OF_CHANGES, RESAMPLES, Codes, Floats, donor_noise, two_way_sums
from holdfast.stats.core.grid import AnswerGrid, Lent, grid, holm, judged
from holdfast.stats.core.reduce import Counts, Outcome

Method = Literal["gee", "bootstrap"]

PHOTOS_PER_CONTRAST = 5
"""The joint Wald test inverts a matrix with a row per contrast; with fewer images each it is not to be trusted."""

PAIRS = [
    "first", "second", "condition", "drop_first", "drop_second", "difference", "low", "high", "p", "p_holm",
    "odds_ratio",
]  # fmt: skip
DROPS = ["model", "condition", "accuracy", "drop", "low", "high", "n"]


@dataclass(frozen=True)
class Interaction:
    """Whether drops differ between models. If that cannot be asked, ``reason`` says why and tables are empty.

    ``statistic``: F of the joint test (largest |t| for the bootstrap). ``pairs``: a row per two models × condition with
    the ``difference`` of their drops (positive: the first loses more), ``p``, ``p_holm`` and ``odds_ratio`` (below 1:
    the first loses more; NaN if a cell is at 0 or 100 %). ``drops``: a row per model × condition.
    """

    statistic: float
    df: tuple[float, float]  # numerator and denominator degrees of freedom; NaN for the bootstrap
    p: float  # of the joint test
    method: Method  # ``gee`` or ``bootstrap``
    explanation: str  # what was done and why, one sentence
    sentence: str  # what came out, one sentence
    pairs: pd.DataFrame
    drops: pd.DataFrame
    photos: int  # clusters
    reason: str  # why there is nothing


@dataclass(frozen=True)
class _Means:
    """Accuracy per model × condition, and what adds to its error: images, then donors beyond what images do."""

    accuracy: Floats
    contributions: Floats


def interaction(
    counts: Counts,
    *,
    outcome: Outcome = "full",
    reference_condition: str = ORIGINAL,
    conditions: Sequence[str] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Interaction:
    """Return the model × scenario interaction of a logit GEE on per-sample rows, clustered on the image.

    The model has a parameter per cell, so its estimates are the logits of the cells' accuracies, and the sandwich
    covariance follows in closed form from the residuals of the images (docs/statistics/comparing-models.md). It equals
    the result of statsmodels' GEE. If a cell is at 0 or 100 %, or there are fewer than 5 images per contrast, images
    are resampled instead, and the joint test compares the largest |t| of the differences with its distribution.
    ``conditions`` are those to compare with the reference; default: all distinct ones that contain the object.
    """
    if reference_condition not in counts.conditions:
        raise UserError(f"Drops need the condition {reference_condition!r}, which this table lacks.")
    wanted = None if conditions is None else [reference_condition, *conditions]
    laid = grid(counts, outcome=outcome, conditions=wanted)
    return interaction_of(laid, reference_condition=reference_condition, resamples=resamples, seed=seed)


def interaction_of(
    laid: AnswerGrid, *, reference_condition: str, resamples: int = RESAMPLES, seed: int = 0
) -> Interaction:
    """Return :func:`interaction` of answers that are laid out already."""
    laid = _usable(laid, reference_condition)
    reason = _why_not(laid, reference_condition)
    if reason:
        nan, tables = float("nan"), (pd.DataFrame(columns=PAIRS), pd.DataFrame(columns=DROPS))
        return Interaction(nan, (nan, nan), nan, "gee", "", reason, *tables, len(laid.sources), reason)
    means = _means(laid)
    contrasts = (len(laid.models) - 1) * (len(laid.conditions) - 1)
    separated = bool(((means.accuracy <= 0) | (means.accuracy >= 1)).any())
    photos = len(laid.sources)
    if separated or photos < PHOTOS_PER_CONTRAST * contrasts:
        why = "a cell is at 0 or 100 %, so its logit is infinite" if separated else (
            f"{photos} images are too few for a joint Wald test of {contrasts} contrasts")  # fmt: skip
        return _by_bootstrap(laid, means, why, resamples=resamples, seed=seed, separated=separated)
    return _by_gee(laid, means, contrasts)


def _usable(laid: AnswerGrid, reference: str) -> AnswerGrid:
    """Return the grid, reference first, without models that never answered it and conditions a model lacks."""
    if reference not in laid.conditions:
        return laid
    order = [laid.conditions.index(reference), *(i for i, name in enumerate(laid.conditions) if name != reference)]
    answered = laid.n.sum(axis=0) > 0
    models = np.flatnonzero(answered[:, order[0]])
    columns = np.array([i for i in order if answered[models, i].all()], np.intp)
    pick = np.ix_(np.arange(len(laid.sources)), models, columns)
    return AnswerGrid(
        laid.right[pick], laid.n[pick], laid.classes, laid.sources,
        [laid.models[i] for i in models], [laid.conditions[i] for i in columns], _lent(laid.lent, models, columns),
    )  # fmt: skip


def _lent(lent: Lent | None, models: Codes, columns: Codes) -> Lent | None:
    """Return the answers on donors' backgrounds of some models and conditions, numbered again."""
    if lent is None:
        return None
    kept = np.isin(lent.model, models) & np.isin(lent.condition, columns)
    place = np.zeros(int(columns.max()) + 1, np.intp)
    place[columns] = np.arange(len(columns))
    return Lent(
        lent.photo[kept], np.searchsorted(models, lent.model[kept]), place[lent.condition[kept]], lent.donor[kept],
        lent.right[kept], lent.n[kept],
    )  # fmt: skip


def _why_not(laid: AnswerGrid, reference: str) -> str:
    if len(laid.models) < 2:
        return "There is one model only: an interaction needs two."
    if reference not in laid.conditions or len(laid.conditions) < 2:
        return f"There is no condition other than {reference} that all models answered."
    if ((laid.n > 0).sum(axis=0) < 2).any():
        return "A model answered a condition for one image only: its error cannot be known."
    return ""


def _means(laid: AnswerGrid) -> _Means:
    rows = laid.n.sum(axis=0)
    accuracy = laid.right.sum(axis=0) / rows
    leverage = np.minimum(laid.n / rows, 1 - 1e-9)
    parts = (laid.right - laid.n * accuracy) / (rows * (1 - leverage))
    if laid.lent is not None and len(laid.lent.n):
        lent, cell = laid.lent, (laid.lent.model, laid.lent.condition)
        values = (lent.right - lent.n * accuracy[cell]) / (rows[cell] * (1 - leverage[lent.photo, *cell]))
        column = np.ravel_multi_index(cell, accuracy.shape)
        noise = donor_noise(values, lent.photo, lent.donor, column, accuracy.size)
        parts = np.concatenate([parts, noise.reshape(-1, *accuracy.shape)])
    return _Means(accuracy, parts)


def _by_gee(laid: AnswerGrid, means: _Means, contrasts: int) -> Interaction:
    photos = len(laid.sources)
    statistic, rank = _wald(means)
    # Hotelling's F expects residuals over S − 1; Mancl and DeRouen's are larger than that by S/(S − 1).
    f = statistic * photos / (photos - 1) * (photos - rank) / (rank * (photos - 1)) if rank else 0.0
    p = float(scipy_stats.f.sf(f, rank, photos - rank)) if rank else 1.0
    pairs, drops = _pairs(laid, means), _drops(laid, means)
    for table, column in ((pairs, "difference"), (drops, "drop")):
        error, estimate = table["error"].to_numpy(), table[column].to_numpy()
        # If no image differs: the exact bound for the share of images that could.
        half = np.where(error > 0, scipy_stats.t.ppf(0.975, photos - 1) * error, 1 - 0.025 ** (1 / photos))
        table["low"], table["high"] = estimate - half, estimate + half
        t = np.abs(estimate) / np.where(error > 0, error, np.inf)
        table["p"] = np.maximum(2 * scipy_stats.t.sf(t, photos - 1), 2.0 ** (1 - photos))
    explanation = (
        f"Logit GEE on {int(laid.n.sum())} rows clustered on {photos} images{_and_donors(laid)} (independence working "
        f"correlation, Mancl–DeRouen covariance); joint test of {contrasts} contrasts by Hotelling's F."
    )
    asked = f"F({rank}, {photos - rank}) = {f:.2f}, p {_words(p)}"
    df = (float(rank), float(photos - rank))
    return _finished(f, df, p, "gee", explanation, asked, pairs, drops, photos)


def _wald(means: _Means) -> tuple[float, int]:
    """Return Wald's statistic of all model × scenario terms, and the rank of their covariance."""
    slope = 1 / (means.accuracy * (1 - means.accuracy))
    logits = np.log(means.accuracy / (1 - means.accuracy))
    terms = _contrasts(logits[None])[0]
    parts = _contrasts(means.contributions * slope)
    covariance = parts.T @ parts
    scale = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    # Two conditions answered alike give one contrast twice; the repeated one carries nothing.
    kept = values > 1e-9 * max(values.max(), 1e-300)
    kept &= values > 1e-12
    projected = vectors[:, kept].T @ (terms / scale)
    return float((projected**2 / values[kept]).sum()), int(kept.sum())


def _contrasts(cells: Floats) -> Floats:
    """Return (…, contrasts) of (…, models, conditions): drops from the first condition, against the first model."""
    drops = cells[..., :, :1] - cells[..., :, 1:]
    against = drops[..., 1:, :] - drops[..., :1, :]
    return against.reshape(len(cells), -1)


def _by_bootstrap(
    laid: AnswerGrid, means: _Means, why: str, *, resamples: int, seed: int, separated: bool
) -> Interaction:
    photos = len(laid.sources)
    flat = means.contributions.reshape(len(means.contributions), -1)
    moved = two_way_sums(flat[:photos], flat[photos:], resamples=resamples, seed=seed)
    moved = moved.reshape(resamples, *means.accuracy.shape)
    slope = np.ones(means.accuracy.shape) if separated else 1 / (means.accuracy * (1 - means.accuracy))
    cells = means.accuracy if separated else np.log(means.accuracy / (1 - means.accuracy))
    statistic, p = _largest(cells, means.contributions * slope, moved * slope, photos)
    pairs, drops = _pairs(laid, means), _drops(laid, means)
    moved = moved[:, :, :1] - moved[:, :, 1:]
    drops["low"], drops["high"], _ = judged(drops["drop"].to_numpy(), moved.reshape(resamples, -1), photos)
    estimates = pairs["difference"].to_numpy().reshape(-1, len(laid.conditions) - 1)
    judgements = [
        judged(estimate, moved[:, first] - moved[:, second], photos, possible=OF_CHANGES)
        for estimate, (first, second) in zip(estimates, combinations(range(len(laid.models)), 2), strict=True)
    ]
    pairs["low"], pairs["high"], pairs["p"] = (np.concatenate(column) for column in zip(*judgements, strict=True))
    scale = "accuracies" if separated else "log odds"
    explanation = (
        f"Cluster bootstrap of the differences of drops over {photos} images{_and_donors(laid)} "
        f"({resamples} resamples; the joint test is of {scale}), because {why}."
    )
    asked = f"largest |t| = {statistic:.2f}, p {_words(p)}"
    nan = float("nan")
    return _finished(statistic, (nan, nan), p, "bootstrap", explanation, asked, pairs, drops, photos)


def _largest(cells: Floats, contributions: Floats, moved: Floats, photos: int) -> tuple[float, float]:
    """Return the largest |t| among all differences of drops, and its p-value in the resamples.

    ``cells``: (models, conditions), the reference condition first; ``contributions`` to their error and deviations
    ``moved`` in resamples have a further first axis.
    """
    parts, deviations = (values[..., :1] - values[..., 1:] for values in (contributions, moved))
    drop = cells[:, :1] - cells[:, 1:]
    statistic, largest, sure = 0.0, np.zeros(len(moved)), False
    couples = list(combinations(range(len(cells)), 2))
    for first, second in couples:
        error = np.sqrt(((parts[:, first] - parts[:, second]) ** 2).sum(axis=0))
        divisor = np.where(error > 1e-12, error, np.inf)
        estimate = np.abs(drop[first] - drop[second])
        statistic = max(statistic, float((estimate / divisor).max()))
        largest = np.maximum(largest, (np.abs(deviations[:, first] - deviations[:, second]) / divisor).max(axis=1))
        sure |= bool((estimate[error <= 1e-12] > 1e-12).any())
    p = float((1 + (largest >= statistic - 1e-12).sum()) / (len(moved) + 1)) if statistic > 0 else 1.0
    if sure:  # every image agrees that one model loses what the other keeps: a sign test of the images, for every pair
        p = min(p, drop.shape[1] * len(couples) * 2.0 ** (1 - photos))
    return statistic, p


def _pairs(laid: AnswerGrid, means: _Means) -> pd.DataFrame:
    """Return differences of drops for every two models × condition with their standard ``error``."""
    drop = means.accuracy[:, :1] - means.accuracy[:, 1:]
    parts = np.moveaxis(means.contributions[:, :, :1] - means.contributions[:, :, 1:], 2, 0)
    covariance = np.moveaxis(np.matmul(np.swapaxes(parts, 1, 2), parts), 0, 2)  # (models, models, conditions)
    first, second = np.array(list(combinations(range(len(laid.models)), 2))).T
    own = covariance[first, first] + covariance[second, second]
    variance = own - 2 * covariance[first, second]
    with np.errstate(divide="ignore", invalid="ignore"):
        logits = np.log(means.accuracy) - np.log1p(-means.accuracy)
        change = logits[:, 1:] - logits[:, :1]
        ratio = np.exp(change[first] - change[second])
    usable = np.isfinite(change[first]) & np.isfinite(change[second])
    width = len(laid.conditions) - 1
    return pd.DataFrame(
        {
            "first": np.repeat([laid.models[i] for i in first], width),
            "second": np.repeat([laid.models[i] for i in second], width),
            "condition": laid.conditions[1:] * len(first),
            "drop_first": drop[first].reshape(-1),
            "drop_second": drop[second].reshape(-1),
            "difference": (drop[first] - drop[second]).reshape(-1),
            # Two models that answer alike leave rounding behind, not a variance.
            "error": np.sqrt(np.where(variance > 1e-12 * own, variance, 0.0)).reshape(-1),
            "odds_ratio": np.where(usable, ratio, np.nan).reshape(-1),
        }
    )


def _drops(laid: AnswerGrid, means: _Means) -> pd.DataFrame:
    """Return accuracy and drop of every model × condition, with its standard ``error``."""
    parts = means.contributions[:, :, :1] - means.contributions[:, :, 1:]
    width = len(laid.conditions) - 1
    return pd.DataFrame(
        {
            "model": np.repeat(laid.models, width),
            "condition": laid.conditions[1:] * len(laid.models),
            "accuracy": means.accuracy[:, 1:].reshape(-1),
            "drop": (means.accuracy[:, :1] - means.accuracy[:, 1:]).reshape(-1),
            "error": np.sqrt((parts**2).sum(axis=0)).reshape(-1),
            "n": laid.n.sum(axis=0)[:, 1:].reshape(-1).astype(int),
        }
    )


def _finished(
    statistic: float, df: tuple[float, float], p: float, method: Method, explanation: str, asked: str,
    pairs: pd.DataFrame, drops: pd.DataFrame, photos: int,
) -> Interaction:  # fmt: skip
    pairs["p_holm"] = holm(pairs["p"].to_numpy())
    outcome = "Scenarios cost some models more than others" if p < 0.05 else (
        "No evidence that one model loses more than another under any scenario")  # fmt: skip
    sentence = f"{outcome} ({asked})."
    return Interaction(statistic, df, p, method, explanation, sentence, pairs[PAIRS], drops[DROPS], photos, "")


def _and_donors(laid: AnswerGrid) -> str:
    return "" if laid.lent is None else f" and {len(np.unique(laid.lent.donor))} donors"


def _words(p: float) -> str:
    return "< .0001" if p < 0.0001 else f"= {p:.4f}"
