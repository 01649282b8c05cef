"""The first version of all tables; stays as it is when ``people.tables`` changes."""

from __future__ import annotations

from functools import partial

import sqlalchemy as sa
from alembic import op
from sqlalchemy import JSON, Column, Float, Index, Integer, String, Text, UniqueConstraint

from holdfast.people.tables import NAMES, Key, refers, where

revision = "0001"
down_revision = None

metadata = sa.MetaData(naming_convention=NAMES)
needed = partial(Column, nullable=False)


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=False)


def _table(name: str, *columns: sa.schema.SchemaItem) -> None:
    sa.Table(name, metadata, Column("id", Key, primary_key=True, autoincrement=True), *columns)


_table(
    "people", needed("name", String(200)), needed("role", String(20)), needed("created_at", Float),
    sa.CheckConstraint("role IN ('admin', 'member')", name="role"),
)  # fmt: skip
_table(
    "invitations", refers("person_id", "people", index=True), needed("token_sha256", String(64), unique=True),
    needed("note", String(200)), needed("created_at", Float), needed("expires_at", Float), Column("opened_at", Float),
    Column("revoked_at", Float),
)  # fmt: skip
_table(
    "sessions", refers("person_id", "people", index=True), refers("invitation_id", "invitations", index=True),
    needed("token_sha256", String(64), unique=True), needed("created_at", Float), needed("expires_at", Float),
)  # fmt: skip
_table(
    "audit", needed("at", Float, index=True), refers("person_id", "people", nullable=True),
    needed("action", String(60)), needed("subject", String(200)), needed("detail", JSON),
    needed("address", String(60)),
)  # fmt: skip
_table(
    "sources", needed("name", String(200)), needed("reference", Text, unique=True), needed("created_at", Float),
)  # fmt: skip
_table(
    "images", refers("source_id", "sources"), needed("sample_id", Text), needed("label", Text),
    needed("condition", Text), needed("attributes", JSON), UniqueConstraint("source_id", "sample_id"),
)  # fmt: skip
_table(
    "campaigns", refers("source_id", "sources"), needed("name", String(200), unique=True), needed("kind", String(20)),
    needed("status", String(20)), needed("settings", JSON), needed("created_at", Float),
    sa.CheckConstraint("status IN ('open', 'paused', 'closed')", name="status"),
)  # fmt: skip
_table(
    "items", refers("campaign_id", "campaigns"), refers("image_id", "images"), needed("role", String(20)),
    needed("asked", Text), needed("expected", JSON), needed("held", Integer), needed("counted", Integer),
    needed("lot", Float), Column("token", String(43), unique=True), UniqueConstraint("campaign_id", "image_id"),
    Index("ix_items_queue", "campaign_id", "role", "counted", "held", "lot"),
)  # fmt: skip
_table(
    "tasks", refers("campaign_id", "campaigns"), refers("person_id", "people"),
    needed("token", String(43), unique=True), needed("status", String(20)), needed("reason", String(200)),
    needed("created_at", Float), needed("expires_at", Float), Column("finished_at", Float),
    Index("ix_tasks_person", "campaign_id", "person_id", "status"),
    Index("uq_tasks_open", "campaign_id", "person_id", unique=True, **where("status = 'open'")),
    Index("ix_tasks_expiry", "status", "expires_at"),
)  # fmt: skip
_table(
    "places", refers("task_id", "tasks", index=True), refers("item_id", "items"), refers("person_id", "people"),
    needed("token", String(43), unique=True), needed("position", Integer), needed("role", String(20)),
    refers("repeats", "places", nullable=True), Index("ix_places_person", "person_id", "item_id"),
    Index("uq_places_judged", "item_id", "person_id", unique=True, **where("role = 'judge'")),
)  # fmt: skip
_table(
    "votes", refers("place_id", "places", index=True), needed("key", String(36), unique=True), needed("answers", JSON),
    needed("seconds", Float), needed("created_at", Float),
)  # fmt: skip
_table(
    "mask_sets", refers("source_id", "sources"), needed("folder", Text), needed("guide", Text),
    needed("created_at", Float), UniqueConstraint("source_id", "folder"),
)  # fmt: skip
_table(
    "mask_images", refers("mask_set_id", "mask_sets"), refers("image_id", "images", index=True), needed("path", Text),
    needed("file_name", Text), needed("status", String(20)), Column("confidence", Float), needed("version", Integer),
    needed("sha256", String(64)), UniqueConstraint("mask_set_id", "image_id"),
)  # fmt: skip
_table(
    "mask_versions", refers("mask_image_id", "mask_images"), needed("version", Integer),
    refers("person_id", "people", nullable=True), needed("base", Integer), needed("height", Integer),
    needed("width", Integer), needed("counts", Text), needed("done", sa.Boolean), needed("how", String(60)),
    needed("editor", String(64)), needed("created_at", Float), UniqueConstraint("mask_image_id", "version"),
)  # fmt: skip
