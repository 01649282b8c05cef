"""The per-sample table of an entry: made of a run's rows, and read from a stranger's file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from holdfast.core.errors import UserError
from holdfast.core.files import stored_object
from holdfast.core.fingerprint import fingerprint
from holdfast.core.schema import PREDICTIONS
from holdfast.stats.core.answers import coded, codes_of, equals, keep
from holdfast.stats.walks.walk_rows import PERTURBED
from holdfast.store.foreign import is_steering, read_coded
from holdfast_evidence.board import objects
from holdfast_evidence.board.entry import Entry

MAX_FILE = 256 << 20
MAX_ROWS = 5_000_000
MAX_ROW_BYTES = 2_000
SOME_BYTES = 32 << 20  # a row takes about 300 bytes; a table of few rows may take a little more for each
MAX_TEXT = 4_000  # characters of any text in a table: parameters are JSON
CUT = 200
ROUNDING = 0.001  # by how much probabilities of one row may differ that were summed in another order
PAINTED = "generated_background"
"""The condition that is made here of images, and so static, though its rows are of kind ``generated``."""

_NEEDED = (
    "task", "kind", "sample_id", "source_id", "fold", "condition", "variant", "parameters", "seed", "model",
    "trained_on", "label", "status", "schema_version",
)  # fmt: skip
_ORDER = ("trained_on", "fold", "sample_id", "condition", "variant", "parameters", "row_id")


def rows_of_protocol(rows: pa.Table, protocol: str) -> pa.Table:
    """Return the rows of one model that belong to a protocol."""
    return rows.filter(pa.array(is_of_protocol(rows, protocol)))


def is_of_protocol(rows: pa.Table, protocol: str) -> NDArray[np.bool_]:
    """Return for each row whether it belongs to a protocol."""
    if protocol == "objects":
        return equals(rows, "task", "detect")
    kinds, names = codes_of(rows, "kind")
    conditions, known = codes_of(rows, "condition")
    kind = np.array([*names, ""], object)[kinds]
    painted = np.array([name == PAINTED for name in known] + [False])[conditions]
    wanted = {
        "static": (kind == "static") | ((kind == "generated") & painted),
        "hard": (kind == "generated") & ~painted,
        "dynamic": kind == "dynamic",
    }[protocol]
    return np.asarray(wanted & equals(rows, "task", "classify"))


def by_setting(rows: pa.Table) -> list[pa.Table]:
    """Return one model's dynamic rows, a table per setting of its walks, with the originals that belong to it."""
    walks = keep(rows, "condition", PERTURBED)
    settings = coded(walks["parameters"])[1]
    numbers, names = coded(rows["parameters"])
    read = {text: stored_object(text, "parameters") for text in names}
    sizes = {text: value.get("size", 0) if isinstance(value, dict) else None for text, value in read.items()}
    tables = []
    for setting in settings:
        # originals carry nothing but the size of the images
        own = np.array([text == setting or (text not in settings and sizes[text] == sizes[setting]) for text in names])
        tables.append(rows.filter(pa.array(own[numbers])))
    return tables


def published(rows: pa.Table) -> pa.Table:
    """Return rows as an entry keeps them: in one order, long texts cut, without the name of the run's folder."""
    keys = [rows[name].to_numpy() if name == "fold" else coded(rows[name])[0] for name in _ORDER]
    rows = rows.select(PREDICTIONS.names).take(pa.array(np.lexsort(keys[::-1]))).combine_chunks()
    columns = []
    for field in PREDICTIONS:
        values = rows[field.name]
        if pa.types.is_dictionary(field.type):  # its words in the order of the rows, not of the run's files
            words = pa.array([""] * len(rows)) if field.name == "run_id" else values.cast(pa.string()).combine_chunks()
            values = words.dictionary_encode().cast(field.type)
        elif field.name in ("raw_text", "error"):
            values = pc.utf8_slice_codeunits(values, 0, CUT)
        columns.append(values)
    return pa.table(columns, schema=PREDICTIONS)


