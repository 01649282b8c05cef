from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest
from sqlalchemy import select, text

from holdfast.core.errors import UserError
from holdfast_people import database as module
from holdfast_people.database import Database, DatabaseUnavailable, open_database
from holdfast_people.tables import people

ADD = text("INSERT INTO people (name, role, created_at) VALUES ('Ann', 'member', 1.0)")


def count(database: Database) -> int:
    with database.reading() as connection:
        return len(connection.execute(select(people)).all())


def test_sqlite_writes_to_the_disk_before_it_answers(tmp_path: Path) -> None:
    database = open_database(tmp_path / "new" / "people.sqlite")
    with database.reading() as connection:
        read = lambda name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()  # noqa: E731
        assert (read("journal_mode"), read("synchronous"), read("foreign_keys")) == ("wal", 2, 1)
    database.close()


def test_a_transaction_is_all_or_nothing(database: Database) -> None:
    with pytest.raises(ValueError, match="half way"), database.writing() as connection:
        connection.execute(ADD)
        raise ValueError("half way")
    assert count(database) == 0
    with database.writing() as connection:
        connection.execute(ADD)
    assert count(database) == 1


def test_readers_do_not_wait_for_a_writer(database: Database) -> None:
    with database.writing() as connection:
        connection.execute(ADD)
        assert count(database) == 0
    assert count(database) == 1


def test_writers_of_sqlite_take_turns(tmp_path: Path) -> None:
    """What a transaction has read still holds when it writes."""
    database = open_database(tmp_path / "x.sqlite")

    def add() -> None:
        for _ in range(20):
            with database.writing() as connection:
                number = connection.scalar(text("SELECT count(*) FROM people"))
                connection.execute(people.insert().values(name=str(number), role="member", created_at=0.0))

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.reading() as connection:
        assert sorted(int(row.name) for row in connection.execute(select(people))) == list(range(80))
    database.close()


def test_a_locked_database_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUSY_S", 0.05)
    database = open_database(tmp_path / "x.sqlite")
    other = sqlite3.connect(tmp_path / "x.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseUnavailable, match="busy"), database.writing() as connection:
        connection.execute(ADD)
    other.execute("COMMIT")
    other.close()
    with database.writing() as connection:
        connection.execute(ADD)
    assert count(database) == 1
    database.close()


def test_a_thread_that_holds_the_write_lock_too_long_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUSY_S", 0.05)
    database = open_database(tmp_path / "x.sqlite")
    with database.writing(), pytest.raises(DatabaseUnavailable, match="busy"), database.writing():
        pass
    database.close()


def test_a_full_disk_says_so(tmp_path: Path) -> None:
    database = open_database(tmp_path / "x.sqlite")
    with pytest.raises(DatabaseUnavailable, match="the disk is full"), database.writing() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
        for _ in range(1000):
            connection.execute(people.insert().values(name="x" * 200, role="member", created_at=0.0))
    database.close()


def test_a_server_that_is_gone_says_so(postgres_url: str, postgres_server: str) -> None:
    import psycopg

    database = open_database(postgres_url)
    ask = text("SELECT pg_backend_pid()")
    with database.writing() as connection:
        connection.execute(ADD)
    other = psycopg.connect(postgres_server, autocommit=True)
    with pytest.raises(DatabaseUnavailable, match="does not answer"), database.writing() as connection:
        process = connection.scalar(ask)
        other.execute("SELECT pg_terminate_backend(%s)", (process,))
        connection.execute(ADD)
    other.close()
    assert count(database) == 1  # a new connection is made, and only the first row is there
    database.close()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("mysql://localhost/people", "SQLite or PostgreSQL, not mysql"),
        ("sqlite://", "kept in a file"),
        ("sqlite:///:memory:", "kept in a file"),
        ("postgresql://nobody:secret@/people?host=nowhere-at-all", r"nobody:\*\*\*@.* cannot be opened"),
        ("://", "is not a URL of a database"),
    ],
)
def test_what_cannot_be_opened_is_named(where: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        open_database(where)
    assert "secret" not in str(caught.value)


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("not a database at all, and long enough to be looked at" * 20)
    with pytest.raises(UserError, match="not a database"):
        open_database(tmp_path / "notes.txt")
    with pytest.raises(UserError, match="cannot be made"):
        open_database(tmp_path / "notes.txt" / "people.sqlite")
