"""The front page, logging in, and the list of the API."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Form
from pydantic import BaseModel
from sqlalchemy import select
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from holdfast.core.errors import UserError
from holdfast_people import identity
from holdfast_people.web.services.dependencies import Audit, Member, Server, Visitor, address_of
from holdfast_people.web.services.pages import RefusedRequest, local_path, page, session_token
from holdfast_people.web.services.security import is_public
from holdfast_people.web.services.server_state import ServerState

router = APIRouter()
_COOKIE_S = 30 * 24 * 3600
_UNKNOWN = "This invitation is not known, has expired or was withdrawn. Ask the sender for a new one."


@router.get("/")
def front(request: Request, person: Member) -> Response:
    """Show the front page."""
    return page(request, "front.html")


@router.get("/login")
def login_page(request: Request, person: Visitor, next: str = "/") -> Response:
    """Show the field for the invitation."""
    return page(request, "login.html", next=local_path(next), trouble="")


@router.post("/login")
def login(
    request: Request, server: Server, link: Annotated[str, Form(max_length=2000)], next: Annotated[str, Form()] = "/"
) -> Response:
    """Show the page of the invitation whose link or token was pasted."""
    _check_attempts(request, server)
    token = re.split("[?#]", link.strip())[0].rstrip("/").rpartition("/")[2]
    return _join_page(request, server, token, next)


@router.get("/join/{token}")
def join_page(request: Request, server: Server, person: Visitor, token: str, next: str = "/") -> Response:
    """Show the page of an invitation. Opening the link changes nothing, since mail programs open links too."""
    _check_attempts(request, server)
    return _join_page(request, server, token, next)


@router.post("/join/{token}")
def join(
    request: Request,
    server: Server,
    token: str,
    name: Annotated[str, Form(max_length=100)] = "",
    next: Annotated[str, Form()] = "/",
) -> Response:
    """Open a session and continue to ``next``."""
    _check_attempts(request, server)
    now = server.now()
    with server.database.reading() as connection:  # requests of strangers must not wait for the write lock
        known = identity.find_invitation(connection, token, now=now)
    if known is None:
        return _join_page(request, server, token, next)
    try:
        with server.database.writing() as connection:
            session = identity.open_invitation(connection, token, name=name, now=now)
            person = identity.person_of_session(connection, session, now=now)
            person_id = person.id if person else None
            identity.record(connection, now=now, person_id=person_id, action="login", address=address_of(request))
    except UserError as error:
        return _join_page(request, server, token, next, trouble=str(error))
    response = RedirectResponse(local_path(next), 303)
    is_secure = server.options.is_secure and is_public(request.headers, server)
    response.set_cookie(
        server.cookie, session, max_age=_COOKIE_S, path="/", secure=is_secure, httponly=True, samesite="lax"
    )
    return response


@router.post("/logout")
def logout(request: Request, server: Server, person: Visitor, record: Audit) -> Response:
    """End the session."""
    token, _ = session_token(request.headers, server.cookie)
    if person is not None:
        with server.database.writing() as connection:
            identity.end_session(connection, token)
            record(connection, action="logout")
    response = RedirectResponse("/login", 303)
    response.delete_cookie(server.cookie, path="/", httponly=True, samesite="lax")
    return response


@router.get("/api/me")
def me(person: Member) -> identity.Person:
    """Return who is logged in."""
    return person


class Health(BaseModel):
    """The health of the server and its database."""

    status: str


@router.get("/api/health")
def health(server: Server) -> Health:
    """Return whether the server and its database answer; no login is needed."""
    with server.database.reading() as connection:
        connection.execute(select(1))
    return Health(status="ok")


def _join_page(request: Request, server: ServerState, token: str, next: str, trouble: str = "") -> Response:
    with server.database.reading() as connection:
        invitation = identity.find_invitation(connection, token, now=server.now())
        guessed = invitation is None and not identity.was_invitation(connection, token)
    if invitation is None:
        if guessed:
            server.limiter.fail(address_of(request), server.now())
        return page(request, "login.html", status=404, next=local_path(next), trouble=_UNKNOWN)
    return page(request, "join.html", token=token, next=local_path(next), invited=invitation.person, trouble=trouble)


def _check_attempts(request: Request, server: ServerState) -> None:
    wait = server.limiter.wait(address_of(request), server.now())
    if wait > 0:
        sentence = f"too many wrong invitations came from your address; try again in {int(wait // 60) + 1} minutes"
        raise RefusedRequest(429, sentence, {"Retry-After": str(int(wait) + 1)})


@router.get("/api")
def operations_page(request: Request, person: Visitor) -> Response:
    """Show every operation with its parameters; FastAPI's own page loads scripts from other sites."""
    schema: dict[str, Any] = request.app.openapi()
    rooms: dict[str, list[dict[str, Any]]] = {}
    for path, methods in schema["paths"].items():
        for method in ("get", "post", "put", "patch", "delete"):
            if operation := methods.get(method):
                room = (operation.get("tags") or ["server"])[0]
                words = operation.get("description", "").replace("``", "")
                line = {"method": method.upper(), "path": path, "words": words, "takes": _takes(operation, schema)}
                rooms.setdefault(room, []).append(line)
    return page(request, "operations.html", rooms=dict(sorted(rooms.items())))


def _takes(operation: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    """Return the names of the query's parameters and the body's fields."""
    names = [item["name"] for item in operation.get("parameters", []) if item["in"] == "query"]
    for content in operation.get("requestBody", {}).get("content", {}).values():
        name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
        names += list(schema.get("components", {}).get("schemas", {}).get(name, {}).get("properties", {}))
    return names
