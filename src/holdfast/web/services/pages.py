"""The server's pages: templates, the values that every template gets, and the tokens of their sessions."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request, cookie_parser
from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from holdfast.report.page.writer import templates


def session_token(headers: Headers, cookie: str) -> tuple[str, bool]:
    """Return the session's token, or an empty text, and whether it came as a cookie."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip(), False
    # Not http.cookies: it drops all cookies where one of them, maybe of another program, is malformed.
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


def _time(seconds: float | None) -> str:
    """Return UTC as ISO 8601; ``api.js`` shows it in the reader's time zone."""
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_templates = templates(HERE / "templates")
_templates.filters["iso"] = _time


def page(request: Request, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """Return a page.

    Every template gets ``person`` (or None), ``path`` and ``csrf``, for the hidden field of forms and for ``api.js``.
    """
    return _render(request.scope, template, status, context, getattr(request.state, "person", None))


def error_page(scope: Scope, status: int, sentence: str, headers: dict[str, str]) -> Response:
    """Return a page that says in one sentence what went wrong."""
    person = scope.get("state", {}).get("person")
    response = _render(scope, "error.html", status, {"number": status, "sentence": sentence}, person)
    response.headers.update(headers)
    return response


def _render(scope: Scope, template: str, status: int, context: dict[str, Any], person: Any) -> HTMLResponse:
    server = scope["app"].state.server
    token, _ = session_token(Headers(scope=scope), server.cookie)
    context |= {"person": person, "csrf": csrf_token(server.secret, token) if token else "", "path": scope["path"]}
    return HTMLResponse(_templates.get_template(template).render(context), status)
