"""Write a run as one archive of open formats, for people who read it years later or without Holdfast.

The same run gives the same bytes: names are sorted, dates fixed, rows ordered by what they are.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from holdfast.core.distribution import installed_version
from holdfast.core.errors import UserError
from holdfast.core.files import whole_file, write_atomic
from holdfast.core.fingerprint import file_sha256
from holdfast.core.schema import SCHEMA_VERSION
from holdfast.pipeline.declaration import ATTACHED, attached
from holdfast.pipeline.jobs.progress import Progress, silent
from holdfast.results import Results, result_tables
from holdfast.store import Parts, Run, read_table, write_json, write_table
from holdfast.store.foreign import MAX_TEXT, is_steering
from holdfast.store.run import frame_csv
from holdfast_evidence.archive import BUNDLE_VERSION, FORMAT, MANIFEST
from holdfast_evidence.export.columns import TABLES, TableKind, in_words, readme
from holdfast_evidence.export.private import Clean, clean_command, clean_values, cleaner, texts_in, words_of


def summary_tables(run: Run, results: Path) -> dict[str, str]:
    """Return name → CSV of every table that the rows allow; ``results``: a folder of tables that a verb wrote.

    Names that begin as a formula does get an apostrophe, so that no spreadsheet computes them.
    """
    tables: dict[str, str] = {}
    opened = Results(run)
    telltale = run.spec().get("verb") == "detect"
    for name, make in ((name, make) for task in run.tasks() for name, make in result_tables(task).items()):
        if telltale and not name.startswith("accuracy"):
            continue  # its classes are kinds of images, and nothing is lost between them
        try:
            tables[name] = frame_csv(make(opened)).decode()
        except UserError:
            continue  # these rows do not have what it takes: one condition has no score
    for path in sorted(results.glob("*.parquet")):
        tables[path.stem] = frame_csv(read_table(path).to_pandas()).decode()
    return tables


PICTURES = {
    "images": (".png",),
    "frames": (".png",),
    "generated": (".jpg",),
    "attributions": (".jpg",),
    "details/attributions/pictures": (".jpg",),  # of older runs
}
MODELS = (".safetensors", ".json", ".md")  # weights that are data and no code, and what is said of them
_ROWS, _BYTES = 250_000, 256 << 20  # of a part file, about
_STORED = (".parquet", ".png", ".jpg", ".safetensors")
_EPOCH = (1980, 1, 1, 0, 0, 0)
_PLAIN_FILE = 0o100644 << 16
_GRADIENT = re.compile(r"\bgradient_[0-9]+\b")
_IDS = ("sample_id", "source_id", "donor_id")
_KEYS = ("model", "parameters", "oracle")
_FREE = ("error", "problem", "raw_text")


@dataclass(frozen=True)
class Bundled:
    """The archive that was written: its path, number of files, bytes, hash, and notes for the user."""

    path: Path
    files: int
    size: int
    sha256: str
    notes: tuple[str, ...] = ()


def bundle(
    run: str | Path,
    out: str | Path,
    *,
    report: bool = True,
    pictures: bool = False,
    models: bool = False,
    progress: Progress = silent,
) -> Bundled:
    """Write everything that is needed to look at a run's results into one ZIP archive.

    Paths of this machine, names of its users and addresses of servers are left out of every text: a path is cut to its
    last name, and files below it keep their names.

    Args:
        run: a run directory.
        out: the archive; replaced if it is there.
        report: with the report, a page that opens without Holdfast.
        pictures: with the images that the run kept (walks, frames, painted backgrounds, maps).
        models: with the models that the run trained.
        progress: called with how far it is.
    """
    opened, target = Run.open(run), Path(out)
    if not opened.predictions.paths():
        raise UserError(f"{run} has no rows to bundle; of a folder that mine or remedy made, bundle the runs inside it")
    if not (opened.path / "samples.parquet").is_file():
        raise UserError(f"{run} has no samples.parquet: which images its rows are about is not known any more")
    if target.is_dir():
        raise UserError(f"{out} is a folder; --out names the archive to write, such as result.zip")
    with tempfile.TemporaryDirectory(prefix="holdfast-bundle-") as folder:
        stage = Path(folder) / opened.run_id
        notes = _stage(opened, stage, report=report, pictures=pictures, models=models, progress=progress)
        files = sorted(path.relative_to(stage).as_posix() for path in stage.rglob("*") if path.is_file())
        with whole_file(target, alone=True) as temporary:
            _write_zip(stage, files, temporary, progress)
        digest = file_sha256(target)
    return Bundled(target, len(files), target.stat().st_size, digest, tuple(notes))


def _stage(run: Run, stage: Path, *, report: bool, pictures: bool, models: bool, progress: Progress) -> list[str]:
    """Write the archive's files into a folder, which is itself a run directory, and return notes for the user."""
    stage.mkdir()
    spec, machine = run.spec(), _environment(run)
    clean = _cleaner(run, spec, machine)
    cleaned = clean_values(spec, clean)
    command = {"command": clean_command(str(machine["command"]), clean)} if "command" in machine else {}
    write_json(stage / "spec.json", cleaned)
    write_json(stage / "environment.json", clean_values(machine, clean) | command)
    counts = {}
    for number, kind in enumerate(TABLES):
        progress("tables", number, len(TABLES))
        if rows := _write_parts(run, stage, kind, clean):
            counts[kind.place.removesuffix(".parquet")] = rows
    progress("tables", len(TABLES), len(TABLES))
    notes = [] if cleaned == spec else ["paths of this machine in spec.json were cut to their last names"]
    if record := attached(run):
        kept = {"declaration": record["declaration"]}  # word for word: it is hashed, and may be signed
        short = {name: clean(name) for name in kept["declaration"].get("models", ()) if clean(name) != name}
        measured = {clean(name): digest for name, digest in record.get("models", {}).items()}
        named = {"models": measured, "renamed": short | record.get("renamed", {})}
        declared, settings = kept["declaration"].get("protocol", {}), record.get("settings", {})
        as_declared = {name: value for name, value in settings.items() if value == declared.get(name)}
        named["settings"] = clean_values(settings, clean) | as_declared  # a declared folder still equals itself
        write_json(stage / ATTACHED, clean_values(record, clean) | kept | named)
        if short or clean_values(kept, clean) != kept:
            notes.append(f"{ATTACHED} holds the declaration as it was written, with the paths that it names")
    if pictures:
        counts["pictures"] = sum(len(_copy(run.path, stage, where, kinds, clean)) for where, kinds in PICTURES.items())
    if models:
        copied = _copy(run.path, stage, "models", MODELS, clean)
        counts["models"] = sum(path.suffix == ".safetensors" for path in copied)
        if not counts["models"]:
            notes.append("the run trained no models, so there are none in the bundle")
    for name, text in summary_tables(Run.open(stage), run.path / "results").items():
        write_atomic(stage / "tables" / f"{name}.csv", clean(text).encode())
    if report:
        _write_report(run, stage)
    write_atomic(stage / "columns.txt", in_words().encode())
    write_atomic(stage / "README.txt", readme(cleaned, counts, run.run_id, report=report).encode())
    _write_manifest(stage, run.run_id, counts)
    return notes


