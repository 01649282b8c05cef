"""The first version of all tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

Key = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    _people()
    _images()
    _campaigns()
    _tasks()
    _masks()


def _people() -> None:
    op.create_table(
        "people",
        sa.Column("id", Key, autoincrement=True, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("role", sa.String(length=20), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.CheckConstraint("role IN ('admin', 'member')", name=op.f("ck_people_role")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_people")),
    )
    op.create_table(
        "invitations",
        sa.Column("id", Key, autoincrement=True, nullable=False),
        sa.Column("person_id", Key, nullable=False),
        sa.Column("token_sha256", sa.String(length=64), nullable=False),
        sa.Column("note", sa.String(length=200), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("opened_at", sa.Float(), nullable=True),
        sa.Column("revoked_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["person_id"], ["people.id"], name=op.f("fk_invitations_person_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_invitations")),
        sa.UniqueConstraint("token_sha256", name=op.f("uq_invitations_token_sha256")),
    )
    op.create_index(op.f("ix_invitations_person_id"), "invitations", ["person_id"], unique=False)
    op.create_table(
        "sessions",
        sa.Column("id", Key, autoincrement=True, nullable=False),
        sa.Column("person_id", Key, nullable=False),
        sa.Column("invitation_id", Key, nullable=False),
        sa.Column("token_sha256", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["invitation_id"], ["invitations.id"], name=op.f("fk_sessions_invitation_id")),
        sa.ForeignKeyConstraint(["person_id"], ["people.id"], name=op.f("fk_sessions_person_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sessions")),
        sa.UniqueConstraint("token_sha256", name=op.f("uq_sessions_token_sha256")),
    )
    op.create_index(op.f("ix_sessions_invitation_id"), "sessions", ["invitation_id"], unique=False)
    op.create_index(op.f("ix_sessions_person_id"), "sessions", ["person_id"], unique=False)
    op.create_table(
        "audit",
        sa.Column("id", Key, autoincrement=True, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("person_id", Key, nullable=True),
        sa.Column("action", sa.String(length=60), nullable=False),
        sa.Column("subject", sa.String(length=200), nullable=False),
        sa.Column("detail", sa.JSON(), nullable=False),
        sa.Column("address", sa.String(length=60), nullable=False),
        sa.ForeignKeyConstraint(["person_id"], ["people.id"], name=op.f("fk_audit_person_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit")),
    )
    op.create_index(op.f("ix_audit_at"), "audit", ["at"], unique=False)


def _images() -> None:
    op.create_table(
        "sources",
        sa.Column("id", Key, autoincrement=True, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("reference", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sources")),
        sa.UniqueConstraint("reference", name=op.f("uq_sources_reference")),
    )
    op.create_table(
        "images",
        sa.Column("id", Key, autoincrement=True, nullable=False),
        sa.Column("source_id", Key, nullable=False),
        sa.Column("sample_id", sa.Text(), nullable=False),
        sa.Column("label", sa.Text(), nullable=False),
        sa.Column("condition", sa.Text(), nullable=False),
        sa.Column("attributes", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["source_id"], ["sources.id"], name=op.f("fk_images_source_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_images")),
        sa.UniqueConstraint("source_id", "sample_id", name=op.f("uq_images_source_id_sample_id")),
    )


def _campaigns() -> None:
    op.create_table(
        "campaigns",
        sa.Column("id", Key, autoincrement=True, nullable=False),
        sa.Column("source_id", Key, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=20), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("settings", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.CheckConstraint("status IN ('open', 'paused', 'closed')", name=op.f("ck_campaigns_status")),
        sa.ForeignKeyConstraint(["source_id"], ["sources.id"], name=op.f("fk_campaigns_source_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_campaigns")),
        sa.UniqueConstraint("name", name=op.f("uq_campaigns_name")),
    )
    op.create_table(
        "items",
        sa.Column("id", Key, autoincrement=True, nullable=False),
        sa.Column("campaign_id", Key, nullable=False),
        sa.Column("image_id", Key, nullable=False),
        sa.Column("role", sa.String(length=20), nullable=False),
        sa.Column("asked", sa.Text(), nullable=False),
        sa.Column("expected", sa.JSON(), nullable=False),
        sa.Column("held", sa.Integer(), nullable=False),
        sa.Column("counted", sa.Integer(), nullable=False),
        sa.Column("lot", sa.Float(), nullable=False),
        sa.Column("token", sa.String(length=43), nullable=True),
        sa.ForeignKeyConstraint(["campaign_id"], ["campaigns.id"], name=op.f("fk_items_campaign_id")),
        sa.ForeignKeyConstraint(["image_id"], ["images.id"], name=op.f("fk_items_image_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_items")),
        sa.UniqueConstraint("campaign_id", "image_id", name=op.f("uq_items_campaign_id_image_id")),
        sa.UniqueConstraint("token", name=op.f("uq_items_token")),
    )
    op.create_index("ix_items_queue", "items", ["campaign_id", "role", "counted", "held", "lot"], unique=False)


def _tasks() -> None:
    op.create_table(
        "tasks",
        sa.Column("id", Key, autoincrement=True, nullable=False),
        sa.Column("campaign_id", Key, nullable=False),
        sa.Column("person_id", Key, nullable=False),
        sa.Column("token", sa.String(length=43), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("reason", sa.String(length=200), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("expires_at", sa.Float(), nullable=False),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(["campaign_id"], ["campaigns.id"], name=op.f("fk_tasks_campaign_id")),
        sa.ForeignKeyConstraint(["person_id"], ["people.id"], name=op.f("fk_tasks_person_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
        sa.UniqueConstraint("token", name=op.f("uq_tasks_token")),
    )
    op.create_index("ix_tasks_expiry", "tasks", ["status", "expires_at"], unique=False)
    op.create_index("ix_tasks_person", "tasks", ["campaign_id", "person_id", "status"], unique=False)
    op.create_index(
        "uq_tasks_open",
        "tasks",
        ["campaign_id", "person_id"],
        unique=True,
        sqlite_where=sa.text("status = 'open'"),
        postgresql_where=sa.text("status = 'open'"),
    )
    op.create_table(
        "places",
        sa.Column("id", Key, autoincrement=True, nullable=False),
        sa.Column("task_id", Key, nullable=False),
        sa.Column("item_id", Key, nullable=False),
        sa.Column("person_id", Key, nullable=False),
        sa.Column("token", sa.String(length=43), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(length=20), nullable=False),
        sa.Column("repeats", Key, nullable=True),
        sa.ForeignKeyConstraint(["item_id"], ["items.id"], name=op.f("fk_places_item_id")),
        sa.ForeignKeyConstraint(["person_id"], ["people.id"], name=op.f("fk_places_person_id")),
        sa.ForeignKeyConstraint(["repeats"], ["places.id"], name=op.f("fk_places_repeats")),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.id"], name=op.f("fk_places_task_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_places")),
        sa.UniqueConstraint("token", name=op.f("uq_places_token")),
    )
    op.create_index("ix_places_person", "places", ["person_id", "item_id"], unique=False)
    op.create_index(op.f("ix_places_task_id"), "places", ["task_id"], unique=False)
    op.create_index(
        "uq_places_judged",
        "places",
        ["item_id", "person_id"],
        unique=True,
        sqlite_where=sa.text("role = 'judge'"),
        postgresql_where=sa.text("role = 'judge'"),
    )
    op.create_table(
        "votes",
        sa.Column("id", Key, autoincrement=True, nullable=False),
        sa.Column("place_id", Key, nullable=False),
        sa.Column("key", sa.String(length=36), nullable=False),
        sa.Column("answers", sa.JSON(), nullable=False),
        sa.Column("seconds", sa.Float(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["place_id"], ["places.id"], name=op.f("fk_votes_place_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_votes")),
        sa.UniqueConstraint("key", name=op.f("uq_votes_key")),
    )
    op.create_index(op.f("ix_votes_place_id"), "votes", ["place_id"], unique=False)


def _masks() -> None:
    op.create_table(
        "mask_sets",
        sa.Column("id", Key, autoincrement=True, nullable=False),
        sa.Column("source_id", Key, nullable=False),
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("guide", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["source_id"], ["sources.id"], name=op.f("fk_mask_sets_source_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mask_sets")),
        sa.UniqueConstraint("source_id", "folder", name=op.f("uq_mask_sets_source_id_folder")),
    )
    op.create_table(
        "mask_images",
        sa.Column("id", Key, autoincrement=True, nullable=False),
        sa.Column("mask_set_id", Key, nullable=False),
        sa.Column("image_id", Key, nullable=False),
        sa.Column("path", sa.Text(), nullable=False),
        sa.Column("file_name", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=20), nullable=False),
        sa.Column("confidence", sa.Float(), nullable=True),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("sha256", sa.String(length=64), nullable=False),
        sa.ForeignKeyConstraint(["image_id"], ["images.id"], name=op.f("fk_mask_images_image_id")),
        sa.ForeignKeyConstraint(["mask_set_id"], ["mask_sets.id"], name=op.f("fk_mask_images_mask_set_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mask_images")),
        sa.UniqueConstraint("mask_set_id", "image_id", name=op.f("uq_mask_images_mask_set_id_image_id")),
    )
    op.create_index(op.f("ix_mask_images_image_id"), "mask_images", ["image_id"], unique=False)
    op.create_table(
        "mask_versions",
        sa.Column("id", Key, autoincrement=True, nullable=False),
        sa.Column("mask_image_id", Key, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("person_id", Key, nullable=True),
        sa.Column("base", sa.Integer(), nullable=False),
        sa.Column("height", sa.Integer(), nullable=False),
        sa.Column("width", sa.Integer(), nullable=False),
        sa.Column("counts", sa.Text(), nullable=False),
        sa.Column("done", sa.Boolean(), nullable=False),
        sa.Column("how", sa.String(length=60), nullable=False),
        sa.Column("editor", sa.String(length=64), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(["mask_image_id"], ["mask_images.id"], name=op.f("fk_mask_versions_mask_image_id")),
        sa.ForeignKeyConstraint(["person_id"], ["people.id"], name=op.f("fk_mask_versions_person_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_mask_versions")),
        sa.UniqueConstraint("mask_image_id", "version", name=op.f("uq_mask_versions_mask_image_id_version")),
    )
