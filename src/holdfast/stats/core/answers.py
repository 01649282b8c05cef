"""The answers of one model as arrays: what accuracies, drops, scores and verdicts are computed from.

They come from counts (reports, notebooks) or straight from a small table (a board): the same numbers either way.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from holdfast.core.lazy import pd
from holdfast.core.names import condition_names
from holdfast.core.types import ORIGINAL
from holdfast.stats.core.bootstrap import Codes, Floats, codes, ratio, sums
from holdfast.stats.core.reduce import Counts, Outcome, right_column

_KEPT = 200_000  # Tables with fewer rows keep their codes: 30 MB

_last: dict[str, tuple[weakref.ref[pa.Table], dict[str, tuple[Codes, list[str]]]]] = {}


def coded(column: pa.ChunkedArray) -> tuple[Codes, list[str]]:
    """Return codes into the sorted distinct values, −1 for nulls, and those values."""
    is_coded = pa.types.is_dictionary(column.type)
    if column.num_chunks == 1:
        array = column.chunk(0)
    else:
        array = (column.unify_dictionaries() if is_coded else column).combine_chunks()
    array = array if is_coded else array.dictionary_encode()
    # In Python, because there are a dozen words most often and calls into Arrow's kernels cost more.
    words = array.dictionary.to_pylist()
    names = sorted({*words} - {None})  # a foreign dictionary may hold a word twice
    place_of = {name: number for number, name in enumerate(names)} | {None: -1}
    place = np.array([*(place_of[word] for word in words), -1], np.intp)
    indices = array.indices.fill_null(len(words)) if array.indices.null_count else array.indices
    numbers = place[indices.to_numpy(zero_copy_only=False)]
    used = np.bincount(numbers + 1, minlength=len(names) + 1)[1:] > 0
    if used.all():
        return numbers, names
    smaller = np.append(np.cumsum(used) - 1, -1)  # a dictionary may hold words that no row has
    return smaller[numbers], [name for name, in_rows in zip(names, used, strict=True) if in_rows]


def codes_of(table: pa.Table, column: str) -> tuple[Codes, list[str]]:
    """Return ``coded`` of a column, read-only. The codes of the last table are kept, because many ask for them."""
    last = _last.get("table")  # read once: another thread may store its own meanwhile
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


def equals(table: pa.Table, column: str, value: str) -> NDArray[np.bool_]:
    """Return which rows hold a text."""
    numbers, names = codes_of(table, column)
    return np.asarray(numbers == (names.index(value) if value in names else -2))


def keep(table: pa.Table, column: str, value: str) -> pa.Table:
    """Return the rows that hold a text, without an Arrow expression, whose threads cost more than a thousand rows."""
    wanted = equals(table, column, value)
    return table if wanted.all() else table.filter(pa.array(wanted))


COLUMNS = [
    "task", "kind", "sample_id", "source_id", "fold", "condition", "variant", "parameters", "trained_on", "label",
    "correct", "correct_restricted", "prediction_restricted", "donor_id", "donor_label", "status", "image_sha256",
]  # fmt: skip
"""What ``from_table`` reads."""


@dataclass(frozen=True)
class CountedEstimate:
    """A number with its 95 % interval and how many images or rows it is of."""

    value: float
    low: float
    high: float
    n: int


@dataclass(frozen=True)
class Answers:
    """Counted answers of one model; an element per cell. Names are sorted, codes point into them, −1 is none."""

    conditions: list[str]  # names as ``stats.core.reduce`` makes them; ``condition``: (cells,) codes
    condition: Codes
    trained: list[str]  # what the model was trained on, '' as delivered; ``trained_on``: (cells,)
    trained_on: Codes
    labels: list[str]  # classes; ``label``: (cells,)
    label: Codes
    sources: list[str]  # images; ``source``: (cells,)
    source: Codes
    donor: Codes  # (cells,) codes of donors, whose names no one needs
    donor_labels: list[str]  # classes of donors; ``donor_label``: (cells,)
    donor_label: Codes
    fold: Codes  # (cells,) the training run
    n: Floats  # (cells,) rows
    right: Floats  # (cells,) right answers of the outcome asked for; ``right_restricted``: among the dataset's classes
    right_restricted: Floats
    captured: Floats  # (cells,) answers with the donor's class; ``captured_before``: of the same images' originals
    captured_before: Floats
    given: Floats  # (trained, conditions, labels) how often each class was the answer, among the dataset's classes
    same_images: frozenset[str]  # conditions whose images repeat those of an earlier one, and count once

    def part(self, where: NDArray[np.bool_] | Codes) -> Answers:
        """Return some of the cells, with the same names."""
        names = [field.name for field in fields(self) if field.name != "given"]
        arrays = [name for name in names if isinstance(getattr(self, name), np.ndarray)]
        cells: dict[str, Any] = {name: getattr(self, name)[where] for name in arrays}
        return replace(self, **cells)

    def restricted(self) -> Answers:
        """Return the same cells with right answers counted among the dataset's classes."""
        return replace(self, right=self.right_restricted)

    def base(self) -> str:
        """Return what the model was trained on where no condition is meant: originals, or '' as delivered."""
        return ORIGINAL if ORIGINAL in self.trained else ""

    def shares(self, where: NDArray[np.bool_], hits: Floats | None = None) -> Floats:
        """Return the share of hits (right answers) among each image's rows, (sources,); NaN if it has none."""
        source, counted = self.source[where], self.right if hits is None else hits
        rows, right = (sums(source, values[where], len(self.sources)) for values in (self.n, counted))
        return ratio(right, rows)

    def under(self, condition: str) -> NDArray[np.bool_]:
        """Return which cells are under a condition."""
        place = self.conditions.index(condition) if condition in self.conditions else -2
        return np.asarray(self.condition == place)

    def on(self, trained_on: str) -> NDArray[np.bool_]:
        """Return which cells are of the model trained on something."""
        place = self.trained.index(trained_on) if trained_on in self.trained else -2
        return np.asarray(self.trained_on == place)


