"""Image × model × condition: the counts laid out for paired statistics, and resampling of their averages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd, scipy_sparse, scipy_special, scipy_stats
from holdfast.core.names import without_object
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.answers import numbered_column
from holdfast.stats.core.bootstrap import (
    CHANGE,
    Codes,
    Floats,
    Range,
    codes,
    donor_noise,
    interval,
    strata_freedom,
    unseen,
)
from holdfast.stats.core.cells import Average
from holdfast.stats.core.reduce import Counts, Outcome, right_column

_EQUAL = 1e-12  # differences of averages below this are rounding


@dataclass(frozen=True)
class Lent:
    """Right answers to images on backgrounds of donors; an element per image × model × condition × donor, as codes."""

    photo: Codes
    model: Codes
    condition: Codes
    donor: Codes
    right: Floats
    n: Floats


@dataclass(frozen=True)
class AnswerGrid:
    """Right answers laid out."""

    right: Floats  # (images, models, conditions) right answers
    n: Floats  # (images, models, conditions) rows; 0 if the model gave no answer
    classes: NDArray[np.intp]  # (images,) number of the image's class
    sources: NDArray[np.object_]  # (images,) ``source_id``
    models: list[str]
    conditions: list[str]  # names, the original first
    lent: Lent | None = None  # the answers on donors' backgrounds among them, None if there are none

    def rate(self) -> Floats:
        """Return the share of right answers, (images, models, conditions), 0..1, NaN if the model gave none."""
        share: Floats = np.divide(self.right, self.n, out=np.full(self.n.shape, np.nan), where=self.n > 0)
        return share


def own_cells(counts: Counts, conditions: Sequence[str] | None = None) -> pd.DataFrame:
    """Return cells of models trained on originals (or not trained here), under the conditions asked for.

    By default all conditions but attacks and those that repeat another's images or take the object away. If every
    model was trained on something else, the name says on what.
    """
    names = chosen(counts, conditions)
    cells = counts.cells if conditions is not None else counts.distinct()
    cells = cells[cells["condition"].isin(names)]
    plain = cells[cells["trained_on"].isin(["", ORIGINAL])]
    if len(plain) or not len(cells):
        return plain
    return cells.assign(model=cells["model"].astype(str) + " trained on " + cells["trained_on"].astype(str))


def chosen(counts: Counts, conditions: Sequence[str] | None) -> list[str]:
    """Return the conditions asked for, in the table's order; an unknown one is a UserError."""
    if conditions is None:
        gone = [name for name in counts.conditions if without_object(name)]
        left_out = {*gone, *counts.same_images, *counts.attacks}
        return [name for name in counts.conditions if name not in left_out]
    for name in conditions:
        if name not in counts.conditions:
            raise UserError(f"No condition {name!r} in this table; it has {', '.join(counts.conditions)}.")
    return [name for name in counts.conditions if name in set(conditions)]


def grid(counts: Counts, *, outcome: Outcome = "full", conditions: Sequence[str] | None = None) -> AnswerGrid:
    """Lay the counts out; see :func:`own_cells` for which of them."""
    cells = own_cells(counts, conditions)
    present = set(cells["condition"].astype(str))
    names = [name for name in chosen(counts, conditions) if name in present]
    models = sorted(cells["model"].astype(str).unique())
    source, sources = pd.factorize(cells["source_id"], sort=True)
    model = pd.Categorical(cells["model"].astype(str), categories=models).codes.astype(np.intp)
    condition = pd.Categorical(cells["condition"].astype(str), categories=names).codes.astype(np.intp)
    shape = (len(sources), len(models), len(names))
    flat = np.ravel_multi_index((source, model, condition), shape) if len(cells) else source
    size = int(np.prod(shape))
    n, right = (
        np.bincount(flat, cells[column].to_numpy(np.float64), size).astype(np.float64).reshape(shape)
        for column in ("n", right_column(outcome))
    )
    label, _ = codes(cells["label"].astype(str).to_numpy())
    classes = np.zeros(len(sources), np.intp)
    classes[source] = label
    donor = numbered_column(cells, "donor_id")[0]
    some = donor >= 0
    hits, rows = (cells[name].to_numpy(np.float64)[some] for name in (right_column(outcome), "n"))
    lent = Lent(source[some], model[some], condition[some], donor[some], hits, rows) if some.any() else None
    return AnswerGrid(right, n, classes, np.asarray(sources, object), models, names, lent)


def averages(rate: Floats, classes: NDArray[np.intp], average: Average) -> tuple[Floats, Floats]:
    """Return averages over images (columns,), NaN if no image counts, and what each image adds to their error.

    The contribution of image s of class k is √(n_k/(n_k − 1)) (y_s − mean_k) / (K n_k): sums of contributions over
    resampled images have the sampling variance of the average, with the classes' sizes held. A class with one image is
    centred at the overall average. Small classes estimate their own spread badly, so contributions to a mean of classes
    of uneven size are stretched by t with Satterthwaite's degrees of freedom over t with images − 1.

    ``rate``: (images, columns), NaN if an image does not count.
    """
    estimate, centre, scale = _centred(rate, classes, average)
    parts = np.where(np.isnan(rate), 0.0, (np.nan_to_num(rate) - centre) * scale)
    return estimate, parts if average == "micro" else parts * _small_classes(~np.isnan(rate), classes)


