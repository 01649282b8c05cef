"""Who a request says it is, and the token that proves that one of our own pages sent it."""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import cookie_parser


def session_token(headers: Headers, cookie: str) -> tuple[str, bool]:
    """The session's token, or an empty text, and whether a browser sent it by itself (as a cookie)."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return token.strip(), False
    # Not http.cookies: it drops all of them where one, of another program on this machine, is not as it should be.
    value = cookie_parser(headers.get("cookie", "")).get(cookie, "")
    return value, bool(value)


def csrf_token(secret: bytes, session: str) -> str:
    """What a page of this session must send along: nobody makes it without the server's secret."""
    return hmac.new(secret, b"csrf:" + session.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def local_path(text: str) -> str:
    """``text`` where it is a path on this server to go on to, else the front page."""
    if not text.isprintable() or len(text) > 500 or not text.startswith("/") or text.startswith(("//", "/\\")):
        return "/"
    parts = urlsplit(text)
    return "/" if parts.scheme or parts.netloc else text