def _environment(run: Run) -> dict[str, Any]:
    path = run.path / "environment.json"
    try:
        return dict(json.loads(path.read_text(encoding="utf8"))) if path.is_file() else {}
    except ValueError as error:
        raise UserError(f"{path} is not JSON: {error}") from None


def _cleaner(run: Run, spec: dict[str, Any], machine: dict[str, Any]) -> Clean:
    rows = run.predictions.dataset()
    texts = texts_in(spec) + words_of(str(machine.get("command", "")))
    for name in _KEYS:
        texts += [text for text in pc.unique(rows.to_table([name])[name].cast(pa.string())).to_pylist() if text]
    ids = pc.unique(run.samples()["sample_id"]).to_pylist()
    folders = {str(Path(sample).parent) for sample in ids if sample and sample.startswith("/")}
    return cleaner(texts, {str(run.path.resolve()), str(Path.cwd()), *folders})


def _parts_of(run: Run, kind: TableKind) -> tuple[pa.dataset.Dataset | None, int]:
    """Return the rows of a kind of table, and into how many parts they go."""
    paths = Parts(run.path / kind.place, kind.schema).paths() if kind.is_folder else [run.path / kind.place]
    paths = [path for path in paths if path.is_file()]
    if not paths:
        return None, 0
    facts = [pq.read_metadata(path) for path in paths]
    unpacked = sum(part.row_group(number).total_byte_size for part in facts for number in range(part.num_row_groups))
    rows = sum(part.num_rows for part in facts)
    many = max(math.ceil(rows / _ROWS), math.ceil(unpacked / _BYTES), 1)
    table = pa.dataset.dataset([str(path) for path in paths], schema=kind.schema, format="parquet")
    return table, many if kind.is_folder and "row_id" in kind.schema.names else 1


def _write_parts(run: Run, stage: Path, kind: TableKind, clean: Clean) -> int:
    """Write one kind of table, ordered, in parts by the first digits of the row ids; return the number of rows."""
    parts, many = _parts_of(run, kind)
    if parts is None:
        return 0
    total = 0
    bounds = [f"{number * 16**8 // many:08x}" for number in range(1, many)]
    for number, (low, high) in enumerate(zip(["", *bounds], [*bounds, None], strict=True)):
        inside = None
        if many > 1:
            inside = pc.field("row_id") >= low
            inside = inside if high is None else inside & (pc.field("row_id") < high)
        rows = _ordered(_cleaned(parts.to_table(filter=inside), clean), kind.schema)
        total += len(rows)
        place = f"{kind.place}/part-{number:05d}.parquet" if kind.is_folder else kind.place
        write_table(stage / place, rows)
    return total


