"""Rows → counts. Every statistic starts here, and nothing after it sees raw rows.

Tables larger than memory reduce, too: DuckDB streams the rows, keeps what is counted of each in a narrow table that
goes to disk if it has to, and counts some models at a time. What has to fit in memory is the result, 34 bytes a
cell.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.lazy import pd
from holdfast.core.names import PLAIN_VARIANTS
from holdfast.core.schema import CLASSIFY
from holdfast.core.types import ORIGINAL

if TYPE_CHECKING:
    import duckdb

BINS = 1000
"""Equal steps of confidence, 0..1. Answers within one step are in random order: an AUROC is met to 1e-3, an area
under risk–coverage of a hundred answers, many of them surer than 0.999, to about 5e-3."""

MEMORY = "300MB"
"""What the database may hold; the rest goes to a temporary folder. The frames that come out are not part of it."""

THREADS = 4  # At most, because each holds buffers of its own
SPAN = 1_000_000  # Rows that are counted at once, unless a single model has more
BATCH = 100_000  # Counted rows that are handed over at once
Outcome = Literal["full", "restricted"]  # Right over all outputs of the model, or among the dataset's classes only


@dataclass(frozen=True)
class Counts:
    """What is left of the rows.

    ``cells``: a row per model × trained_on × condition × label × source × donor × fold with ``n`` and how many were
    ``right`` (full) and ``right_restricted``; ``captured``: answered with the donor's class, and ``captured_before``:
    how many of the same images' originals were. Words are categories, images' and donors' names, too. ``confidence``: a
    row per model × trained_on × condition × bin: ``n``, ``right``, and sums: ``confidence``, ``brier``. ``confusion``:
    a row per model × trained_on × condition × label × prediction: ``n`` (among the dataset's classes). ``attacks``: the
    conditions whose images were made against each model; averages, scores and regressions leave them out unless
    asked, because no two models saw the same images.
    """

    cells: pd.DataFrame
    confidence: pd.DataFrame
    confusion: pd.DataFrame
    trouble: pd.DataFrame  # a row per model × condition × status × error: ``n``, and one ``example``
    same_images: dict[str, str]  # condition → an earlier condition whose images are all identical to its own
    models: list[str]  # in the order of the rows' keys
    conditions: list[str]  # in the order in which they were asked for, the original first
    classes: list[str]  # sorted
    attacks: tuple[str, ...] = ()
    copies: int = 0  # images that repeat another, byte for byte, and count as that one
    clusters: Mapping[str, str] | None = None  # source → its image, if sources are parts of one, such as objects
    chance: float | None = None  # mean success of answers that ignore the image, if the task knows it

    def distinct(self) -> pd.DataFrame:
        """Return the cells without conditions that repeat another's images: those count once."""
        return self.cells[~self.cells["condition"].isin(list(self.same_images))]


def reduce(
    rows: pa.Table | ds.Dataset,
    *,
    order: list[str] | None = None,
    copies: Mapping[str, str] | None = None,
    task: str = CLASSIFY,
) -> Counts:
    """Count the answered rows of a task.

    ``rows``: the one table, or a part of it (any columns beyond those counted are ignored). ``order``: condition names
    in the order wanted; others follow in alphabetical order. ``copies``: image → the image that it repeats, so
    that both are one image with several rows. ``task``: the value of the column ``task``; ``correct`` may be a number
    from 0 to 1.
    """
    import duckdb

    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder, duckdb.connect() as database:
        with suppress(duckdb.InvalidInputException):  # a Jupyter kernel without ipywidgets has no bar to turn off
            database.execute("set enable_progress_bar = false")
        with suppress(duckdb.Error):  # of DuckDB 2: planning a join for every counted column takes longer than counting
            database.execute("set disabled_optimizers = 'distinct_aggregate_rewrite'")
        database.execute("set preserve_insertion_order = false")
        database.execute(f"set memory_limit = '{MEMORY}'; set threads = {min(THREADS, os.cpu_count() or 1)}")
        database.execute("set temp_directory = $folder", {"folder": folder})
        database.register("given" if copies else "rows", rows)
        if copies:
            database.register("copies", pa.table({"copy": list(copies), "photo": list(copies.values())}))
            database.execute(_PHOTOS)
        database.execute(_NAMED.replace("TASK", "'" + task.replace("'", "''") + "'"))
        words = _words(database)
        hit, total = ("float", "double") if _is_share(rows) else ("tinyint", "int")
        database.execute(_NARROW.replace("HIT", hit))
        pa.default_memory_pool().release_unused()  # some 300 MB that reading the files has left behind
        counts = _counts(database, words, order or [], total)
        return replace(counts, copies=len(copies)) if copies else counts


def _is_share(rows: pa.Table | ds.Dataset) -> bool:
    """Return whether answers are right to some part, not only right or wrong."""
    return bool(pa.types.is_floating(rows.schema.field("correct").type))


_PHOTOS = """
    create temp view rows as
        select given.* replace (coalesce(copies.photo, given.source_id::varchar) as source_id)
        from given left join copies on given.source_id::varchar = copies.copy
"""

# A condition's name: its id, its variant unless it is the paper's, its parameters if the table has several.
_NAMED = f"""
    create temp table settings as
        select distinct condition, variant, parameters, kind from rows where task = TASK;
    create temp table several as
        select condition, variant, true as many from settings group by all having count(distinct parameters) > 1;
    create temp macro named(condition, variant, parameters, many) as cast(condition as varchar)
        || case when variant in {PLAIN_VARIANTS} then '' else '@' || variant end
        || case when many then ' ' || parameters else '' end;
    create temp view named as
        select rows.*, named(rows.condition, rows.variant, rows.parameters, several.many) as name
        from rows left join several using (condition, variant) where task = TASK
"""  # noqa: S608 - a constant of ours

_CODED = {
    "model": "model",
    "trained_on": "trained_on",
    "kind": "kind",
    "condition": "name",
    "label": "label",
    "source_id": "source_id",
    "donor_id": "donor_id",
    "donor_label": "donor_label",
    "prediction": "prediction_restricted",
}  # Columns of words and what they are in the rows. They become numbers in sorted order: numbers sort as words do.

# What is counted of a row, in some 40 bytes: read once from the files, then as often as there is something to count.
_NARROW = """
    create temp table narrow as
        select model::model_words as model, trained_on::trained_on_words as trained_on, kind::kind_words as kind,
            name::condition_words as condition, label::label_words as label, source_id::source_id_words as source_id,
            donor_id::donor_id_words as donor_id, donor_label::donor_label_words as donor_label,
            prediction_restricted::prediction_words as prediction,
            fold, correct::HIT as correct, correct_restricted::HIT as correct_restricted, confidence,
            coalesce(prediction_restricted = donor_label, false) as captured,
            case when image_sha256 is not null then hash(source_id, image_sha256) end as image
        from named where status = 'ok'
"""

_CELLS = """
    with own as (select * from narrow where model between $first::model_words and $last::model_words),
    originals as (
        select model, trained_on, source_id, fold, min(prediction) as answer
        from own where condition::varchar = $original group by all)
    select enum_code(n.model) as model, enum_code(n.trained_on) as trained_on, enum_code(n.kind) as kind,
        enum_code(n.condition) as condition, enum_code(n.label) as label, enum_code(n.source_id) as source_id,
        enum_code(n.donor_id) as donor_id, enum_code(n.donor_label) as donor_label, n.fold,
        count(*)::int as n,
        sum(n.correct)::HITS as "right",
        sum(n.correct_restricted)::HITS as right_restricted,
        sum(n.captured::int)::int as captured,
        sum(coalesce(o.answer::varchar = n.donor_label::varchar, false)::int)::int as captured_before
    from own n left join originals o using (model, trained_on, source_id, fold)
    group by all order by all
"""

_CONFIDENCE = """
    select enum_code(model) as model, enum_code(trained_on) as trained_on, enum_code(condition) as condition,
        least(floor(confidence * $bins), $bins - 1)::int as bin,
        count(*)::int as n, sum(correct)::HITS as "right", sum(confidence)::double as confidence,
        sum((confidence - correct) ** 2)::double as brier
    from narrow where model between $first::model_words and $last::model_words and confidence is not null
    group by all order by all
"""

_CONFUSION = """
    select enum_code(model) as model, enum_code(trained_on) as trained_on, enum_code(condition) as condition,
        enum_code(label) as label, enum_code(prediction) as prediction, count(*)::int as n
    from narrow where model between $first::model_words and $last::model_words group by all order by all
"""


def _words(database: duckdb.DuckDBPyConnection) -> dict[str, list[str]]:
    """Return the words of each column, sorted; each becomes a database type, ``<column>_words``."""
    lists = ", ".join(
        f"list_sort(list(distinct {column}::varchar) filter (where {column} is not null)) as {name}"
        for name, column in _CODED.items()
    )
    database.execute(f"create temp table words as select {lists} from named where status = 'ok'")  # noqa: S608
    for name in _CODED:  # an empty type gets a word that no row has: DuckDB 1.5 cannot group by a type without words
        members = f"select unnest(coalesce({name}, [''])) from words"  # noqa: S608
        database.execute(f"create temp type {name}_words as enum ({members})")
    row = database.execute("select * from words").fetchone() or [None] * len(_CODED)
    return {name: texts or [] for name, texts in zip(_CODED, row, strict=True)}


def _counts(database: duckdb.DuckDBPyConnection, words: dict[str, list[str]], order: list[str], total: str) -> Counts:
    spans = _spans(database)
    cells = _frame(database, _CELLS.replace("HITS", total), words, spans, original=ORIGINAL)
    confidence = _frame(database, _CONFIDENCE.replace("HITS", total), words, spans, bins=BINS)
    for name in ("model", "trained_on", "condition"):  # some may have answered without a confidence
        confidence[name] = confidence[name].cat.remove_unused_categories()
    confusion = _frame(database, _CONFUSION, words, spans)
    trouble = database.execute(
        """
        select model, name as condition, status, error, count(*)::int as n, min(sample_id) as example
        from named where status <> 'ok' group by all order by n desc, model, condition, error"""
    ).df()
    settings = database.execute(
        """
        select named(condition, variant, parameters, many) as name, coalesce(bool_or(kind = 'attack'), false)
        from settings left join several using (condition, variant) group by all order by all"""
    ).fetchall()
    known = {name: position for position, name in enumerate(order)}
    conditions = sorted(
        (name for name, _ in settings), key=lambda name: (name != ORIGINAL, known.get(name, len(known)), name)
    )
    return Counts(
        cells,
        confidence,
        confusion,
        trouble,
        _same_images(database, conditions),
        words["model"],
        conditions,
        words["label"],
        tuple(name for name, attack in settings if attack),
    )


def _spans(database: duckdb.DuckDBPyConnection) -> list[tuple[str | None, str | None]]:
    """Return first and last model of each span of models that is counted at once.

    All frames are sorted by model first, so that they can be counted one span after another: no hash table ever holds
    them whole.
    """
    spans: list[tuple[str | None, str | None]] = []
    held = SPAN
    for model, rows in database.execute("select model, count(*) from narrow group by all order by all").fetchall():
        if held + rows > SPAN and held:
            spans.append((model, model))
            held = rows
        else:
            spans[-1] = (spans[-1][0], model)
            held += rows
    return spans or [(None, None)]  # which no row is in: the frames are empty, with all their columns


def _frame(
    database: duckdb.DuckDBPyConnection,
    query: str,
    words: dict[str, list[str]],
    spans: list[tuple[str | None, str | None]],
    **options: object,
) -> pd.DataFrame:
    """Return the query's answers for each span of models, below each other; words as categories."""
    kinds = {name: pd.CategoricalDtype(pd.Index(texts, dtype="str")) for name, texts in words.items()}
    narrow: dict[str, np.dtype[Any]] = {}
    for name, texts in words.items():  # as pandas numbers so many categories
        narrow[name] = np.dtype(np.int8 if len(texts) < 127 else np.int16 if len(texts) < 32767 else np.int32)
    parts: dict[str, list[NDArray[Any]]] = {}
    for first, last in spans:
        reader = database.sql(query, params={"first": first, "last": last, **options}).to_arrow_reader(BATCH)
        for field in reader.schema:
            parts.setdefault(field.name, [np.empty(0, narrow.get(field.name, field.type.to_pandas_dtype()))])
        for batch in reader:
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                numbers = column.cast(pa.int64()).fill_null(-1) if name in narrow else column
                # Copied, because a view of one column would keep the whole batch.
                parts[name].append(np.array(numbers.to_numpy(zero_copy_only=False), narrow.get(name)))
    columns: dict[str, Any] = {}
    for name in list(parts):
        whole = np.concatenate(parts.pop(name))
        columns[name] = pd.Categorical.from_codes(whole, dtype=kinds[name]) if name in kinds else whole
    return pd.DataFrame(columns, copy=False)


def _same_images(database: duckdb.DuckDBPyConnection, conditions: list[str]) -> dict[str, str]:
    """Return conditions whose images are all identical to those of one earlier in the list."""
    digests = database.execute(
        """
        select condition, bit_xor(image), count(*) from
            (select distinct condition, image from narrow where image is not null)
        group by all"""
    ).fetchall()
    content = {name: (digest, count) for name, digest, count in digests}
    first: dict[object, str] = {}
    same: dict[str, str] = {}
    for name in conditions:
        if name in content and content[name] in first:
            same[name] = first[content[name]]
        elif name in content:
            first[content[name]] = name
    return same


def right_column(outcome: Outcome) -> str:
    """Return the column of ``cells`` that counts this kind of right answer."""
    if outcome not in get_args(Outcome):
        raise UserError(f"the outcome must be {' or '.join(get_args(Outcome))}, not {outcome!r}")
    return "right" if outcome == "full" else "right_restricted"
