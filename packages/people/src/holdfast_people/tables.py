"""The tables of the people's database. Times are UTC seconds since 1970, so that both databases compare them alike."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import JSON, Column, Float, Index, Integer, String, Text, UniqueConstraint

NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}
metadata = sa.MetaData(naming_convention=NAMES)
Key = sa.BigInteger().with_variant(Integer, "sqlite")  # only INTEGER counts up by itself in SQLite


def _table(name: str, *columns: sa.schema.SchemaItem) -> sa.Table:
    return sa.Table(name, metadata, Column("id", Key, primary_key=True, autoincrement=True), *columns)


def refers(name: str, table: str, *, nullable: bool = False, index: bool = False) -> Column[int]:
    """Return a column with the id of a row of another table."""
    return Column(name, Key, sa.ForeignKey(f"{table}.id"), nullable=nullable, index=index)


def where(condition: str) -> dict[str, Any]:
    """Return the options that make an index partial in both databases."""
    return {"sqlite_where": sa.text(condition), "postgresql_where": sa.text(condition)}


people = _table(
    "people",
    Column("name", String(200), nullable=False),
    Column("role", String(20), nullable=False),  # admin | member
    Column("created_at", Float, nullable=False),
    sa.CheckConstraint("role IN ('admin', 'member')", name="role"),
)

invitations = _table(  # a link that lets one person in, on as many devices as they like
    "invitations",
    refers("person_id", "people", index=True),
    Column("token_sha256", String(64), nullable=False, unique=True),
    Column("note", String(200), nullable=False),  # whom the administrator meant it for
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("opened_at", Float),
    Column("revoked_at", Float),
)

sessions = _table(
    "sessions",
    refers("person_id", "people", index=True),
    refers("invitation_id", "invitations", index=True),
    Column("token_sha256", String(64), nullable=False, unique=True),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
)

audit = _table(
    "audit",
    Column("at", Float, nullable=False, index=True),
    refers("person_id", "people", nullable=True),
    Column("action", String(60), nullable=False),
    Column("subject", String(200), nullable=False),
    Column("detail", JSON, nullable=False),
    Column("address", String(60), nullable=False),
)

sources = _table(  # datasets that the command line let the server read; pages speak of them by number only
    "sources",
    Column("name", String(200), nullable=False),
    Column("reference", Text, nullable=False, unique=True),  # as `holdfast eval` takes it, paths absolute
    Column("created_at", Float, nullable=False),
)

images = _table(
    "images",
    refers("source_id", "sources"),
    Column("sample_id", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("condition", Text, nullable=False),
    Column("attributes", JSON, nullable=False),
    UniqueConstraint("source_id", "sample_id"),
)

campaigns = _table(
    "campaigns",
    refers("source_id", "sources"),
    Column("name", String(200), nullable=False, unique=True),
    Column("kind", String(20), nullable=False),  # quality | naturalness | oracle
    Column("status", String(20), nullable=False),  # open | paused | closed
    Column("settings", JSON, nullable=False),  # people.campaigns.Settings: people an image, images a task, the rule …
    Column("created_at", Float, nullable=False),
    sa.CheckConstraint("status IN ('open', 'paused', 'closed')", name="status"),
)

items = _table(  # an image of a campaign and the class that people are asked about
    "items",
    refers("campaign_id", "campaigns"),
    refers("image_id", "images"),
    Column("role", String(20), nullable=False),  # judge | positive | negative | training
    Column("asked", Text, nullable=False),  # the class in the question; of a negative not the image's own
    Column("expected", JSON, nullable=False),  # {} or, of sentinels and training images, question → allowed answers
    Column("held", Integer, nullable=False),  # open tasks that have it
    Column("counted", Integer, nullable=False),  # people whose answer is
    Column("yes", Integer, nullable=False, server_default=sa.text("0")),  # of these, by the campaign's rule
    Column("lot", Float, nullable=False),  # a random order among items equally far
    Column("token", String(43), unique=True),  # of training images, by which a browser asks for them
    UniqueConstraint("campaign_id", "image_id"),
    Index("ix_items_queue", "campaign_id", "role", "counted", "held", "lot"),
)

tasks = _table(
    "tasks",
    refers("campaign_id", "campaigns"),
    refers("person_id", "people"),
    Column("token", String(43), nullable=False, unique=True),
    Column("status", String(20), nullable=False),  # open | finished | discarded | expired
    Column("reason", String(200), nullable=False),  # why it was discarded: positive, negative, repeat
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("finished_at", Float),
    Index("ix_tasks_person", "campaign_id", "person_id", "status"),
    Index("uq_tasks_open", "campaign_id", "person_id", unique=True, **where("status = 'open'")),
    Index("ix_tasks_expiry", "status", "expires_at"),
)

places = _table(  # one image of a task
    "places",
    refers("task_id", "tasks", index=True),
    refers("item_id", "items"),
    refers("person_id", "people"),  # the task's, here again so that the index below can say who had which image
    Column("token", String(43), nullable=False, unique=True),  # all that a browser ever learns of the image
    Column("position", Integer, nullable=False),
    Column("role", String(20), nullable=False),  # judge | positive | negative | repeat
    refers("repeats", "places", nullable=True),
    Index("ix_places_person", "person_id", "item_id"),
    Index("uq_places_judged", "item_id", "person_id", unique=True, **where("role = 'judge'")),
)

votes = _table(  # never changed: the last one of a place counts, while its task counts
    "votes",
    refers("place_id", "places", index=True),
    Column("key", String(36), nullable=False, unique=True),  # the client's, so that sending again counts once
    Column("answers", JSON, nullable=False),  # question → answer
    Column("seconds", Float, nullable=False),  # from showing the image to the answer, as the browser measured
    Column("created_at", Float, nullable=False),
)

mask_sets = _table(  # the masks of one dataset in one folder
    "mask_sets",
    refers("source_id", "sources"),
    Column("folder", Text, nullable=False),  # where masks are written, absolute
    Column("guide", Text, nullable=False),  # who turns boxes and clicks into rough masks
    Column("created_at", Float, nullable=False),
    UniqueConstraint("source_id", "folder"),
)

mask_images = _table(  # an image whose mask people draw
    "mask_images",
    refers("mask_set_id", "mask_sets"),
    refers("image_id", "images", index=True),
    Column("path", Text, nullable=False),  # of the PNG in the folder
    Column("file_name", Text, nullable=False),  # of the image in COCO files
    Column("status", String(20), nullable=False),  # new | automatic | draft | done
    Column("confidence", Float),  # of the automatic mask; -1 if there was none, nothing if no one said
    Column("version", Integer, nullable=False),  # of the newest; 0 if there is none
    Column("sha256", String(64), nullable=False),  # of the PNG as we left it, so that a change from outside shows
    UniqueConstraint("mask_set_id", "image_id"),
)

mask_versions = _table(
    "mask_versions",
    refers("mask_image_id", "mask_images"),
    Column("version", Integer, nullable=False),
    refers("person_id", "people", nullable=True),  # no one: what was there before
    Column("base", Integer, nullable=False),  # the version that it was drawn upon
    Column("height", Integer, nullable=False),
    Column("width", Integer, nullable=False),
    Column("counts", Text, nullable=False),  # COCO's compressed run lengths
    Column("done", sa.Boolean, nullable=False),
    Column("how", String(60), nullable=False),  # drawn | automatic | imported | a mask maker's name
    Column("editor", String(64), nullable=False),  # the open page it came from: to that page it is no one else's work
    Column("created_at", Float, nullable=False),
    UniqueConstraint("mask_image_id", "version"),
)