def from_counts(counts: Counts, model: str, *, outcome: Outcome = "full") -> Answers:
    """Return the answers of one of the models of a run."""
    column = right_column(outcome)
    cells = counts.cells[counts.cells["model"] == model]
    (condition, conditions), (trained_on, trained), (label, labels), (source, sources), (lent, lenders) = (
        numbered_column(cells, name) for name in ("condition", "trained_on", "label", "source_id", "donor_label")
    )
    zeros = np.zeros(len(cells))
    counted = {
        name: cells[name].to_numpy(np.float64) if name in cells else zeros
        for name in (column, "right_restricted", "captured", "captured_before", "n")
    }
    return Answers(
        conditions=conditions, condition=condition, trained=trained, trained_on=trained_on, labels=labels, label=label,
        sources=sources, source=source, donor=numbered_column(cells, "donor_id")[0], donor_labels=lenders,
        donor_label=lent, fold=cells["fold"].to_numpy(np.intp) if "fold" in cells else np.full(len(cells), -1),
        n=counted["n"], right=counted[column], right_restricted=counted["right_restricted"],
        captured=counted["captured"], captured_before=counted["captured_before"],
        given=_given(counts.confusion, model, trained, conditions, labels), same_images=frozenset(counts.same_images),
    )  # fmt: skip


def named_conditions(frame: pd.DataFrame) -> list[str]:
    """Return the name of each row's condition: id, variant unless it is the paper's, parameters if several."""
    keys = list(zip(*(frame[column] for column in ("condition", "variant", "parameters")), strict=True))
    names = condition_names(keys)
    return [names[key] for key in keys]


def numbered_column(frame: pd.DataFrame, name: str) -> tuple[Codes, list[str]]:
    """Return codes into the sorted distinct words of a column, −1 if there is none (or no such column)."""
    if name not in frame:
        return np.full(len(frame), -1, np.intp), []
    column = frame[name]
    if not isinstance(column.dtype, pd.CategoricalDtype):
        numbers, words = pd.factorize(column, sort=True)
        return numbers.astype(np.intp), [str(word) for word in words]
    every = column.cat.codes.to_numpy()
    used = np.flatnonzero(np.bincount(every + 1, minlength=len(column.cat.categories) + 1)[1:])
    place = np.full(len(column.cat.categories) + 1, -1, np.intp)
    place[used] = np.arange(len(used))
    return place[every], [str(word) for word in column.cat.categories[used]]


def _given(confusion: pd.DataFrame, model: str, trained: list[str], conditions: list[str], labels: list[str]) -> Floats:
    shape = (len(trained), len(conditions), len(labels))
    given = np.zeros(shape)
    if confusion.empty:
        return given
    rows = confusion[confusion["model"] == model]
    counted = rows.groupby(["trained_on", "condition", "prediction"], observed=True)["n"].sum()
    places = [{name: place for place, name in enumerate(names)} for names in (trained, conditions, labels)]
    for key, n in counted.items():
        at = [place.get(str(word), -1) for place, word in zip(places, key, strict=True)]  # type: ignore[call-overload]
        if min(at) >= 0:
            given[tuple(at)] = n
    return given