def _small_classes(counted: NDArray[np.bool_], classes: NDArray[np.intp]) -> Floats:
    """Return by what small classes widen the interval of a mean of class means, (columns,)."""
    stratum, count = codes(classes)
    sizes = np.zeros((count, counted.shape[1]))
    np.add.at(sizes, stratum, counted)
    most = np.maximum(sizes.sum(axis=0) - 1, 1).astype(np.float64)
    freedom = np.clip(strata_freedom(sizes), 1, most)
    return np.asarray(scipy_special.stdtrit(freedom, 0.975) / scipy_special.stdtrit(most, 0.975))


def _centred(rate: Floats, classes: NDArray[np.intp], average: Average) -> tuple[Floats, Floats, Floats]:
    """Return averages, and what each image's rate is centred at and multiplied by, (images, columns)."""
    group = classes if average == "macro" else np.zeros(len(classes), np.intp)
    strata, count = codes(group)
    belongs = scipy_sparse.csr_array(
        (np.ones(len(strata)), (strata, np.arange(len(strata)))), shape=(count, len(strata))
    )
    known = ~np.isnan(rate)
    filled = np.where(known, rate, 0.0)
    n = np.asarray(belongs @ known.astype(np.float64))
    mean = np.divide(np.asarray(belongs @ filled), n, out=np.zeros(n.shape), where=n > 0)
    used = (n > 0).sum(axis=0)
    estimate = np.where(used > 0, mean.sum(axis=0) / np.maximum(used, 1), np.nan)
    centre = np.where(n > 1, mean, np.nan_to_num(estimate))
    scale = np.sqrt(np.where(n > 1, n / np.maximum(n - 1, 1), 1.0)) / np.maximum(n * used, 1)
    return estimate, centre[strata], scale[strata]


def donor_rows(
    laid: AnswerGrid, rate: Floats, average: Average, column: NDArray[np.intp], weight: Floats | float = 1.0
) -> Floats | None:
    """Return the rows of ``bootstrap.donor_noise`` for averages of the grid, None if no answer has a donor.

    ``rate``: (images, models, conditions), NaN if an image does not count. ``column``: (models, conditions) the
    column that an average is part of, −1 for none. ``weight``: (models, conditions) of an average in its column.
    """
    lent, shape = laid.lent, rate.shape
    if lent is None:
        return None
    _, centre, scale = (part.reshape(shape) if part.ndim > 1 else part
                        for part in _centred(rate.reshape(shape[0], -1), laid.classes, average))  # fmt: skip
    at = (lent.photo, lent.model, lent.condition)
    kept = ~np.isnan(rate[at]) & (column[at[1:]] >= 0)
    at = (lent.photo[kept], lent.model[kept], lent.condition[kept])
    values = scale[at] * (lent.right[kept] - lent.n[kept] * centre[at]) / laid.n[at]
    values = values * np.broadcast_to(weight, column.shape)[at[1:]]
    return donor_noise(values, at[0], lent.donor[kept], column[at[1:]], int(column.max()) + 1)


def judged(
    estimate: Floats,
    deviations: Floats,
    photos: NDArray[np.intp] | int,
    *,
    level: float = 0.95,
    possible: Range = CHANGE,
) -> tuple[Floats, Floats, Floats]:
    """Return low and high of the percentile interval and a two-sided p-value against 0, from resampled deviations.

    p inverts the interval; beyond the reach of the resamples it is the tail of a normal with their standard deviation,
    and never below 2^(1 − images), the least that a sign test can say. If all images agree exactly, the interval is
    the exact one for the share of images that could differ. ``deviations``: (resamples, columns); ``possible``: the
    range of the quantity, which no bound leaves.
    """
    resamples = len(deviations)
    count = np.maximum(np.broadcast_to(photos, estimate.shape), 2).astype(np.float64)
    tail_share = (1 - level) / 2
    # A percentile interval from few images is too short by about this much.
    deviations = deviations * (scipy_stats.t.isf(tail_share, count - 1) / scipy_stats.norm.isf(tail_share))
    spread = deviations.std(axis=0)
    low, high = interval(estimate + deviations, level=level)
    other_side = np.minimum(
        (estimate + deviations <= _EQUAL).sum(axis=0), (estimate + deviations >= -_EQUAL).sum(axis=0)
    )
    p = np.minimum(1.0, 2 * (other_side + 1) / (resamples + 1))
    constant = spread <= _EQUAL
    tail = 2 * scipy_stats.norm.sf(np.abs(estimate) / np.where(constant, np.inf, spread))
    p = np.where((other_side == 0) & ~constant, np.minimum(p, tail), p)
    p = np.where(constant, np.where(np.abs(estimate) <= _EQUAL, 1.0, 0.0), p)
    room = unseen(count, level)
    p = np.maximum(p, np.minimum(1.0, 2.0 ** (1 - count)))
    unknown = np.isnan(estimate)
    low = np.where(unknown, np.nan, np.where(constant, estimate - room, low))
    high = np.where(unknown, np.nan, np.where(constant, estimate + room, high))
    low, high = (np.asarray(np.clip(ends, *possible)) for ends in (low, high))
    return low, high, np.where(unknown, np.nan, p)


def holm(p: Floats) -> Floats:
    """Return Holm's step-down adjusted p-values of one family; NaN stays NaN and does not count.

    The i-th smallest of m is multiplied by m − i + 1, and none is smaller than the one before it.
    """
    values = np.asarray(p, np.float64)
    adjusted = np.full(len(values), np.nan)
    order = np.argsort(values)[: int((~np.isnan(values)).sum())]
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(values[order] * np.arange(len(order), 0, -1)))
    return adjusted
