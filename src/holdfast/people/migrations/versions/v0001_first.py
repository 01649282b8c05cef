"""The first version of all tables; stays as it is when ``people.tables`` changes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy import JSON, Column, Float, Index, Integer, String, Text, UniqueConstraint

from holdfast.people.tables import NAMES, Key, refers, where

revision = "0001"
down_revision = None

metadata = sa.MetaData(naming_convention=NAMES)


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=False)


def _table(name: str, *columns: sa.schema.SchemaItem) -> None:
    sa.Table(name, metadata, Column("id", Key, primary_key=True, autoincrement=True), *columns)


_table(
    "people",
    Column("name", String(200), nullable=False),
    Column("role", String(20), nullable=False),
    Column("created_at", Float, nullable=False),
    sa.CheckConstraint("role IN ('admin', 'member')", name="role"),
)
_table(
    "invitations",
    refers("person_id", "people", index=True),
    Column("token_sha256", String(64), nullable=False, unique=True),
    Column("note", String(200), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("opened_at", Float),
    Column("revoked_at", Float),
)
_table(
    "sessions",
    refers("person_id", "people", index=True),
    refers("invitation_id", "invitations", index=True),
    Column("token_sha256", String(64), nullable=False, unique=True),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
)
_table(
    "audit",
    Column("at", Float, nullable=False, index=True),
    refers("person_id", "people", nullable=True),
    Column("action", String(60), nullable=False),
    Column("subject", String(200), nullable=False),
    Column("detail", JSON, nullable=False),
    Column("address", String(60), nullable=False),
)
_table(
    "sources",
    Column("name", String(200), nullable=False),
    Column("reference", Text, nullable=False, unique=True),
    Column("created_at", Float, nullable=False),
)
_table(
    "images",
    refers("source_id", "sources"),
    Column("sample_id", Text, nullable=False),
    Column("label", Text, nullable=False),
    Column("condition", Text, nullable=False),
    Column("attributes", JSON, nullable=False),
    UniqueConstraint("source_id", "sample_id"),
)
_table(
    "campaigns",
    refers("source_id", "sources"),
    Column("name", String(200), nullable=False, unique=True),
    Column("kind", String(20), nullable=False),
    Column("status", String(20), nullable=False),
    Column("settings", JSON, nullable=False),
    Column("created_at", Float, nullable=False),
    sa.CheckConstraint("status IN ('open', 'paused', 'closed')", name="status"),
)
_table(
    "items",
    refers("campaign_id", "campaigns"),
    refers("image_id", "images"),
    Column("role", String(20), nullable=False),
    Column("asked", Text, nullable=False),
    Column("expected", JSON, nullable=False),
    Column("held", Integer, nullable=False),
    Column("counted", Integer, nullable=False),
    Column("lot", Float, nullable=False),
    Column("token", String(43), unique=True),
    UniqueConstraint("campaign_id", "image_id"),
    Index("ix_items_queue", "campaign_id", "role", "counted", "held", "lot"),
)
_table(
    "tasks",
    refers("campaign_id", "campaigns"),
    refers("person_id", "people"),
    Column("token", String(43), nullable=False, unique=True),
    Column("status", String(20), nullable=False),
    Column("reason", String(200), nullable=False),
    Column("created_at", Float, nullable=False),
    Column("expires_at", Float, nullable=False),
    Column("finished_at", Float),
    Index("ix_tasks_person", "campaign_id", "person_id", "status"),
    Index("uq_tasks_open", "campaign_id", "person_id", unique=True, **where("status = 'open'")),
    Index("ix_tasks_expiry", "status", "expires_at"),
)
_table(
    "places",
    refers("task_id", "tasks", index=True),
    refers("item_id", "items"),
    refers("person_id", "people"),
    Column("token", String(43), nullable=False, unique=True),
    Column("position", Integer, nullable=False),
    Column("role", String(20), nullable=False),
    refers("repeats", "places", nullable=True),
    Index("ix_places_person", "person_id", "item_id"),
    Index("uq_places_judged", "item_id", "person_id", unique=True, **where("role = 'judge'")),
)
_table(
    "votes",
    refers("place_id", "places", index=True),
    Column("key", String(36), nullable=False, unique=True),
    Column("answers", JSON, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("created_at", Float, nullable=False),
)
_table(
    "mask_sets",
    refers("source_id", "sources"),
    Column("folder", Text, nullable=False),
    Column("guide", Text, nullable=False),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("source_id", "folder"),
)
_table(
    "mask_images",
    refers("mask_set_id", "mask_sets"),
    refers("image_id", "images", index=True),
    Column("path", Text, nullable=False),
    Column("file_name", Text, nullable=False),
    Column("status", String(20), nullable=False),
    Column("confidence", Float),
    Column("version", Integer, nullable=False),
    Column("sha256", String(64), nullable=False),
    UniqueConstraint("mask_set_id", "image_id"),
)
_table(
    "mask_versions",
    refers("mask_image_id", "mask_images"),
    Column("version", Integer, nullable=False),
    refers("person_id", "people", nullable=True),
    Column("base", Integer, nullable=False),
    Column("height", Integer, nullable=False),
    Column("width", Integer, nullable=False),
    Column("counts", Text, nullable=False),
    Column("done", sa.Boolean, nullable=False),
    Column("how", String(60), nullable=False),
    Column("editor", String(64), nullable=False),
    Column("created_at", Float, nullable=False),
    UniqueConstraint("mask_image_id", "version"),
)
