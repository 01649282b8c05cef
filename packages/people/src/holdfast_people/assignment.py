"""Which images a person gets: tasks, the sentinels in them, and tasks that expire.

A person never gets an image of a campaign a second time, except as a repeat within a task; the database says so as
well (``uq_places_judged``). Positives and negatives are used again once a person has seen all there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from random import Random, SystemRandom
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, exists, func, insert, select, update

from holdfast.core.errors import UserError
from holdfast_people.campaigns import Campaign, get_campaign, settled, take_back
from holdfast_people.identity import is_token, new_token
from holdfast_people.tables import campaigns, items, places, tasks, votes

_RANDOM = SystemRandom()  # not the campaign's seed: who knows the program must not know where the sentinels are
TRAINING_PICTURES = 2


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """One image of a task as its person sees it; a sentinel looks like any other."""

    token: str
    position: int
    asked: str
    answers: dict[str, str] | None


@dataclass(frozen=True, slots=True)
class AssignedTask:
    """Images for one person, in order. ``status`` is ``open``, ``finished``, ``discarded`` or ``expired``."""

    token: str
    status: str
    expires_at: float
    places: tuple[TaskPlace, ...]
    campaign_id: int


@dataclass(frozen=True, slots=True)
class PracticePicture:
    """An image with its right answers."""

    token: str
    asked: str
    expected: Mapping[str, Sequence[str]]


def next_task(
    connection: Connection, campaign_id: int, person_id: int, *, now: float, rng: Random = _RANDOM
) -> AssignedTask | None:
    """Return the person's open task, an expired one whose images are still wanted, or a new one; None for none."""
    mine = (tasks.c.campaign_id == campaign_id, tasks.c.person_id == person_id)
    running = select(tasks).where(*mine, tasks.c.status == "open", tasks.c.expires_at > now)
    row = connection.execute(running).one_or_none()  # nearly always enough, without the lock
    if row is None:
        campaign = get_campaign(connection, campaign_id, lock=True)
        take_back(connection, campaign_id, tasks.c.expires_at <= now)
        row = connection.execute(running).one_or_none()
        if row is None and not _barred(connection, campaign, person_id):
            row = _reopened(connection, campaign, person_id, now) or _new(connection, campaign, person_id, now, rng)
    return None if row is None else _task(connection, row)


def _barred(connection: Connection, campaign: Campaign, person_id: int) -> str:
    """Return why the person gets no task at all; empty if nothing prevents it."""
    if campaign.status != "open":
        return f"this campaign is {campaign.status}"
    failed = select(func.count()).where(
        tasks.c.campaign_id == campaign.id, tasks.c.person_id == person_id, tasks.c.status == "discarded"
    )
    if (connection.scalar(failed) or 0) >= campaign.settings.most_failures:
        return "too many of your tasks could not be used, so there are no more for you in this campaign"
    return ""


def _full(campaign: Campaign) -> ColumnElement[bool]:
    return settled(campaign.settings, items.c.held)


def _reopened(connection: Connection, campaign: Campaign, person_id: int, now: float) -> Row[Any] | None:
    """Open an expired task of the person again, if all its images may still be held."""
    judged = (places.c.task_id == tasks.c.id, places.c.role == "judge", places.c.item_id == items.c.id)
    taken = exists().where(*judged, _full(campaign))
    query = select(tasks.c.id).where(
        tasks.c.campaign_id == campaign.id, tasks.c.person_id == person_id, tasks.c.status == "expired", ~taken
    )
    task_id = connection.scalar(query.order_by(tasks.c.id.desc()).limit(1))
    if task_id is None:
        return None
    again = update(tasks).where(tasks.c.id == task_id).returning(*tasks.c)
    row = connection.execute(again.values(status="open", expires_at=now + 60 * campaign.settings.minutes)).one()
    _hold(connection, task_id)
    return row


def _hold(connection: Connection, task_id: int) -> None:
    judged = select(places.c.item_id).where(places.c.task_id == task_id, places.c.role == "judge")
    connection.execute(update(items).where(items.c.id.in_(judged)).values(held=items.c.held + 1))


def _wanted(campaign: Campaign, person_id: int) -> Select[Any]:
    """Return the images that a person may get, those that fewest people had first."""
    seen = exists().where(places.c.person_id == person_id, places.c.item_id == items.c.id)
    return (
        select(items.c.id)
        .where(items.c.campaign_id == campaign.id, items.c.role == "judge")
        .where(~settled(campaign.settings), ~_full(campaign), ~seen)
        .order_by(items.c.counted, items.c.held, items.c.lot)
    )


def _new(connection: Connection, campaign: Campaign, person_id: int, now: float, rng: Random) -> Row[Any] | None:
    settings = campaign.settings
    judged = list(connection.scalars(_wanted(campaign, person_id).limit(settings.judged_per_task)))
    if not judged:
        return None
    sentinels = {
        item_id: role
        for role, count in (("positive", settings.positives), ("negative", settings.negatives))
        for item_id in _sentinels(connection, campaign.id, role, person_id, count)
    }
    order = arrange(judged, list(sentinels), min(settings.repeats, len(judged)), rng)
    values = {"campaign_id": campaign.id, "person_id": person_id, "token": new_token(), "status": "open", "reason": ""}
    new_task = insert(tasks).values(**values, created_at=now, expires_at=now + 60 * settings.minutes)
    task = connection.execute(new_task.returning(*tasks.c)).one()
    first: dict[int, int] = {}
    for position, item_id in enumerate(order):
        first.setdefault(item_id, position)
    again = [position for position, item_id in enumerate(order) if first[item_id] != position]

    def place(position: int, role: str, repeats: int | None = None) -> dict[str, Any]:
        common = {"task_id": task.id, "person_id": person_id, "token": new_token()}
        return common | {"item_id": order[position], "position": position, "role": role, "repeats": repeats}

    rows = [place(position, sentinels.get(item_id, "judge")) for item_id, position in first.items()]
    added = connection.scalars(insert(places).returning(places.c.id, sort_by_parameter_order=True), rows)
    ids = dict(zip(first, added, strict=True))
    if again:
        connection.execute(insert(places), [place(position, "repeat", ids[order[position]]) for position in again])
    _hold(connection, task.id)
    return task


