"""What one server is made of: where it keeps things, what time it is, and how it is reached."""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

from holdfast.core.errors import UserError
from holdfast.core.limits import DEFAULT_MAX_PIXELS
from holdfast.people.database import Database, open_database
from holdfast.people.live import LiveResults
from holdfast.people.sources import Shelf
from holdfast.web.limiter import Limiter
from holdfast.web.pictures import Pictures

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class ServeOptions:
    """What ``holdfast serve``, ``annotate`` and ``review`` take from the command line."""

    state: Path = Path("holdfast-people")
    database: str = ""  # a URL; SQLite in the state folder where it is empty
    host: str = "127.0.0.1"
    port: int = 8420  # 0: any that is free
    public_url: str = ""  # how people reach it, where something stands in front
    max_pixels: int = DEFAULT_MAX_PIXELS

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        return self.host in LOOPBACK

    @property
    def is_secure(self) -> bool:
        """Whether people reach it by https."""
        return self.public_url.startswith("https://")

    @property
    def public_host(self) -> str:
        """The public URL's host, and port where it has one, as browsers send it; empty where there is no such URL."""
        return urlsplit(self.public_url).netloc


@dataclass
class House:
    """Everything that requests share; ``app.state.house``."""

    options: ServeOptions
    database: Database
    shelf: Shelf
    secret: bytes
    pictures: Pictures
    results: LiveResults
    limiter: Limiter = field(default_factory=Limiter)
    clock: Callable[[], float] = time.time

    def now(self) -> float:
        """UTC seconds since 1970; tests move it."""
        return self.clock()

    @property
    def state(self) -> Path:
        """The folder of what the server keeps besides its database."""
        return self.options.state

    @property
    def cookie(self) -> str:
        """The session cookie's name: browsers share cookies between the ports of a machine, servers must not."""
        return f"holdfast_{hashlib.sha256(self.secret).hexdigest()[:8]}"

    def close(self) -> None:
        """Let go of the database."""
        self.database.close()


def open_house(options: ServeOptions, *, clock: Callable[[], float] = time.time) -> House:
    """Make the state folder where it is missing, open the database, remember the secret."""
    options = replace(options, public_url=_as_browsers_say(options.public_url))
    if options.database and "://" not in options.database:  # not repeated: a mistyped URL may hold a password
        raise UserError("--database is a URL such as postgresql://USER@HOST/NAME; without it SQLite is used in --state")
    try:
        options.state.mkdir(mode=0o700, parents=True, exist_ok=True)  # names and votes are nobody else's business
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"--state {str(options.state)!r} is a file; name a folder") from None
    database = open_database(options.database or options.state.absolute() / "people.sqlite")
    shelf = Shelf(database)
    return House(
        options=options,
        database=database,
        shelf=shelf,
        secret=_secret(options.state / "secret"),
        pictures=Pictures(shelf.sample, max_pixels=options.max_pixels),
        results=LiveResults(database, shelf),
        limiter=Limiter(file=options.state / "wrong-invitations.log", now=clock()),
        clock=clock,
    )


def _as_browsers_say(url: str) -> str:
    """The public URL as browsers send it in Host and Origin: small letters, and no port that goes without saying."""
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
    except ValueError:  # a port that is no number, or a name that is none
        host, port, parts = "", None, urlsplit("")
    more = parts.path not in ("", "/") or parts.query or parts.fragment or parts.username is not None
    if not host or more or parts.scheme not in _PORTS:
        raise UserError(f"--public-url is http(s)://HOST or http(s)://HOST:PORT without a path, not {url!r}")
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" + ("" if port in (None, _PORTS[parts.scheme]) else f":{port}")


def _secret(path: Path) -> bytes:
    """32 random bytes that outlive a restart, readable by their owner only."""
    return write_once(path, secrets.token_hex(32)).encode()


def write_once(path: Path, text: str) -> str:
    """The file's text; ``text`` where there is no file yet, which is then written for its owner alone.

    The file appears whole or not at all: a second server that starts in the same moment, or one that is started after
    this one was killed or met a full disk, must not take half a secret, or an empty one, for it.
    """
    if path.exists() and path.stat().st_size == 0:
        path.unlink()  # left by such an accident
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # for its owner alone
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(name, path)
        except FileExistsError:
            return path.read_text().strip()
        except OSError:  # a file system without links
            Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)
    return text
