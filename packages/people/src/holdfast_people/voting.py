"""Votes: storing answers, finishing tasks, and checking the sentinels."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, bindparam, case, select, update

from holdfast.core.errors import UserError
from holdfast.core.votes import VoteQuestion, parse_rule
from holdfast_people.assignment import shown
from holdfast_people.campaigns import asked_questions, get_campaign, settings_of
from holdfast_people.database import insert_new
from holdfast_people.identity import is_token
from holdfast_people.results import rule_of
from holdfast_people.tables import campaigns, items, places, tasks, votes

_UP = "the time of this task is up, or it was taken back; ask for a task again"
_PLACE = (  # made once: this is what a server does all day
    select(places.c.id, tasks.c.status, tasks.c.expires_at, campaigns.c.kind, campaigns.c.settings)
    .join(tasks, tasks.c.id == places.c.task_id)
    .join(campaigns, campaigns.c.id == tasks.c.campaign_id)
    .where(places.c.token == bindparam("token"), places.c.person_id == bindparam("person"))
    .with_for_update(read=True, of=tasks)  # it must not be finished under us
)
_KEY = re.compile(r"[A-Za-z0-9_.:-]{1,36}")
_LONGEST_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a task ended: ``finished``, or ``discarded`` because of a ``positive``, ``negative`` or ``repeat``."""

    status: str
    reason: str = ""


def cast(
    connection: Connection,
    *,
    place_token: str,
    person_id: int,
    key: str,
    answers: Mapping[str, str],
    seconds: float,
    now: float,
) -> None:
    """Store a person's answers about one image, the newest of which count; repeating a ``key`` changes nothing."""
    if not _KEY.fullmatch(key):
        raise UserError("a vote's key is 1 to 36 letters, digits and - _ . : without accents, such as a UUID")
    asked = {"token": place_token, "person": person_id}
    place = connection.execute(_PLACE, asked).one_or_none() if is_token(place_token) else None
    if place is None:
        raise UserError("there is no such image in your tasks")
    _check_answers(answers, asked_questions(place.kind, settings_of(place.settings)))
    if place.status != "open" or place.expires_at <= now:
        if not _stored(connection, key, place.id, answers):
            raise UserError(_UP if place.status in ("open", "expired") else "this task is finished already")
        return
    seconds = min(max(float(seconds), 0.0), _LONGEST_S) if math.isfinite(seconds) else 0.0
    values = {"place_id": place.id, "key": key, "answers": dict(answers), "seconds": seconds, "created_at": now}
    stored = connection.scalar(insert_new(connection, votes, ["key"]).values(values).returning(votes.c.id))
    if stored is None and not _stored(connection, key, place.id, answers):
        raise UserError("this vote's key was used for another vote; take a new one")


def _check_answers(answers: Mapping[str, str], questions: Sequence[VoteQuestion]) -> None:
    allowed = {question.id: question.answers for question in questions}
    if unknown := [question for question in answers if question not in allowed]:
        raise UserError(f"there is no question {unknown[0]!r}; there is {', '.join(allowed)}")
    for question, offered in allowed.items():
        if answers.get(question) not in offered:
            raise UserError(f"the answer to {question!r} must be one of {', '.join(offered)}")


def _stored(connection: Connection, key: str, place_id: int, answers: Mapping[str, str]) -> bool:
    """Return whether this vote is stored already."""
    vote = connection.execute(select(votes.c.place_id, votes.c.answers).where(votes.c.key == key)).one_or_none()
    return vote is not None and vote.place_id == place_id and vote.answers == dict(answers)


def finish(connection: Connection, *, task_token: str, person_id: int, now: float) -> Outcome:
    """Close a task: all its votes count, or none because a sentinel failed. A repeated call returns the same."""
    mine = select(tasks).where(tasks.c.token == task_token, tasks.c.person_id == person_id)
    task = connection.execute(mine).one_or_none() if is_token(task_token) else None
    if task is None:
        raise UserError("there is no such task")
    if task.status not in ("finished", "discarded"):
        campaign = get_campaign(connection, task.campaign_id, lock=True)
        task = connection.execute(mine.with_for_update()).one()  # another request may have ended it meanwhile
    if task.status in ("finished", "discarded"):
        return Outcome(task.status, task.reason)
    if task.status != "open" or task.expires_at <= now:
        raise UserError(_UP)
    rows = shown(connection, task.id)
    missing = sum(row.answers is None for row in rows)
    if missing:
        raise UserError(f"{missing} of {len(rows)} images have no answer yet")
    reason = _failure(rows, campaign.questions)
    outcome = Outcome("discarded" if reason else "finished", reason)
    closed = {"status": outcome.status, "reason": reason, "finished_at": now}
    connection.execute(update(tasks).where(tasks.c.id == task.id).values(closed))
    judged = [row.item_id for row in rows if row.role == "judge"]
    moved: dict[str, Any] = {"held": items.c.held - 1}
    if not reason:
        rule = parse_rule(rule_of(campaign), campaign.questions)
        says_yes = [row.item_id for row in rows if row.role == "judge" and rule.says_yes(row.answers)]
        moved |= {"counted": items.c.counted + 1, "yes": items.c.yes + case((items.c.id.in_(says_yes), 1), else_=0)}
    connection.execute(update(items).where(items.c.id.in_(judged)).values(moved))
    return outcome


def _failure(rows: Sequence[Row[Any]], questions: Sequence[VoteQuestion]) -> str:
    """Return the kind of the first sentinel that failed; empty if none did."""
    answers = {row.id: row.answers for row in rows}
    for row in rows:
        if row.role in ("positive", "negative"):
            if any(row.answers[question] not in right for question, right in row.expected.items()):
                return str(row.role)
        elif row.role == "repeat" and not _agree(answers[row.repeats], row.answers, questions):
            return "repeat"
    return ""


def _agree(first: Mapping[str, str], other: Mapping[str, str], questions: Sequence[VoteQuestion]) -> bool:
    return all(
        abs(question.answers.index(first[question.id]) - question.answers.index(other[question.id]))
        <= question.tolerance
        for question in questions
    )
