"""Lists of images by what their masks need, and masks of a set as a COCO file, out and in."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from collections.abc import Collection as Container
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, case, func, literal, select, tuple_

from holdfast.core.errors import SampleError, UserError
from holdfast.core.files import clear_leftovers, write_atomic
from holdfast.data.reading import DOUBTFUL
from holdfast.data.writers import coco_document, mask_rle
from holdfast_people.database import Database
from holdfast_people.mask_files import MaskEntry, match_entries, read_mask_file
from holdfast_people.masks import Conflict, Drawing, drawings, drawings_query, get_version, save
from holdfast_people.tables import images, mask_images, mask_sets, mask_versions, sources

SHOWN = ("all", "unfinished", "doubtful", "mine", "done")  # choices for which images a list shows
_SURE = mask_images.c.confidence
_DOUBTFUL = (mask_images.c.status != "done") & (_SURE >= 0) & (_SURE < DOUBTFUL)
_ORDER = (func.coalesce(mask_images.c.confidence, 2.0), mask_images.c.id)  # the most doubtful first


def list_images(
    connection: Connection,
    set_id: int,
    *,
    person_id: int,
    show: str = "all",
    label: str = "",
    text: str = "",
    offset: int = 0,
    limit: int = 50,
) -> tuple[int, list[Drawing]]:
    """Return the number of images of a kind, and a page of them, the most doubtful first."""
    wanted = _narrowed(set_id, person_id=person_id, show=show, label=label, text=text)
    total = connection.scalar(select(func.count()).select_from(wanted.subquery())) or 0
    return total, [Drawing(*row) for row in connection.execute(wanted.order_by(*_ORDER).offset(offset).limit(limit))]


def _narrowed(set_id: int, *, person_id: int, show: str, label: str, text: str) -> Select[Any]:
    of = mask_images.c
    query = drawings_query().where(of.mask_set_id == set_id)
    drawn = mask_versions.c
    kinds = {
        "unfinished": of.status != "done",
        "doubtful": _DOUBTFUL,
        "mine": select(drawn.id).where(drawn.mask_image_id == of.id, drawn.person_id == person_id).exists(),
        "done": of.status == "done",
    }
    if show in kinds:
        query = query.where(kinds[show])
    if label:
        query = query.where(images.c.label == label)
    if text:
        query = query.where(images.c.sample_id.icontains(text, autoescape=True))
    return query


def neighbour(
    connection: Connection,
    set_id: int,
    after: int | None,
    *,
    person_id: int,
    backwards: bool = False,
    show: str = "unfinished",
    label: str = "",
    text: str = "",
    skip: Container[int] = (),
) -> int | None:
    """Return the next image of a kind (of ``SHOWN``) in the list's order, but not one to ``skip``, or None."""
    wanted = _narrowed(set_id, person_id=person_id, show=show, label=label, text=text)
    if skip:
        wanted = wanted.where(mask_images.c.id.not_in(list(skip)))
    order: list[ColumnElement[Any]] = [key.desc() for key in _ORDER] if backwards else list(_ORDER)
    if after is not None:
        place = connection.execute(select(*_ORDER).where(mask_images.c.id == after)).first()
        wanted = wanted.where(mask_images.c.id != after)
        if place is not None:
            here = tuple_(*(literal(key) for key in place))
            beyond = tuple_(*_ORDER) < here if backwards else tuple_(*_ORDER) > here
            order.insert(0, case((beyond, 0), else_=1))
    row = connection.execute(wanted.order_by(*order).limit(1)).first()
    return None if row is None else int(row[0])


def count_statuses(connection: Connection, set_id: int) -> dict[str, int]:
    """Return how many images are new, automatic, draft, done, doubtful, and ``all``."""
    of = mask_images.c
    query = select(of.status, func.count()).where(of.mask_set_id == set_id).group_by(of.status)
    counts = dict.fromkeys(("new", "automatic", "draft", "done"), 0)
    counts.update({str(status): int(number) for status, number in connection.execute(query)})
    counts["all"] = sum(counts.values())
    doubtful = select(func.count()).select_from(mask_images).where(of.mask_set_id == set_id, _DOUBTFUL)
    return counts | {"doubtful": connection.scalar(doubtful) or 0}


def list_classes(connection: Connection, set_id: int) -> Sequence[str]:
    """Return the classes of a set's images, sorted."""
    query = select(images.c.label).join(mask_images).where(mask_images.c.mask_set_id == set_id)
    return sorted(connection.scalars(query.distinct()))


