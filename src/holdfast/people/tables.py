"""The tables of the people's database. Times are UTC seconds since 1970, so that both databases compare them alike."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)
Key = BigInteger().with_variant(Integer, "sqlite")  # only INTEGER counts up by itself in SQLite


def _key() -> Column[int]:
    return Column("id", Key, primary_key=True, autoincrement=True)


def _refers(name: str, table: str, *, nullable: bool = False, index: bool = False) -> Column[int]:
    return Column(name, Key, ForeignKey(f"{table}.id"), nullable=nullable, index=index)


def _where(condition: str) -> dict[str, Any]:
    return {"sqlite_where": text(condition), "postgresql_where": text(condition)}


people = Table(
    "people",
    metadata,
    _key(),
    Column("name", String(200), nullable=False),
    Column("role", String(20), nullable=False),  # admin | member
    Column("created_at", Float, nullable=False),
    CheckConstraint("role IN ('admin', 'member')", name="role"),
)

invitations = Table(  # a link that lets one person in, on as many devices as they like
    "invitations",
    metadata,
    _key(),
    _refers("person_id", "people", index=True),
    Column("token_sha256", String(64), nullable=False, unique=True),
    Column("note", String(200), nullable=False),  # whom the administrator meant it for
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("opened_at", Float),
    Column("revoked_at", Float),
)

sessions = Table(
    "sessions",
    metadata,
    _key(),
    _refers("person_id", "people", index=True),
    _refers("invitation_id", "invitations", index=True),
    Column("token_sha256", String(64), nullable=False, unique=True),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
)

audit = Table(
    "audit",
    metadata,
    _key(),
    Column("at", Float, nullable=False, index=True),
    _refers("person_id", "people", nullable=True),
    Column("action", String(60), nullable=False),
    Column("subject", String(200), nullable=False),
    Column("detail", JSON, nullable=False),
    Column("address", String(60), nullable=False),
)

sources = Table(  # datasets that the command line let the server read; pages speak of them by number only
    "sources",
    metadata,
    _key(),
    Column("name", String(200), nullable=False),
    Column("reference", Text, nullable=False, unique=True),  # as `holdfast eval` takes it, paths absolute
    Column("created_at", Float, nullable=False),
)

images = Table(
    "images",
    metadata,
    _key(),
    _refers("source_id", "sources"),
    Column("sample_id", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("condition", Text, nullable=False),
    Column("attributes", JSON, nullable=False),
    UniqueConstraint("source_id", "sample_id"),
)

campaigns = Table(
    "campaigns",
    metadata,
    _key(),
    _refers("source_id", "sources"),
    Column("name", String(200), nullable=False, unique=True),
    Column("kind", String(20), nullable=False),  # quality | naturalness | oracle
    Column("status", String(20), nullable=False),  # open | paused | closed
    Column("settings", JSON, nullable=False),  # people.campaigns.Settings: people an image, images a task, the rule …
    Column("created_at", Float, nullable=False),
    CheckConstraint("status IN ('open', 'paused', 'closed')", name="status"),
)

items = Table(  # an image of a campaign and the class that people are asked about
    "items",
    metadata,
    _key(),
    _refers("campaign_id", "campaigns"),
    _refers("image_id", "images"),
    Column("role", String(20), nullable=False),  # judge | positive | negative | training
    Column("asked", Text, nullable=False),  # the class in the question; of a negative not the image's own
    Column("expected", JSON, nullable=False),  # {} or, of sentinels and training images, question → allowed answers
    Column("held", Integer, nullable=False),  # open tasks that have it
    Column("counted", Integer, nullable=False),  # people whose answer stands
    Column("yes", Integer, nullable=False, server_default=text("0")),  # of these, by the campaign's rule
    Column("lot", Float, nullable=False),  # a random order among items equally far
    Column("token", String(43), unique=True),  # of training pictures, by which a browser asks for them
    UniqueConstraint("campaign_id", "image_id"),
    Index("ix_items_queue", "campaign_id", "role", "counted", "held", "lot"),
)

tasks = Table(
    "tasks",
    metadata,
    _key(),
    _refers("campaign_id", "campaigns"),
    _refers("person_id", "people"),
    Column("token", String(43), nullable=False, unique=True),
    Column("status", String(20), nullable=False),  # open | finished | discarded | expired
    Column("reason", String(200), nullable=False),  # why it was discarded: positive, negative, repeat
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("finished_at", Float),
    Index("ix_tasks_person", "campaign_id", "person_id", "status"),
    Index("uq_tasks_open", "campaign_id", "person_id", unique=True, **_where("status = 'open'")),
    Index("ix_tasks_expiry", "status", "expires_at"),
)

places = Table(  # one picture of a task
    "places",
    metadata,
    _key(),
    _refers("task_id", "tasks", index=True),
    _refers("item_id", "items"),
    _refers("person_id", "people"),  # the task's, here again so that the index below can say who had which picture
    Column("token", String(43), nullable=False, unique=True),  # all that a browser ever learns of the picture
    Column("position", Integer, nullable=False),
    Column("role", String(20), nullable=False),  # judge | positive | negative | repeat
    _refers("repeats", "places", nullable=True),
    Index("ix_places_person", "person_id", "item_id"),
    Index("uq_places_judged", "item_id", "person_id", unique=True, **_where("role = 'judge'")),
)

votes = Table(  # never changed: the last one of a place counts, while its task stands
    "votes",
    metadata,
    _key(),
    _refers("place_id", "places", index=True),
    Column("key", String(36), nullable=False, unique=True),  # the client's, so that sending again counts once
    Column("answers", JSON, nullable=False),  # question → answer
    Column("seconds", Float, nullable=False),  # from showing the picture to the answer, as the browser measured
    Column("created_at", Float, nullable=False),
)

mask_sets = Table(  # the masks of one dataset in one folder
    "mask_sets",
    metadata,
    _key(),
    _refers("source_id", "sources"),
    Column("folder", Text, nullable=False),  # where masks are written, absolute
    Column("guide", Text, nullable=False),  # who turns boxes and clicks into rough masks
    Column("created_at", Float, nullable=False),
    UniqueConstraint("source_id", "folder"),
)

mask_images = Table(  # an image whose mask people draw
    "mask_images",
    metadata,
    _key(),
    _refers("mask_set_id", "mask_sets"),
    _refers("image_id", "images", index=True),
    Column("path", Text, nullable=False),  # of the PNG in the folder
    Column("file_name", Text, nullable=False),  # of the image in COCO and Darwin files
    Column("status", String(20), nullable=False),  # new | automatic | draft | done
    Column("confidence", Float),  # of the automatic mask; -1 where there was none, nothing where nobody said
    Column("version", Integer, nullable=False),  # of the newest; 0 where there is none
    Column("sha256", String(64), nullable=False),  # of the PNG as we left it, so that a change from outside shows
    UniqueConstraint("mask_set_id", "image_id"),
)

mask_versions = Table(
    "mask_versions",
    metadata,
    _key(),
    _refers("mask_image_id", "mask_images"),
    Column("version", Integer, nullable=False),
    _refers("person_id", "people", nullable=True),  # nobody: what was there before
    Column("base", Integer, nullable=False),  # the version that it was drawn upon
    Column("height", Integer, nullable=False),
    Column("width", Integer, nullable=False),
    Column("counts", Text, nullable=False),  # COCO's compressed run lengths
    Column("done", Boolean, nullable=False),
    Column("how", String(60), nullable=False),  # drawn | automatic | imported | a mask maker's name
    Column("editor", String(64), nullable=False),  # the open page it came from: to that page it is no one else's work
    Column("created_at", Float, nullable=False),
    UniqueConstraint("mask_image_id", "version"),
)
