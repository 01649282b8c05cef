from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, inspect, text

from holdfast.core.errors import UserError
from holdfast_people.database import Database, newest, open_database
from holdfast_people.tables import metadata


def test_migrating_gives_exactly_the_tables_of_the_code(database: Database) -> None:
    with database.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, metadata) == []
        assert context.get_current_revision() == newest()


def test_partial_indexes_are_partial(database: Database) -> None:
    """Alembic does not compare the conditions of indexes."""
    with database.reading() as connection:
        for table, name, condition in (("tasks", "uq_tasks_open", "open"), ("places", "uq_places_judged", "judge")):
            (index,) = (i for i in inspect(connection).get_indexes(table) if i["name"] == name)
            assert index["unique"]
            assert condition in str(index["dialect_options"][f"{connection.dialect.name}_where"])


def test_opening_again_changes_nothing(url: str) -> None:
    for _ in range(2):
        database = open_database(url)
        with database.writing() as connection:
            connection.execute(text("INSERT INTO people (name, role, created_at) VALUES ('Ann', 'member', 1.0)"))
        database.close()
    database = open_database(url)
    with database.reading() as connection:
        assert connection.scalar(text("SELECT count(*) FROM people")) == 2
    database.close()


def test_a_database_of_a_newer_version_is_refused(url: str) -> None:
    database = open_database(url)
    with database.writing() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    with pytest.raises(UserError, match="version 9999, which this Holdfast does not know; update"):
        open_database(url)


def test_tables_of_another_program_are_left_alone(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/other.sqlite")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE people (shoe_size INTEGER)"))
    engine.dispose()
    with pytest.raises(UserError, match=r"another program \(people\)"):
        open_database(tmp_path / "other.sqlite")


def test_a_migration_that_fails_half_way_leaves_nothing(url: str) -> None:
    plain = url.replace("postgresql://", "postgresql+psycopg://")
    engine = create_engine(plain)
    with engine.begin() as connection:
        connection.execute(text("CREATE VIEW votes AS SELECT 1 AS one"))  # in the way of one of the last tables
    with pytest.raises(UserError, match="cannot be opened"):
        open_database(url)
    assert inspect(engine).get_table_names() == []
    engine.dispose()


def test_several_processes_may_open_a_new_database_at_once(url: str) -> None:
    code = (
        "import sys; from holdfast_people.database import open_database as o; sys.stdin.read(); o(sys.argv[1]).close()"
    )
    started = [
        subprocess.Popen([sys.executable, "-c", code, url], stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(3)
    ]
    for process in started:  # all are waiting for this, so that they begin together
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    assert [process.communicate(timeout=60)[1] for process in started] == [b"", b"", b""]
    assert [process.returncode for process in started] == [0, 0, 0]
