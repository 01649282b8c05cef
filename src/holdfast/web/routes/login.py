"""Coming in by an invitation, going out, and the front page."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import APIRouter, Form
from pydantic import BaseModel
from sqlalchemy import select
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from holdfast.core.errors import UserError
from holdfast.people import identity
from holdfast.web.dependencies import Member, TheHouse, Visitor, address_of
from holdfast.web.errors import Refusal
from holdfast.web.house import House
from holdfast.web.pages import page
from holdfast.web.security import is_public
from holdfast.web.sessions import local_path, session_token

router = APIRouter()
_COOKIE_S = 30 * 24 * 3600
_UNKNOWN = "This invitation is not known, has expired or was withdrawn. Ask whoever sent it for a new one."


@router.get("/")
def front(request: Request, person: Member) -> Response:
    """What there is to do."""
    return page(request, "front.html")


@router.get("/login")
def login_page(request: Request, person: Visitor, next: str = "/") -> Response:
    """A field for the invitation."""
    return page(request, "login.html", next=local_path(next), trouble="")


@router.post("/login")
def login(
    request: Request, house: TheHouse, link: Annotated[str, Form(max_length=2000)], next: Annotated[str, Form()] = "/"
) -> Response:
    """Go on to the page of the invitation whose link, or token alone, was pasted."""
    _check_attempts(request, house)
    token = re.split("[?#]", link.strip())[0].rstrip("/").rpartition("/")[2]
    return _join_page(request, house, token, next)


@router.get("/join/{token}")
def join_page(request: Request, house: TheHouse, person: Visitor, token: str, next: str = "/") -> Response:
    """Who was invited may come in: opening the link changes nothing yet, since mail programs open links too."""
    _check_attempts(request, house)
    return _join_page(request, house, token, next)


@router.post("/join/{token}")
def join(
    request: Request,
    house: TheHouse,
    token: str,
    name: Annotated[str, Form(max_length=100)] = "",
    next: Annotated[str, Form()] = "/",
) -> Response:
    """Open a session and go on to ``next``."""
    _check_attempts(request, house)
    now, address = house.now(), address_of(request)
    with house.database.reading() as connection:  # strangers must not queue for writing
        known = identity.find_invitation(connection, token, now=now)
    if known is None:
        return _join_page(request, house, token, next)
    try:
        with house.database.writing() as connection:
            session = identity.open_invitation(connection, token, name=_one_line(name), now=now)
            person = identity.person_of_session(connection, session, now=now)
            identity.record(
                connection, now=now, person_id=person.id if person else None, action="login", address=address
            )
    except UserError as error:
        return _join_page(request, house, token, next, trouble=str(error))
    response = RedirectResponse(local_path(next), 303)
    is_secure = house.options.is_secure and is_public(request.headers, house)
    response.set_cookie(
        house.cookie, session, max_age=_COOKIE_S, path="/", secure=is_secure, httponly=True, samesite="lax"
    )
    return response


@router.post("/logout")
def logout(request: Request, house: TheHouse, person: Visitor) -> Response:
    """End the session."""
    token, _ = session_token(request.headers, house.cookie)
    if person is not None:
        with house.database.writing() as connection:
            identity.end_session(connection, token)
            identity.record(
                connection, now=house.now(), person_id=person.id, action="logout", address=address_of(request)
            )
    response = RedirectResponse("/login", 303)
    response.delete_cookie(house.cookie, path="/", httponly=True, samesite="lax")
    return response


class Me(BaseModel):
    """Who is logged in."""

    id: int
    name: str
    role: str


@router.get("/api/me")
def me(person: Member) -> Me:
    """Who is logged in."""
    return Me(id=person.id, name=person.name, role=person.role)


class Health(BaseModel):
    """That the server and its database answer."""

    status: str


@router.get("/api/health")
def health(house: TheHouse) -> Health:
    """Whether the server and its database answer; nobody needs to be logged in."""
    with house.database.reading() as connection:
        connection.execute(select(1))
    return Health(status="ok")


def _join_page(request: Request, house: House, token: str, next: str, trouble: str = "") -> Response:
    with house.database.reading() as connection:
        invitation = identity.find_invitation(connection, token, now=house.now())
        guessed = invitation is None and not identity.was_invitation(connection, token)
    if invitation is None:
        if guessed:
            house.limiter.fail(address_of(request), house.now())
        return page(request, "login.html", status=404, next=local_path(next), trouble=_UNKNOWN)
    return page(request, "join.html", token=token, next=local_path(next), invited=invitation.person, trouble=trouble)


def _check_attempts(request: Request, house: House) -> None:
    wait = house.limiter.wait(address_of(request), house.now())
    if wait > 0:
        sentence = f"too many wrong invitations came from your address; try again in {int(wait // 60) + 1} minutes"
        raise Refusal(429, sentence, {"Retry-After": str(int(wait) + 1)})


def _one_line(name: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in name).split())
