"""Checks of every request (host, size, origin), and the headers of every answer."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import socket
from contextlib import suppress
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast_people.database import DatabaseUnavailable
from holdfast_people.identity import person_of_session
from holdfast_people.web.services.pages import RefusedRequest, answer, broken, csrf_token, no_database, session_token
from holdfast_people.web.services.server_state import LOOPBACK, ServerState

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: browsers would send "Origin: null" with our own forms, and the check of Origin would fail.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
BODY_LIMIT = 1 << 20
LARGE_BODIES = {"/api/annotate": 32 << 20}  # paths whose requests may be larger, for masks of large images
_BODY_S = 60.0
_FORM_LIMIT = 64 << 10  # our forms begin with the token
_PAGE_OUT_OF_DATE = "this page is out of date, or the request did not come from it; load it again and repeat"


class Guard:
    """The outermost layer: no other code sees a request that it refused."""

    def __init__(self, app: ASGIApp, server: ServerState) -> None:
        self.app, self.server = app, server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the request, pass it on with its whole body, and add the headers to the answer."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                response = MutableHeaders(scope=message)
                response.update(HEADERS)
                response.setdefault("cache-control", "no-store")
                if self.server.options.is_secure and is_public(headers, self.server):
                    response["strict-transport-security"] = "max-age=31536000"
            await send(message)

        try:
            check_host(headers, self.server)
            if "transfer-encoding" in headers and "content-length" in headers:  # a proxy may read the other one
                raise RefusedRequest(400, "a request must have Content-Length or Transfer-Encoding, not both")
            body = await self._read_body(scope["path"], headers, receive)
            if scope["method"] not in SAFE_METHODS:
                check_forgery(headers, body, self.server)
            await self.app(scope, _once(body, receive), send_with_headers)
        except RefusedRequest as refusal:
            await answer(scope, refusal)(scope, receive, send_with_headers)
        except _GoneError:
            return
        except Exception as error:  # our own mistakes, answered here so that they have the headers too
            mistake = broken(scope, error)
            if not begun:
                await answer(scope, mistake)(scope, receive, send_with_headers)

    async def _read_body(self, path: str, headers: Headers, receive: Receive) -> bytes:
        """Return the whole body. Strangers may send little: it is in memory before their session is checked."""
        most = next((limit for start, limit in LARGE_BODIES.items() if path.startswith(start)), BODY_LIMIT)
        if most > BODY_LIMIT and not await asyncio.to_thread(self._is_known, headers):
            most = BODY_LIMIT
        return await _read_body(most, headers, receive)

    def _is_known(self, headers: Headers) -> bool:
        token, _ = session_token(headers, self.server.cookie)
        if not token:
            return False
        try:
            with self.server.database.reading() as connection:
                return person_of_session(connection, token, now=self.server.now()) is not None
        except DatabaseUnavailable as error:
            raise no_database(error) from None


def check_host(headers: Headers, server: ServerState) -> None:
    """Refuse host names that others may point at this machine (DNS rebinding); loopback and our own names pass."""
    try:
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
    except ValueError:
        host = ""
    if host in LOOPBACK or is_public(headers, server):
        return
    if not server.options.on_loopback:
        with suppress(ValueError):
            ipaddress.ip_address(host)
            return
        if host in (server.options.host.lower(), socket.gethostname().lower()):
            return
    raise RefusedRequest(400, "this server does not answer to that host name; set it with --public-url")


def check_forgery(headers: Headers, body: bytes, server: ServerState) -> None:
    """Refuse a request with side effects that another site made a browser send."""
    origin = headers.get("origin")
    if origin is not None and not _is_own(origin, headers, server):
        raise RefusedRequest(403, _PAGE_OUT_OF_DATE)
    session, by_browser = session_token(headers, server.cookie)
    if not by_browser:
        return
    if origin is None:
        raise RefusedRequest(403, _PAGE_OUT_OF_DATE)
    sent = headers.get("x-csrf-token", "")
    if not sent and headers.get("content-type", "").partition(";")[0].strip() == "application/x-www-form-urlencoded":
        fields = parse_qs(body[:_FORM_LIMIT].decode("utf-8", "replace"))
        sent = fields.get("csrf", [""])[0]
    if not hmac.compare_digest(sent.encode("utf-8", "replace"), csrf_token(server.secret, session).encode()):
        raise RefusedRequest(403, _PAGE_OUT_OF_DATE)


def _is_own(origin: str, headers: Headers, server: ServerState) -> bool:
    host = headers.get("host", "")  # checked before; a proxy in front may have removed https
    return origin in (f"http://{host}", f"https://{host}", server.options.public_url.rstrip("/") or f"http://{host}")


def is_public(headers: Headers, server: ServerState) -> bool:
    """Return whether a request came by the public URL."""
    return bool(server.options.public_url) and headers.get("host", "").lower() == server.options.public_host


class _GoneError(Exception):
    """The client disconnected before it had sent everything."""


async def _read_body(most: int, headers: Headers, receive: Receive) -> bytes:
    """Return the whole body; bytes count as they arrive, and a stated length that is too large is refused at once."""
    too_large = RefusedRequest(413, f"this is more than the {most >> 20} MB that may be sent here")
    stated = headers.get("content-length", "0")
    if stated.isdecimal() and int(stated[:20]) > most:
        raise too_large
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(_BODY_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise _GoneError
                parts.append(message.get("body", b""))
                size += len(parts[-1])
                if size > most:
                    raise too_large
                if not message.get("more_body", False):
                    return b"".join(parts)
    except TimeoutError:
        raise RefusedRequest(408, "the request took too long to arrive; send it again") from None


def _once(body: bytes, receive: Receive) -> Receive:
    """Return a ``receive`` that gives the body that was read already, then all later messages."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay
