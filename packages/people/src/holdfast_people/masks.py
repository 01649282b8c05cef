"""Masks that people draw: versions in the database, the newest as a PNG, and no one's work overwritten silently.

The PNG is written before the transaction that records it ends. So after a crash the folder is never behind the
database; if it is ahead, or someone else changed the file, ``notice`` makes a version of what it finds.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Select, func, select

from holdfast.core.errors import SampleError, UserError
from holdfast.core.files import whole_file
from holdfast.core.fingerprint import bytes_sha256
from holdfast.core.types import Mask
from holdfast.data.masks import decode_coco, decode_mask
from holdfast.data.writers import encode_mask, mask_rle
from holdfast_people.tables import images, mask_images, mask_sets, mask_versions, people

COLLAPSE_S = 600.0  # autosaves of one person within this many seconds become one version


@dataclass(frozen=True, slots=True)
class Drawing:
    """An image whose mask is drawn; ``version`` is the newest one's, 0 if there is none."""

    id: int
    set_id: int
    image_id: int
    sample_id: str
    label: str
    folder: str
    path: str
    file_name: str
    status: str
    confidence: float | None
    version: int
    sha256: str

    @property
    def file(self) -> Path:
        """Path of the newest version."""
        return Path(self.folder) / self.path


@dataclass(frozen=True, slots=True)
class Version:
    """A mask as COCO's compressed run lengths, and where it comes from; ``person`` is '' if no one drew it."""

    id: int
    version: int
    base: int
    person_id: int | None
    person: str
    height: int
    width: int
    counts: str
    done: bool
    how: str
    editor: str
    created_at: float

    def mask(self) -> Mask:
        """Return the mask as HW bool."""
        return decode_coco({"size": [self.height, self.width], "counts": self.counts}, self.height, self.width)


@dataclass(frozen=True, slots=True)
class Conflict:
    """Nothing was saved: someone saved ``newest`` after the version that the sent mask is based on."""

    newest: Version


def save(
    connection: Connection,
    mask_image_id: int,
    *,
    base: int,
    mask: Mask,
    person_id: int | None,
    done: bool,
    how: str,
    editor: str = "",
    now: float,
) -> Version | Conflict:
    """Make a mask the newest version; it is in its PNG when this returns.

    Sending the same again changes nothing. ``base`` is the version that it was drawn upon, 0 if there was none. What
    the same ``editor`` (an open page) saved last is not a conflict for it: its answer may have been lost on the way.
    """
    drawing = notice(connection, get_drawing(connection, mask_image_id, lock=True), now=now)
    newest = get_version(connection, drawing.id, drawing.version) if drawing.version else None
    counts, (height, width) = mask_rle(mask), mask.shape
    if newest is not None:
        same = (newest.height, newest.width, newest.counts) == (height, width, counts)
        if same and newest.done == done:
            return newest
        if not same and base != newest.version and not (editor and editor == newest.editor):
            return Conflict(newest)
    facts = {
        "version": drawing.version + 1, "person_id": person_id, "height": height, "width": width, "counts": counts,
        "done": done, "how": how[:60], "editor": editor[:64], "created_at": now,
    }  # fmt: skip
    if newest is None:  # what is there and made no version could not be read
        _put_aside(drawing)
    sha256 = write_png(drawing.file, mask)
    own = newest is not None and person_id is not None and newest.person_id == person_id
    if newest is not None and own and not newest.done and now - newest.created_at <= COLLAPSE_S:
        connection.execute(mask_versions.update().where(mask_versions.c.id == newest.id).values(**facts))
    else:
        facts |= {"mask_image_id": drawing.id, "base": drawing.version}
        connection.execute(mask_versions.insert().values(**facts))
    _point(connection, drawing, version=drawing.version + 1, status="done" if done else "draft", sha256=sha256)
    return get_version(connection, drawing.id, drawing.version + 1)


def notice(connection: Connection, drawing: Drawing, *, now: float) -> Drawing:
    """Make the folder and the database agree on one image, without losing what either has.

    A PNG that is not as we left it becomes the newest version; one that is gone is written again; one that cannot be
    read, or has another size, is put aside under another name.
    """
    try:
        data = drawing.file.read_bytes()
    except FileNotFoundError:
        return _restore(connection, drawing) if drawing.version else drawing
    sha256 = bytes_sha256(data)
    if sha256 == drawing.sha256:
        return drawing
    newest = get_version(connection, drawing.id, drawing.version) if drawing.version else None
    try:
        mask = decode_mask(data, size=(newest.height, newest.width) if newest else None)
    except SampleError:
        if newest is None:
            return drawing
        _put_aside(drawing)
        return _restore(connection, drawing)
    counts = mask_rle(mask)
    if newest is not None and newest.counts == counts:
        return _point(connection, drawing, version=drawing.version, status=drawing.status, sha256=sha256)
    insert_version(connection, drawing.id, drawing.version, mask, "changed outside", now, counts=counts)
    return _point(connection, drawing, version=drawing.version + 1, status="draft", sha256=sha256)


