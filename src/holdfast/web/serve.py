"""``run``: serve a house until Ctrl-C, and say where."""

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
from holdfast.web.house import House, write_once
from holdfast.web.sessions import local_path

if TYPE_CHECKING:
    import uvicorn

_TOKEN_DAYS = 30.0
_SWITCH_S = 0.0005
"""How soon a thread that waits for the interpreter gets it. A vote gives it up at every word with the database; with
Python's 5 ms each of them could cost 5 ms while others compute, all with the write lock held (p95 of 400 instead of 15
ms under ``make load``)."""


def run(house: House, *, page: str = "/", say: Callable[[str], None] = print) -> None:
    """Serve until interrupted; prints the link that lets an administrator in and lands on ``page``."""
    options = house.options
    with closing(house), closing(listen(options.host, options.port)) as listener:
        port = listener.getsockname()[1]
        link = administrator_link(house, port, page)
        kept = house.state / "administrator-link"
        kept.unlink(missing_ok=True)
        write_once(kept, link)
        if sys.stdout.isatty():
            say(f"Holdfast is at {link}")
            say("That link lets an administrator in: keep it to yourself; the page Admin invites others. Ctrl-C stops.")
        else:  # a log or a journal would keep the link where others can read it
            say(f"Holdfast is at {base_url(house, port)}; the administrator's link is in {kept}")
        if not options.on_loopback and not options.is_secure:
            say(f"warning: others can reach {options.host}; without https (--public-url) what they send can be read")
        sys.setswitchinterval(_SWITCH_S)
        server(house).run(sockets=[listener])


def server(house: House) -> uvicorn.Server:
    """What serves the house's application, once it is run with a listening socket."""
    import uvicorn

    from holdfast.web.protocol import ACCEPTED_AT_ONCE, ConnectionCaps, capped_protocol

    behind_proxy = bool(house.options.public_url)
    config = uvicorn.Config(
        create_app(house),
        http=capped_protocol(ConnectionCaps.below_open_files(one_address=behind_proxy)),
        ws="none",
        backlog=ACCEPTED_AT_ONCE,
        log_level="warning",
        access_log=False,  # it would show the tokens in links
        server_header=False,
        proxy_headers=behind_proxy,  # only then something stands in front that may speak for others
        timeout_graceful_shutdown=5,
        timeout_keep_alive=75,  # longer than people look at a picture
    )
    return uvicorn.Server(config)


def administrator_link(house: House, port: int, page: str = "/") -> str:
    """The link of this house's own administrator: the same at every start, until it is revoked or expires."""
    now = house.now()
    path = house.state / "administrator-token"
    with house.database.writing() as connection:
        token = path.read_text().strip() if path.exists() else ""
        if not token or identity.find_invitation(connection, token, now=now) is None:
            path.unlink(missing_ok=True)
            _, token = identity.invite(
                connection, note="whoever started the server", role="admin", days=_TOKEN_DAYS, now=now
            )
            write_once(path, token)
    goes_on = f"?next={quote(local_path(page), safe='/')}" if page != "/" else ""
    return f"{base_url(house, port)}/join/{token}{goes_on}"


def base_url(house: House, port: int) -> str:
    """How people reach this server, without a slash at the end."""
    if house.options.public_url:
        return house.options.public_url.rstrip("/")
    host = house.options.host
    if host in ("0.0.0.0", "::", ""):  # noqa: S104
        host = socket.gethostname()
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; taken before anything is said, so that the link that is printed works."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sees that it is TCP and does not hold back small answers (Nagle: 40 ms each).
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(2048)
        return listener
    except (OSError, OverflowError) as error:
        listener.close()
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UserError(f"cannot listen on {host}:{port} ({reason}); --port 0 takes any that is free") from None
