"""Parameters that endpoints share: the server, the person who is logged in, ids and tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated

from fastapi import Depends, Path, Query
from fastapi.security import HTTPBearer
from pydantic import BaseModel, StringConstraints
from starlette.requests import Request

from holdfast.core.errors import UserError
from holdfast_people.campaigns import Campaign, get_campaign
from holdfast_people.identity import Person, person_of_session, record
from holdfast_people.web.services.pages import NotLoggedIn, RefusedRequest, missing, session_token
from holdfast_people.web.services.server_state import ServerState

_bearer = HTTPBearer(auto_error=False, description="A session's token; browsers have it in a cookie instead.")


class Trouble(BaseModel):
    """Why a request was refused."""

    detail: str


TROUBLES: dict[int | str, dict[str, object]] = {
    status: {"model": Trouble, "description": words}
    for status, words in {
        400: "The request is not valid.",
        401: "No one is logged in.",
        403: "Not allowed, or not sent by one of our pages.",
        404: "It does not exist, or it is not yours.",
        409: "Another person changed it first.",
        413: "Too large.",
        429: "Too many wrong tokens.",
        503: "The database or the disk is not available; nothing was saved.",
    }.items()
}
"""Refusals that any operation may answer with."""


async def server_state(request: Request) -> ServerState:
    """Return the server's shared state."""
    server: ServerState = request.app.state.server
    return server


Server = Annotated[ServerState, Depends(server_state)]


def visitor(request: Request, server: Server, _: Annotated[object, Depends(_bearer)]) -> Person | None:
    """Return who is logged in, or None; for pages that anybody may see."""
    token, _by_browser = session_token(request.headers, server.cookie)
    person = None
    if token:
        with server.database.reading() as connection:
            person = person_of_session(connection, token, now=server.now())
    request.state.person = person
    return person


Visitor = Annotated[Person | None, Depends(visitor)]


async def member(person: Visitor) -> Person:
    """Return who is logged in; otherwise pages lead to /login, and programs get a 401."""
    if person is None:
        raise NotLoggedIn
    return person


async def administrator(person: Annotated[Person, Depends(member)]) -> Person:
    """Return the administrator who is logged in; anybody else gets a 403."""
    if not person.is_admin:
        raise RefusedRequest(403, "only administrators may do this")
    return person


Member = Annotated[Person, Depends(member)]
Admin = Annotated[Person, Depends(administrator)]

Identity = Annotated[int, Path(ge=1, le=2**63 - 1)]  # a row's number in a path, as large as both databases can hold
Token = Annotated[str, Path(pattern=r"^[A-Za-z0-9_-]{1,100}$")]  # a random token in a path
Line = Annotated[str, StringConstraints(max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")]
"""One line of text without control characters."""


def _campaign(campaign_id: Identity, server: Server) -> Campaign:
    try:
        with server.database.reading() as connection:
            return get_campaign(connection, campaign_id)
    except UserError:
        raise missing("campaign") from None


NamedCampaign = Annotated[Campaign, Depends(_campaign)]
"""The campaign of the path; whether someone may see it at all is asked first."""

Before = Annotated[int | None, Query(ge=1, le=2**63 - 1)]


def address_of(request: Request) -> str:
    """Return the address that a request comes from, for the audit log and the limit of wrong tokens."""
    return request.client.host if request.client else ""


async def _audit(request: Request, server: Server, person: Visitor) -> Callable[..., None]:
    person_id = None if person is None else person.id
    return partial(record, now=server.now(), person_id=person_id, address=address_of(request))


Audit = Annotated[Callable[..., None], Depends(_audit)]
"""``identity.record`` with who sent the request, when and from where; it takes the connection, what was done and to
whom."""
