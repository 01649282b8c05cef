from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import text

from holdfast_people.database import Database, open_database
from holdfast_people.tables import metadata


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/people.sqlite"
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(scope="session")
def postgres_database(postgres_server: str) -> Iterator[Database]:
    """Migrated once, because emptying tables is quicker than making them."""
    database = open_database(postgres_server)
    yield database
    database.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A migrated database of each kind, without a row."""
    if request.param == "sqlite":
        opened = open_database(tmp_path / "people.sqlite")
        yield opened
        opened.close()
        return
    kept: Database = request.getfixturevalue("postgres_database")
    with kept.writing() as connection:
        connection.execute(text(f"TRUNCATE {', '.join(metadata.tables)} RESTART IDENTITY CASCADE"))
    yield kept
