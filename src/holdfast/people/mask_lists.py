"""Lists of images by what they still need, the most doubtful first."""

from __future__ import annotations

from collections.abc import Collection as Container
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, case, func, select

from holdfast.people.masks import Drawing, drawings_query
from holdfast.people.tables import images, mask_images, mask_sets, mask_versions, sources

DOUBTFUL = 0.5
"""Automatic masks below this confidence are doubtful."""

SHOWN = ("all", "unfinished", "doubtful", "mine", "done")
"""Choices for which images a list shows."""

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
    if show in ("unfinished", "doubtful"):
        query = query.where(of.status != "done")
    if show == "doubtful":
        query = query.where(of.confidence >= 0, of.confidence < DOUBTFUL)
    if show == "done":
        query = query.where(of.status == "done")
    if show == "mine":
        drawn = mask_versions.c
        query = query.where(select(drawn.id).where(drawn.mask_image_id == of.id, drawn.person_id == person_id).exists())
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
    """Return the next image of a kind in the list's order, starting over after the last; None if there is none.

    Args:
        connection: to read from.
        set_id: the set.
        after: where one is now; None before the first.
        person_id: whose "mine".
        backwards: the one before instead.
        show: one of ``SHOWN``.
        label: only this class; '' is any.
        text: only ids with this in them.
        skip: images that others have open.
    """
    wanted = _narrowed(set_id, person_id=person_id, show=show, label=label, text=text)
    if skip:
        wanted = wanted.where(mask_images.c.id.not_in(list(skip)))
    order: list[ColumnElement[Any]] = [key.desc() for key in _ORDER] if backwards else list(_ORDER)
    if after is not None:
        place = connection.execute(select(*_ORDER).where(mask_images.c.id == after)).first()
        wanted = wanted.where(mask_images.c.id != after)
        if place is not None:
            order.insert(0, case((_beyond(*place, backwards), 0), else_=1))
    row = connection.execute(wanted.order_by(*order).limit(1)).first()
    return None if row is None else int(row[0])


def _beyond(key: float, number: int, backwards: bool) -> ColumnElement[bool]:
    """Return the condition that an image comes after this place of the order, or before it if backwards."""
    its_key, its_number = _ORDER
    if backwards:
        return (its_key < key) | ((its_key == key) & (its_number < number))
    return (its_key > key) | ((its_key == key) & (its_number > number))


def count_statuses(connection: Connection, set_id: int) -> dict[str, int]:
    """Return how many images are new, automatic, draft, done, doubtful, and ``all``."""
    of = mask_images.c
    query = select(of.status, func.count()).where(of.mask_set_id == set_id).group_by(of.status)
    counts = dict.fromkeys(("new", "automatic", "draft", "done"), 0)
    counts.update({str(status): int(number) for status, number in connection.execute(query)})
    counts["all"] = sum(counts.values())
    unsure = (of.mask_set_id == set_id) & (of.status != "done") & (of.confidence >= 0) & (of.confidence < DOUBTFUL)
    counts["doubtful"] = connection.scalar(select(func.count()).select_from(mask_images).where(unsure)) or 0
    return counts


def list_classes(connection: Connection, set_id: int) -> Sequence[str]:
    """Return the classes of a set's images, sorted."""
    joined = mask_images.join(images, mask_images.c.image_id == images.c.id)
    query = select(images.c.label).select_from(joined).where(mask_images.c.mask_set_id == set_id).distinct()
    return sorted(connection.scalars(query))


def list_sets(connection: Connection) -> list[dict[str, Any]]:
    """Return all sets, newest first: id, name of the dataset, folder, guide, and counts by status."""
    query = select(mask_sets.c.id, sources.c.name, mask_sets.c.folder, mask_sets.c.guide).join(sources)
    rows = connection.execute(query.order_by(mask_sets.c.id.desc())).mappings().all()
    return [dict(row) | {"counts": count_statuses(connection, row["id"])} for row in rows]


def get_set(connection: Connection, set_id: int) -> dict[str, Any] | None:
    """Return name of the dataset, folder and guide of a set; None where there is none."""
    query = select(sources.c.name, mask_sets.c.folder, mask_sets.c.guide).join(sources).where(mask_sets.c.id == set_id)
    row = connection.execute(query).mappings().first()
    return None if row is None else dict(row)
