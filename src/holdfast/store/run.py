"""A run directory: what was asked for, on which samples, and every finished row.

``spec.json``, ``environment.json``, ``samples.parquet``, ``predictions/part-*.parquet``.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.dataset as ds

from holdfast import registry
from holdfast.core.errors import UserError
from holdfast.core.files import json_object, whole_file, write_atomic
from holdfast.core.lazy import pd
from holdfast.core.places import address, is_file, shown
from holdfast.core.schema import ATTRIBUTIONS, CLASSIFY, PREDICTIONS, SAMPLES
from holdfast.store.parts import Parts, detail_tables, read_table, write_json, write_table
from holdfast.store.remote import fetched


def other_data(folder: Path, data: str, specs: str = "spec.json") -> list[str]:
    """Return the data of the runs in a folder that are not ``data``; ``specs`` says where their specs are."""
    texts = {str(Run(path.parent).spec().get("data")) for path in folder.glob(specs)}
    return sorted(text for text in texts if text != data and Path(text).resolve() != Path(data).resolve())


def unmixed(folder: Path, data: str, specs: str = "spec.json") -> Path:
    """Return the folder, or the first of FOLDER-2, FOLDER-3 …, in which no run is of other data."""
    names = (folder.with_name(f"{folder.name}-{place}") for place in itertools.count(2))
    return next(each for each in itertools.chain([folder], names) if not other_data(each, data, specs))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


_KINDS: dict[str, Callable[[Any], bool]] = {
    "text": _is_text,
    "text or null": lambda value: value is None or _is_text(value),
    "a list of texts": lambda value: isinstance(value, list) and all(map(_is_text, value)),
    "true or false": lambda value: isinstance(value, bool),
    "a whole number": _is_count,
    "a list of whole numbers": lambda value: isinstance(value, list) and all(map(_is_count, value)),
    "an object": lambda value: isinstance(value, dict),
    "an object of whole numbers": lambda value: (
        isinstance(value, dict) and all(number is None or _is_count(number) for number in value.values())
    ),
    "a list or an object": lambda value: isinstance(value, (list, dict)),
}
_ENTRIES = {
    "text": ("data", "dataset", "verb", "task", "scenarios", "device", "train_on", "outcome", "depth", "fill"),
    "text or null": ("masks", "labels", "boxes", "backgrounds"),
    "a list of texts": ("models", "model_names", "classes", "architectures"),
    "true or false": ("fast", "search", "pretrained"),
    "a whole number": ("seed", "limit", "batch_size", "max_pixels", "folds"),
    "a list of whole numbers": ("matte",),
    "an object": ("trained_by", "walk"),
    "an object of whole numbers": ("model_parameters",),
    "a list or an object": ("rounds",),
}
"""The entries of spec.json that other commands read, by what they must be."""


class Run:
    """A run directory. Reading needs no lock; a writer holds ``writing(run.path)``."""

    def __init__(self, path: Path | str, *, where: ds.Expression | None = None) -> None:
        self.path = Path(path)
        self.predictions = Parts(self.path / "predictions", PREDICTIONS, where=where)

    @classmethod
    def open(cls, path: Path | str) -> Run:
        """Return the run at a path; a UserError if there is none."""
        if not is_file(f"{shown(path)}/spec.json"):  # looked for first: a store's folder of images is long to fetch
            why = "is not a run directory (it has no spec.json)"
            missing = not address(path) and not Path(path).exists()
            raise UserError(f"{shown(path)} {'does not exist' if missing else why}; holdfast eval makes a run")
        return cls(fetched(path))

    def of_samples(self, ids: Collection[str]) -> Run:
        """Return this run as if it had rows of these samples only; what is stored stays."""
        here = pc.field("sample_id").isin(pa.array(sorted(ids), pa.string()))
        return Run(self.path, where=here) if self.predictions.dataset().count_rows(filter=~here) else self

    def begin(self, spec: Mapping[str, Any], *, same: tuple[str, ...] = ()) -> None:
        """Record what is asked for. An existing run must agree in the entries of ``same``, or rows would mix."""
        if (self.path / "spec.json").exists():
            old = self.spec()
            for name in same:
                before, now = (each.get(name, CLASSIFY if name == "task" else None) for each in (old, spec))
                if before != now:
                    if isinstance(before, Mapping) and isinstance(now, Mapping):  # a recipe: what of it differs
                        before, now = (
                            {key: recipe.get(key) for key in now if before.get(key) != now.get(key)}
                            for recipe in (before, now)
                        )
                    raise UserError(
                        f"{self.path} holds a run whose {name} is {_short(before)}, not {_short(now)}; choose another "
                        "--out"
                    )
        write_json(self.path / "spec.json", spec)

    @property
    def run_id(self) -> str:
        """Return the directory's name."""
        return self.path.resolve().name

    def spec(self) -> dict[str, Any]:
        """Return what was asked for; a UserError that names the file if an entry is of another kind."""
        file = self.path / "spec.json"
        try:
            spec = dict(json.loads(file.read_text(encoding="utf8")))
        except (ValueError, TypeError, RecursionError) as error:
            raise UserError(f"{file} is not JSON of a specification: {error}") from error
        for kind, names in _ENTRIES.items():
            for name in names:
                if name in spec and not _KINDS[kind](spec[name]):
                    raise UserError(
                        f"{file} is damaged: {name!r} is {json.dumps(spec[name])[:60]}, expected {kind}. Delete it and "
                        "run the command that made the run again with the same --out"
                    )
        return spec

    def environment(self) -> dict[str, Any]:
        """Return the machine, the versions and the command of the run; empty if they cannot be read."""
        return json_object(self.path / "environment.json")

    def write_environment(self, environment: Mapping[str, Any]) -> None:
        """Record the machine and the library versions."""
        write_json(self.path / "environment.json", environment)

    def write_samples(self, samples: pa.Table | pa.RecordBatchReader) -> None:
        """Record the samples and their fingerprints."""
        write_table(self.path / "samples.parquet", samples.cast(SAMPLES) if isinstance(samples, pa.Table) else samples)

    def samples(self) -> pa.Table:
        """Return the samples of this run; empty before the first plan."""
        path = self.path / "samples.parquet"
        return read_table(path, SAMPLES, key=("sample_id",)) if path.exists() else SAMPLES.empty_table()

    def rows(self, columns: list[str] | None = None) -> pa.Table:
        """Return the one table, or some of its columns."""
        return self.predictions.rows(columns)

    def tasks(self) -> list[str]:
        """Return what the models were asked for, names of ``registry.tasks``; ``walks`` if images were walked."""
        table, walked = self.predictions.dataset(), pc.field("kind") == "dynamic"
        filters = {task: (pc.field("task") == task) & ~walked for task in sorted(registry.tasks)} | {"walks": walked}
        return [task for task, own in filters.items() if table.head(1, columns=["task"], filter=own).num_rows]

    def details(self, name: str) -> Parts:
        """Return the table ``details/NAME``; a row there carries the ``row_id`` of its row in the one table."""
        folder = self.path / "details" / name
        if name == "attributions":
            return Parts(folder, ATTRIBUTIONS, key=("row_id", "method", "target"))
        return Parts(folder, detail_tables()[name][0])


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def guarded(text: str) -> str:
    """Return text that no spreadsheet runs as a formula: a quote is before it if needed."""
    return f"'{text}" if text.lstrip(" ")[:1] in ("=", "+", "-", "@", "\t", "\r", "\n") and text.strip() else text


def frame_csv(frame: pd.DataFrame) -> bytes:
    """Return a frame as CSV, its texts and names of columns guarded."""
    frame = frame.rename(columns=lambda name: guarded(str(name)))
    for place in range(frame.shape[1]):
        column = frame.iloc[:, place]
        if column.dtype.kind not in "biuf":
            values = [guarded(value) if isinstance(value, str) else value for value in column.astype(object)]
            frame.isetitem(place, values)
    return str(frame.to_csv(index=False, lineterminator="\n")).encode()


def write_frame(folder: Path, name: str, frame: pd.DataFrame) -> None:
    """Write ``NAME.parquet`` for programs and ``NAME.csv`` for people."""
    write_table(folder / f"{name}.parquet", pa.Table.from_pandas(frame, preserve_index=False))
    write_atomic(folder / f"{name}.csv", frame_csv(frame))


def table_csv(table: pa.Table) -> bytes:
    """Return an Arrow table as CSV, its texts guarded."""
    for place, column in enumerate(table.schema):
        if pa.types.is_string(column.type) or pa.types.is_dictionary(column.type):
            texts = pc.replace_substring_regex(table[column.name].cast(pa.string()), r"^( *[=+\-@\t\r\n])", r"'\1")
            table = table.set_column(place, column.name, texts)
    text = pa.BufferOutputStream()
    pacsv.write_csv(table, text)
    return cast(bytes, text.getvalue().to_pybytes())


def write_csv(path: Path, table: pa.Table | pa.RecordBatchReader) -> None:
    """Write a table that commands read again, every text as it is; the file appears when it is whole."""
    with whole_file(path) as temporary, pacsv.CSVWriter(temporary, table.schema) as file:
        for batch in table.to_batches() if isinstance(table, pa.Table) else table:
            file.write_batch(batch)
