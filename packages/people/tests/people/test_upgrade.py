"""Databases of earlier versions, with what people did in them, opened by this one.

``version_0002.json`` has the rows of every table as the first version wrote them: two people, a campaign in which one
of them voted and finished a task, and a mask in two versions. A new migration gets a file of the revision before it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import create_engine, inspect, text

from holdfast.core.errors import UserError
from holdfast_people import database as migrate
from holdfast_people import identity
from holdfast_people.campaigns import list_campaigns, progress
from holdfast_people.database import open_database
from holdfast_people.mask_exchange import mask_rows

HERE = Path(__file__).parent
RECORDED = sorted(HERE.glob("version_*.json"))
MORE = """
import sqlalchemy as sa
from alembic import op

revision, down_revision = "9001", "{head}"

def upgrade():
    with op.batch_alter_table("people") as table:
        table.add_column(sa.Column("initials", sa.String(8), nullable=True))
    op.execute("UPDATE people SET initials = substr(name, 1, 1)")
    {last}
"""


def rows_of(connection: Any) -> dict[str, list[dict[str, Any]]]:
    """All rows of all tables but the version."""
    names = sorted(set(inspect(connection).get_table_names()) - {"alembic_version"})
    return {
        name: sorted((dict(row) for row in connection.execute(text(f"SELECT * FROM {name}")).mappings()), key=str)
        for name in names
    }


def old_database(url: str, recorded: Path) -> dict[str, list[dict[str, Any]]]:
    """Make the tables of a revision and fill them with its rows; the rows as the database gives them back."""
    revision = recorded.stem.removeprefix("version_")
    tables = json.loads(recorded.read_text())
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        config = migrate._config()
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    with engine.begin() as connection:
        for name in _in_order(connection, tables):
            for row in tables[name]:
                _insert(connection, name, row)
        before = rows_of(connection)
    engine.dispose()
    assert {name: len(rows) for name, rows in before.items()} == {name: len(rows) for name, rows in tables.items()}
    return before


def _in_order(connection: Any, tables: dict[str, Any]) -> list[str]:
    names = [name for name, _ in inspect(connection).get_sorted_table_and_fkc_names() if name in tables]
    assert set(names) == set(tables)
    return names


def _insert(connection: Any, table: str, row: dict[str, Any]) -> None:
    kinds = {column["name"]: str(column["type"]) for column in inspect(connection).get_columns(table)}
    values = {
        key: bytes.fromhex(value["hex"]) if isinstance(value, dict) and "hex" in value
        else json.dumps(value) if kinds[key].startswith("JSON") and not isinstance(value, str)
        else bool(value) if kinds[key] == "BOOLEAN" and value is not None
        else value
        for key, value in row.items()
    }  # fmt: skip
    marks = ", ".join(f":{key}" for key in values)
    connection.execute(text(f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})"), values)


def _known_columns(after: dict[str, list[Any]], before: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """All rows with the columns that their table had before."""
    return {
        name: sorted(
            ({key: value for key, value in row.items() if key in before[name][0]} for row in rows if before[name]),
            key=str,
        )
        for name, rows in after.items()
    }


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.stem)
def test_a_database_of_an_earlier_version_keeps_what_people_did(url: str, recorded: Path) -> None:
    before = old_database(url, recorded)
    database = open_database(url)
    with database.reading() as connection:
        after = rows_of(connection)
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == migrate.newest()
        assert _known_columns(after, before) == before
        person = identity.person_of_session(connection, "recorded-session", now=1_000_100.0)
        assert person is not None and person.name == "Ada"
        (campaign,) = list_campaigns(connection)
        far = progress(connection, campaign.id, now=1_000_100.0)
        assert (far["finished_tasks"], far["counted"]) == (1, 2) and len(after["votes"]) == 6
        (mask, *_) = mask_rows(connection, 1)
        assert mask["mask_rle"]
    database.close()


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The migrations of a later version: ours and one more, which a test writes."""
    folder = tmp_path / "later"
    shutil.copytree(Path(migrate.__file__).parent / "migrations", folder / "migrations")
    monkeypatch.setattr(migrate, "__file__", str(folder / "migrate.py"))
    return folder / "migrations" / "versions" / "v9001_more.py"


def test_a_later_version_changes_tables_and_keeps_their_rows(url: str, later: Path) -> None:
    before = old_database(url, RECORDED[-1])
    later.write_text(MORE.format(head=migrate.newest(), last=""))
    database = open_database(url)
    with database.reading() as connection:
        after = rows_of(connection)
    database.close()
    assert {row.pop("initials") for row in after["people"]} == {row["name"][:1] for row in before["people"]}
    assert _known_columns(after, before) == before


def test_an_upgrade_that_fails_leaves_the_old_database(url: str, later: Path) -> None:
    before = old_database(url, RECORDED[-1])
    head = migrate.newest()
    later.write_text(MORE.format(head=head, last='op.execute("SELECT no_such_column FROM people")'))
    with pytest.raises(UserError, match="cannot be opened"):
        open_database(url)
    later.unlink()
    database = open_database(url)
    with database.reading() as connection:
        assert _known_columns(rows_of(connection), before) == before
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == head
    database.close()
