"""Models against each other: pairs, ranks, agreement of rankings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd
from holdfast.stats.core.bootstrap import RESAMPLES, Floats, mcnemar, resampled_sums, two_way_sums
from holdfast.stats.core.cells import Average
from holdfast.stats.core.grid import AnswerGrid, averages, donor_rows, grid, holm, judged
from holdfast.stats.core.reduce import Counts, Outcome
from holdfast.stats.models.ranks import clearly_better, ranks_of
from holdfast.stats.models.ranks import kendall as kendall

COLUMNS_AT_A_TIME = 400  # Columns resampled together: 10,000 resamples of them are 32 MB

PAIRS = [
    "first", "second", "condition", "accuracy_first", "accuracy_second", "difference", "low", "high", "p", "p_holm",
    "n", "first_only", "second_only",
]  # fmt: skip
RANKS = ["model", "accuracy", "low", "high", "rank", "rank_low", "rank_high", "n"]


@dataclass(frozen=True)
class Between:
    """A table, or the ``reason`` why it is empty. ``sentence`` says what came out."""

    table: pd.DataFrame
    sentence: str
    reason: str


def pairs(
    counts: Counts,
    *,
    outcome: Outcome = "full",
    average: Average = "macro",
    by_condition: bool = False,
    conditions: Sequence[str] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Between:
    """Return the difference of every two models, paired on the image.

    The mean over conditions of the mean over classes (macro) or images (micro), with a cluster bootstrap over images,
    stretched to the two-way variance if images share donors; p inverts it, or, by condition, is McNemar's exact test
    (with donors the larger of both). Holm's correction runs over all rows of the table. ``first_only`` and
    ``second_only``: images that only one got right. ``by_condition``: a row per condition instead of their mean.
    ``conditions``: which; by default all distinct ones that leave the object in.
    """
    laid = grid(counts, outcome=outcome, conditions=conditions)
    if len(laid.models) < 2:
        return Between(pd.DataFrame(columns=PAIRS), _ALONE, _ALONE)
    rate = laid.rate()
    rows, contributions = [], []
    for first, second in combinations(range(len(laid.models)), 2):
        for row, part in _pair_rows(laid, rate, first, second, average, by_condition):
            rows.append(row)
            contributions.append(part)
    if not rows:
        reason = "No two models answered the same images under the same condition."
        return Between(pd.DataFrame(columns=PAIRS), reason, reason)
    table = pd.DataFrame(rows)
    blocks = []
    for start in range(0, len(table), COLUMNS_AT_A_TIME):
        part = np.stack(contributions[start : start + COLUMNS_AT_A_TIME], axis=1)
        moved = resampled_sums(part, np.arange(len(part)), resamples=resamples, seed=seed)
        some = table.iloc[start : start + COLUMNS_AT_A_TIME]
        blocks.append(judged(some["difference"].to_numpy(np.float64), moved, some["n"].to_numpy(np.intp)))
    table["low"], table["high"], p = (np.concatenate(column) for column in zip(*blocks, strict=True))
    exact = mcnemar(table["first_only"], table["second_only"])
    pasted = set() if laid.lent is None else {laid.conditions[at] for at in np.unique(laid.lent.condition)}
    shared = table["condition"].isin(pasted).to_numpy()
    table["p"] = np.where(shared, np.maximum(exact, p), exact) if by_condition else p
    table["p_holm"] = holm(table["p"].to_numpy())
    apart = int((table["p_holm"] < 0.05).sum())
    what = "comparisons by condition" if by_condition else "pairs of models"
    return Between(table[PAIRS], f"{apart} of {len(table)} {what} can be distinguished (Holm, 5 %).", "")


_ALONE = "There is one model only: nothing to compare it with."


def _pair_rows(
    laid: AnswerGrid, rate: Floats, first: int, second: int, average: Average, by_condition: bool
) -> list[tuple[dict[str, object], Floats]]:
    """Return rows of one pair with the images' contributions to the error of the difference, (images,) each."""
    both = ~np.isnan(rate[:, first]) & ~np.isnan(rate[:, second])
    columns = np.flatnonzero(both.any(axis=0))
    if not len(columns):
        return []
    ours, theirs = (np.where(both, rate[:, model], np.nan)[:, columns] for model in (first, second))
    means, others = averages(ours, laid.classes, average)[0], averages(theirs, laid.classes, average)[0]
    difference, parts = averages(ours - theirs, laid.classes, average)
    groups = [[i] for i in range(len(columns))] if by_condition else [list(range(len(columns)))]
    rows: list[tuple[dict[str, object], Floats]] = []
    for group in groups:
        gain = np.nansum((ours - theirs)[:, group], axis=1)
        row: dict[str, object] = {
            "first": laid.models[first],
            "second": laid.models[second],
            "condition": laid.conditions[columns[group[0]]] if by_condition else "",
            "accuracy_first": float(means[group].mean()),
            "accuracy_second": float(others[group].mean()),
            "difference": float(difference[group].mean()),
            "n": int(both[:, columns[group]].any(axis=1).sum()),
            "first_only": int((gain > 1e-12).sum()),
            "second_only": int((gain < -1e-12).sum()),
        }
        part = parts[:, group].mean(axis=1)
        noise = float((part**2).sum())
        places, weight = np.full(rate.shape[1:], -1), np.zeros(rate.shape[1:])
        places[[[first], [second]], columns[group]] = 0
        weight[first], weight[second] = 1 / len(group), -1 / len(group)
        answered = np.where(both[:, None], rate, np.nan)
        donors = donor_rows(laid, answered, average, places, weight) if noise > 0 else None
        # the root of the two-way variance over that of images alone
        stretch = 1.0 if donors is None else float(np.sqrt(1 + (donors**2).sum() / noise))
        rows.append((row, part * stretch))
    return rows