def _sentinels(connection: Connection, campaign_id: int, role: str, person_id: int, count: int) -> list[int]:
    """Return random sentinels among those that the person has seen least often."""
    if not count:
        return []
    query = (
        select(items.c.id)
        .outerjoin(places, (places.c.item_id == items.c.id) & (places.c.person_id == person_id))
        .where(items.c.campaign_id == campaign_id, items.c.role == role)
        .group_by(items.c.id)
        .order_by(func.count(places.c.id), func.random())
    )
    return list(connection.scalars(query.limit(count)))


def arrange(judged: Sequence[int], sentinels: Sequence[int], repeats: int, rng: Random) -> list[int]:
    """Return a task's images in random order; a repeated one never follows itself if there are four or more."""
    order = [*judged, *sentinels, *rng.sample(judged, repeats)]
    while True:
        rng.shuffle(order)
        if len(order) < 4 or all(first != other for first, other in pairwise(order)):
            return order


def shown(connection: Connection, task_id: int) -> Sequence[Row[Any]]:
    """Return the places of a task in order, with ``asked``, ``expected`` and the newest ``answers``."""
    later = votes.alias()
    newest = select(func.max(later.c.id)).where(later.c.place_id == places.c.id).scalar_subquery()
    query: Select[Any] = (
        select(places, items.c.asked, items.c.expected, votes.c.answers)
        .join(items, items.c.id == places.c.item_id)
        .outerjoin(votes, votes.c.id == newest)
        .where(places.c.task_id == task_id)
        .order_by(places.c.position)
    )
    return connection.execute(query).all()


def _task(connection: Connection, row: Row[Any]) -> AssignedTask:
    rows = shown(connection, row.id)
    seen = tuple(TaskPlace(place.token, place.position, place.asked, place.answers) for place in rows)
    return AssignedTask(row.token, row.status, row.expires_at, seen, row.campaign_id)


def get_task(connection: Connection, token: str, person_id: int) -> AssignedTask:
    """Return a task of this person."""
    query = select(tasks).where(tasks.c.token == token, tasks.c.person_id == person_id)
    row = connection.execute(query).one_or_none() if is_token(token) else None
    if row is None:
        raise UserError("there is no such task")
    return _task(connection, row)


def why_nothing(connection: Connection, campaign_id: int, person_id: int) -> str:
    """Return why ``next_task`` gave None, in a sentence for the person."""
    campaign = get_campaign(connection, campaign_id)
    if reason := _barred(connection, campaign, person_id):
        return reason
    left = select(func.count(), func.coalesce(func.sum(items.c.held), 0)).where(
        items.c.campaign_id == campaign_id,
        items.c.role == "judge",
        ~settled(campaign.settings),
    )
    unfinished, held = connection.execute(left).one()
    if not unfinished:
        return "all images of this campaign have been judged"
    if connection.execute(_wanted(campaign, person_id).limit(1)).one_or_none() is not None:
        return "there are images again; try once more"
    if held:
        return "the images that are left are with others or have been with you; some may come back later"
    return "you have had all images that are left; they wait for others"


def training(connection: Connection, campaign_id: int) -> tuple[PracticePicture, ...]:
    """Return the images that are shown with their answers before a task, at most two."""
    query = select(items.c.token, items.c.asked, items.c.expected)
    query = query.where(items.c.campaign_id == campaign_id, items.c.role == "training").order_by(items.c.id)
    return tuple(PracticePicture(*row) for row in connection.execute(query.limit(TRAINING_PICTURES)))


def expire_tasks(connection: Connection, *, now: float) -> int:
    """Expire all open tasks whose time is up; return how many."""
    overdue = (tasks.c.status == "open", tasks.c.expires_at <= now)
    concerned = sorted(connection.scalars(select(tasks.c.campaign_id).where(*overdue).distinct()))
    for campaign_id in concerned:  # in one order everywhere, so that two who do this never wait for each other
        connection.execute(select(campaigns.c.id).where(campaigns.c.id == campaign_id).with_for_update(key_share=True))
    return sum(take_back(connection, campaign_id, tasks.c.expires_at <= now) for campaign_id in concerned)


def image_of_place(connection: Connection, place_token: str, person_id: int) -> int | None:
    """Return the image at a place of one of this person's tasks."""
    if not is_token(place_token):
        return None
    query = select(items.c.image_id).join(places, places.c.item_id == items.c.id)
    return connection.scalar(query.where(places.c.token == place_token, places.c.person_id == person_id))


def image_of_training(connection: Connection, token: str) -> int | None:
    """Return the image that a training example shows."""
    return connection.scalar(select(items.c.image_id).where(items.c.token == token)) if is_token(token) else None