def packed(rows: pa.Table) -> bytes:
    """Return the file's bytes: the same rows give the same bytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd", compression_level=9)
    return bytes(sink.getvalue())


def run_fingerprint(rows: pa.Table) -> str:
    """Return the fingerprint of all row ids, which stand for images, masks, labels, weights and settings."""
    rows = pictures_of(rows)
    ids = codes_of(rows, "row_id")[1]  # sorted
    return fingerprint(ids if len(ids) == len(rows) else sorted(rows["row_id"].cast(pa.string()).to_pylist()))


def read_table(path: Path, entry: Entry) -> pa.Table:
    """Read the table of an entry; a UserError says what is wrong with a stranger's file.

    Size, then hash, then how many rows it has and what its pages unpack to, then schema, then contents.
    """
    if entry.table is None:
        raise UserError(f"{entry.id} is a printed entry: it has no table")
    if path.is_symlink():
        raise UserError(f"{path.name} is a link: a table is a plain file")
    if not path.is_file():
        raise UserError(f"{path.name} is missing: an entry comes with its table")
    if path.stat().st_size > MAX_FILE:
        raise UserError(f"{path.name} is larger than {MAX_FILE >> 20} MB: a table that large is none of a board")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != entry.table.sha256:
        raise UserError(f"{path.name} is not the table of its entry: its hash is another")
    of_objects = entry.protocol.name == "objects"
    rows = _unpacked(data, path.name, entry.table.rows, objects.SCHEMA if of_objects else PREDICTIONS)
    if of_objects:
        objects.check_contents(rows, path.name)
    _contents(rows, path.name, entry)
    return rows


def pictures_of(rows: pa.Table) -> pa.Table:
    """Return the rows of images, one each: of a detector's table some, of any other all."""
    return objects.part_of(rows, objects.PICTURE) if "what" in rows.column_names else rows


def _unpacked(data: bytes, name: str, rows: int, wanted: pa.Schema) -> pa.Table:
    """Return the rows; texts stay dictionaries, so that one long text in a million rows is stored once."""

    def check(metadata: pq.FileMetaData, unpacked: int) -> None:
        if metadata.num_rows > MAX_ROWS or unpacked > SOME_BYTES + metadata.num_rows * MAX_ROW_BYTES:
            raise UserError(f"{name} unpacks to more than a board takes: {MAX_ROWS} rows of {MAX_ROW_BYTES} bytes")
        if metadata.num_rows != rows:
            raise UserError(f"{name} has {metadata.num_rows} rows, and its entry says {rows}")
        _schema(metadata.schema.to_arrow_schema(), name, wanted)

    return read_coded(data, wanted, name, check)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_dictionary(kind))


def _schema(schema: pa.Schema, name: str, wanted_schema: pa.Schema) -> None:
    if schema.names != wanted_schema.names:
        strange = sorted(set(schema.names) ^ set(wanted_schema.names))
        what = f"differs in {', '.join(strange)[:200]}" if strange else "has its columns in another order"
        raise UserError(f"{name} is not a table of predictions: it {what}")
    for field, wanted in zip(schema, wanted_schema, strict=True):
        given = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if _is_text(wanted.type):
            fine = pa.types.is_string(given)
        elif pa.types.is_list(wanted.type):
            inner = given.value_type if pa.types.is_list(given) else given
            fine = pa.types.is_list(given) and (pa.types.is_string(inner) or pa.types.is_dictionary(inner))
        else:
            fine = given == wanted.type
        if not fine:
            raise UserError(f"{name} is not a table of predictions: {field.name} is {field.type}, not {wanted.type}")


