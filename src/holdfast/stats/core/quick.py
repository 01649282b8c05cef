"""The numbers of one model straight from its rows, in milliseconds: for a board of a thousand tables.

The formulas are those of ``cells.summary``, ``score.scores`` and ``drops.paired_effect`` (every class counts alike), on
arrays in place of frames; tests hold the two together. Resamples share one matrix of weights, so that the same rows
give the same digits.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.core.conditions import condition_names
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.bootstrap import Codes, Floats, resampled_sums
from holdfast.stats.core.cells import stratified_rows

RESAMPLES = 2_000
_SHARED = 2_000
"""Photos up to which the weights of all resamples are kept: 32 MB."""

_KEPT = 200_000
"""Rows of a table up to which its codes are kept: 30 MB."""

Z = 1.959963984540054

COLUMNS = [
    "task", "kind", "sample_id", "source_id", "fold", "condition", "variant", "parameters", "trained_on", "label",
    "correct", "correct_restricted", "donor_id", "status", "image_sha256",
]  # fmt: skip
"""What is read."""


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval and how many photos or rows it is of."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Rows:
    """Answers of one model, (rows,) each; names are sorted, codes point into them, −1 is none.

    Attributes:
        conditions: names as ``stats.core.reduce`` makes them.
        right: over all outputs of the model, 1 or 0; ``right_restricted``: among the dataset's classes.
        same_images: conditions whose pictures repeat those of an earlier one, which count once.
    """

    conditions: list[str]
    condition: Codes
    trained: list[str]
    trained_on: Codes
    labels: list[str]
    label: Codes
    sources: list[str]
    source: Codes
    donor: Codes
    fold: Codes
    right: Floats
    right_restricted: Floats
    same_images: frozenset[str]

    def part(self, where: NDArray[np.bool_]) -> Rows:
        """Some of the rows, with the same names."""
        return Rows(
            self.conditions, self.condition[where], self.trained, self.trained_on[where], self.labels,
            self.label[where], self.sources, self.source[where], self.donor[where], self.fold[where],
            self.right[where], self.right_restricted[where], self.same_images,
        )  # fmt: skip

    def restricted(self) -> Rows:
        """The same rows, right answers counted among the dataset's classes."""
        return replace(self, right=self.right_restricted)


def coded(column: pa.ChunkedArray) -> tuple[Codes, list[str]]:
    """Codes into the sorted distinct values, −1 for nulls."""
    is_coded = pa.types.is_dictionary(column.type)
    if column.num_chunks == 1:
        array = column.chunk(0)
    else:
        array = (column.unify_dictionaries() if is_coded else column).combine_chunks()
    array = array if is_coded else array.dictionary_encode()
    # In Python: there are a dozen words most often, and calls into Arrow's kernels cost more than they all.
    words = array.dictionary.to_pylist()
    names = sorted({*words} - {None})  # a stranger's dictionary may have a word twice
    at = {name: number for number, name in enumerate(names)} | {None: -1}
    place = np.array([*(at[word] for word in words), -1], np.intp)
    indices = array.indices.fill_null(len(words)) if array.indices.null_count else array.indices
    numbers = place[indices.to_numpy(zero_copy_only=False)]
    used = np.bincount(numbers + 1, minlength=len(names) + 1)[1:] > 0
    if used.all():
        return numbers, names
    smaller = np.append(np.cumsum(used) - 1, -1)  # a dictionary may hold what no row has
    return smaller[numbers], [name for name, there in zip(names, used, strict=True) if there]


_last: dict[str, tuple[weakref.ref[pa.Table], dict[str, tuple[Codes, list[str]]]]] = {}


def codes_of(table: pa.Table, column: str) -> tuple[Codes, list[str]]:
    """``coded`` of a column, not to be written to. Those of the last table are kept: it is asked for many times."""
    last = _last.get("table")  # looked at once: another thread may put its own there meanwhile
    if last is None or last[0]() is not table:
        last = (weakref.ref(table), {})
        if len(table) < _KEPT:
            _last["table"] = last
        else:
            _last.clear()
    kept = last[1]
    if column not in kept:
        numbers, names = coded(table[column])
        numbers.flags.writeable = False
        kept[column] = numbers, names
    return kept[column]


def numbered(codes: Codes) -> tuple[Codes, int]:
    """0, 1, … for the distinct values in their order, as of ``np.unique``, and how many there are."""
    if not len(codes):
        return codes, 0
    least, most = int(codes.min()), int(codes.max())
    if most - least > 8 * len(codes) + 1000:
        values, number = np.unique(codes, return_inverse=True)
        return number, len(values)
    shifted = codes - least if least else codes
    place = np.cumsum(np.bincount(shifted) > 0)
    return (place - 1)[shifted], int(place[-1])


def equals(table: pa.Table, column: str, value: str) -> NDArray[np.bool_]:
    """Which rows hold a text."""
    numbers, names = codes_of(table, column)
    return np.asarray(numbers == (names.index(value) if value in names else -2))


