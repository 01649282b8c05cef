"""Run the server until Ctrl-C, and say where it is."""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING
from urllib.parse import quote

from holdfast.core.errors import UserError
from holdfast.people import identity
from holdfast.web.app import create_app
from holdfast.web.server_state import ServerState, write_once
from holdfast.web.sessions import local_path

if TYPE_CHECKING:
    import uvicorn

_TOKEN_DAYS = 30.0
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

    from holdfast.web.protocol import ACCEPTED_AT_ONCE, ConnectionCaps, capped_protocol

    behind_proxy = bool(server.options.public_url)
    config = uvicorn.Config(
        create_app(server),
        http=capped_protocol(ConnectionCaps.below_open_files(one_address=behind_proxy)),
        ws="none",
        backlog=ACCEPTED_AT_ONCE,
        log_level="warning",
        access_log=False,  # it would show the tokens in links
        server_header=False,
        proxy_headers=behind_proxy,  # only a proxy may state the address of others
        timeout_graceful_shutdown=5,
        timeout_keep_alive=75,  # longer than people look at a picture
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
            _, token = identity.invite(
                connection, note="whoever started the server", role="admin", days=_TOKEN_DAYS, now=now
            )
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
