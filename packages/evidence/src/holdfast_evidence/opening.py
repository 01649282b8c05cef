"""Open a stranger's bundle as a run directory: everything is checked before anything is written.

The archive is gone through twice. The first time every member is unpacked in memory, hashed and read as what it has to
be; the second time the same bytes, hashed again, are written to a folder next to the target, which gets its name last.
Tables and settings are written again from what was read, so that nothing of the file but its contents continues.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.errors import UserError
from holdfast.core.files import whole_folder, write_atomic
from holdfast.core.fingerprint import file_sha256
from holdfast.core.names import parse_name
from holdfast.core.schema import DETECT, PREDICTIONS, SCHEMA_VERSION
from holdfast.pipeline.declaration import ATTACHED
from holdfast.store import write_json, write_table
from holdfast.store.foreign import is_steering, parse_foreign_json, read_foreign
from holdfast_evidence import archive as archives
from holdfast_evidence.archive import FORMAT, Manifest, Member, read_manifest
from holdfast_evidence.bundle import MODELS, PICTURES
from holdfast_evidence.export.columns import TABLES, TableKind

MAX_SETTINGS = 4 << 20
MAX_TABLE = 1 << 30
MAX_PICTURE = 64 << 20
MAX_PIXELS = 100_000_000
MAX_WEIGHTS = 4 << 30
MAX_OTHER = 256 << 20

SENDER = "as_sent"  # what of spec.json goes if nothing is read or loaded by it
READ = (
    "data", "masks", "backgrounds", "labels", "prompts", "sparse", "models", "architectures", "generator", "oracle",
    "surrogates", "targets", "review_votes", "generated",
)  # fmt: skip
"""Settings by which other verbs would read files or load models that the sender chose."""

_STATUS = {"ok", "error", "skipped", "pending", "rejected"}
_TEXTS = ("README.txt", "columns.txt")
_DRAWN = 100_000


@dataclass
class Opened:
    """The run directory that was written, and what was left out of it."""

    path: Path
    files: int
    counts: dict[str, int]
    notes: list[str] = field(default_factory=list)


def open_bundle(
    bundle: str | Path,
    out: str | Path,
    *,
    data: str = "",
    masks: str = "",
    max_bytes: int = archives.MAX_TOTAL,
) -> Opened:
    """Check a bundle and write it as a run directory, or refuse it in a sentence and write nothing.

    The sender's report, a stranger's web page, is not written. ``data`` and ``masks`` say where the images are here;
    where the sender's were is not believed. The archive may unpack to ``max_bytes``.
    """
    path, target = Path(bundle), Path(out)
    with whole_folder(target) as folder, archives.opened(path, most=max_bytes) as archive:
        manifest = read_manifest(archive, path.name)
        _check_contents(archive, manifest, path.name)
        notes = _write(archive, manifest, folder, data=data, masks=masks)
        facts = {
            "format": FORMAT,
            "version": manifest.version,
            "sha256": file_sha256(path),
            "holdfast": manifest.holdfast,
        }
        write_json(folder / "bundle.json", facts | {"run": manifest.run})
    return Opened(target, len(manifest.files), dict(manifest.counts), notes)


def _kind_of(name: str) -> TableKind | None:
    """Return the kind of table that a member is, or None."""
    for kind in TABLES:
        if name == kind.place or (
            kind.is_folder and re.fullmatch(re.escape(kind.place) + r"/part-[0-9]{5}\.parquet", name)
        ):
            return kind
    return None


def _picture_folder(name: str) -> bool:
    return any(name.startswith(f"{folder}/") and name.endswith(endings) for folder, endings in PICTURES.items())


def _check_contents(archive: zipfile.ZipFile, manifest: Manifest, bundle: str) -> None:
    """Unpack, hash and read every member; only the names of rows and images are kept."""
    for needed in ("spec.json", "environment.json", "samples.parquet"):
        if needed not in manifest.files:
            raise UserError(f"{bundle} has no {needed}: it is not a whole bundle")
    contents = _Contents()
    for name in sorted(manifest.files, key=lambda path: (not path.startswith("predictions/"), path)):
        kind = _kind_of(name)
        if kind is not None:
            contents.add(kind, _table(archive, manifest, name, kind), name)
        elif name.endswith((".json", ".txt", ".md")) or _picture_folder(name):
            _check_file(name, _bytes(archive, manifest, name, MAX_PICTURE if _picture_folder(name) else MAX_SETTINGS))
        else:
            _check_stream(archive, manifest, name, bundle)
    if not contents.rows:
        raise UserError(f"{bundle} has no rows")
    counted = contents.counts | {
        "pictures": sum(_picture_folder(path) for path in manifest.files),
        "models": sum(path.startswith("models/") and path.endswith(".safetensors") for path in manifest.files),
    }
    for what in sorted({*manifest.counts, *counted}):
        if manifest.counts.get(what, 0) != counted.get(what, 0):
            stated = manifest.counts.get(what, 0)
            raise UserError(f"{bundle} has {counted.get(what, 0)} of {what[:80]!r}, and its manifest says {stated}")


@dataclass
class _Contents:
    """The names that were read so far, to check one table against another."""

    rows: set[str] = field(default_factory=set)
    shown: set[str] = field(default_factory=set)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: TableKind, table: pa.Table, name: str) -> None:
        """Raise a UserError if a table contradicts those before it; predictions come first."""
        place = kind.place.removesuffix(".parquet")
        self.counts[place] = self.counts.get(place, 0) + len(table)
        for column in kind.files:
            for text in pc.unique(table[column].cast(pa.string())).to_pylist():
                if text:
                    archives.check_name(text)
        if place == "predictions":
            _check_predictions(table, name)
            before = len(self.rows)
            self.rows.update(table["row_id"].to_pylist())
            if len(self.rows) < before + len(table):
                raise UserError(f"{name} has a row_id twice, or one that another part has")
            self.shown.update(pc.unique(table["sample_id"]).to_pylist())
        elif place == "samples":
            known = set(table["sample_id"].to_pylist())
            if strange := sorted(self.shown - known)[:1]:
                raise UserError(f"the rows are about images that {name} does not have, such as {strange[0][:80]!r}")
            if len(known) < len(table):
                raise UserError(f"{name} has a sample_id twice")
        elif "row_id" in kind.schema.names and set(table["row_id"].to_pylist()) - self.rows:
            raise UserError(f"{name} has details of rows that are not in the bundle")


def _check_predictions(table: pa.Table, name: str) -> None:
    for column in ("row_id", "sample_id", "source_id", "condition", "task", "label", "model", "status", "kind"):
        rows = table
        if column == "label":  # a detector's image without objects has none
            rows = table.filter(pc.not_equal(table["task"].cast(pa.string()), DETECT))
        if rows[column].null_count:
            raise UserError(f"{name} has a row without {column}")
    if strange := set(pc.unique(table["status"].cast(pa.string())).to_pylist()) - _STATUS:
        raise UserError(f"{name} has a status that there is not: {sorted(strange)[0][:80]!r}")
    versions = pc.unique(table["schema_version"].drop_null()).to_pylist()
    if any(not 1 <= version <= SCHEMA_VERSION for version in versions):
        raise UserError(f"{name} has rows of another version than this Holdfast reads: update Holdfast to open it")
    for column in PREDICTIONS:
        if pa.types.is_floating(column.type):
            numbers = table[column.name].drop_null().to_numpy()
            # Not a comparison that NaN passes.
            if len(numbers) and not (np.isfinite(numbers).all() and -0.001 <= numbers.min() <= numbers.max() <= 1.001):
                raise UserError(f"{name} has a {column.name} that is not a number between 0 and 1")


def _bytes(archive: zipfile.ZipFile, manifest: Manifest, name: str, most: int) -> bytes:
    member = manifest.files[name]
    if member.bytes > most:
        raise UserError(f"{name} has {member.bytes} bytes; no such file of a bundle has more than {most}")
    return archives.read_member(archive, name, size=member.bytes, digest=member.sha256)


def _table(archive: zipfile.ZipFile, manifest: Manifest, name: str, kind: TableKind) -> pa.Table:
    older = manifest.schema_version < SCHEMA_VERSION
    data = _bytes(archive, manifest, name, MAX_TABLE)
    return read_foreign(data, kind.schema, name, json_columns=kind.json, older=older)


def _check_file(name: str, data: bytes) -> None:
    """Check settings, pages of text and images by their kind."""
    if name in ("spec.json", "environment.json", ATTACHED):
        _settings(data, name)
    elif _picture_folder(name):
        _check_picture(name, data)
    elif name in _TEXTS or (name.startswith("models/") and name.endswith(MODELS)):
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise UserError(f"{name} is not text") from None
        if name.endswith(".json"):
            parse_foreign_json(text, name)
    elif not name.startswith("report/"):
        raise UserError(f"{name!r} is nothing that a bundle has")


def _settings(data: bytes, name: str) -> dict[str, Any]:
    value = parse_foreign_json(data, name)
    if not isinstance(value, dict):
        raise UserError(f"{name} is not a JSON object")
    if any(is_steering(text) for text in _texts(value)):
        raise UserError(f"{name} has a control character in it")
    return value


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from _texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _texts(inner)


def _check_picture(name: str, data: bytes) -> None:
    """Check from the header that an image is of its kind and not too large; nothing is decoded."""
    import io
    import warnings

    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data), formats=("PNG",) if name.endswith(".png") else ("JPEG",)) as picture:
                width, height = picture.size
    except Exception:
        raise UserError(f"{name} is not an image of its kind") from None
    if width * height > MAX_PIXELS:
        raise UserError(f"{name} has {width} × {height} pixels, more than {MAX_PIXELS}")


def _check_stream(archive: zipfile.ZipFile, manifest: Manifest, name: str, bundle: str) -> None:
    """Check the hash of a member that is not read otherwise: summary tables, reports, weights."""
    member = manifest.files[name]
    weights = name.startswith("models/") and name.endswith(".safetensors")
    if not (weights or name.startswith("report/") or re.fullmatch(r"tables/[\w.-]+\.csv", name)):
        raise UserError(f"{name!r} of {bundle} is nothing that a bundle has")
    if member.bytes > (MAX_WEIGHTS if weights else MAX_OTHER):
        raise UserError(f"{name} has {member.bytes} bytes, more than any such file of a bundle")
    head = b""
    for chunk in archives.chunks(archive, name, size=member.bytes, digest=member.sha256):
        head = head or chunk
    if weights and not (len(head) > 9 and int.from_bytes(head[:8], "little") < member.bytes and head[8:9] == b"{"):
        raise UserError(f"{name} is not a safetensors file")


def _write(archive: zipfile.ZipFile, manifest: Manifest, folder: Path, *, data: str, masks: str) -> list[str]:
    """Write what was checked; hashes are checked again, because the file may have changed since."""
    notes = []
    for name in sorted(manifest.files):
        member, kind = manifest.files[name], _kind_of(name)
        if kind is not None:
            write_table(folder / name, _table(archive, manifest, name, kind))
        elif name == "spec.json":
            spec, changed = _without_reading(_settings(_bytes(archive, manifest, name, MAX_SETTINGS), name))
            write_json(folder / name, spec | ({"data": data} if data else {}) | ({"masks": masks} if masks else {}))
            if changed:
                notes.append(f"of spec.json, {', '.join(changed)} went to {SENDER!r}, where nothing is read by them")
        elif name in ("environment.json", ATTACHED):
            write_json(folder / name, _settings(_bytes(archive, manifest, name, MAX_SETTINGS), name))
        elif name.startswith("models/") or _picture_folder(name):
            _extract(archive, name, folder / name, member)
    return notes


def _extract(archive: zipfile.ZipFile, name: str, target: Path, member: Member) -> None:
    if member.bytes <= MAX_OTHER:
        write_atomic(target, archives.read_member(archive, name, size=member.bytes, digest=member.sha256))
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("xb") as file:
        for chunk in archives.chunks(archive, name, size=member.bytes, digest=member.sha256):
            file.write(chunk)


def _without_reading(spec: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return a specification that makes nothing read or load; entries that would are moved aside.

    Drawn scenes are our own, made of a few numbers: they stay, so that reports can draw them and say what they are.
    """
    moved = {name: spec[name] for name in READ if spec.get(name)}
    if _is_drawn(moved.get("data")):
        del moved["data"]
    kept = {name: value for name, value in spec.items() if name != SENDER and name not in moved}
    before = spec.get(SENDER)
    aside = (before if isinstance(before, dict) else {}) | moved
    return kept | ({SENDER: aside} if aside else {}), sorted(moved)


def _is_drawn(data: Any) -> bool:
    if not isinstance(data, str) or not data.startswith(("diorama:", "diorama-rerendered:")):
        return False
    try:
        count = parse_name(data, tagged=False).options.get("n", 0)
    except UserError:
        return False
    return isinstance(count, int) and 0 <= count <= _DRAWN