def keep(table: pa.Table, column: str, value: str) -> pa.Table:
    """The rows that hold a text. Not by an expression, whose threads cost more than a thousand rows do."""
    wanted = equals(table, column, value)
    return table if wanted.all() else table.filter(pa.array(wanted))


def rows_of(table: pa.Table, *, order: Sequence[str] = ()) -> Rows:
    """The answers of a table with ``COLUMNS``: classified, status ok.

    Args:
        table: rows of one model.
        order: conditions that come first when pictures are looked for that repeat others.
    """
    classified = equals(table, "task", "classify")
    if not classified.all():
        table = table.select(COLUMNS).filter(pa.array(classified))
    condition, conditions = _named(table)
    fine = equals(table, "status", "ok")
    if not fine.all():
        table, condition = table.select(COLUMNS).filter(pa.array(fine)), condition[fine]
    source, sources = codes_of(table, "source_id")
    label, labels = codes_of(table, "label")
    trained_on, trained = codes_of(table, "trained_on")
    right, restricted = (_floats(table[one]) for one in ("correct", "correct_restricted"))
    return Rows(
        conditions, condition, trained, trained_on, labels, label, sources, source, codes_of(table, "donor_id")[0],
        table["fold"].to_numpy().astype(np.intp), right, restricted,
        _repeats(condition, conditions, source, codes_of(table, "image_sha256")[0], order),
    )  # fmt: skip


def _floats(truths: pa.ChunkedArray) -> Floats:
    """1 and 0, NaN for nulls."""
    if truths.null_count:
        return np.asarray(truths.cast(pa.float64()).to_numpy())
    return np.asarray(truths.to_numpy().astype(np.float64))


def _named(table: pa.Table) -> tuple[Codes, list[str]]:
    """A condition's name: its id, its variant unless it is the paper's, its parameters where there are several."""
    (ids, id_names), (variants, variant_names), (given, given_names) = (
        codes_of(table, name) for name in ("condition", "variant", "parameters")
    )
    number, count = numbered((ids * (len(variant_names) + 1) + variants) * (len(given_names) + 1) + given)
    row = np.zeros(count, np.intp)  # one of each kind
    row[number] = np.arange(len(number))
    keys = [*zip(ids[row].tolist(), variants[row].tolist(), given[row].tolist(), strict=True)]
    settings = [(id_names[one], variant_names[two], given_names[three]) for one, two, three in keys]
    by_setting = condition_names(settings)
    names = [by_setting[setting] for setting in settings]
    final = sorted(set(names))
    at = {name: place for place, name in enumerate(final)}
    return np.array([at[name] for name in names], np.intp)[number] if count else number, final


def _repeats(condition: Codes, names: list[str], source: Codes, picture: Codes, order: Sequence[str]) -> frozenset[str]:
    """Conditions whose pictures are all those of an earlier one."""
    known = {name: place for place, name in enumerate(order)}
    there = picture >= 0
    pairs = source[there] * (np.intp(picture.max(initial=0)) + 1) + picture[there]
    first: dict[bytes, str] = {}
    same = set()
    for name in sorted(names, key=lambda one: (one != ORIGINAL, known.get(one, len(known)), one)):
        own = np.unique(pairs[condition[there] == names.index(name)])
        if len(own) and first.setdefault(own.tobytes(), name) != name:
            same.add(name)
    return frozenset(same)


# Accuracies


