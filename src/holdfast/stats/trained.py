"""Networks that were trained for a question.

Original, generated or random background: how well are they distinguished, and by what? And networks trained within a
scenario next to the same ones trained on originals: what is lost for good?
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.core.lazy import pd
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.bootstrap import RESAMPLES, codes, interval, resampled_sums
from holdfast.stats.core.cells import KEYS, Average, share_of, summary
from holdfast.stats.core.reduce import BINS, Counts, Outcome, right_column
from holdfast.stats.effects.confidence import ECE_BINS
from holdfast.stats.effects.drops import corrected_resampled_interval, paired_effect

GENERATED, PASTED = "generated_background", "random_background"
KINDS = (ORIGINAL, GENERATED, PASTED)
CONTROL = "same_class_background"
"""A pasted background that fits the object: tested, never trained on. Labelled as pasted, which it is."""

JPEG = "jpeg_compression"
CHANCE = 1 / len(KINDS)

PRINTED = {"ResNet50": 0.749, "DenseNet": 0.788, "MobileNet": 0.709}
"""Accuracies printed for XIMAGENET-12's classifier of the same three kinds, on other images and another generator."""


def confusion(counts: Counts, condition: str = ORIGINAL) -> pd.DataFrame:
    """Return answers by true kind, a row per model × ``label`` × ``prediction``.

    ``n`` of the ``total`` images of that kind, their ``share`` with Wilson's 95 % interval ``low``, ``high``. Each
    source has one image of a kind, so that the images of a kind are independent.
    """
    frame = counts.confusion[counts.confusion["condition"] == condition]
    rows = []
    for (model, trained_on), group in frame.groupby(["model", "trained_on"], observed=True):
        table = group.pivot_table(index="label", columns="prediction", values="n", aggfunc="sum", observed=True)
        shown = table.reindex(index=list(KINDS), columns=list(KINDS)).fillna(0).to_numpy(float)
        for label, row in zip(KINDS, shown, strict=True):
            for prediction, n in zip(KINDS, row, strict=True):
                share = share_of(n, row.sum())
                rows.append((model, trained_on, label, prediction, int(n), int(row.sum()), *share))
    columns = ["model", "trained_on", "label", "prediction", "n", "total", "share", "low", "high"]
    return pd.DataFrame(rows, columns=columns)


def accuracies(counts: Counts) -> pd.DataFrame:
    """Return the accuracy per model on the three kinds, and whether its whole interval is ``above_chance``."""
    frame = summary(counts, average="micro")
    frame = frame[frame["condition"] == ORIGINAL][[*KEYS, "n", "accuracy", "low", "high"]].reset_index(drop=True)
    frame["above_chance"] = frame["low"] > CHANCE
    return frame


CONFIDENCE = ["model", "trained_on", "source_id", "condition", "status", "confidence", "correct"]
"""Columns of the one table that ``calibration_errors`` reads."""


def calibration_errors(rows: pa.Table, *, resamples: int = RESAMPLES, seed: int = 0) -> pd.DataFrame:
    """Return the expected calibration error with its interval, a row per model × trained_on.

    ``ece`` as in ``effects.confidence``; ``ece_low`` and ``ece_high`` (95 %, bootstrap over images, about the estimate:
    a sum of absolute values only grows when it is resampled); ``ece_calibrated``: what a network whose confidences are
    exactly right would show on average on these images, because no finite number of them gives 0.
    """
    frame = rows.select(CONFIDENCE).to_pandas()
    frame = frame[(frame["status"] == "ok") & (frame["condition"] == ORIGINAL) & frame["confidence"].notna()]
    rows_out = []
    for (model, trained_on), group in frame.groupby(["model", "trained_on"], observed=True):
        sure = group["confidence"].to_numpy(np.float64)
        step = np.minimum(np.floor(sure * BINS), BINS - 1)
        in_bin = np.eye(ECE_BINS)[((step + 0.5) * ECE_BINS / BINS).astype(int)]
        gaps = in_bin * (group["correct"].to_numpy(np.float64) - sure)[:, None]
        value = float(np.abs(gaps.sum(axis=0)).sum() / len(group))
        low = high = float("nan")
        if codes(group["source_id"].to_numpy())[1] > 1:
            columns = np.column_stack([gaps, np.ones(len(group))])
            sums = resampled_sums(columns, group["source_id"].to_numpy(), resamples=resamples, seed=seed)
            drawn = np.abs(sums[:, :-1]).sum(axis=1) / sums[:, -1]
            low, high = (float(end) for end in np.clip(interval(value + drawn - drawn.mean()), 0, 1))
        order = np.argsort(sure, kind="stable")  # the draws must not depend on the order in which rows were read
        sure, in_bin = sure[order], in_bin[order]
        rng = np.random.default_rng(seed)
        by_chance = [np.abs(((rng.random(len(sure)) < sure) - sure) @ in_bin).sum() / len(sure) for _ in range(200)]
        rows_out.append((model, trained_on, value, low, high, float(np.mean(by_chance))))
    return pd.DataFrame(rows_out, columns=["model", "trained_on", "ece", "ece_low", "ece_high", "ece_calibrated"])