def _contents(rows: pa.Table, name: str, entry: Entry) -> None:
    pictures = pictures_of(rows)
    if len(codes_of(pictures, "row_id")[1]) != len(pictures):
        raise UserError(f"{name} has a row_id twice, or a row without one")
    for column in rows.column_names:
        if column in (*objects.CORNERS, "area"):
            continue
        values = rows[column]
        if pa.types.is_floating(values.type):
            if values.null_count == len(values):
                continue
            numbers = (values.drop_null() if values.null_count else values).to_numpy()
            if not -0.001 <= numbers.min() <= numbers.max() <= 1.001:  # neither does NaN
                raise UserError(f"{name} has a {column} that is not a number between 0 and 1")
        elif _is_text(values.type) or pa.types.is_list(values.type):
            _texts(values, column, name)
    for column in _NEEDED:
        if pictures[column].null_count and (column != "label" or pictures is rows):
            raise UserError(f"{name} has a row without {column}")
    if codes_of(rows, "model")[1] != [entry.model.name]:
        raise UserError(f"{name} has rows of another model than {entry.model.name}")
    if codes_of(rows, "dataset")[1] != [entry.dataset.name]:
        raise UserError(f"{name} has rows of another dataset than {entry.dataset.name}")
    if pictures is rows:
        _answers(rows, name)


def _texts(values: pa.ChunkedArray, column: str, name: str) -> None:
    texts: list[str] = []
    for chunk in values.chunks:
        inner = chunk.flatten() if pa.types.is_list(values.type) else chunk
        # of a dictionary all words, used or not: no need for codes
        texts += (inner.dictionary if pa.types.is_dictionary(inner.type) else inner).to_pylist()
    filled = [text for text in texts if text is not None]
    whole = "".join(filled)
    longest = max(map(len, filled)) if len(whole) > MAX_TEXT else 0
    if longest > MAX_TEXT:
        raise UserError(f"{name} has a {column} of {longest} characters; {MAX_TEXT} are enough for any")
    if is_steering(whole):
        raise UserError(f"{name} has a control character in its {column}")


def _answers(rows: pa.Table, name: str) -> None:
    """Check that the columns of an answer agree: the label if it is right, the first of the most probable ones."""
    fine = equals(rows, "status", "ok")
    label, labels = codes_of(rows, "label")
    place = {text: number for number, text in enumerate(labels)}
    for answer, right in (("prediction", "correct"), ("prediction_restricted", "correct_restricted")):
        counted = rows[right]
        if counted.null_count:
            if counted.filter(pa.array(fine)).null_count:
                raise UserError(f"{name} has an answered row without {right}")
            counted = counted.fill_null(False)
        numbers, texts = codes_of(rows, answer)
        said = np.array([*(place.get(text, -1) for text in texts), -1], np.intp)[numbers] == label
        if (fine & (said != counted.to_numpy())).any():
            raise UserError(f"{name} counts an answer as right that is not its label, or the other way round")
    answered, words = codes_of(rows, "prediction")
    first = []  # of every list; null if the list is null or empty
    for chunk in rows["topk"].chunks:
        starts = pa.array(chunk.offsets.to_numpy()[:-1])
        filled = pc.greater(pc.list_value_length(chunk).fill_null(0), 0)
        first.append(chunk.values.take(pc.if_else(filled, starts, None)))
    best, best_words = coded(pa.chunked_array(first, rows["topk"].type.value_type))
    place = {text: number for number, text in enumerate(words)}
    known = np.array([*(place.get(text, -2) for text in best_words), -1], np.intp)
    if (fine & (known[best] != answered)).any():
        raise UserError(f"{name} has a row whose prediction is not the first of its topk")
    of_label, of_answer = (rows[column].fill_null(0).to_numpy() for column in ("probability_of_label", "confidence"))
    right = rows["correct"].fill_null(False).to_numpy(zero_copy_only=False)
    if (fine & right & (of_label < of_answer - ROUNDING)).any():
        raise UserError(f"{name} has a right answer that is more probable than its own class")