@dataclass(frozen=True)
class Common:
    """Accuracies of all models on the images that all of them answered."""

    models: list[str]
    conditions: list[str]
    accuracy: Floats  # (models, conditions), 0..1
    resampled: Floats  # (resamples, models, conditions), accuracies in resamples of images and donors
    answered: NDArray[np.bool_]  # (images, conditions) which images all models answered

    @cached_property
    def n(self) -> NDArray[np.intp]:
        """Return the number of images of each condition, (conditions,)."""
        return np.asarray(self.answered.sum(axis=0))

    @cached_property
    def photos(self) -> int:
        """Return the number of images in all conditions together."""
        return int(self.answered.any(axis=1).sum())

    @property
    def everything(self) -> Floats:
        """Return the accuracies and, behind them, those of the resamples, (1 + resamples, models, conditions)."""
        return np.concatenate([self.accuracy[None], self.resampled])


class AverageOptions(TypedDict, total=False):
    """What is averaged over which answers: the options of ``common``."""

    outcome: Outcome
    average: Average
    conditions: Sequence[str] | None
    resamples: int
    seed: int


def common(
    counts: Counts,
    *,
    outcome: Outcome = "full",
    average: Average = "macro",
    conditions: Sequence[str] | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> Common:
    """Return accuracies per model × condition on the images that all models answered, and in resamples.

    A condition in which no image was answered by all is left out.
    """
    laid = grid(counts, outcome=outcome, conditions=conditions)
    rate = laid.rate()
    shared = np.asarray(~np.isnan(rate).any(axis=1))
    kept = np.flatnonzero(shared.any(axis=0)) if len(laid.models) else np.zeros(0, np.intp)
    rate = np.where(shared[:, None, :], rate, np.nan)[:, :, kept]
    shape = (len(laid.models), len(kept))
    estimate, parts = averages(rate.reshape(len(rate), shape[0] * shape[1]), laid.classes, average)
    if parts.size:
        places = np.full(laid.n.shape[1:], -1)
        places[:, kept] = np.arange(parts.shape[1]).reshape(shape)
        donors = donor_rows(laid, np.where(shared[:, None, :], laid.rate(), np.nan), average, places)
        moved = two_way_sums(parts, donors, resamples=resamples, seed=seed)
    else:
        moved = np.zeros((resamples, 0))
    return Common(
        laid.models,
        [laid.conditions[i] for i in kept],
        estimate.reshape(shape),
        (estimate + moved).reshape(resamples, *shape),
        shared[:, kept],
    )


def ranking(counts: Counts, *, level: float = 0.95, **options: Unpack[AverageOptions]) -> Between:
    """Return the models by accuracy, averaged over conditions; those not distinguished share their ranks.

    Differences are held against the ``level`` quantile of the largest deviation over all pairs in resamples of images
    and donors (max-t), so that all claims hold together. A model's rank runs from 1 + the number of models clearly
    better to the number of models − those clearly worse: "1–3". ``low`` and ``high`` are simultaneous over models.
    """
    shared = common(counts, **options)
    if not shared.conditions:
        reason = "There is no image that every model answered under a common condition."
        return Between(pd.DataFrame(columns=RANKS), reason, reason)
    accuracy = shared.accuracy.mean(axis=1)
    moved = shared.resampled.mean(axis=2) - accuracy
    half = _simultaneous(moved, shared.photos, level)
    ends = {"low": np.clip(accuracy - half, 0, 1), "high": np.clip(accuracy + half, 0, 1)}
    ranks = ranks_of(clearly_better(accuracy, moved, shared.photos, level))
    table = in_ranks({"model": shared.models, "accuracy": accuracy, **ends, "n": shared.photos}, ranks, RANKS)
    return Between(table.table, _ALONE, _ALONE) if len(accuracy) == 1 else table


def in_ranks(
    values: Mapping[str, Any], ranks: tuple[NDArray[np.intp], NDArray[np.intp]], columns: Sequence[str]
) -> Between:
    """Return models with their first and last ranks, the largest value (the second of ``columns``) first."""
    lows, highs = ranks
    words = [f"{a}" if a == b else f"{a}–{b}" for a, b in zip(lows, highs, strict=True)]
    table = pd.DataFrame({**values, "rank": words, "rank_low": lows, "rank_high": highs})
    table = table.sort_values(columns[1], ascending=False, kind="stable", ignore_index=True)[list(columns)]
    first = table.loc[table["rank_low"] == 1, "model"]
    sentence = f"{first.iloc[0]} is first." if len(first) == 1 else f"{len(first)} models share the first rank."
    return Between(table, sentence, "")


def _simultaneous(moved: Floats, photos: int, level: float) -> Floats:
    """Return half widths that hold for all columns at once; (columns,)."""
    spread = moved.std(axis=0)
    moving = spread > 1e-12
    exact = 1 - ((1 - level) / 2 / len(spread)) ** (1 / photos)  # all images alike: Bonferroni over exact bounds
    if not moving.any():
        return np.full(len(spread), exact)
    largest = (np.abs(moved[:, moving]) / spread[moving]).max(axis=1)
    return np.asarray(np.where(moving, np.quantile(largest, level) * spread, exact), np.float64)


def rank_agreement(
    counts: Counts, first: Sequence[str], second: Sequence[str], **options: Unpack[AverageOptions]
) -> dict[str, float | int | str]:
    """Return Kendall's τ between the models' order under some conditions and under others."""
    if not first or not second:
        raise UserError("Name at least one condition for each of the two rankings.")
    shared = common(counts, **options | AverageOptions(conditions=[*first, *second]))
    scores, samples = [], []
    for wanted in (first, second):
        columns = [i for i, name in enumerate(shared.conditions) if name in set(wanted)]
        if not columns:
            nan = float("nan")
            reason = "No image under these conditions was answered by every model."
            return {"tau": nan, "low": nan, "high": nan, "p": nan, "n": len(shared.models), "reason": reason}
        scores.append(dict(zip(shared.models, shared.accuracy[:, columns].mean(axis=1).tolist(), strict=True)))
        samples.append(shared.resampled[:, :, columns].mean(axis=2))
    return kendall(scores[0], scores[1], first_samples=samples[0], second_samples=samples[1])
