"""Sets of masks: a folder of masks in the database, image by image, kept in agreement with it."""

from __future__ import annotations

import csv
import dataclasses
import io
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

from holdfast.core.errors import SampleError, UserError
from holdfast.core.files import clear_unfinished, write_atomic
from holdfast.core.fingerprint import bytes_sha256
from holdfast.core.types import DEFAULT_MAX_PIXELS, Mask, Sample
from holdfast.data.images import IMAGE_SUFFIXES
from holdfast.data.masks import FileMask, decode_mask
from holdfast.data.reading import attach_masks, without_suffix
from holdfast_people.database import Database
from holdfast_people.masks import Drawing, drawings, get_drawing, insert_version, notice, write_png
from holdfast_people.tables import images, mask_images, mask_sets

LIST = "masks.csv"  # the list that ``holdfast mask`` writes: which file is whose mask, and its confidence
NO_MASK = -1.0  # confidence of a missing mask, so that images without one come first
_COLUMNS = ("path", "sample_id", "label", "confidence", "area", "annotator", "status", "error")
_BATCH = 64  # images a transaction, so that a running server is not kept waiting

Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class _MaskFile:
    """The mask file of a sample before anybody draws."""

    sample: Sample
    path: str
    confidence: float | None = NO_MASK
    how: str = ""
    mask: Mask | None = None
    sha256: str = ""


def open_set(
    database: Database,
    *,
    source_id: int,
    samples: Sequence[Sample],
    folder: Path,
    guide: str,
    name_file: Callable[[Sample], str],
    now: float,
    progress: Progress,
) -> int:
    """Take a dataset's masks into the database, or update them; return the number of the set.

    Masks come from the folder (what ``holdfast mask`` made, with its confidences, or any tree that ``eval --masks``
    reads) or else from the dataset itself; if there is none, the image waits for one, and ``name_file`` says its
    path. Afterwards the folder has a PNG for every mask.
    """
    folder = folder.expanduser().resolve()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"masks need a folder, and {str(folder)!r} is not one") from None
    with database.writing() as connection:
        of = mask_sets.c
        known_set = connection.scalar(select(of.id).where(of.source_id == source_id, of.folder == str(folder)))
        if known_set is not None:
            connection.execute(mask_sets.update().where(of.id == known_set).values(guide=guide))
        else:
            row = mask_sets.insert().values(source_id=source_id, folder=str(folder), guide=guide, created_at=now)
            known_set = connection.execute(row.returning(of.id)).scalar_one()
        set_id = int(known_set)
        query = select(images.c.sample_id, images.c.id).where(images.c.source_id == source_id)
        numbers = {row.sample_id: int(row.id) for row in connection.execute(query)}
        known = {drawing.image_id for drawing in drawings(connection, set_id)}
        taken = {drawing.path for drawing in drawings(connection, set_id)}
    new = [sample for sample in samples if numbers[sample.sample_id] not in known]
    places = _places(new, folder, name_file, taken)
    _list_places(folder, places)
    done = 0
    progress("masks", 0, len(new))
    with ThreadPoolExecutor(2 * (os.cpu_count() or 1)) as threads:
        for batch in (places[start : start + _BATCH] for start in range(0, len(places), _BATCH)):
            loaded = list(threads.map(lambda place: _load(place, folder), batch))
            with database.writing() as connection:
                for mask_file in loaded:
                    _insert(connection, set_id, numbers[mask_file.sample.sample_id], mask_file, now)
            done += len(batch)
            progress("masks", done, len(new))
    reconcile(database, set_id, now=now, progress=progress)
    return set_id


def reconcile(database: Database, set_id: int, *, now: float, progress: Progress = lambda *_: None) -> int:
    """Make folder and database agree (see ``masks.notice``); returns how many images that changed."""
    with database.reading() as connection:
        all_drawings = drawings(connection, set_id)
    if all_drawings:
        clear_unfinished(Path(all_drawings[0].folder))
    changed = 0
    progress("check", 0, len(all_drawings))
    for done, drawing in enumerate(all_drawings, start=1):
        if file_sha256(drawing) != drawing.sha256:
            with database.writing() as connection:
                after = notice(connection, get_drawing(connection, drawing.id, lock=True), now=now)
            changed += after != drawing
        progress("check", done, len(all_drawings))
    return changed


def file_sha256(drawing: Drawing) -> str:
    """Return the hash of a mask's PNG as it is now; empty if there is none."""
    try:
        return bytes_sha256(drawing.file.read_bytes())
    except FileNotFoundError:
        return ""