def insert_version(
    connection: Connection, mask_image_id: int, base: int, mask: Mask, how: str, now: float, *, counts: str = ""
) -> None:
    """Store a version that no one drew on the page, based on ``base``."""
    facts = {
        "mask_image_id": mask_image_id, "version": base + 1, "base": base, "person_id": None,
        "height": mask.shape[0], "width": mask.shape[1], "counts": counts or mask_rle(mask), "done": False,
        "how": how[:60], "editor": "", "created_at": now,
    }  # fmt: skip
    connection.execute(mask_versions.insert().values(**facts))


def _restore(connection: Connection, drawing: Drawing) -> Drawing:
    sha256 = write_png(drawing.file, get_version(connection, drawing.id, drawing.version).mask())
    return _point(connection, drawing, version=drawing.version, status=drawing.status, sha256=sha256)


def _put_aside(drawing: Drawing) -> None:
    """Rename a file that is no mask of this image, so that it is not overwritten."""
    with suppress(FileNotFoundError):
        drawing.file.replace(f"{drawing.file}.unreadable")


def write_png(path: Path, mask: Mask) -> str:
    """Write a mask as a PNG and sync it to the disk; return its SHA-256."""
    data = encode_mask(mask)
    with whole_file(path, sync=True) as temporary:
        temporary.write_bytes(data)
    return bytes_sha256(data)


def _point(connection: Connection, drawing: Drawing, *, version: int, status: str, sha256: str) -> Drawing:
    connection.execute(
        mask_images.update().where(mask_images.c.id == drawing.id).values(version=version, status=status, sha256=sha256)
    )
    return get_drawing(connection, drawing.id)


def get_drawing(connection: Connection, mask_image_id: int, *, lock: bool = False) -> Drawing:
    """Return one image of a set; with ``lock``, no one else can save it until the transaction ends."""
    if lock:  # in SQLite the transaction is the lock
        connection.execute(select(mask_images.c.id).where(mask_images.c.id == mask_image_id).with_for_update())
    row = connection.execute(drawings_query().where(mask_images.c.id == mask_image_id)).first()
    if row is None:
        raise UserError(f"there is no image {mask_image_id} whose mask is drawn")
    return Drawing(*row)


def drawings_query() -> Select[Any]:
    """Return the query for the columns of ``Drawing``, of all sets."""
    return select(
        mask_images.c.id, mask_images.c.mask_set_id, mask_images.c.image_id, images.c.sample_id, images.c.label,
        mask_sets.c.folder, mask_images.c.path, mask_images.c.file_name, mask_images.c.status,
        mask_images.c.confidence, mask_images.c.version, mask_images.c.sha256,
    ).select_from(mask_images.join(images).join(mask_sets, mask_images.c.mask_set_id == mask_sets.c.id))  # fmt: skip


def drawings(connection: Connection, set_id: int) -> list[Drawing]:
    """Return all images of a set, in the order in which they were read."""
    query = drawings_query().where(mask_images.c.mask_set_id == set_id).order_by(mask_images.c.id)
    return [Drawing(*row) for row in connection.execute(query)]


def _version_columns() -> Select[Any]:
    of = mask_versions.c
    return select(
        of.id, of.version, of.base, of.person_id, func.coalesce(people.c.name, ""), of.height, of.width, of.counts,
        of.done, of.how, of.editor, of.created_at,
    ).select_from(mask_versions.outerjoin(people, of.person_id == people.c.id))  # fmt: skip


def get_version(connection: Connection, mask_image_id: int, version: int) -> Version:
    """Return one version; UserError if there is none of this number (autosaves replace each other)."""
    of = mask_versions.c
    row = connection.execute(_version_columns().where(of.mask_image_id == mask_image_id, of.version == version)).first()
    if row is None:
        raise UserError(f"there is no version {version} of this mask any more")
    return Version(*row)


def list_versions(connection: Connection, mask_image_id: int, *, limit: int = 50) -> list[Version]:
    """Return the versions, newest first."""
    of = mask_versions.c
    query = _version_columns().where(of.mask_image_id == mask_image_id).order_by(of.version.desc()).limit(limit)
    return [Version(*row) for row in connection.execute(query)]
