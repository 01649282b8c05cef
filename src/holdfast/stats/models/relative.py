"""Robustness of a model in the light of others: effective, relative, and error ratios."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd, scipy_special
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.bootstrap import OF_CHANGES, Floats, interval
from holdfast.stats.core.grid import judged
from holdfast.stats.core.reduce import Counts
from holdfast.stats.models.between import AverageOptions, Between, Common, common

MEAN = "mean"  # The row that averages over conditions

EFFECTIVE = ["model", "condition", "clean", "shifted", "predicted", "effective", "low", "high", "slope", "n"]
RELATIVE = ["model", "condition", "drop", "reference_drop", "difference", "low", "high", "p", "ratio", "n"]
ERRORS = ["model", "condition", "error", "reference_error", "ratio", "low", "high", "n"]


def effective_robustness(
    counts: Counts, *, baseline: Sequence[str] | None = None, clean: str = ORIGINAL, **sample: Unpack[AverageOptions]
) -> Between:
    """Return accuracy under a shift minus what the clean accuracy predicts.

    Per condition, logit(shifted) = a + b logit(clean) by least squares over the ``baseline`` models (by default all).
    Accuracies are taken as (n p + ½)/(n + 1), so that 0 and 1 have logits. The interval resamples images and fits the
    line again.
    """
    shared = _shared(counts, clean, sample)
    line = [i for i, name in enumerate(shared.models) if baseline is None or name in set(baseline)]
    reason = ""
    if clean not in shared.conditions or len(shared.conditions) < 2:
        reason = f"There is no condition other than {clean} with images that every model answered."
    elif len(line) < 3:
        reason = f"A line through {len(line)} models predicts nothing: effective robustness needs at least 3."
    elif np.ptp(shared.accuracy[line, 0]) < 1e-9:
        reason = "All models are equally right on clean images, so clean accuracy predicts nothing."
    if reason:
        return Between(pd.DataFrame(columns=EFFECTIVE), reason, reason)
    frames = []
    everything = shared.everything
    for column in range(1, len(shared.conditions)):
        n = float(min(shared.n[0], shared.n[column]))
        fitted, slope = through(logits(everything[:, :, 0], n), logits(everything[:, :, column], n), line)
        predicted = np.asarray(scipy_special.expit(fitted))
        effective = everything[:, :, column] - predicted
        low, high = interval(effective[1:])
        row = {"model": shared.models, "condition": shared.conditions[column], "clean": shared.accuracy[:, 0]}
        row |= {"shifted": shared.accuracy[:, column], "predicted": predicted[0], "effective": effective[0]}
        frames.append(pd.DataFrame(row | {"low": low, "high": high, "slope": slope[0], "n": int(n)}))
    table = pd.concat(frames, ignore_index=True)
    clear = int(((table["low"] > 0) | (table["high"] < 0)).sum())
    return Between(table, f"{clear} of {len(table)} lie clearly off the line.", "")


def logits(accuracy: Floats, n: float) -> Floats:
    """Return log odds of accuracies of n images, taken as (n p + ½)/(n + 1), so that 0 and 1 have some."""
    return np.asarray(scipy_special.logit((n * np.clip(accuracy, 0, 1) + 0.5) / (n + 1)))


def through(x: Floats, y: Floats, line: list[int]) -> tuple[Floats, Floats]:
    """Return the least-squares line through the columns in ``line`` at every x, row by row; and its slope.

    The slope is NaN if these columns do not differ in x.
    """
    centre_x, centre_y = x[:, line].mean(axis=1, keepdims=True), y[:, line].mean(axis=1, keepdims=True)
    spread = ((x[:, line] - centre_x) ** 2).sum(axis=1)
    together = ((x[:, line] - centre_x) * (y[:, line] - centre_y)).sum(axis=1)
    slope = np.divide(together, spread, out=np.full(len(x), np.nan), where=spread > 1e-12)
    return centre_y + slope[:, None] * (x - centre_x), slope


def relative_robustness(
    counts: Counts, *, reference: str, clean: str = ORIGINAL, **sample: Unpack[AverageOptions]
) -> Between:
    """Return how much more a model drops than a chosen one, per condition and on average.

    ``difference`` = drop − the reference's drop, negative: more robust than the reference. ``ratio`` of the two drops:
    NaN if the reference does not clearly drop, because a ratio to nothing means nothing.
    """
    shared = _shared(counts, clean, sample)
    if reason := _why_not(shared, reference, clean):
        return Between(pd.DataFrame(columns=RELATIVE), reason, reason)
    everything = shared.everything
    drops = _with_mean(everything[:, :, :1] - everything[:, :, 1:])
    own = drops[:, [shared.models.index(reference)]]
    apart = (drops - own).reshape(len(drops), -1)
    low, high, p = judged(apart[0], apart[1:] - apart[0], shared.photos, possible=OF_CHANGES)
    ratio = drops[0] / np.where(interval(own[1:])[0] > 0, own[0], np.nan)
    table = _beside(shared, reference, RELATIVE, drops[0], own[0], apart[0], low, high, p, ratio)
    less = int((table.loc[table["condition"] == MEAN, "high"] < 0).sum())
    others = len(shared.models) - 1
    return Between(table, f"{less} of {others} models drop clearly less than {reference} on average.", "")


def relative_error(
    counts: Counts, *, reference: str, clean: str = ORIGINAL, **sample: Unpack[AverageOptions]
) -> Between:
    """Return errors of a model over those of a chosen one, per condition, and their mean (like mCE).

    Below 1 is better than the reference. NaN if the reference makes no error; the mean is over the other conditions.
    """
    shared = _shared(counts, clean, sample)
    if reason := _why_not(shared, reference, clean):
        return Between(pd.DataFrame(columns=ERRORS), reason, reason)
    errors = 1 - shared.everything[:, :, 1:]
    own = errors[:, [shared.models.index(reference)]]
    ratio = errors / np.where((own > 1e-9) & (own[:1] > 1e-9), own, np.nan)
    known = np.isfinite(ratio[0]).all(axis=0)
    mean = ratio[:, :, known].mean(axis=2) if known.any() else np.full(ratio.shape[:2], np.nan)
    ratio = np.concatenate([ratio, mean[:, :, None]], axis=2)
    values = (_with_mean(errors[0]), _with_mean(own[0]), ratio[0], *interval(ratio[1:]))
    table = _beside(shared, reference, ERRORS, *values)
    fewer = int((table.loc[table["condition"] == MEAN, "high"] < 1).sum())
    others = len(shared.models) - 1
    sentence = f"{fewer} of {others} models make clearly fewer errors than {reference} on average."
    return Between(table, sentence, "")


def _why_not(shared: Common, reference: str, clean: str) -> str:
    """Return why models cannot be held against a reference, '' if they can; UserError for an unknown one."""
    if reference not in shared.models:
        raise UserError(f"No model {reference!r} to compare with; there are {', '.join(shared.models)}.")
    if len(shared.models) < 2:
        return "There is one model only: nothing to compare it with."
    if clean not in shared.conditions or len(shared.conditions) < 2:
        return f"There is no condition other than {clean} with images that every model answered."
    return ""


def _beside(shared: Common, reference: str, columns: list[str], *values: Floats) -> pd.DataFrame:
    """Return a row per condition and their mean of every model but the reference; values: (models, conditions + 1)."""
    names, photos = [*shared.conditions[1:], MEAN], [*shared.n[1:], shared.photos]
    shape = (len(shared.models), len(names))
    parts = [np.broadcast_to(part.reshape(-1, len(names)), shape).reshape(-1) for part in values]
    first = (np.repeat(shared.models, len(names)), names * len(shared.models))
    table = pd.DataFrame(dict(zip(columns, (*first, *parts, photos * len(shared.models)), strict=True)))
    return table[table["model"] != reference].reset_index(drop=True)


def _shared(counts: Counts, clean: str, sample: AverageOptions) -> Common:
    """Return all models on common images, the clean condition first if there is one."""
    conditions = sample.get("conditions")
    wanted = None if conditions is None else [clean, *conditions]
    shared = common(counts, **sample | AverageOptions(conditions=wanted))
    if clean not in shared.conditions:
        return shared
    first = shared.conditions.index(clean)
    order = [first, *(i for i in range(len(shared.conditions)) if i != first)]
    return Common(
        shared.models, [shared.conditions[i] for i in order], shared.accuracy[:, order],
        shared.resampled[:, :, order], shared.answered[:, order],
    )  # fmt: skip


def _with_mean(values: Floats) -> Floats:
    """Return the last axis (conditions) with its mean appended."""
    return np.concatenate([values, values.mean(axis=-1, keepdims=True)], axis=-1)
