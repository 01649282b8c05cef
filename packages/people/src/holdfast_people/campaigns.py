"""Campaigns: what people are asked, about which images, by which rules, and the progress."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from math import ceil
from random import Random
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, Connection, Row, case, func, insert, or_, select, true, update

from holdfast.core.errors import UserError
from holdfast.core.votes import VoteQuestion, parse_rule
from holdfast_people.database import insert_new
from holdfast_people.identity import is_id, new_token, one_line
from holdfast_people.tables import campaigns, images, items, people, places, tasks, votes

STATUSES = ("open", "paused", "closed")
STOPS = ("never", "when-decided")
ROLES = ("positive", "negative", "training")


def _yes_no(id: str, text: str) -> VoteQuestion:
    return VoteQuestion(id, text, ("yes", "no"), keys=("y", "n"))


_STEPS = ("1", "2", "3", "4", "5")

KINDS: dict[str, tuple[VoteQuestion, ...]] = {
    "quality": (
        _yes_no("recognisable", "Can you recognise the {category}?"),
        _yes_no("usable", "Can it be used as a {category}?"),
    ),
    "naturalness": (VoteQuestion("natural", "How natural does this image look?", _STEPS, 1, _STEPS),),
    "oracle": (_yes_no("shows", "Does this image show a {category}?"),),
    "single": (
        _yes_no("shows", "Does this image show a {category}?"),
        VoteQuestion(
            "alone", "Is it the only one of these in the image: {list}? Say no if another is there, too.",
            ("yes", "no"), keys=("y", "n"), graded=False,
        ),
    ),
    "custom": (),
}  # fmt: skip
"""Kinds of campaign, and the questions of each about every image; a ``custom`` one brings its own."""

LISTED = 30  # classes that a question lists by name; of more it says "the other classes"


def with_list(questions: Sequence[VoteQuestion], classes: Sequence[str]) -> tuple[VoteQuestion, ...]:
    """Return the questions with the classes of a campaign in place of ``{list}``."""
    names = [" ".join(name.replace("_", " ").split()) for name in classes]
    listed = ", ".join(names) if len(names) <= LISTED else f"the {len(names)} classes of this campaign"
    return tuple(replace(question, text=question.text.replace("{list}", listed)) for question in questions)


def default_rule(questions: Sequence[VoteQuestion]) -> str:
    """Return the rule of questions that come without one: yes to any; to all if one of them is not graded."""
    joint = "|" if all(question.graded for question in questions) else "&"
    return joint.join(question.id for question in questions)


def read_questions(table: Mapping[str, Any], where: str) -> tuple[tuple[VoteQuestion, ...], str]:
    """Return the questions and the rule of a TOML table; a UserError for every mistake in it.

    ``[[questions]]`` has ``id``, ``text`` (with {category} for the class and {list} for all classes), ``answers`` (yes
    and no by default, else whole numbers from low to high), ``tolerance`` (steps by which repeated answers may differ)
    and ``graded`` (false: control images have no right answer to it); ``rule`` says which answers accept an image.
    """
    for key in table:
        if key not in ("questions", "rule"):
            raise UserError(f"{where} may have [[questions]] and rule only, not {key!r}")
    rows = table.get("questions")
    if not isinstance(rows, list) or not 1 <= len(rows) <= 5:
        raise UserError(f"{where} must have 1 to 5 questions, each below a line [[questions]]")
    questions = tuple(_read_question(row, where) for row in rows)
    if len({question.id for question in questions}) < len(questions):
        raise UserError(f"two questions of {where} have the same id; give each its own")
    if not any(question.graded for question in questions):
        raise UserError(f"{where} needs a graded question, so that control images show who answers with care")
    rule = table.get("rule") or default_rule(questions)
    return questions, parse_rule(str(rule), questions).text


_FIELDS = {"id": str, "text": str, "answers": list, "tolerance": int, "graded": bool}


def _read_question(row: Any, where: str) -> VoteQuestion:
    if not isinstance(row, dict) or not {"id", "text"} <= row.keys() <= _FIELDS.keys():
        raise UserError(f"a question of {where} must have id and text, and may have {', '.join(list(_FIELDS)[2:])}")
    for key, value in row.items():
        if not isinstance(value, _FIELDS[key]):
            raise UserError(f"{key} of a question of {where} must be {_FIELDS[key].__name__}, not {value!r}")
    if not re.fullmatch(r"[\w-]{1,40}", row["id"]) or not row["text"].strip():
        raise UserError(f"the question {row['id']!r} of {where} needs an id of letters, digits, _ and -, and a text")
    answers = tuple(str(answer) for answer in row.get("answers", ["yes", "no"]))
    grades = all(answer.isdigit() for answer in answers) and 2 <= len(answers) <= 9
    if set(answers) != {"yes", "no"} and not (grades and list(answers) == sorted(set(answers))):
        raise UserError(f"the answers of {row['id']!r} in {where} must be yes and no, or digits from low to high")
    keys = tuple(answer[0] for answer in answers)
    return VoteQuestion(row["id"], row["text"].strip(), answers, row.get("tolerance", 0), keys, row.get("graded", True))


@dataclass(frozen=True, slots=True)
class Settings:
    """The rules of a campaign; the defaults are ImageNet-D's."""

    people_per_image: int = 10
    images_per_task: int = 20  # all images, sentinels among them
    repeats: int = 2
    positives: int = 1
    negatives: int = 1
    minutes: float = 30.0  # after which an unfinished task goes back
    most_failures: int = 3  # discarded tasks after which a person gets no more
    rule: str = "recognisable|usable"
    at_least: int = 6  # of people_per_image, who answer as the rule wants
    seed: int = 0
    stop: str = "never"  # or when-decided: no more votes on an image whose verdict cannot turn any more
    questions: Sequence[dict[str, Any]] = ()  # those of the campaign, if they are not its kind's

    def __post_init__(self) -> None:
        """Refuse settings that no task can be made with."""
        for name, least, most in _RANGES:
            if not least <= getattr(self, name) <= most:
                raise UserError(f"{name} is a number from {least} to {most}, not {getattr(self, name)}")
        if self.at_least > self.people_per_image:
            raise UserError(f"at_least ({self.at_least}) must be at most people_per_image ({self.people_per_image})")
        if self.stop not in STOPS:
            raise UserError(f"stop must be {' or '.join(STOPS)}, not {self.stop!r}")
        if self.judged_per_task < max(1, self.repeats):
            raise UserError(
                f"a task of {self.images_per_task} images has no room for its sentinels; images_per_task must be "
                f"{self.positives + self.negatives + self.repeats + max(1, self.repeats)} at least"
            )

    @property
    def judged_per_task(self) -> int:
        """How many new images, whose votes count, a task has."""
        return self.images_per_task - self.repeats - self.positives - self.negatives


