"""The server's pages: templates, tokens of their sessions, and errors in words (JSON for programs)."""

from __future__ import annotations

import errno
import hashlib
import hmac
import logging
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DataError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request, cookie_parser
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.types import Scope

from holdfast.core.errors import UserError
from holdfast.reports.page.writer import templates
from holdfast_people.database import DatabaseUnavailable


def session_token(headers: Headers, cookie: str) -> tuple[str, bool]:
    """Return the session's token, or an empty text, and whether it came as a cookie."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip(), False
    # Not http.cookies: it drops all cookies if one of them, maybe of another program, is malformed.
    value = cookie_parser(headers.get("cookie", "")).get(cookie, "")
    return value, bool(value)


def csrf_token(secret: bytes, session: str) -> str:
    """Return the token that pages of this session must send; only the server can make it."""
    return hmac.new(secret, b"csrf:" + session.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def local_path(text: str) -> str:
    """Return ``text`` if it is a path on this server, else the path of the front page."""
    if not text.isprintable() or len(text) > 500 or not text.startswith("/") or text.startswith(("//", "/\\")):
        return "/"
    parts = urlsplit(text)
    return "/" if parts.scheme or parts.netloc else text


HERE = Path(__file__).parents[1]
STATIC = HERE / "static"


_templates = templates(HERE / "templates")
_templates.filters["iso"] = lambda seconds: (  # UTC; ``api.js`` shows it in the reader's time zone
    "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
)


def page(
    request: Request, template: str, *, status: int = 200, headers: dict[str, str] | None = None, **context: Any
) -> HTMLResponse:
    """Return a page; every template gets ``person`` (or None), ``path`` and ``csrf`` (for forms and ``api.js``)."""
    server = request.app.state.server
    token, _ = session_token(request.headers, server.cookie)
    context |= {"person": getattr(request.state, "person", None), "path": request.scope["path"]}
    context["csrf"] = csrf_token(server.secret, token) if token else ""
    return HTMLResponse(_templates.get_template(template).render(context), status, headers)


log = logging.getLogger("holdfast.web")

_FULL = (errno.ENOSPC, errno.EDQUOT)


class RefusedRequest(Exception):  # noqa: N818  (an answer, not an error)
    """Answer a request with a status and a sentence instead of its result."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers = status, sentence, headers or {}


class NotLoggedIn(Exception):  # noqa: N818
    """No one is logged in, or no longer."""


def missing(what: str) -> RefusedRequest:
    """Return a 404 that says what does not exist."""
    return RefusedRequest(404, f"there is no such {what}")


def unavailable(reason: str) -> RefusedRequest:
    """Return a 503: nothing was saved, and the same request may succeed soon."""
    return RefusedRequest(503, f"{reason}; nothing was saved, please try again in a moment", {"Retry-After": "2"})


def wants_json(path: str) -> bool:
    """Return whether a path is for programs and scripts; all other paths are pages for people."""
    return path.startswith(("/api/", "/media/"))


def answer(scope: Scope, refusal: RefusedRequest) -> Response:
    """Return the refusal as JSON ``{"detail": …}``, or as a page that says in one sentence what went wrong."""
    status, sentence = refusal.status, refusal.sentence
    if wants_json(scope["path"]):
        return JSONResponse({"detail": sentence}, status, refusal.headers)
    shown = {"number": status, "sentence": sentence}
    return page(Request(scope), "error.html", status=status, headers=refusal.headers, **shown)


def register(app: FastAPI) -> None:
    """Register handlers that answer every kind of error in words."""

    def on(kind: type[Exception] | int, refuse: Any) -> None:
        async def handle(request: Request, error: Exception) -> Response:
            return answer(request.scope, refuse(error))

        app.add_exception_handler(kind, handle)

    on(RefusedRequest, lambda error: error)
    on(UserError, lambda error: RefusedRequest(400, str(error)))
    on(DatabaseUnavailable, no_database)
    on(PoolTimeout, lambda error: unavailable("the database is busy with too many requests"))
    on(DataError, lambda error: RefusedRequest(400, "the database cannot hold one of these values"))
    on(HTTPException, lambda error: RefusedRequest(error.status_code, _words(error), dict(error.headers or {})))
    app.add_exception_handler(OSError, _operating_system)
    app.add_exception_handler(NotLoggedIn, _not_logged_in)
    app.add_exception_handler(RequestValidationError, _not_valid)


def no_database(error: DatabaseUnavailable) -> RefusedRequest:
    """Return a 503; the driver's message goes to the server's log."""
    log.warning("%s (%s)", error, error.detail or "too many at once")
    return unavailable(str(error))


def _words(error: HTTPException) -> str:
    return {404: "there is no such page", 405: "this cannot be done here"}.get(error.status_code, str(error.detail))


async def _operating_system(request: Request, error: Exception) -> Response:
    if isinstance(error, OSError) and error.errno in _FULL:
        return answer(request.scope, unavailable("the disk is full"))
    raise error


async def _not_logged_in(request: Request, _: Exception) -> Response:
    if wants_json(request.url.path):
        return JSONResponse({"detail": "log in first"}, 401, {"WWW-Authenticate": "Bearer"})
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    goes_on = f"?next={quote(path, safe='/')}" if request.method == "GET" and path != "/" else ""
    return RedirectResponse(f"/login{goes_on}", 303)


async def _not_valid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    # Without pydantic's "input": answers do not repeat what was sent, and some of it cannot be encoded.
    problems = [
        {"loc": [_plain(part) for part in item["loc"]], "msg": _plain(item["msg"]), "type": item["type"]}
        for item in error.errors()
    ]
    if wants_json(request.url.path):
        return JSONResponse({"detail": problems}, 422)
    if all(problem["loc"][0] == "path" for problem in problems):
        return answer(request.scope, missing("page"))
    words = "; ".join(f"{problem['loc'][-1]}: {problem['msg']}" for problem in problems)
    return answer(request.scope, RefusedRequest(400, f"the form has a mistake ({words})"))


def _plain(value: Any) -> Any:
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def broken(scope: Scope, error: Exception) -> RefusedRequest:
    """Log the traceback of a bug without what the client sent, and return a 500."""
    # Log the route, not the path: values in a path may be secrets.
    route = getattr(scope.get("route"), "path", "(no route)")
    log.error("%s %s", scope["method"], route, exc_info=error)
    return RefusedRequest(500, "this is a bug of the server; its log says more")
