"""Corruption error: how often models are wrong under the common corruptions, and in proportion to a reference.

Hendrycks and Dietterich (2019): the error of a model under a corruption is summed over its severities and divided by
that of AlexNet; the mean of these ratios over fifteen corruptions is mCE. The relative one holds what a corruption adds
to the error on clean images against what it adds to the reference's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd
from holdfast.core.names import scenario_of
from holdfast.core.numbers import alike, percent
from holdfast.core.types import CORRUPTIONS, ORIGINAL, SPARE_CORRUPTIONS
from holdfast.stats.core.bootstrap import RESAMPLES, SHARE, Floats, interval
from holdfast.stats.core.cells import Average
from holdfast.stats.core.grid import judged
from holdfast.stats.core.reduce import Counts, Outcome
from holdfast.stats.models.between import Common, common

_ALEXNET_ERRORS = (
    *(0.886428, 0.894468, 0.922640, 0.819880, 0.826268, 0.785948, 0.798360, 0.866816),
    *(0.826572, 0.819324, 0.564592, 0.853204, 0.646056, 0.717840, 0.606500),
)
ALEXNET = dict(zip(CORRUPTIONS, _ALEXNET_ERRORS, strict=True))
"""The published AlexNet's mean error over five severities of ImageNet-C: a reference for its 1000 classes only."""

MODELS = [
    "model", "error", "low", "high", "mce", "mce_low", "mce_high", "relative_mce", "relative_low", "relative_high",
    "clean_error", "corruptions", "conditions", "n",
]  # fmt: skip
BY_CORRUPTION = [
    "model", "corruption", "counted", "severities", "error", "low", "high", "ratio", "ratio_low", "ratio_high", "n",
]  # fmt: skip

_SMALLEST = 1e-9  # an error below it divides nothing


@dataclass(frozen=True)
class CorruptionError:
    """What came out, or the ``reason`` why nothing did.

    ``models``: a row per model: ``error`` (mean over corruptions of the mean over severities), ``mce`` and
    ``relative_mce`` against the reference (1 is as bad as it), each with an interval, ``clean_error``, how many
    ``corruptions`` and ``conditions`` these are means over, ``n`` images. ``by_corruption``: a row per model and
    corruption: ``counted`` in the means, ``severities``, ``error`` and its ``ratio`` to the reference's with intervals,
    ``n`` images.
    """

    models: pd.DataFrame
    by_corruption: pd.DataFrame
    samples: Floats  # (resamples, models), ``error`` in resamples of images
    sentence: str  # what came out, in words
    reason: str = ""  # or why nothing did


def corruption_of(condition: str) -> str:
    """Return the corruption that a condition's name begins with (``fog@severity_3``), or ''."""
    name = scenario_of(condition)
    return name if name in CORRUPTIONS or name in SPARE_CORRUPTIONS else ""


