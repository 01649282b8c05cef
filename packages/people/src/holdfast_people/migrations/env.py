"""Alembic's entry point; ``people.database`` owns the connection, its transaction and its lock."""

from __future__ import annotations

from alembic import context

from holdfast_people.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite changes a table by copying it
)
with context.begin_transaction():
    context.run_migrations()
