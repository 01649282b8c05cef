"""Migration of a database to the newest tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, Engine, text

from holdfast.core.errors import UserError

if TYPE_CHECKING:
    from alembic.config import Config

_LOCK = 7_020_421  # any number that no other program takes in the same PostgreSQL database


def upgrade(engine: Engine) -> None:
    """Create or change the tables as far as needed; one process at a time, all or nothing.

    Raises:
        UserError: the database was used by a newer Holdfast, or holds other tables of the same names.
    """
    with engine.connect() as connection:
        if _current(connection) == newest():
            return
    with engine.connect().execution_options(immediate=True) as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        _upgrade(connection)


def newest() -> str:
    """Return the last of our migrations."""
    from alembic.script import ScriptDirectory

    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.script import ScriptDirectory

    current = _current(connection)  # again: another process may have been faster
    known = {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}
    if current is not None and current not in known:
        raise UserError(
            f"the database is at version {current}, which this Holdfast does not know; update Holdfast to use it"
        )
    if current is None and (taken := _taken(connection)):
        raise UserError(
            f"the database has tables of another program ({', '.join(taken)}); give Holdfast one of its own"
        )
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _current(connection: Connection) -> str | None:
    from alembic.runtime.migration import MigrationContext

    return MigrationContext.configure(connection).get_current_revision()


def _taken(connection: Connection) -> list[str]:
    from sqlalchemy import inspect

    from holdfast.people.tables import metadata

    return sorted(set(inspect(connection).get_table_names()) & set(metadata.tables))


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
