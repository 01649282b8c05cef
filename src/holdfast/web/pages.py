"""Templates, and what each of them gets."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import Scope

from holdfast.web.sessions import csrf_token, session_token

HERE = Path(__file__).parent
STATIC = HERE / "static"


def _time(seconds: float | None) -> str:
    """UTC, as ISO 8601; ``api.js`` turns the time elements of a page into the reader's own."""
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["iso"] = _time
    return environment


_templates = _environment()


def page(request: Request, template: str, *, status: int = 200, **context: Any) -> HTMLResponse:
    """A page for whoever is logged in.

    Every template has ``person`` (or None), ``csrf`` (for the hidden field ``csrf`` of forms and the meta element that
    ``api.js`` reads) and ``path``.
    """
    return _render(request.scope, template, status, context, getattr(request.state, "person", None))


def error_page(scope: Scope, status: int, sentence: str, headers: dict[str, str]) -> Response:
    """A page that says in one sentence what went wrong."""
    person = scope.get("state", {}).get("person")
    response = _render(scope, "error.html", status, {"number": status, "sentence": sentence}, person)
    response.headers.update(headers)
    return response


def _render(scope: Scope, template: str, status: int, context: dict[str, Any], person: Any) -> HTMLResponse:
    house = scope["app"].state.house
    token, _ = session_token(Headers(scope=scope), house.cookie)
    context |= {"person": person, "csrf": csrf_token(house.secret, token) if token else "", "path": scope["path"]}
    return HTMLResponse(_templates.get_template(template).render(context), status)