_RANGES = (
    ("people_per_image", 1, 1000),
    ("images_per_task", 1, 200),
    ("repeats", 0, 50),
    ("positives", 0, 50),
    ("negatives", 0, 50),
    ("minutes", 0.1, 10_080.0),
    ("most_failures", 1, 1000),
    ("at_least", 1, 1000),
)


@dataclass(frozen=True, slots=True)
class Sentinel:
    """An image whose answer is known: the class ``asked`` for, and per question the answers ``expected``."""

    image_id: int
    role: str
    asked: str
    expected: Mapping[str, Sequence[str]] = field(default_factory=dict)


def asked_questions(kind: str, settings: Settings) -> tuple[VoteQuestion, ...]:
    """Return the questions of a campaign: its own, or its kind's."""
    own = [row | {"answers": tuple(row["answers"]), "keys": tuple(row["keys"])} for row in settings.questions]
    return tuple(VoteQuestion(**row) for row in own) or KINDS[kind]


@dataclass(frozen=True, slots=True)
class Campaign:
    """A campaign."""

    id: int
    name: str
    kind: str
    status: str
    source_id: int
    settings: Settings
    created_at: float

    @property
    def questions(self) -> tuple[VoteQuestion, ...]:
        """The questions about every image."""
        return asked_questions(self.kind, self.settings)


def create_campaign(
    connection: Connection,
    *,
    name: str,
    kind: str,
    source_id: int,
    image_ids: Sequence[int],
    sentinels: Sequence[Sentinel],
    settings: Settings,
    now: float,
) -> int:
    """Create a campaign, which is open at once; return its id."""
    name = one_line(name)
    if not name:
        raise UserError("a campaign needs a name")
    if kind not in KINDS or not asked_questions(kind, settings):
        raise UserError(f"the kind of a campaign must be one of {', '.join(KINDS)}, not {kind!r}")
    _check_images(connection, image_ids, [sentinel.image_id for sentinel in sentinels])
    _check_sentinels(sentinels, asked_questions(kind, settings), settings)
    labels = dict(connection.execute(select(images.c.id, images.c.label).where(images.c.source_id == source_id)).all())
    unknown = [image_id for image_id in image_ids if image_id not in labels]
    if unknown:
        raise UserError(f"source {source_id} has no image {unknown[0]}")
    values = {"source_id": source_id, "name": name, "kind": kind, "status": "open", "created_at": now}
    row = insert_new(connection, campaigns, ["name"]).values(**values, settings=asdict(settings))
    campaign_id: int | None = connection.scalar(row.returning(campaigns.c.id))
    if campaign_id is None:
        raise UserError(f"there is a campaign {name!r} already; choose another name")
    lots = Random(f"{settings.seed}/{name}")
    common = {"campaign_id": campaign_id, "held": 0, "counted": 0}
    rows = [
        common | {"image_id": i, "role": "judge", "asked": labels[i], "expected": {}, "token": None} for i in image_ids
    ]
    rows += [
        common
        | {"image_id": s.image_id, "role": s.role, "asked": s.asked}
        | {"expected": {question: list(answers) for question, answers in s.expected.items()}}
        | {"token": new_token() if s.role == "training" else None}
        for s in sentinels
    ]
    connection.execute(insert(items), [row | {"lot": lots.random()} for row in rows])
    return campaign_id


def _check_images(connection: Connection, judged: Sequence[int], sentinels: Sequence[int]) -> None:
    if not judged:
        raise UserError("a campaign needs at least one image to judge")
    image_id, times = Counter([*judged, *sentinels]).most_common(1)[0]
    if times > 1:
        raise UserError(f"image {image_id} is given twice; a campaign judges an image or uses it as one sentinel")
    if missing := set(sentinels) - set(connection.scalars(select(images.c.id).where(images.c.id.in_(sentinels)))):
        raise UserError(f"there is no image {min(missing)}")


def _check_sentinels(sentinels: Sequence[Sentinel], questions: Sequence[VoteQuestion], settings: Settings) -> None:
    allowed = {question.id: set(question.answers) for question in questions}
    for sentinel in sentinels:
        if sentinel.role not in ROLES:
            raise UserError(f"the role of a sentinel must be one of {', '.join(ROLES)}, not {sentinel.role!r}")
        if not sentinel.expected:
            raise UserError(f"the {sentinel.role} image {sentinel.image_id} needs a right answer")
        for question, answers in sentinel.expected.items():
            if question not in allowed:
                raise UserError(f"there is no question {question!r}; there is {', '.join(allowed)}")
            if not answers or not set(answers) <= allowed[question]:
                raise UserError(f"the right answers to {question!r} must be of {', '.join(sorted(allowed[question]))}")
    for role, wanted in (("positive", settings.positives), ("negative", settings.negatives)):
        present = sum(sentinel.role == role for sentinel in sentinels)
        if present < wanted:
            raise UserError(f"a task has {wanted} {role} sentinels and the campaign {present}; give it more")


def settings_of(stored: Mapping[str, Any]) -> Settings:
    """Return the rules that a campaign's row holds; what another version added is left out."""
    known = {field.name for field in fields(Settings)}
    kept = {key: value for key, value in stored.items() if key in known}
    return Settings(**kept | {"questions": tuple(kept.get("questions", ()))})


def _campaign(row: Row[Any]) -> Campaign:
    return Campaign(**{**row._mapping, "settings": settings_of(row.settings)})


def get_campaign(connection: Connection, campaign_id: int, *, lock: bool = False) -> Campaign:
    """Return one campaign; ``lock`` keeps others from assigning or finishing its tasks until the transaction ends."""
    query = select(campaigns).where(campaigns.c.id == campaign_id)
    query = query.with_for_update(key_share=True) if lock else query
    row = connection.execute(query).one_or_none() if is_id(campaign_id) else None
    if row is None:
        raise UserError(f"there is no campaign {campaign_id}")
    return _campaign(row)


def list_campaigns(connection: Connection) -> list[Campaign]:
    """Return all campaigns, newest first."""
    return [_campaign(row) for row in connection.execute(select(campaigns).order_by(campaigns.c.id.desc()))]


def set_status(connection: Connection, campaign_id: int, status: str) -> None:
    """Open, pause (no new tasks) or close a campaign (open tasks are taken back, too)."""
    if status not in STATUSES:
        raise UserError(f"the status of a campaign must be one of {', '.join(STATUSES)}, not {status!r}")
    get_campaign(connection, campaign_id, lock=True)
    connection.execute(update(campaigns).where(campaigns.c.id == campaign_id).values(status=status))
    if status == "closed":
        take_back(connection, campaign_id, true())


def settled(settings: Settings, held: ColumnElement[int] | int = 0) -> ColumnElement[bool]:
    """Return the condition that an image needs no more votes; ``when-decided`` never holds more than could decide."""
    enough: ColumnElement[bool] = items.c.counted + held >= settings.people_per_image
    if settings.stop == "never":
        return enough
    against: ColumnElement[bool] = items.c.counted - items.c.yes + held > settings.people_per_image - settings.at_least
    return or_(enough, items.c.yes + held >= settings.at_least, against)