def _places(
    samples: Sequence[Sample], folder: Path, name_file: Callable[[Sample], str], taken: set[str]
) -> list[_MaskFile]:
    """Return the mask file of each sample; two samples never share a file."""
    listed = {row["sample_id"]: row for row in _read_list(folder) if row.get("status") == "ok"}
    plain = [dataclasses.replace(sample, mask=None) for sample in samples]
    places = []
    for sample, attached in zip(samples, attach_masks(plain, folder, required=False), strict=True):
        row = listed.get(sample.sample_id)
        if isinstance(attached.mask, FileMask):
            relative = Path(attached.mask.path).relative_to(folder).as_posix()
            path = f"{without_suffix(relative)}.png"
            mask_file = _MaskFile(
                attached, path, _number(row), row.get("annotator") or LIST if row else "found in the folder"
            )
        elif sample.mask is not None:
            mask_file = _MaskFile(sample, f"{name_file(sample)}.png", None, "the dataset's own")
        else:
            mask_file = _MaskFile(sample, f"{name_file(sample)}.png")
        if mask_file.path in taken:
            mask_file = dataclasses.replace(mask_file, path=f"{name_file(sample)}.png")
        taken.add(mask_file.path)
        places.append(mask_file)
    return places


def _number(row: dict[str, str] | None) -> float | None:
    try:
        value = float((row or {}).get("confidence") or "")
    except ValueError:
        return None
    return value if 0 <= value <= 1 else None


def _load(mask_file: _MaskFile, folder: Path) -> _MaskFile:
    """Return the mask file with its mask; an unreadable file counts as none."""
    source = mask_file.sample.mask
    if source is None:
        return mask_file
    try:
        if isinstance(source, FileMask) and Path(source.path) == folder / mask_file.path:
            data = Path(source.path).read_bytes()
            mask = decode_mask(data, format=source.format)
            return dataclasses.replace(mask_file, mask=mask, sha256=bytes_sha256(data))
        height, width = mask_file.sample.image.load(max_pixels=DEFAULT_MAX_PIXELS).shape[:2]
        mask = source.load(height, width)
    except (SampleError, OSError):
        return dataclasses.replace(mask_file, confidence=NO_MASK)
    return dataclasses.replace(mask_file, mask=mask, sha256=write_png(folder / mask_file.path, mask))


def _insert(connection: Connection, set_id: int, image_id: int, mask_file: _MaskFile, now: float) -> None:
    # The image's name for COCO: its id with its file's suffix.
    name, suffix = mask_file.sample.sample_id, Path(str(getattr(mask_file.sample.image, "path", ""))).suffix
    name += suffix if suffix.lower() in IMAGE_SUFFIXES and not name.endswith(suffix) else ""
    row = mask_images.insert().values(
        mask_set_id=set_id, image_id=image_id, path=mask_file.path, file_name=name,
        status="new" if mask_file.mask is None else "automatic", confidence=mask_file.confidence,
        version=0 if mask_file.mask is None else 1, sha256=mask_file.sha256,
    )  # fmt: skip
    number = int(connection.execute(row.returning(mask_images.c.id)).scalar_one())
    if mask_file.mask is not None:
        insert_version(connection, number, 0, mask_file.mask, mask_file.how, now)


def _read_list(folder: Path) -> list[dict[str, Any]]:
    try:
        with (folder / LIST).open(encoding="utf-8-sig", newline="") as stream:
            return [dict(row) for row in csv.DictReader(stream) if row.get("sample_id") and row.get("path")]
    except (OSError, UnicodeDecodeError, csv.Error):
        return []


def _list_places(folder: Path, places: Sequence[_MaskFile]) -> None:
    """Add the masks that ``eval --masks`` would not match by name to the list."""
    rows = _read_list(folder)
    listed = {row["sample_id"]: row["path"] for row in rows if row.get("status") == "ok"}
    owed = [
        {"path": mask_file.path, "sample_id": mask_file.sample.sample_id, "label": mask_file.sample.label,
         "confidence": 0, "area": 0, "annotator": "people", "status": "ok", "error": ""}
        for mask_file in places
        if listed.get(mask_file.sample.sample_id, f"{mask_file.sample.sample_id}.png") != mask_file.path
    ]  # fmt: skip
    if not owed:
        return
    text = io.StringIO()
    writer = csv.DictWriter(text, _COLUMNS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    writer.writerows([*rows, *owed])
    write_atomic(folder / LIST, text.getvalue().encode())
