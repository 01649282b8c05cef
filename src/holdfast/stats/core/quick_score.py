"""The robustness score, its parts and a paired difference of one model's rows, in milliseconds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from holdfast.core.types import ORIGINAL
from holdfast.stats.core.bootstrap import Codes, Floats
from holdfast.stats.core.cells import wilson_at
from holdfast.stats.core.quick import RESAMPLES, Estimate, Rows, Z, middle_95, numbered, resampled, t_quantile
from holdfast.stats.effects.drops import join_lent
from holdfast.stats.effects.score_interval import spread_interval


@dataclass(frozen=True)
class Design:
    """Accuracies on originals (column 0), across and within conditions; as ``score_design.Design``.

    ``present`` are the sources whose influence it is, as codes.
    """

    accuracy: Floats
    influence: Floats
    cross: list[int]
    inner: list[int]
    photos: int
    present: Codes


def design_of(rows: Rows, conditions: Collection[str]) -> Design | None:
    """The original and these conditions, repeated pictures once; None where one of them is not there."""
    base = ORIGINAL if ORIGINAL in rows.trained else ""
    wanted = np.array([one == ORIGINAL or (one in conditions and one not in rows.same_images) for one in
                       rows.conditions])  # fmt: skip
    original = np.array([name == ORIGINAL for name in rows.conditions])
    place = {name: number for number, name in enumerate(rows.trained)}
    same = np.array([place.get(name, -2) for name in rows.conditions])
    cross = rows.trained_on == place.get(base, -2)
    inner = (rows.trained_on == same[rows.condition]) & ~original[rows.condition]
    part = rows.part(wanted[rows.condition] & (cross | inner))
    cross = part.trained_on == place.get(base, -2)
    kinds = len(part.conditions)
    # the original first, then the cross part, then the inner one, conditions by name
    key = np.where(cross, 0, kinds + 1) + np.where(original[part.condition], 0, part.condition + 1)
    columns, column = np.unique(key, return_inverse=True)
    places = [int(one) for one in np.flatnonzero((columns > 0) & (columns <= kinds))]
    if not len(columns) or columns[0] != 0 or not places:
        return None
    accuracy, influence, present = _weigh(part, column, len(columns))
    within = [int(one) for one in np.flatnonzero(columns > kinds)]
    return Design(accuracy, influence, places, within, len(present), present)


def _weigh(rows: Rows, column: Codes, columns: int) -> tuple[Floats, Floats, Codes]:
    """Accuracies as sums of weighted rows, and each source's influence on them; see ``score_design.design_of``."""
    classes, sources = len(rows.labels), len(rows.sources)
    fold, folds = numbered(rows.fold)
    run = column * np.intp(folds) + fold
    runs = columns * folds
    size = np.bincount(run * np.intp(classes) + rows.label, minlength=runs * classes).reshape(runs, classes)
    shares = (size > 0).sum(axis=1)
    in_column = (shares.reshape(columns, folds) > 0).sum(axis=1)
    weight = 1 / (in_column[column] * shares[run] * size[run, rows.label])
    photos = np.bincount(np.unique(rows.label * np.intp(sources) + rows.source) // sources, minlength=classes)
    cell = column * np.intp(classes) + rows.label
    n = np.bincount(cell, minlength=columns * classes)
    right = np.bincount(cell, rows.right, columns * classes)
    whole = right.reshape(columns, classes).sum(axis=1) / n.reshape(columns, classes).sum(axis=1)
    expected = np.where(photos[rows.label] > 1, right[cell] / n[cell], whole[column])
    own = photos[rows.label]
    noise = weight * (rows.right - expected) * np.sqrt(own / np.maximum(own - 1, 1))
    present, source = np.unique(rows.source, return_inverse=True)
    influence: Floats = np.bincount(source * np.intp(columns) + column, noise, len(present) * columns).astype(float)
    accuracy: Floats = np.bincount(column, weight * rows.right, columns).astype(float)
    return accuracy, influence.reshape(len(present), columns), present


def spread(design: Design, parts: Sequence[Sequence[int]]) -> Estimate:
    """σ² of one part, or the sum over several: Σ(C(i) − μ)² / n with its interval, as ``score.scores``."""
    places = [one for part in parts for one in part]
    scale = np.concatenate([np.full(len(part), len(part) ** -0.5) for part in parts])
    deviations = (design.accuracy[places] - design.accuracy[0]) * scale
    influence = (design.influence[:, places] - design.influence[:, :1]) * scale
    low, high = spread_interval(
        deviations, resampled(influence), influence.T @ influence, _squares, quadratic=True
    )  # fmt: skip
    return Estimate(float(deviations @ deviations), low, high, design.photos)


def _squares(deviations: Floats) -> Floats:
    return np.asarray((deviations**2).sum(axis=-1))


def mean_accuracy(design: Design) -> Estimate:
    """The mean over the cross conditions, with Wilson's interval on the effective number of photos."""
    value = float(design.accuracy[design.cross].mean())
    variance = float((design.influence[:, design.cross].mean(axis=1) ** 2).sum())
    size = np.array(value * (1 - value) / variance if variance > 1e-15 else design.photos)
    low, high = wilson_at(value * size, size, Z)
    return Estimate(value, float(low), float(high), design.photos)


def paired_difference(rows: Rows, first: str, second: str) -> Estimate | None:
    """Accuracy under ``first`` − under ``second`` on the photos that have both; as ``drops.paired_effect``."""
    if first not in rows.conditions or second not in rows.conditions:
        return None
    base = rows.trained.index(ORIGINAL) if ORIGINAL in rows.trained else rows.trained.index("")
    before, after = (rows.condition == rows.conditions.index(name) for name in (first, second))
    here = np.flatnonzero((before | after) & (rows.trained_on == base))
    side = after[here].astype(np.intp)
    photo, count = photos_of(rows, here)
    totals = np.bincount(side * np.intp(count) + photo, minlength=2 * count).reshape(2, count)
    both = np.asarray((totals > 0).all(axis=0))[photo]
    if not both.any():
        return None
    total = totals[side, photo]
    if not both.all():
        here, side, total, photo = here[both], side[both], total[both], numbered(photo[both])[0]
    return _difference(rows, here, side, photo, total)


def photos_of(rows: Rows, here: Codes) -> tuple[Codes, int]:
    """The photos of some rows, a fold's own apart from another's, as codes, and how many there are."""
    fold, folds = numbered(rows.fold[here])
    return numbered(rows.source[here] * np.intp(folds) + fold)


def _difference(rows: Rows, here: Codes, side: Codes, photo: Codes, total: Codes) -> Estimate:
    """Of the rows ``here``: side 0 − side 1, where a photo has ``total`` rows on a side."""
    count = int(photo.max()) + 1
    share, part = rows.right[here] / total, 1 / total
    shares = np.bincount(side * np.intp(count) + photo, share, 2 * count).reshape(2, count)
    stratum = np.zeros(count, np.intp)
    stratum[photo] = numbered(rows.label[here])[0]
    sizes = np.bincount(stratum)
    weight = 1 / (sizes[stratum] * len(sizes))
    freedom = float((1 / sizes).sum() ** 2 / (1 / (sizes**2 * np.maximum(sizes - 1, 0.5))).sum())
    means = np.stack([np.bincount(stratum, one) / sizes for one in shares])
    means[:, sizes == 1] = shares.mean(axis=1)[:, None]
    scale = weight * np.sqrt(sizes / np.maximum(sizes - 1, 1))[stratum]
    sign = np.where(side == 0, 1.0, -1.0)
    residual = scale[photo] * sign * (share - part * means[side, stratum[photo]])
    value = float(((shares[0] - shares[1]) * weight).sum())
    source, donor = rows.source[here], rows.donor[here]
    lent = donor >= 0
    kept, residual = join_lent(residual, part, photo, lent)
    clusters = [numbered(source[kept])[0]]
    if lent.any():
        clusters.append(numbered(np.where(lent, donor, donor.max() + 1 + source)[kept])[0])
    size = 1 / float(np.square(weight).sum())
    shrunk = value * size / (size + 2)
    imagined = np.array([(1 - shrunk) / size, (-1 - shrunk) / size])
    strayed = _deviations(residual[kept], clusters, imagined, freedom)
    low, high = middle_95(shrunk + strayed * size / (size + 2))
    return Estimate(value, max(min(low, value), -1.0), min(max(high, value), 1.0), count)


def _deviations(values: Floats, clusters: list[Codes], imagined: Floats, freedom: float) -> Floats:
    """As ``bootstrap.deviations``, with the shared weights."""
    sums: list[Floats] = [np.append(np.bincount(cluster, values), imagined).astype(float) for cluster in clusters]
    one_way = [float((one**2).sum()) for one in sums]
    widest = int(np.argmax(one_way))
    if one_way[widest] <= 0:
        return np.zeros(RESAMPLES)
    variance = one_way[0]
    if len(clusters) == 2:
        width = int(clusters[1].max()) + 1
        cells = numbered(clusters[0] * np.intp(width) + clusters[1])[0]
        over_cells = float((np.bincount(cells, values) ** 2).sum() + (imagined**2).sum())
        variance = max(sum(one_way) - over_cells, min(one_way))
    few = max(min(len(one) for one in sums) - len(imagined), 2)
    stretch = np.sqrt(variance / one_way[widest] * few / (few - 1)) * t_quantile(min(few - 1, freedom)) / Z
    return np.asarray((resampled(sums[widest][:, None])[:, 0] - sums[widest].sum()) * stretch)
