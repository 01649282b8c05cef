"""Session tokens of requests, and the tokens that prove that one of our own pages sent them."""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser


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