def compressed(counts: Counts) -> pd.DataFrame:
    """Return what JPEG takes away, a row per model; empty if it was not run.

    ``n`` images; accuracy ``original`` and as JPEG (``accuracy``); ``drop`` with ``low`` and ``high``, paired by image:
    about these trained networks, so that folds are no source of chance.
    """
    rows = []
    for (model, trained_on), cells in counts.cells.groupby(["model", "trained_on"], observed=True):
        before, after = (cells[cells["condition"] == name] for name in (ORIGINAL, JPEG))
        effect = paired_effect(before, after, "right", average="micro")
        if effect.n:
            rows.append((model, trained_on, effect.n, effect.first, effect.second, *effect.estimate))
    return pd.DataFrame(rows, columns=["model", "trained_on", "n", "original", "accuracy", "drop", "low", "high"])


def pasting(counts: Counts) -> pd.DataFrame:
    """Return how often images are called pasted: other class's background, own class's background, originals.

    A row per model: ``other``, ``same``, ``none`` with ``_low`` and ``_high`` each. If ``same`` is near ``other``,
    the model sees that something was pasted; if it is near ``none``, that the background does not fit.
    """
    rows = []
    for (model, trained_on), group in counts.confusion.groupby(["model", "trained_on"], observed=True):
        row: dict[str, object] = {"model": model, "trained_on": trained_on}
        for name, condition, label in _SHOWN:
            shown = group[(group["condition"] == condition) & (group["label"] == label)]
            total = int(shown["n"].sum())
            called = int(shown.loc[shown["prediction"] == PASTED, "n"].sum())
            row |= share_of(called, total).row(name) | {f"{name}_n": total}
        rows.append(row)
    frame = pd.DataFrame(rows)
    return frame[frame["same_n"] > 0].reset_index(drop=True) if len(frame) else frame


_SHOWN = (("other", ORIGINAL, PASTED), ("same", CONTROL, PASTED), ("none", ORIGINAL, ORIGINAL))


def sees_pasting(row: Mapping[Any, Any]) -> bool:
    """Return whether a fitting pasted background is called pasted nearly as often as one that does not fit.

    More than half of the way from originals to backgrounds of other classes, and clearly above originals.
    """
    middle = (row["other"] + row["none"]) / 2
    return bool(row["same"] > middle and row["same_low"] > row["none_high"] and np.isfinite(middle))


WITHIN = [
    "model", "condition", "n", "originals", "originals_low", "originals_high", "within", "within_low", "within_high",
    "gain", "low", "high", "method",
]  # fmt: skip


def within(
    counts: Counts,
    *,
    outcome: Outcome = "full",
    average: Average = "macro",
    trained_as: str = "{}",
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> pd.DataFrame:
    """Return accuracies of models trained on originals and of models trained on each condition, under it.

    ``gain`` = within − originals on the images that both answered. Its interval is Nadeau and Bengio's over the folds'
    gains, because trainings differ as well as images, but never narrower than the paired interval over images, which a
    single split has alone; ``method`` says which. ``trained_as``: ``trained_on`` of the models held against those
    trained on originals, with {} for the condition: ``all but {}`` for models that saw every condition but this one.
    """
    column = right_column(outcome)
    cells = counts.cells.assign(
        **{name: counts.cells[name].astype(str) for name in ("model", "trained_on", "condition", "label")}
    )
    accuracies = summary(counts, outcome=outcome, average=average).to_dict("records")
    known = {(row["model"], row["trained_on"], row["condition"]): row for row in accuracies}
    rows = []
    for model, own in cells.groupby("model"):
        base = ORIGINAL if (own["trained_on"] == ORIGINAL).any() else ""
        for condition in counts.conditions:
            crossed = own[(own["trained_on"] == base) & (own["condition"] == condition)]
            inside = own[(own["trained_on"] == trained_as.format(condition)) & (own["condition"] == condition)]
            inside = inside if condition != ORIGINAL else crossed
            if crossed.empty and inside.empty:
                continue
            row: dict[str, object] = {"model": model, "condition": condition, "n": int(inside["n"].sum())}
            other = base if condition == ORIGINAL else trained_as.format(condition)
            for part, trained_on, tested in (("originals", base, crossed), ("within", other, inside)):
                if len(tested):
                    share = known[model, trained_on, condition]
                    row |= {part: share["accuracy"], f"{part}_low": share["low"], f"{part}_high": share["high"]}
            if condition != ORIGINAL and len(crossed) and len(inside):
                row |= _gain(inside, crossed, column, average, resamples, seed)
            rows.append(row)
    return pd.DataFrame(rows, columns=WITHIN)


def _gain(
    inside: pd.DataFrame, crossed: pd.DataFrame, column: str, average: Average, resamples: int, seed: int
) -> dict[str, object]:
    effect = paired_effect(inside, crossed, column, average=average, resamples=resamples, seed=seed)
    if not effect.n:
        return {}
    folds = sorted(set(inside["fold"]) & set(crossed["fold"]))
    if len(folds) < 2:
        return {"gain": effect.value, "low": effect.low, "high": effect.high, "method": "one split, images paired"}
    sides = [(inside[inside["fold"] == fold], crossed[crossed["fold"] == fold]) for fold in folds]
    gains = [paired_effect(*pair, column, average=average, resamples=2).value for pair in sides]
    low, high = corrected_resampled_interval(gains, test_share=1 / len(folds))
    # Few folds may agree by chance, and their interval may leave what a difference of shares can be.
    low, high = max(-1.0, min(low, effect.low)), min(1.0, max(high, effect.high))
    value = sum(gains) / len(gains)
    return {"gain": value, "low": low, "high": high, "method": f"{len(folds)} trainings, Nadeau–Bengio"}