def list_sets(connection: Connection) -> list[dict[str, Any]]:
    """Return all sets, newest first: id, name of the dataset, folder, guide, and counts by status."""
    query = select(mask_sets.c.id, sources.c.name, mask_sets.c.folder, mask_sets.c.guide).join(sources)
    rows = connection.execute(query.order_by(mask_sets.c.id.desc())).mappings().all()
    return [dict(row) | {"counts": count_statuses(connection, row["id"])} for row in rows]


def get_set(connection: Connection, set_id: int) -> dict[str, Any]:
    """Return name of the dataset, folder and guide of a set; a UserError if there is none."""
    query = select(sources.c.name, mask_sets.c.folder, mask_sets.c.guide).join(sources).where(mask_sets.c.id == set_id)
    row = connection.execute(query).mappings().first()
    if row is None:
        raise UserError(f"there is no set of masks {set_id}")
    return dict(row)


COCO = "coco.json"  # file name next to the PNGs


def mask_rows(connection: Connection, set_id: int) -> list[dict[str, Any]]:
    """Return the newest mask of every image that has one: path, file, label, height, width, mask_rle."""
    of, drawn = mask_images.c, mask_versions.c
    query = (
        select(
            of.file_name.label("path"), of.path.label("file"), images.c.label, drawn.height, drawn.width,
            drawn.counts.label("mask_rle"),
        )
        .select_from(mask_images)
        .join(images)
        .join(mask_versions, (drawn.mask_image_id == of.id) & (drawn.version == of.version))
        .where(of.mask_set_id == set_id)
        .order_by(of.id)
    )  # fmt: skip
    return [dict(row) for row in connection.execute(query).mappings()]


def coco_bytes(connection: Connection, set_id: int) -> tuple[int, bytes]:
    """Return the number of masks, and all of them as COCO instances."""
    rows = mask_rows(connection, set_id)
    return len(rows), json.dumps(coco_document(rows), ensure_ascii=False).encode()


def write_coco(connection: Connection, set_id: int) -> None:
    """Write the COCO file next to a set's PNGs."""
    write_atomic(Path(get_set(connection, set_id)["folder"], COCO), coco_bytes(connection, set_id)[1])


def export_masks(connection: Connection, set_id: int, path: Path) -> int:
    """Write all masks to a COCO file; returns how many."""
    if path.is_dir():
        raise UserError(f"--export {str(path)!r}: expected a file, not a folder")
    count, data = coco_bytes(connection, set_id)
    clear_leftovers(path)
    write_atomic(path, data)
    return count


@dataclass
class Taken:
    """Counts of an import."""

    changed: int = 0
    same: int = 0
    unknown: list[str] = field(default_factory=list)  # names that no image of the set has
    problems: list[tuple[str, str]] = field(default_factory=list)  # image, and why its mask was left as it was


def import_masks(
    database: Database, set_id: int, path: Path, *, size: Callable[[int], tuple[int, int]], now: float
) -> Taken:
    """Make new versions of the masks in a COCO file."""
    entries = read_mask_file(path)
    with database.reading() as connection:
        known = drawings(connection, set_id)
    matched, unknown = match_entries(entries, [drawing.file_name for drawing in known])
    taken = Taken(unknown=unknown)
    for place, entry in sorted(matched.items()):
        drawing = known[place]
        if entry.masks:  # an image without any object is one that no one drew on yet
            try:
                _take(database, drawing, entry, size(drawing.image_id), taken, now)
            except (SampleError, UserError) as error:
                taken.problems.append((drawing.sample_id, str(error)))
        taken.problems += [(drawing.sample_id, note) for note in entry.notes]
    return taken


def _take(
    database: Database, drawing: Drawing, entry: MaskEntry, size: tuple[int, int], taken: Taken, now: float
) -> None:
    mask = entry.load(drawing.label, *size)
    with database.writing() as connection:
        newest = get_version(connection, drawing.id, drawing.version) if drawing.version else None
        if newest is not None and (newest.height, newest.width, newest.counts) == (*size, mask_rle(mask)):
            taken.same += 1
            return
        saved = save(
            connection, drawing.id, base=drawing.version, mask=mask, person_id=None, done=False, how="imported", now=now
        )
    if isinstance(saved, Conflict):
        taken.problems.append((drawing.sample_id, "another person saved it during the import; import it again"))
    else:
        taken.changed += 1