def from_table(table: pa.Table, *, order: Sequence[str] = ()) -> Answers:
    """Return the answers of a table with ``COLUMNS``, of one model: the rows classified with status ok."""
    classified = equals(table, "task", "classify")
    if not classified.all():
        table = table.select(COLUMNS).filter(pa.array(classified))
    condition, conditions = _named(table)
    fine = equals(table, "status", "ok")
    if not fine.all():
        table, condition = table.select(COLUMNS).filter(pa.array(fine)), condition[fine]
    (source, sources), (label, labels), (trained_on, trained), (lent, lenders), (said, answers) = (
        codes_of(table, name) for name in ("source_id", "label", "trained_on", "donor_label", "prediction_restricted")
    )
    fold = table["fold"].to_numpy().astype(np.intp)
    names = sorted({*labels, *answers, *lenders})
    place = {name: number for number, name in enumerate(names)}
    said, donor_class = (_into(place, *pair) for pair in ((said, answers), (lent, lenders)))
    original = condition == (conditions.index(ORIGINAL) if ORIGINAL in conditions else -2)
    before = _answer_before(trained_on, source, fold, said, original)
    shape = (len(trained), len(conditions), len(labels))
    among = np.append(_into({name: number for number, name in enumerate(labels)}, np.arange(len(names)), names), -1)
    answered = among[said]
    cell = (trained_on * np.intp(shape[1]) + condition) * np.intp(shape[2]) + answered
    given = np.bincount(cell[answered >= 0], minlength=shape[0] * shape[1] * shape[2])
    right, restricted = (
        table[name].fill_null(False).to_numpy().astype(np.float64) for name in ("correct", "correct_restricted")
    )
    return Answers(
        conditions=conditions, condition=condition, trained=trained, trained_on=trained_on, labels=labels, label=label,
        sources=sources, source=source, donor=codes_of(table, "donor_id")[0], donor_labels=lenders, donor_label=lent,
        fold=fold, n=np.ones(len(right)), right=right, right_restricted=restricted,
        captured=((said == donor_class) & (lent >= 0)).astype(np.float64),
        captured_before=((before == donor_class) & (lent >= 0)).astype(np.float64),
        given=given.reshape(shape).astype(np.float64),
        same_images=_repeats(condition, conditions, source, codes_of(table, "image_sha256")[0], order),
    )  # fmt: skip


def _into(place: dict[str, int], numbers: Codes, words: list[str]) -> Codes:
    """Return codes into other names, −1 if a word is not among them."""
    return np.array([*(place.get(word, -1) for word in words), -1], np.intp)[numbers]


def _answer_before(trained_on: Codes, source: Codes, fold: Codes, said: Codes, original: NDArray[np.bool_]) -> Codes:
    """Return what was answered to the original of each row's image (the first in the alphabet of several), −2: none."""
    run, runs = codes(trained_on * np.intp(2**32) + fold)
    photo = source * np.intp(max(runs, 1)) + run
    first = np.full(int(photo.max(initial=0)) + 1, np.iinfo(np.intp).max)
    answered = original & (said >= 0)
    np.minimum.at(first, photo[answered], said[answered])
    first[first == np.iinfo(np.intp).max] = -2
    return np.asarray(first[photo])


def _named(table: pa.Table) -> tuple[Codes, list[str]]:
    """Name conditions: id, variant unless it is the paper's, parameters if there are several."""
    (ids, id_names), (variants, variant_names), (given, given_names) = (
        codes_of(table, name) for name in ("condition", "variant", "parameters")
    )
    number, count = codes((ids * (len(variant_names) + 1) + variants) * (len(given_names) + 1) + given)
    row = np.zeros(count, np.intp)  # one of each kind
    row[number] = np.arange(len(number))
    keys = [*zip(ids[row].tolist(), variants[row].tolist(), given[row].tolist(), strict=True)]
    settings = [(id_names[name], variant_names[variant], given_names[text]) for name, variant, text in keys]
    by_setting = condition_names(settings)
    names = [by_setting[setting] for setting in settings]
    final = sorted(set(names))
    place = {name: number for number, name in enumerate(final)}
    return np.array([place[name] for name in names], np.intp)[number] if count else number, final


def _repeats(condition: Codes, names: list[str], source: Codes, image: Codes, order: Sequence[str]) -> frozenset[str]:
    """Return the conditions whose images are all those of an earlier one."""
    known = {name: place for place, name in enumerate(order)}
    has_image = image >= 0
    pairs = source[has_image] * (np.intp(image.max(initial=0)) + 1) + image[has_image]
    first: dict[bytes, str] = {}
    same = set()
    for name in sorted(names, key=lambda name: (name != ORIGINAL, known.get(name, len(known)), name)):
        own = np.unique(pairs[condition[has_image] == names.index(name)])
        if len(own) and first.setdefault(own.tobytes(), name) != name:
            same.add(name)
    return frozenset(same)