def accuracies(rows: Rows) -> dict[tuple[str, str], Estimate]:
    """(trained_on, condition) → accuracy, every class alike; as ``cells.summary``."""
    group = rows.trained_on * np.intp(len(rows.conditions)) + rows.condition
    present, number = np.unique(group, return_inverse=True)
    values, low, high, n = _macro(rows, number, len(present))
    return {
        (rows.trained[int(one) // len(rows.conditions)], rows.conditions[int(one) % len(rows.conditions)]): Estimate(
            float(values[place]), float(low[place]), float(high[place]), int(n[place])
        )
        for place, one in enumerate(present)
    }


def pooled_accuracy(rows: Rows) -> Estimate:
    """Accuracy over all rows, every class alike."""
    values, low, high, n = _macro(rows, np.zeros(len(rows.right), np.intp), 1)
    return Estimate(float(values[0]), float(low[0]), float(high[0]), int(n[0]))


def _macro(rows: Rows, group: Codes, groups: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Mean of the class accuracies of each group, its interval, and its rows."""
    classes = len(rows.labels)
    cell = group * np.intp(classes) + rows.label
    n = np.bincount(cell, minlength=groups * classes).reshape(groups, classes).astype(np.float64)
    right = np.bincount(cell, rows.right, groups * classes).reshape(groups, classes)
    there = n > 0
    share = np.divide(right, n, out=np.zeros_like(n), where=there)
    values = share.sum(axis=1) / there.sum(axis=1)
    effect = _design_effects(rows, group, groups, share, n)
    low, high = stratified_rows(right / effect[:, None], n / effect[:, None])
    return values, low, high, n.sum(axis=1)


def _design_effects(rows: Rows, group: Codes, groups: int, share: Floats, n: Floats) -> Floats:
    """As ``cells.design_effect``, by class, for every group at once."""
    sources = len(rows.sources)
    at_source = group * np.intp(sources) + rows.source
    size = np.bincount(at_source, minlength=groups * sources).reshape(groups, sources)
    photos = (size > 0).sum(axis=1)
    lent = rows.donor >= 0
    has_donors = np.bincount(group, lent, groups) > 0
    residual = rows.right - share[group, rows.label]
    one_way = _squared(residual, at_source, groups, sources)
    few, variance = photos.astype(np.float64), one_way.copy()
    if has_donors.any():
        # without a donor of its own a photo is its own lender
        lenders = int(rows.donor.max()) + 1
        lender = np.where(lent, rows.donor, lenders + rows.source)
        at_lender = group * np.intp(lenders + sources) + lender
        over_lenders = _squared(residual, at_lender, groups, lenders + sources)
        cells, number = np.unique(at_source * np.intp(lenders + sources) + lender, return_inverse=True)
        sums = np.bincount(number, residual)
        over_cells = np.bincount((cells // (lenders + sources)) // sources, sums**2, groups)
        both = np.maximum(one_way + over_lenders - over_cells, np.minimum(one_way, over_lenders))
        variance = np.where(has_donors, both, variance)
        lent_by = np.unique(at_lender[lent])
        donors = np.bincount(lent_by // (lenders + sources), minlength=groups)
        few = np.where(has_donors, np.minimum(photos, donors), few)
    expected = (n * share * (1 - share)).sum(axis=1)
    ratio = np.divide(variance * few / np.maximum(few - 1, 1), expected, out=np.ones(groups), where=expected > 0)
    effect = np.where(expected > 0, np.maximum(ratio, 1.0), n.sum(axis=1) / photos)
    alone = ~has_donors & (size.max(axis=1) == 1)
    return np.where(alone, 1.0, effect)


def clustering(rows: Rows, group: Codes, groups: int) -> Floats:
    """As ``cells.design_effect``, all classes together, of each group, none of them empty.

    How many times larger the variance is for the clusters.
    """
    n = np.bincount(group, minlength=groups).astype(np.float64)[:, None]
    share = np.bincount(group, rows.right, groups)[:, None] / n
    together = replace(rows, labels=[""], label=np.zeros(len(rows.right), np.intp))
    return _design_effects(together, group, groups, share, n)


def _squared(values: Floats, cluster: Codes, groups: int, width: int) -> Floats:
    """Σ over the clusters of each group of (sum of its values)²."""
    sums = np.bincount(cluster, values, groups * width).reshape(groups, width)
    return np.asarray((sums**2).sum(axis=1))


@lru_cache(maxsize=256)
def t_quantile(freedom: float) -> float:
    """Of 95 % intervals: the 97.5 % quantile of t."""
    from scipy.special import stdtrit

    return Z if np.isinf(freedom) else float(stdtrit(freedom, 0.975))


def middle_95(values: Floats) -> tuple[float, float]:
    """The 2.5 % and 97.5 % quantiles, as ``np.quantile`` has them, in a fifth of the time."""
    last = len(values) - 1
    places = [min(int(share * last), max(last - 1, 0)) for share in (0.025, 0.975)]
    ordered = np.partition(values, [at for place in places for at in (place, min(place + 1, last))])
    low, high = (_between(ordered, place, share * last - place) for place, share in
                 zip(places, (0.025, 0.975), strict=True))  # fmt: skip
    return low, high


def _between(ordered: Floats, place: int, along: float) -> float:
    first, second = float(ordered[place]), float(ordered[min(place + 1, len(ordered) - 1)])
    # from the nearer end, as numpy does, so that the last digit is the same
    return first + (second - first) * along if along < 0.5 else second - (second - first) * (1 - along)


# Resampling


@lru_cache(maxsize=3)
def _shared_weights(count: int) -> Floats:
    """How often each of ``count`` photos is drawn, (resamples, count)."""
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, count, (RESAMPLES, count)) + np.arange(RESAMPLES)[:, None] * count
    return np.bincount(drawn.reshape(-1), minlength=RESAMPLES * count).reshape(RESAMPLES, count).astype(np.float64)


def resampled(sums: Floats) -> Floats:
    """Sums over resampled clusters, (resamples, columns), of what each cluster adds, (clusters, columns)."""
    if len(sums) <= _SHARED:
        return np.asarray(_shared_weights(len(sums)) @ sums)
    return resampled_sums(sums, np.arange(len(sums)), resamples=RESAMPLES, seed=0)
