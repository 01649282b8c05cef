"""Right answers to the same images twice: what changed, with an interval that treats clusters as independent."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from holdfast.stats.core.bootstrap import RESAMPLES, codes, deviations, interval


def paired_change(
    before: ArrayLike, after: ArrayLike, clusters: ArrayLike, *, resamples: int = RESAMPLES, seed: int = 0
) -> dict[str, Any]:
    """Return the mean of after − before over images, with its interval.

    The interval is a bootstrap over clusters with one imagined cluster that gains and one that loses everything (Bonett
    and Price's adjustment, as in ``stats.effects.drops``), so that it keeps a width where few or none changed.

    ``before``: a value an image, 0 to 1. ``after``: the same images, in the same order. ``clusters``: the cluster of
    each image: its prompt, or its photo. Returned: ``n``, ``prompts`` (clusters), ``before``, ``after``, ``estimate``,
    ``low``, ``high``, ``gained``, ``lost`` (images whose value rose or fell); NaN where there is no image.
    """
    first, second = (np.asarray(values, np.float64).reshape(-1) for values in (before, after))
    if not len(first):
        empty = dict.fromkeys(("before", "after", "estimate", "low", "high"), float("nan"))
        return {"n": 0, "prompts": 0, **empty, "gained": 0, "lost": 0}
    change = second - first
    value, count = float(change.mean()), codes(clusters)[1]
    shrunk = value * count / (count + 2)
    strayed = deviations(
        (change - value) / len(change), clusters, extra=[(1 - shrunk) / count, (-1 - shrunk) / count],
        resamples=resamples, seed=seed,
    )  # fmt: skip
    low, high = (float(values) for values in interval(shrunk + strayed * count / (count + 2)))
    return {
        "n": len(change),
        "prompts": count,
        "before": float(first.mean()),
        "after": float(second.mean()),
        "estimate": value,
        "low": max(min(low, value), -1.0),
        "high": min(max(high, value), 1.0),
        "gained": int((change > 0).sum()),
        "lost": int((change < 0).sum()),
    }


def mcnemar(fell: ArrayLike, rose: ArrayLike) -> NDArray[np.float64]:
    """Return p of the exact McNemar test: was a photo that changed as likely to fall as to rise?"""
    from scipy.special import bdtr

    down, up = np.asarray(fell), np.asarray(rose)
    tail = bdtr(np.minimum(down, up).astype(np.float64), down + up, 0.5)
    return np.asarray(np.where(down + up > 0, np.minimum(1.0, 2 * tail), 1.0))