def take_back(connection: Connection, campaign_id: int, which: ColumnElement[bool]) -> int:
    """Expire open tasks that meet a condition, freeing their images, and count them; the campaign is locked already."""
    query = select(tasks.c.id).where(tasks.c.campaign_id == campaign_id, tasks.c.status == "open", which)
    task_ids = list(connection.scalars(query))
    if task_ids:
        connection.execute(update(tasks).where(tasks.c.id.in_(task_ids)).values(status="expired"))
        mine = (places.c.task_id.in_(task_ids), places.c.role == "judge")
        # Several of the tasks may hold the same image.
        often = select(func.count()).where(places.c.item_id == items.c.id, *mine).scalar_subquery()
        held = items.c.id.in_(select(places.c.item_id).where(*mine))
        connection.execute(update(items).where(held).values(held=items.c.held - often))
    return len(task_ids)


def progress(connection: Connection, campaign_id: int, *, now: float) -> dict[str, Any]:
    """Return images, tasks, votes (``held``: expected of open tasks, ``wanted``: at most), also per person."""
    settings = get_campaign(connection, campaign_id).settings
    done = settled(settings)
    judged = select(
        func.count(),
        func.coalesce(func.sum(items.c.counted), 0),
        func.coalesce(func.sum(items.c.held), 0),
        func.coalesce(func.sum(case((done, 1), else_=0)), 0),
        func.coalesce(func.sum(case((done, items.c.counted), else_=settings.people_per_image)), 0),
    ).where(items.c.campaign_id == campaign_id, items.c.role == "judge")
    count, counted, held, finished, wanted = connection.execute(judged).one()
    everyone = _people(connection, campaign_id, now)
    votes_so_far = {"images": count, "wanted": int(wanted), "counted": int(counted), "held": int(held)}
    totals = {f"{status}_tasks": sum(p[status] for p in everyone) for status in _TASK_STATUSES}
    at_work = sum(person["open"] > 0 for person in everyone)
    return votes_so_far | {"finished_images": int(finished), **totals, "people_at_work": at_work, "people": everyone}


_TASK_STATUSES = ("open", "finished", "discarded", "expired")


def administrators(connection: Connection) -> list[str]:
    """Return the names of those who look after the server and so ask for judgements."""
    named = select(people.c.name).where(people.c.role == "admin", people.c.name != "")
    return list(connection.scalars(named.distinct()))


def usual_minutes(connection: Connection, campaign_id: int, *, least: int = 3) -> tuple[int, int] | None:
    """Return the minutes that the middle half of the sent sets took; None while fewer than ``least`` were sent."""
    spent = (
        select(func.sum(votes.c.seconds))
        .join(places, places.c.id == votes.c.place_id)
        .join(tasks, tasks.c.id == places.c.task_id)
        .where(tasks.c.campaign_id == campaign_id, tasks.c.status == "finished")
        .group_by(tasks.c.id)
    )
    seconds = [float(value) for value in connection.scalars(spent)]
    if len(seconds) < least:
        return None
    first, third = np.quantile(seconds, [0.25, 0.75])
    return max(1, round(float(first) / 60)), max(1, ceil(float(third) / 60))


def _people(connection: Connection, campaign_id: int, now: float) -> list[dict[str, Any]]:
    # A task whose time is over counts as expired even before someone has taken it back.
    status = case(((tasks.c.status == "open") & (tasks.c.expires_at <= now), "expired"), else_=tasks.c.status)
    counts = [func.sum(case((status == name, 1), else_=0)).label(name) for name in _TASK_STATUSES]
    query = select(people.c.id.label("person_id"), people.c.name, *counts).join(tasks, tasks.c.person_id == people.c.id)
    query = query.where(tasks.c.campaign_id == campaign_id).group_by(people.c.id, people.c.name).order_by(people.c.id)
    standing = (
        select(tasks.c.person_id, func.count().label("images"))
        .join(places, places.c.task_id == tasks.c.id)
        .where(tasks.c.campaign_id == campaign_id, tasks.c.status == "finished", places.c.role == "judge")
        .group_by(tasks.c.person_id)
    )
    counted: dict[int, int] = {row.person_id: row.images for row in connection.execute(standing)}
    return [
        {key: int(value) if key in _TASK_STATUSES else value for key, value in row.items()}
        | {"counted": counted.get(row["person_id"], 0)}
        for row in connection.execute(query).mappings()
    ]
