"""The web application, Uvicorn's protocol with limits on clients, and the server that runs until Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

import h11
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi.telemetry import TelemetryConfig
from starlette.staticfiles import StaticFiles
from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: TID253  (itself imported by what serves only)

from holdfast.core.distribution import installed_version
from holdfast.core.errors import UserError
from holdfast_people import identity
from holdfast_people.assignment import expire_tasks
from holdfast_people.database import DatabaseUnavailable
from holdfast_people.web.routes import admin, annotate, login, media, review
from holdfast_people.web.services import pages
from holdfast_people.web.services.dependencies import TROUBLES
from holdfast_people.web.services.mask_editing import MaskEditing
from holdfast_people.web.services.pages import STATIC, local_path
from holdfast_people.web.services.security import Guard
from holdfast_people.web.services.server_state import ServerState, write_once

if TYPE_CHECKING:
    import uvicorn


HEAD_S = 20.0  # seconds that a client may take for the head of a request, and to continue with a body that was refused


_SPARE_FILES = 256  # files that the server may open apart from its connections: the database, images, libraries
_MOST_CONNECTIONS = 16_384
ACCEPTED_AT_ONCE = 128
"""Connections that asyncio accepts before the first of them is counted; they must fit into the spare files."""

logger = logging.getLogger("uvicorn.error")


@dataclass
class ConnectionCaps:
    """How many connections the server holds, fewer than the files it may open; further ones are closed at once."""

    total: int
    per_address: int
    open_connections: Counter[str] = field(default_factory=Counter)
    warned: bool = False

    @classmethod
    def below_open_files(cls, *, one_address: bool) -> ConnectionCaps:
        """Derive the caps from the hard limit of open files; behind a proxy one address may use all connections."""
        files = most = _MOST_CONNECTIONS + _SPARE_FILES
        with suppress(ImportError):  # Windows has no such limit
            import resource

            _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            files = most if hard == resource.RLIM_INFINITY else min(hard, most)
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
        total = max(16, files - _SPARE_FILES)
        return cls(total, total if one_address else max(8, total // 4))

    def enter(self, address: str) -> bool:
        """Count a new connection; False if a cap is reached, which is logged once until there is room again."""
        if self.open_connections.total() < self.total and self.open_connections[address] < self.per_address:
            self.open_connections[address] += 1
            self.warned = False
            return True
        if not self.warned:
            self.warned = True
            logger.warning("too many connections (the last from %s): new ones are closed until others end", address)
        return False

    def leave(self, address: str) -> None:
        """Forget a connection that has ended."""
        self.open_connections[address] -= 1
        if self.open_connections[address] <= 0:
            del self.open_connections[address]


class TimedProtocol(H11Protocol):
    """Close connections above the caps, and those on which no request arrives: Uvicorn would wait forever."""

    caps: ConnectionCaps
    _overdue: asyncio.TimerHandle | None = None
    _address: str | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer; abort if the server holds too many connections."""
        address = str((transport.get_extra_info("peername") or ("",))[0])
        if not self.caps.enter(address):
            transport.abort()
            return
        self._address = address
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Stop the timer once a head is complete; parts of a head do not restart it."""
        super().data_received(data)
        # After a refusal the body is no longer read.
        refused = self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE
        if not refused and self.conn.their_state is not h11.IDLE:
            self._forget()
        elif self._overdue is None:
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer and count the connection out."""
        if self._address is None:
            return
        self.caps.leave(self._address)
        self._forget()
        super().connection_lost(exc)

    def _expect(self) -> None:
        self._overdue = self.loop.call_later(HEAD_S, self.transport.close)

    def _forget(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None


log = logging.getLogger("holdfast.web")
CHORE_S = 5.0
# Spans would contain paths, and some paths contain tokens, so OpenTelemetry must not collect them.
_SILENT: TelemetryConfig = {
    "tracing": False, "metrics": False, "logs": False, "operation_spans": False, "auto_configure": False,
}  # fmt: skip


def create_app(server: ServerState) -> FastAPI:
    """Return the web application of a server; ``holdfast_people.web.serve.run`` serves it."""
    editing = MaskEditing(server)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await asyncio.to_thread(editing.open)
        chore = asyncio.create_task(_take_back(server))
        try:
            yield
        finally:
            chore.cancel()
            await asyncio.to_thread(editing.close)

    app = FastAPI(
        title="Holdfast", version=installed_version(), openapi_url="/api/openapi.json", docs_url=None, redoc_url=None,
        redirect_slashes=False, responses=TROUBLES, lifespan=lifespan, telemetry=_SILENT,
    )  # fmt: skip
    app.state.server = server
    app.state.editing = editing
    pages.register(app)
    for router in (module.router for module in (admin, annotate, login, media, review)):
        for route in router.routes:
            if isinstance(route, APIRoute) and not pages.wants_json(route.path):
                route.include_in_schema = False  # a page
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC))
    app.add_middleware(Guard, server=server)
    return app


