"""The rows of ``synth``'s manifest by condition and id, some at a time: all of them may be more than memory holds."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.core.files import UNFINISHED
from holdfast.store import Parts

AT_ONCE = 100_000
"""Rows that are held and sorted at a time."""

Tables = Callable[[list[str]], Iterator[pa.Table]]
"""Gives the wanted columns of some rows, ``sample_id`` among them, in tables that follow one another; anew whenever it
is called."""

_CONDITION = ["scenario", "variant"]


def in_order(parts: Parts, room: Path) -> Iterator[Tables]:
    """Yield all rows by condition and id: at once, or one condition at a time where there are many.

    Those of many are first copied to a file a condition, since each part has rows of all; ``room`` is the folder for
    these files, which are gone afterwards.
    """
    if parts.count() <= AT_ONCE:
        # One after the other: many small files take twice the memory when several threads read them.
        stored = [pq.read_table(path, schema=parts.schema, use_threads=False) for path in parts.paths()]
        whole = pa.concat_tables([parts.schema.empty_table(), *stored])
        everything = whole.sort_by([(name, "ascending") for name in (*_CONDITION, "sample_id")])
        yield lambda columns: iter([everything.select(columns)])
        return
    with tempfile.TemporaryDirectory(dir=room, prefix=UNFINISHED) as name:
        for path, firsts in _by_condition(parts, Path(name)):
            yield partial(_merged, path, sorted(firsts))
            path.unlink()


def _by_condition(parts: Parts, folder: Path) -> list[tuple[Path, list[tuple[str, int]]]]:
    """Write one file per condition with its rows, one batch per part; return first id and place of each batch."""
    files: dict[tuple[str, str], tuple[Path, list[tuple[str, int]], pa.RecordBatchFileWriter]] = {}
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with ExitStack() as opened:
        for part in parts.paths():
            rows = pq.read_table(part, schema=parts.schema, use_threads=False)
            for key in rows.group_by(_CONDITION).aggregate([]).to_pylist():
                name = key["scenario"], key["variant"]
                if name not in files:
                    path = folder / f"{len(files)}.arrow"
                    writer = opened.enter_context(pa.ipc.new_file(path, parts.schema, options=options))
                    files[name] = path, [], writer
                here = pc.and_(*(pc.equal(rows[column], key[column]) for column in _CONDITION))
                (batch,) = rows.filter(here).sort_by("sample_id").combine_chunks().to_batches()
                path, firsts, writer = files[name]
                firsts.append((batch["sample_id"][0].as_py(), len(firsts)))
                writer.write_batch(batch)
    return [(path, firsts) for _, (path, firsts, _) in sorted(files.items())]


def _merged(path: Path, firsts: Sequence[tuple[str, int]], columns: list[str]) -> Iterator[pa.Table]:
    """Yield the rows of a file by id.

    A part has images that follow one another, so what lies before the first id of the next batch is complete, and few
    batches are held at a time; of a dataset that is not sorted by its ids, all of them.
    ``path``: of ``_by_condition``. ``firsts``: the first id of each batch and its place in the file, in order.
    ``columns``: which of the table.
    """
    with pa.memory_map(str(path)) as file:
        schema = pa.ipc.open_file(file).schema
        options = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(name) for name in columns])
        batches = pa.ipc.open_file(file, options=options)
        narrow = pa.schema([schema.field(name) for name in columns])
        # The texts of a column that are sorted at once may be more than the 2 GiB that the usual type counts up to.
        wide = pa.schema(
            [(column.name, pa.large_string() if column.type == pa.string() else column.type) for column in narrow]
        )
        held: list[pa.Table] = []
        enough = AT_ONCE // 4
        for number, (_, place) in enumerate(firsts, start=1):
            held.append(pa.Table.from_batches([batches.get_batch(place)]).select(columns).cast(wide))
            last = number == len(firsts)
            if sum(map(len, held)) < enough and not last:
                continue
            rows = pa.concat_tables(held).sort_by("sample_id")
            ready = len(rows) if last else pc.sum(pc.less(rows["sample_id"], firsts[number][0])).as_py()
            for start in range(0, ready, AT_ONCE):
                # taken, not sliced: a slice still counts from the first text of all
                yield rows.take(pa.array(range(start, min(start + AT_ONCE, ready)))).cast(narrow)
            held = [rows.slice(ready).combine_chunks()]
            enough = max(AT_ONCE // 4, 2 * (len(rows) - ready))  # else each of many that overlap is sorted in anew
