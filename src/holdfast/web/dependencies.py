"""What endpoints ask for: the house, and who is there."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Path, Query
from fastapi.security import HTTPBearer
from pydantic import BaseModel, StringConstraints
from starlette.requests import Request

from holdfast.people.identity import Person, person_of_session
from holdfast.web.errors import NotLoggedIn, Refusal
from holdfast.web.house import House
from holdfast.web.sessions import session_token

_bearer = HTTPBearer(auto_error=False, description="A session's token; browsers have it in a cookie instead.")


class Trouble(BaseModel):
    """Why a request was not answered."""

    detail: str


TROUBLES: dict[int | str, dict[str, object]] = {
    status: {"model": Trouble, "description": words}
    for status, words in {
        400: "What was asked for makes no sense as it stands.",
        401: "Nobody is logged in.",
        403: "Not allowed, or not sent by one of our pages.",
        404: "There is no such thing, or it is not yours.",
        409: "Somebody else was faster.",
        413: "Too large.",
        429: "Too many wrong tokens.",
        503: "The database or the disk cannot take it now; nothing was saved.",
    }.items()
}
"""What any operation may answer besides what it is for."""


async def the_house(request: Request) -> House:
    """What the server is made of."""
    house: House = request.app.state.house
    return house


TheHouse = Annotated[House, Depends(the_house)]


def visitor(request: Request, house: TheHouse, _: Annotated[object, Depends(_bearer)]) -> Person | None:
    """Who is logged in, or None. Pages that anybody may see ask for this."""
    token, _by_browser = session_token(request.headers, house.cookie)
    person = None
    if token:
        with house.database.reading() as connection:
            person = person_of_session(connection, token, now=house.now())
    request.state.person = person
    return person


Visitor = Annotated[Person | None, Depends(visitor)]


async def member(person: Visitor) -> Person:
    """Whoever is logged in; else pages lead to /login, and programs get a 401."""
    if person is None:
        raise NotLoggedIn
    return person


async def administrator(person: Annotated[Person, Depends(member)]) -> Person:
    """An administrator; else a 403."""
    if not person.is_admin:
        raise Refusal(403, "this is for administrators")
    return person


Member = Annotated[Person, Depends(member)]
Admin = Annotated[Person, Depends(administrator)]

Identity = Annotated[int, Path(ge=1, le=2**63 - 1)]
"""A row's number in a path: what both databases can hold."""

Token = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,100}$")]
"""A random token in a path."""

Line = Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""One line of text, as it may stand in the database: no control characters."""

Before = Annotated[int | None, Query(ge=1, le=2**63 - 1)]


def address_of(request: Request) -> str:
    """Where a request comes from, for the audit log and the limit of wrong tokens."""
    return request.client.host if request.client else ""