def mean_corruption_error(
    counts: Counts,
    *,
    reference: str | Mapping[str, float] | None = None,
    outcome: Outcome = "full",
    average: Average = "macro",
    corruptions: Sequence[str] | None = None,
    clean: str = ORIGINAL,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> CorruptionError:
    """Return the mean corruption error of every model, on the images that all models answered.

    ``reference``: the model, or the errors by corruption (``ALEXNET``), that ``mce`` is relative to. A corruption under
    which it makes no error, or that it has no number for, is left out of the ratio's mean. ``corruptions``: which to
    average over; by default those of the published fifteen that are there.
    """
    grouped: dict[str, list[str]] = {name: [] for name in CORRUPTIONS + SPARE_CORRUPTIONS}
    for name in counts.conditions:
        corruption = corruption_of(name)
        # One that repeats another's images of the same corruption (its default is severity 3) counts once. One that
        # repeats the originals counts: a corruption so weak that it changes nothing is still that severity.
        if corruption and corruption_of(counts.same_images.get(name, "")) != corruption:
            grouped[corruption].append(name)
    by_corruption = {name: conditions for name, conditions in grouped.items() if conditions}
    wanted = [name for name in by_corruption if name in (CORRUPTIONS if corruptions is None else corruptions)]
    for name in corruptions or ():
        if name not in by_corruption:
            raise UserError(f"No corruption {name!r} in this table; it has {', '.join(by_corruption) or 'none'}.")
    if not wanted:
        return _nothing("None of the fifteen corruptions that mCE is about is among the conditions.", resamples)
    groups = {**({clean: [clean]} if clean in counts.conditions else {}), **by_corruption}
    names = [name for conditions in groups.values() for name in conditions]
    shared = common(counts, outcome=outcome, average=average, conditions=names, resamples=resamples, seed=seed)
    if isinstance(reference, str) and reference not in shared.models:
        raise UserError(f"No model {reference!r} to compare with; there are {', '.join(shared.models)}.")
    columns = {name: [i for i, own in enumerate(shared.conditions) if own in groups[name]] for name in groups}
    columns = {name: places for name, places in columns.items() if places}
    wanted = [name for name in wanted if name in columns]
    if not wanted:
        return _nothing("There is no image that every model answered under a corruption.", resamples)
    return _measured(shared, columns, wanted, by_corruption, reference, clean)


def _measured(
    shared: Common,
    columns: Mapping[str, list[int]],
    wanted: list[str],
    by_corruption: Mapping[str, list[str]],
    reference: str | Mapping[str, float] | None,
    clean: str,
) -> CorruptionError:
    """Return the errors; ``columns``: clean or corruption → where its conditions are among the shared ones."""
    sides = (shared.accuracy[None], shared.resampled)
    by_name = {  # (1 + resamples, models) each
        name: np.concatenate([(1 - side[:, :, own]).mean(axis=2) for side in sides]) for name, own in columns.items()
    }
    photos = {name: int(shared.answered[:, own].any(axis=1).sum()) for name, own in columns.items()}
    shown = [name for name in columns if name != clean]
    errors = np.stack([by_name[name] for name in shown], axis=2)  # the estimate first, (1 + resamples, models, names)
    before = by_name[clean][:, :, None] if clean in by_name else None
    ours = shared.models.index(reference) if isinstance(reference, str) else None
    given = reference if isinstance(reference, Mapping) else {}
    named = np.tile([float(given.get(name, np.nan)) for name in shown], (len(errors), 1))
    divisor = named if ours is None else np.asarray(errors[:, ours])  # the reference's errors, (1 + resamples, names)
    counted = [name in wanted for name in shown]
    mean = errors[:, :, counted].mean(axis=2)
    most = max(photos[name] for name in wanted)
    low, high, _ = judged(mean[0], mean[1:] - mean[0], most, possible=SHARE)
    ratios = _ratio(errors, divisor)
    mce = _mean_ratio(ratios[:, :, counted])
    relative = np.full_like(mce, np.nan)
    if before is not None and ours is not None:
        added = errors - before
        relative = _mean_ratio(_ratio(added, added[:, ours])[:, :, counted])
    conditions = sum(len(by_corruption[name]) for name in wanted)
    table = {"model": shared.models, "error": mean[0], "low": low, "high": high}
    for name, prefix, values in (("mce", "mce_", mce), ("relative_mce", "relative_", relative)):
        below, above = interval(values[1:])
        table |= {name: values[0], f"{prefix}low": below, f"{prefix}high": above}
    table |= {"clean_error": np.nan if before is None else before[0, :, 0]}
    models = pd.DataFrame(table | {"corruptions": len(wanted), "conditions": conditions, "n": most})
    detail = _by_corruption(
        shared.models, [photos[name] for name in shown], shown, counted, by_corruption, errors, ratios
    )
    return CorruptionError(models, detail, mean[1:], _sentence(models, reference))


def _ratio(errors: Floats, divisor: Floats) -> Floats:
    """Return errors over the reference's; NaN for all resamples if there is nothing to divide by."""
    usable = (divisor > _SMALLEST) & (divisor[:1] > _SMALLEST)
    return np.asarray(errors / np.where(usable, divisor, np.nan)[:, None, :])


def _mean_ratio(ratios: Floats) -> Floats:
    """Return the mean over the corruptions that have a ratio."""
    known = np.isfinite(ratios[0]).all(axis=0)
    return np.asarray(ratios[:, :, known].mean(axis=2) if known.any() else np.full(ratios.shape[:2], np.nan))


def _by_corruption(
    models: list[str],
    photos: list[int],
    shown: Sequence[str],
    counted: Sequence[bool],
    by_corruption: Mapping[str, list[str]],
    errors: Floats,
    ratios: Floats,
) -> pd.DataFrame:
    flat, sizes = errors.reshape(len(errors), -1), np.tile(photos, len(models))
    low, high, _ = judged(flat[0], flat[1:] - flat[0], sizes, possible=SHARE)
    ends = [end.reshape(-1) for end in interval(ratios[1:])]
    levels = [[name.partition("@")[2].removeprefix("severity_") for name in by_corruption[own]] for own in shown]
    severities = [", ".join(level or "default" for level in own) for own in levels]
    table = {"model": np.repeat(models, len(shown)), "corruption": list(shown) * len(models)}
    table |= {"counted": list(counted) * len(models), "severities": severities * len(models)}
    table |= {"error": flat[0], "low": low, "high": high}
    table |= {"ratio": ratios[0].reshape(-1), "ratio_low": ends[0], "ratio_high": ends[1], "n": sizes}
    return pd.DataFrame(table)


def _sentence(models: pd.DataFrame, reference: str | Mapping[str, float] | None) -> str:
    best = models.sort_values("error", kind="stable").iloc[0]
    text = f"{best['model']} makes the fewest errors under corruptions, {percent(best['error'])}"
    if len(models) == 1:
        text = f"{best['model']} is wrong in {percent(best['error'])} under corruptions"
    elif alike(best["error"], models["error"].max()):
        text = f"All {len(models)} models are wrong equally often under corruptions, in {percent(best['error'])}"
    if reference is None or models["mce"].isna().all():
        return f"{text}."
    name = reference if isinstance(reference, str) else "the reference's"
    return f"{text}; mCE relative to {name}: {percent(best['mce'])}."


def _nothing(reason: str, resamples: int) -> CorruptionError:
    empty = np.zeros((resamples, 0))
    return CorruptionError(pd.DataFrame(columns=MODELS), pd.DataFrame(columns=BY_CORRUPTION), empty, reason, reason)
