"""Identity: people, their invitations and sessions, and the audit log.

Tokens are random, shown once, and stored as SHA-256 only: anyone who reads the database cannot log in with it.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, case, delete, insert, select, update

from holdfast.core.errors import UserError
from holdfast_people.tables import audit, invitations, people, sessions

DAY = 86_400.0
SESSION_DAYS = 30.0  # days that a browser stays logged in; afterwards the link opens a new session while it is valid
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
_NO_LINK = "this link is not valid (any more); ask the sender for a new one"


@dataclass(frozen=True, slots=True)
class Person:
    """A person who is logged in."""

    id: int
    name: str
    role: str

    @property
    def is_admin(self) -> bool:
        """Whether they may invite others and run campaigns."""
        return self.role == "admin"


@dataclass(frozen=True, slots=True)
class Invitation:
    """A link that lets one person in, on any number of devices, until it expires or is revoked."""

    id: int
    person: Person
    note: str
    expires_at: float
    opened: bool


def new_token() -> str:
    """Return a random token of 43 characters."""
    return secrets.token_urlsafe(32)


def is_id(number: int) -> bool:
    """Return whether a row can have this number; both databases refuse larger ones."""
    return 0 < number < 2**63


def is_token(text: str) -> bool:
    """Return whether a text looks like one of our tokens; no other text is looked up in the database."""
    return _TOKEN.fullmatch(text) is not None


def _hashed(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def invite(
    connection: Connection, *, note: str, role: str = "member", days: float = 30.0, now: float, name: str = ""
) -> tuple[int, str]:
    """Make a person and their link (``note``: for whom); return the invitation's id and its token, kept nowhere."""
    if role not in ("admin", "member"):
        raise UserError(f"the role of a person must be admin or member, not {role!r}")
    if not 0 < days <= 3650:
        raise UserError("an invitation must be valid for more than 0 and at most 3650 days")
    person = insert(people).values(name=one_line(name), role=role, created_at=now)
    person_id = connection.execute(person.returning(people.c.id)).scalar_one()
    token = new_token()
    values = {"person_id": person_id, "token_sha256": _hashed(token), "note": one_line(note)}
    invitation = insert(invitations).values(**values, created_at=now, expires_at=now + days * DAY)
    return connection.execute(invitation.returning(invitations.c.id)).scalar_one(), token


def one_line(text: str, most: int = 200) -> str:
    """Return the text as one line of visible characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:most]


def find_invitation(connection: Connection, token: str, *, now: float) -> Invitation | None:
    """Return the invitation of a token, without using it up; None if it is unknown, expired or revoked."""
    query = (
        select(invitations, people.c.name, people.c.role)
        .join(people, people.c.id == invitations.c.person_id)
        .where(invitations.c.token_sha256 == _hashed(token), invitations.c.revoked_at.is_(None))
        .where(invitations.c.expires_at > now)
    )
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    person = Person(row.person_id, row.name, row.role)
    return Invitation(row.id, person, row.note, row.expires_at, row.opened_at is not None)


def was_invitation(connection: Connection, token: str) -> bool:
    """Return whether a token was ever an invitation: an old link cannot be guessed."""
    known = select(invitations.c.id).where(invitations.c.token_sha256 == _hashed(token))
    return connection.scalar(known) is not None


def open_invitation(connection: Connection, token: str, *, name: str, now: float) -> str:
    """Let a person in, who must say their name the first time; return the token of a new session."""
    invitation = find_invitation(connection, token, now=now)
    if invitation is None:
        raise UserError(_NO_LINK)
    if not invitation.person.name:
        if not one_line(name):
            raise UserError("say your name, so that your work is recognised")
        connection.execute(update(people).where(people.c.id == invitation.person.id).values(name=one_line(name)))
    if not invitation.opened:
        connection.execute(update(invitations).where(invitations.c.id == invitation.id).values(opened_at=now))
    session = new_token()
    connection.execute(delete(sessions).where(sessions.c.expires_at <= now))
    values = {"person_id": invitation.person.id, "invitation_id": invitation.id, "token_sha256": _hashed(session)}
    connection.execute(insert(sessions).values(**values, created_at=now, expires_at=now + SESSION_DAYS * DAY))
    return session


def person_of_session(connection: Connection, token: str, *, now: float) -> Person | None:
    """Return who is logged in; None once the session has ended or its invitation was revoked."""
    query = (
        select(people.c.id, people.c.name, people.c.role)
        .join(sessions, sessions.c.person_id == people.c.id)
        .join(invitations, invitations.c.id == sessions.c.invitation_id)
        .where(sessions.c.token_sha256 == _hashed(token), sessions.c.expires_at > now)
        .where(invitations.c.revoked_at.is_(None))
    )
    row = connection.execute(query).one_or_none()
    return Person(*row) if row else None


def end_session(connection: Connection, token: str) -> None:
    """End a session; unknown tokens are ignored."""
    connection.execute(delete(sessions).where(sessions.c.token_sha256 == _hashed(token)))


def revoke(connection: Connection, invitation_id: int, *, now: float) -> None:
    """Make a link useless and with it, at once, the sessions that it opened."""
    known = select(invitations.c.id).where(invitations.c.id == invitation_id)
    if not is_id(invitation_id) or connection.scalar(known) is None:
        raise UserError(f"there is no invitation {invitation_id}")
    still = (invitations.c.id == invitation_id, invitations.c.revoked_at.is_(None))
    connection.execute(update(invitations).where(*still).values(revoked_at=now))


def list_invitations(connection: Connection, *, now: float) -> list[dict[str, Any]]:
    """Return all invitations, newest first, with ``status``: new, opened, expired or revoked."""
    status = case(
        (invitations.c.revoked_at.is_not(None), "revoked"),
        (invitations.c.expires_at <= now, "expired"),
        (invitations.c.opened_at.is_(None), "new"),
        else_="opened",
    ).label("status")
    columns = [column for column in invitations.c if column.name != "token_sha256"]
    query = select(*columns, people.c.name, people.c.role, status).join(people, people.c.id == invitations.c.person_id)
    return [dict(row) for row in connection.execute(query.order_by(invitations.c.id.desc())).mappings()]


def record(
    connection: Connection,
    *,
    now: float,
    person_id: int | None,
    action: str,
    subject: str = "",
    detail: Mapping[str, Any] | None = None,
    address: str = "",
) -> None:
    """Write one line of the audit log, in the transaction of the act itself; ``detail`` never holds a token."""
    row = {"at": now, "person_id": person_id, "action": one_line(action, 60), "subject": one_line(subject)}
    connection.execute(insert(audit).values(**row, detail=dict(detail or {}), address=one_line(address, 60)))


def audit_log(connection: Connection, *, limit: int, before: int | None = None) -> list[dict[str, Any]]:
    """Return the newest lines first, on the next page those ``before`` an id."""
    query = select(audit, people.c.name).outerjoin(people, people.c.id == audit.c.person_id)
    if before is not None and is_id(before):
        query = query.where(audit.c.id < before)
    return [dict(row) for row in connection.execute(query.order_by(audit.c.id.desc()).limit(limit)).mappings()]
