from __future__ import annotations

import pytest
from sqlalchemy import text

from holdfast.core.errors import UserError
from holdfast_people.database import Database
from holdfast_people.identity import (
    DAY,
    SESSION_DAYS,
    Person,
    audit_log,
    end_session,
    find_invitation,
    invite,
    list_invitations,
    open_invitation,
    person_of_session,
    record,
    revoke,
)
from holdfast_people.tables import metadata

NOW = 1_700_000_000.0
STRANGE = ["", "x", "\x00" * 43, "\ud800", "é" * 43, "a" * 43, "a" * 10_000]


def everything(database: Database) -> str:
    """All that the database holds, as text."""
    with database.reading() as connection:
        return repr([connection.execute(table.select()).all() for table in metadata.sorted_tables])


def test_a_person_comes_in_and_stays(database: Database) -> None:
    with database.writing() as connection:
        number, token = invite(connection, note="for Ann", now=NOW)
        found = find_invitation(connection, token, now=NOW)
        assert found is not None
        assert (found.id, found.note, found.person.name, found.opened) == (number, "for Ann", "", False)
        session = open_invitation(connection, token, name=" Ann \n Smith", now=NOW)
        assert person_of_session(connection, session, now=NOW) == Person(found.person.id, "Ann Smith", "member")
        again = open_invitation(connection, token, name="Someone else", now=NOW + 1)  # on another device
        assert again != session
        assert person_of_session(connection, again, now=NOW + 1) == Person(found.person.id, "Ann Smith", "member")


def test_tokens_are_long_and_stored_as_hashes_only(database: Database) -> None:
    with database.writing() as connection:
        tokens = [invite(connection, note="", name="Ann", now=NOW)[1] for _ in range(3)]
        tokens += [open_invitation(connection, token, name="", now=NOW) for token in tokens]
    assert len(set(tokens)) == 6
    assert all(len(token) == 43 for token in tokens)
    held = everything(database)
    assert "Ann" in held
    assert not any(token in held for token in tokens)


def test_revoking_ends_the_sessions_at_once(database: Database) -> None:
    with database.writing() as connection:
        number, token = invite(connection, note="", name="Ann", now=NOW)
        _, other = invite(connection, note="", name="Bob", role="admin", now=NOW)
        session = open_invitation(connection, token, name="", now=NOW)
        admin = open_invitation(connection, other, name="", now=NOW)
    with database.writing() as connection:
        revoke(connection, number, now=NOW + 1)
        revoke(connection, number, now=NOW + 2)
    with database.writing() as connection:
        assert person_of_session(connection, session, now=NOW + 1) is None
        assert find_invitation(connection, token, now=NOW + 1) is None
        with pytest.raises(UserError, match="not valid"):
            open_invitation(connection, token, name="Ann", now=NOW + 1)
        person = person_of_session(connection, admin, now=NOW + 1)
        assert person is not None
        assert person.is_admin
        states = {row["name"]: (row["status"], row["revoked_at"]) for row in list_invitations(connection, now=NOW + 3)}
        assert states == {"Ann": ("revoked", NOW + 1), "Bob": ("opened", None)}
        with pytest.raises(UserError, match="no invitation 999"):
            revoke(connection, 999, now=NOW)


def test_links_and_sessions_run_out(database: Database) -> None:
    with database.writing() as connection:
        _, token = invite(connection, note="", name="Ann", days=2, now=NOW)
        late = NOW + 2 * DAY
        session = open_invitation(connection, token, name="", now=late - 1)
        assert find_invitation(connection, token, now=late) is None
        with pytest.raises(UserError, match="not valid"):
            open_invitation(connection, token, name="", now=late)
        assert list_invitations(connection, now=late)[0]["status"] == "expired"
        end = late - 1 + SESSION_DAYS * DAY
        assert person_of_session(connection, session, now=end - 1) is not None
        assert person_of_session(connection, session, now=end) is None


def test_logging_out_ends_one_session(database: Database) -> None:
    with database.writing() as connection:
        _, token = invite(connection, note="", name="Ann", now=NOW)
        here, there = (open_invitation(connection, token, name="", now=NOW) for _ in range(2))
        end_session(connection, here)
        assert person_of_session(connection, here, now=NOW) is None
        assert person_of_session(connection, there, now=NOW) is not None


@pytest.mark.parametrize("token", STRANGE)
def test_strange_tokens_are_nobody(database: Database, token: str) -> None:
    with database.writing() as connection:
        assert find_invitation(connection, token, now=NOW) is None
        assert person_of_session(connection, token, now=NOW) is None
        end_session(connection, token)
        with pytest.raises(UserError, match="not valid"):
            open_invitation(connection, token, name="Ann", now=NOW)


def test_somebody_without_a_name_is_asked_for_it(database: Database) -> None:
    with database.writing() as connection:
        _, token = invite(connection, note="", now=NOW)
        for name in ("", " \n ", "\x00\ud800"):
            with pytest.raises(UserError, match="say your name"):
                open_invitation(connection, token, name=name, now=NOW)
        for wrong in ({"role": "owner"}, {"days": 0.0}, {"days": float("nan")}):
            with pytest.raises(UserError):
                invite(connection, note="", now=NOW, **wrong)


def test_the_audit_log_goes_back_page_by_page(database: Database) -> None:
    with database.writing() as connection:
        invite(connection, note="", name="Ann", now=NOW)
        person = connection.scalar(text("SELECT id FROM people"))
        for number in range(5):
            record(connection, now=NOW + number, person_id=person, action="count", subject=f"{number}\x00")
        record(connection, now=NOW + 9, person_id=None, action="start", detail={"port": 1}, address="127.0.0.1")
        newest = audit_log(connection, limit=3)
        assert [(row["action"], row["subject"], row["name"]) for row in newest] == [
            ("start", "", None),
            ("count", "4", "Ann"),
            ("count", "3", "Ann"),
        ]
        assert (newest[0]["detail"], newest[0]["address"], newest[0]["at"]) == ({"port": 1}, "127.0.0.1", NOW + 9)
        older = audit_log(connection, limit=9, before=newest[-1]["id"])
        assert [row["subject"] for row in older] == ["2", "1", "0"]
