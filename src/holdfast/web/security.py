"""What every request passes: its Host, its size, where it comes from; and the headers of every answer."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import socket
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.people.database import DatabaseUnavailable
from holdfast.people.identity import person_of_session
from holdfast.web.errors import Refusal, answer, broken, no_database
from holdfast.web.house import LOOPBACK, House
from holdfast.web.sessions import csrf_token, session_token

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: with it browsers send "Origin: null" with our own forms, and the check of Origin would be void.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
BODY_LIMIT = 1 << 20
LARGE_BODIES = {"/api/annotate": 32 << 20}
"""Paths whose requests may be larger: masks of large photos."""

_BODY_S = 60.0
_FORM_LIMIT = 64 << 10  # our forms begin with the token
_PAGE_OUT_OF_DATE = "this page is out of date, or the request did not come from it; load it again and repeat"


class Guard:
    """The outermost layer: nothing below it sees a request that it refused."""

    def __init__(self, app: ASGIApp, house: House) -> None:
        self.app, self.house = app, house

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the request, hand it on with its whole body, and add the headers to what comes back."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        begun = False

        async def send_with_headers(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                self._add_headers(MutableHeaders(scope=message), headers)
            await send(message)

        try:
            check_host(headers, self.house)
            check_framing(headers)
            body = await self._read_body(scope["path"], headers, receive)
            if scope["method"] not in SAFE_METHODS:
                check_forgery(headers, body, self.house)
            await self.app(scope, _once(body, receive), send_with_headers)
        except Refusal as refusal:
            await answer(scope, refusal)(scope, receive, send_with_headers)
        except _GoneError:
            return
        except Exception as error:  # our own mistakes, answered here so that they have the headers too
            mistake = broken(scope, error)
            if not begun:
                await answer(scope, mistake)(scope, receive, send_with_headers)

    async def _read_body(self, path: str, headers: Headers, receive: Receive) -> bytes:
        """The whole body. Strangers may send little, whatever the path: it is all in memory before anybody is asked."""
        most = body_limit(path)
        if most > BODY_LIMIT and not await asyncio.to_thread(self._is_known, headers):
            most = BODY_LIMIT
        return await _read_body(most, headers, receive)

    def _is_known(self, headers: Headers) -> bool:
        token, _ = session_token(headers, self.house.cookie)
        if not token:
            return False
        try:
            with self.house.database.reading() as connection:
                return person_of_session(connection, token, now=self.house.now()) is not None
        except DatabaseUnavailable as error:
            raise no_database(error) from None

    def _add_headers(self, response: MutableHeaders, request: Headers) -> None:
        for name, value in HEADERS.items():
            response[name] = value
        response.setdefault("cache-control", "no-store")
        if self.house.options.is_secure and is_public(request, self.house):
            response["strict-transport-security"] = "max-age=31536000"


def check_host(headers: Headers, house: House) -> None:
    """Refuse names that others may point at this machine (DNS rebinding).

    Loopback names, the public URL's, this machine's own and, where the server listens on them, plain addresses pass.
    """
    try:
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
    except ValueError:
        host = ""
    if host in LOOPBACK or is_public(headers, house):
        return
    if not house.options.on_loopback and (
        _is_address(host) or host in (house.options.host.lower(), socket.gethostname().lower())
    ):
        return
    raise Refusal(400, "this server does not answer to that host name; --public-url tells it its own")


def check_framing(headers: Headers) -> None:
    """Refuse a request that states its length in two ways: a proxy in front may read the other one (smuggling)."""
    if "transfer-encoding" in headers and "content-length" in headers:
        raise Refusal(400, "a request has Content-Length or Transfer-Encoding, not both")


def check_forgery(headers: Headers, body: bytes, house: House) -> None:
    """Refuse a request with side effects that another site made a browser send."""
    origin = headers.get("origin")
    if origin is not None and not _is_own(origin, headers, house):
        raise Refusal(403, _PAGE_OUT_OF_DATE)
    session, by_browser = session_token(headers, house.cookie)
    if not by_browser:
        return
    if origin is None:
        raise Refusal(403, _PAGE_OUT_OF_DATE)
    sent = headers.get("x-csrf-token", "")
    if not sent and headers.get("content-type", "").partition(";")[0].strip() == "application/x-www-form-urlencoded":
        fields = parse_qs(body[:_FORM_LIMIT].decode("utf-8", "replace"))
        sent = fields.get("csrf", [""])[0]
    if not hmac.compare_digest(sent.encode("utf-8", "replace"), csrf_token(house.secret, session).encode()):
        raise Refusal(403, _PAGE_OUT_OF_DATE)


def _is_own(origin: str, headers: Headers, house: House) -> bool:
    host = headers.get("host", "")  # checked before; what stands in front may have taken https from it
    return origin in (f"http://{host}", f"https://{host}", house.options.public_url.rstrip("/") or f"http://{host}")


def is_public(headers: Headers, house: House) -> bool:
    """Whether a request came by the public URL."""
    return bool(house.options.public_url) and headers.get("host", "").lower() == house.options.public_host


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


class _GoneError(Exception):
    """The client went away before it had sent everything."""


def body_limit(path: str) -> int:
    """The most bytes that a request to this path may have."""
    return next((most for start, most in LARGE_BODIES.items() if path.startswith(start)), BODY_LIMIT)


async def _read_body(most: int, headers: Headers, receive: Receive) -> bytes:
    """The whole body. What is counted is what arrives; a length that is stated only shortens the way to a refusal."""
    too_large = Refusal(413, f"this is more than the {most >> 20} MB that may be sent here")
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
        raise Refusal(408, "the request took too long to arrive; send it again") from None


def _once(body: bytes, receive: Receive) -> Receive:
    """A ``receive`` that gives the body that was read already, then what else there is to hear of the client."""
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return pending.pop() if pending else await receive()

    return replay