def _cleaned(rows: pa.Table, clean: Clean) -> pa.Table:
    """Return texts without this machine's paths; free texts also without control characters."""
    for place, field in enumerate(rows.schema):
        if field.name not in (*_IDS, *_KEYS, *_FREE, "attributes", "model"):
            continue
        column = rows[field.name].combine_chunks()
        column = column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
        encoded = column.dictionary_encode()
        known = encoded.dictionary.to_pylist()
        free = field.name in _FREE
        texts = [text if text is None else _plain(clean(text)) if free else clean(text) for text in known]
        if texts != known:
            values = pa.array(texts, pa.string()).take(encoded.indices)
            rows = rows.set_column(place, field.name, values)
    return rows


def _plain(text: str) -> str:
    text = text[: MAX_TEXT - 1]
    return "".join("\N{REPLACEMENT CHARACTER}" if is_steering(character) else character for character in text)


def _ordered(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows in the order of their contents with texts coded in that order: the same rows give the same bytes."""
    plain = pa.schema(
        [field.with_type(pa.string()) if pa.types.is_dictionary(field.type) else field for field in schema]
    )
    rows = rows.select(schema.names).cast(plain)
    first = [name for name in ("row_id", "job", "sample_id") if name in schema.names]
    names = [*first, *(field.name for field in plain if field.name not in first and not pa.types.is_list(field.type))]
    rows = rows.sort_by([(name, "ascending") for name in names]).combine_chunks()
    for place, field in enumerate(schema):
        if pa.types.is_dictionary(field.type):
            coded = pa.chunked_array([chunk.dictionary_encode() for chunk in rows[field.name].chunks], field.type)
            rows = rows.set_column(place, field, coded)
    return rows.replace_schema_metadata(None)


def _copy(run: Path, stage: Path, folder: str, endings: tuple[str, ...], clean: Clean) -> list[Path]:
    """Copy the files of some kinds below a folder, texts without this machine's paths; links stay where they are."""
    files = [path for path in _files(run / folder) if path.suffix in endings]
    for path in files:
        data = path.read_bytes()
        if path.suffix == ".json":
            data = (json.dumps(clean_values(json.loads(data), clean), indent=2) + "\n").encode()
        elif path.suffix == ".md":
            data = clean(data.decode()).encode()
        write_atomic(stage / path.relative_to(run), data)
    return files


def _files(folder: Path) -> Iterator[Path]:
    if folder.is_dir():
        for path in sorted(folder.rglob("*")):
            hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
            if path.is_file() and not path.is_symlink() and not hidden:
                yield path


def _write_report(run: Run, stage: Path) -> None:
    """Write the report of the bundle's contents, with thumbnails of images that still exist."""
    from holdfast.pipeline.thumbnails import thumbnails
    from holdfast.reports import build
    from holdfast.results import SCORED

    def pictures(_: Run, sources: Any, **options: Any) -> dict[tuple[str, str], bytes]:
        return thumbnails(run, sources, **options)

    build([Run.open(stage)], stage / "report", pictures=pictures, **SCORED)
    for path in _files(stage / "report"):
        if path.suffix in (".html", ".csv", ".json", ".tex", ".svg"):
            text = path.read_text(encoding="utf8").replace(str(stage), stage.name)  # the command that makes it again
            write_atomic(path, _renumbered(text).encode())


def _renumbered(text: str) -> str:
    """Renumber the gradients of a chart within its file; the chart library counts through a process's life."""
    numbers: dict[str, str] = {}
    return _GRADIENT.sub(lambda match: numbers.setdefault(match.group(), f"gradient_{len(numbers)}"), text)


def _write_manifest(stage: Path, name: str, counts: dict[str, int]) -> None:
    files = {
        path.relative_to(stage).as_posix(): {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
        for path in _files(stage)
    }
    write_json(
        stage / MANIFEST,
        {
            "format": FORMAT, "version": BUNDLE_VERSION, "schema_version": SCHEMA_VERSION,
            "holdfast": installed_version(), "run": name, "counts": counts, "files": files,
        },
    )  # fmt: skip


def _write_zip(stage: Path, files: list[str], target: Path, progress: Progress) -> None:
    with zipfile.ZipFile(target, "w") as archive:
        for number, name in enumerate(files):
            progress("pack", number, len(files))
            about = zipfile.ZipInfo(name, _EPOCH)
            about.create_system, about.external_attr = 3, _PLAIN_FILE
            about.compress_type = zipfile.ZIP_STORED if name.endswith(_STORED) else zipfile.ZIP_DEFLATED
            about.file_size = (stage / name).stat().st_size
            with (stage / name).open("rb") as source, archive.open(about, "w") as sink:
                while chunk := source.read(1 << 20):
                    sink.write(chunk)
        progress("pack", len(files), len(files))