async def _take_back(server: ServerState) -> None:
    """Expire tasks that ran out of time every few seconds, so that others get their images."""

    def expire() -> None:
        with server.database.writing() as connection:
            expire_tasks(connection, now=server.now())

    while True:
        try:
            await asyncio.to_thread(expire)
        except DatabaseUnavailable as error:
            log.warning("tasks could not be taken back yet: %s", error.detail or error)
        except Exception as error:  # the chore must survive any error of one round
            log.error("tasks could not be taken back", exc_info=error)
        await asyncio.sleep(CHORE_S)


_SWITCH_S = 0.0005
"""Python's switch interval. A vote waits for the interpreter at every database call, with the write lock held; with
Python's default of 5 ms, the p95 under ``make load`` is 400 ms instead of 15 ms."""


def run(server: ServerState, *, page: str = "/", say: Callable[[str], None] = print) -> None:
    """Serve until interrupted; ``say`` prints the administrator's link, which leads to ``page``."""
    options = server.options
    with closing(server), closing(listen(options.host, options.port)) as listener:
        port = listener.getsockname()[1]
        link = administrator_link(server, port, page)
        kept = server.folder / "administrator-link"
        kept.unlink(missing_ok=True)
        write_once(kept, link)
        if sys.stdout.isatty():
            say(f"Holdfast is at {link}")
            say("That link lets an administrator in: keep it to yourself; the page Admin invites others. Ctrl-C stops.")
        else:  # others may read a log or a journal, so the link stays out of it
            say(f"Holdfast is at {base_url(server, port)}; the administrator's link is in {kept}")
        if not options.on_loopback and not options.is_secure:
            say(f"warning: others can reach {options.host}; without https (--public-url) what they send can be read")
        sys.setswitchinterval(_SWITCH_S)
        http_server(server).run(sockets=[listener])


def http_server(server: ServerState) -> uvicorn.Server:
    """Return the HTTP server of the application, to be run with a listening socket."""
    import uvicorn

    behind_proxy = bool(server.options.public_url)
    caps = ConnectionCaps.below_open_files(one_address=behind_proxy)
    config = uvicorn.Config(
        create_app(server),
        http=type("CappedProtocol", (TimedProtocol,), {"caps": caps}),  # whose connections share the caps
        ws="none",
        backlog=ACCEPTED_AT_ONCE,
        log_level="warning",
        access_log=False,  # it would show the tokens in links
        server_header=False,
        proxy_headers=behind_proxy,  # only a proxy may state the address of others
        timeout_graceful_shutdown=5,
        timeout_keep_alive=75,  # longer than people look at an image
    )
    return uvicorn.Server(config)


def administrator_link(server: ServerState, port: int, page: str = "/") -> str:
    """Return the administrator's link: the same at every start, until it is revoked or expires."""
    now = server.now()
    path = server.folder / "administrator-token"
    with server.database.writing() as connection:
        token = path.read_text().strip() if path.exists() else ""
        if not token or identity.find_invitation(connection, token, now=now) is None:
            path.unlink(missing_ok=True)
            _, token = identity.invite(connection, note="the person who started the server", role="admin", now=now)
            write_once(path, token)
    goes_on = f"?next={quote(local_path(page), safe='/')}" if page != "/" else ""
    return f"{base_url(server, port)}/join/{token}{goes_on}"


def base_url(server: ServerState, port: int) -> str:
    """Return the URL by which people reach this server, without a slash at the end."""
    if server.options.public_url:
        return server.options.public_url.rstrip("/")
    host = server.options.host
    if host in ("0.0.0.0", "::", ""):  # noqa: S104
        host = socket.gethostname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def listen(host: str, port: int) -> socket.socket:
    """Return a listening socket; it is opened before the link is printed, so that the link works."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio knows that it is TCP and turns Nagle's delay (40 ms per small answer) off.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
        return listener
    except (OSError, OverflowError) as error:
        listener.close()
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(f"cannot listen on {host}:{port} ({reason}); --port 0 takes any free port") from None
