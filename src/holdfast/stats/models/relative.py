"""Robustness of a model in the light of others: effective, relative, and error ratios."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd, scipy_special
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.bootstrap import Floats, interval
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
    Accuracies are taken as (n p + ½)/(n + 1), so that 0 and 1 have logits. The interval resamples photos and fits the
    line anew.
    """
    shared = _shared(counts, clean, sample)
    at = _columns(shared, clean)
    line = [i for i, name in enumerate(shared.models) if baseline is None or name in set(baseline)]
    reason = ""
    if not at:
        reason = f"There is no condition beside {clean} with photos that every model answered."
    elif len(line) < 3:
        reason = f"A line through {len(line)} models predicts nothing: effective robustness needs at least 3."
    elif np.ptp(shared.accuracy[line, 0]) < 1e-9:
        reason = "All models are equally right on clean photos, so clean accuracy predicts nothing."
    if reason:
        return Between(pd.DataFrame(columns=EFFECTIVE), reason, reason)
    frames = []
    everything = shared.everything
    for column in at:
        n = float(min(shared.n[0], shared.n[column]))
        fitted, slope = through(logits(everything[:, :, 0], n), logits(everything[:, :, column], n), line)
        predicted = np.asarray(scipy_special.expit(fitted))
        effective = everything[:, :, column] - predicted
        low, high = interval(effective[1:])
        frames.append(
            pd.DataFrame(
                {
                    "model": shared.models,
                    "condition": shared.conditions[column],
                    "clean": shared.accuracy[:, 0],
                    "shifted": shared.accuracy[:, column],
                    "predicted": predicted[0],
                    "effective": effective[0],
                    "low": low,
                    "high": high,
                    "slope": slope[0],
                    "n": int(n),
                }
            )
        )
    table = pd.concat(frames, ignore_index=True)
    clear = int(((table["low"] > 0) | (table["high"] < 0)).sum())
    return Between(table[EFFECTIVE], f"{clear} of {len(table)} lie clearly off the line.", "")


def logits(accuracy: Floats, n: float) -> Floats:
    """Return log odds of accuracies of n photos, taken as (n p + ½)/(n + 1), so that 0 and 1 have some."""
    return np.asarray(scipy_special.logit((n * np.clip(accuracy, 0, 1) + 0.5) / (n + 1)))


def through(x: Floats, y: Floats, line: list[int]) -> tuple[Floats, Floats]:
    """Return the least-squares line through the columns in ``line`` at every x, row by row; and its slope.

    The slope is NaN where these columns do not differ in x.
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
    NaN where the reference does not clearly drop, because a ratio to nothing means nothing.
    """

    def rows_of(shared: Common, everything: Floats, ours: int) -> Rows:
        drops = _with_mean(everything[:, :, :1] - everything[:, :, _columns(shared, clean)])
        own = np.where(interval(drops[1:, ours])[0] > 0, drops[0, ours], np.nan)

        def row(model: int) -> dict[str, Any]:
            difference = drops[:, model] - drops[:, ours]
            low, high, p = judged(difference[0], difference[1:] - difference[0], shared.photos)
            ends = {"difference": difference[0], "low": low, "high": high, "p": p}
            return {"drop": drops[0, model], "reference_drop": drops[0, ours], **ends, "ratio": drops[0, model] / own}

        return row

    shared = _shared(counts, clean, sample)
    table, reason = _beside(shared, reference, clean, rows_of, RELATIVE)
    less = int((table.loc[table["condition"] == MEAN, "high"] < 0).sum())
    sentence = f"{less} of {len(shared.models) - 1} models drop clearly less than {reference} on average."
    return Between(table, reason or sentence, reason)


def relative_error(
    counts: Counts, *, reference: str, clean: str = ORIGINAL, **sample: Unpack[AverageOptions]
) -> Between:
    """Return errors of a model over those of a chosen one, per condition, and their mean (like mCE).

    Below 1 is better than the reference. NaN where the reference makes no error; the mean is over the other conditions.
    """

    def rows_of(shared: Common, everything: Floats, ours: int) -> Rows:
        errors = 1 - everything[:, :, _columns(shared, clean)]
        divisor = np.where((errors > 1e-9) & (errors[:1] > 1e-9), errors, np.nan)[:, ours]
        known = np.isfinite(divisor[0])

        def row(model: int) -> dict[str, Any]:
            ratio = errors[:, model] / divisor
            mean = ratio[:, known].mean(axis=1) if known.any() else np.full(len(ratio), np.nan)
            ratio = np.column_stack([ratio, mean])
            low, high = interval(ratio[1:])
            means = {"error": _with_mean(errors[0, model]), "reference_error": _with_mean(errors[0, ours])}
            return {**means, "ratio": ratio[0], "low": low, "high": high}

        return row

    shared = _shared(counts, clean, sample)
    table, reason = _beside(shared, reference, clean, rows_of, ERRORS)
    fewer = int((table.loc[table["condition"] == MEAN, "high"] < 1).sum())
    sentence = f"{fewer} of {len(shared.models) - 1} models make clearly fewer errors than {reference} on average."
    return Between(table, reason or sentence, reason)


Rows = Callable[[int], dict[str, Any]]
"""From a model's place to its columns, an element per condition and one for the mean."""


def _beside(
    shared: Common, reference: str, clean: str, rows_of: Callable[[Common, Floats, int], Rows], columns: list[str]
) -> tuple[pd.DataFrame, str]:
    """Return a row per condition of every model but the reference, or none and the reason."""
    if reference not in shared.models:
        raise UserError(f"No model {reference!r} to compare with; there are {', '.join(shared.models)}.")
    at, ours = _columns(shared, clean), shared.models.index(reference)
    if len(shared.models) < 2:
        return pd.DataFrame(columns=columns), "There is one model only: nothing to compare it with."
    if not at:
        reason = f"There is no condition beside {clean} with photos that every model answered."
        return pd.DataFrame(columns=columns), reason
    names, photos = [*(shared.conditions[i] for i in at), MEAN], [*(int(shared.n[i]) for i in at), shared.photos]
    row = rows_of(shared, shared.everything, ours)
    frames = [
        pd.DataFrame({"model": name, "condition": names, **row(model), "n": photos})
        for model, name in enumerate(shared.models)
        if model != ours
    ]
    return pd.concat(frames, ignore_index=True)[columns], ""


def _shared(counts: Counts, clean: str, sample: AverageOptions) -> Common:
    """Return all models on common photos, the clean condition first where there is one."""
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


def _columns(shared: Common, clean: str) -> list[int]:
    """Return where the shifted conditions are; empty where there is no clean one to hold them against."""
    return list(range(1, len(shared.conditions))) if clean in shared.conditions else []


def _with_mean(values: Floats) -> Floats:
    """Return the last axis (conditions) with its mean appended."""
    return np.concatenate([values, values.mean(axis=-1, keepdims=True)], axis=-1)
