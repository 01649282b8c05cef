"""The state that all requests of a server share: options, database, clock, and images re-encoded for browsers."""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import os
import secrets
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

import cv2

from holdfast.core.errors import SampleError, UserError
from holdfast.core.files import write_atomic
from holdfast.core.types import DEFAULT_MAX_PIXELS, Image, Sample
from holdfast_people.database import Database, open_database
from holdfast_people.export import LiveResults
from holdfast_people.sources import Shelf

SIDES = {"place": 768, "small": 256, "full": 0}
"""Pixels of the longer side by size name; images to judge all have the same, 0 keeps the file's own."""

_ENLARGED = ("place",)
_QUALITY = 92
_AT_ONCE = 2  # decoders: the largest images need some hundred megabytes each


class PictureCache:
    """JPEG bytes by image and size."""

    def __init__(self, sample: Callable[[int], Sample], *, max_pixels: int, capacity: int = 256 << 20) -> None:
        self._sample, self._max_pixels, self._capacity = sample, max_pixels, capacity
        self._kept: OrderedDict[tuple[int, str], bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._decoders = threading.Semaphore(_AT_ONCE)

    def get(self, image_id: int, size: str) -> bytes:
        """Return the image as a JPEG; ``size`` is a key of ``SIDES``."""
        key = (image_id, size)
        if (kept := self._find(key)) is not None:
            return kept
        with self._decoders:
            if (kept := self._find(key)) is not None:  # another request made it while this one waited
                return kept
            image = self._sample(image_id).image.load(max_pixels=self._max_pixels)
            data = encode(image, SIDES[size], enlarge=size in _ENLARGED)
            self._keep(key, data)
            return data

    def _find(self, key: tuple[int, str]) -> bytes | None:
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def _keep(self, key: tuple[int, str], data: bytes) -> None:
        with self._lock:
            self._kept[key] = data
            self._bytes += len(data)
            while self._bytes > self._capacity and len(self._kept) > 1:
                _, dropped = self._kept.popitem(last=False)
                self._bytes -= len(dropped)


def encode(image: Image, side: int, *, enlarge: bool) -> bytes:
    """Return a JPEG whose longer side is ``side``; 0 keeps the size, as does ``enlarge=False`` for a small image."""
    height, width = image.shape[:2]
    scale = side / max(height, width) if side else 1.0
    if scale < 1 or (scale > 1 and enlarge):
        size = max(1, round(width * scale)), max(1, round(height * scale))
        image = cv2.resize(image, size, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_CUBIC).view("uint8")
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
    try:
        done, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
    except cv2.error as error:  # a side above 65,535
        raise SampleError("the image is too large for a browser") from error
    if not done:
        raise SampleError("the image is too large for a browser")
    return data.tobytes()


def padded(data: bytes, name: str) -> bytes:
    """Return a JPEG whose comment depends on ``name``, so that no one finds repeated images by comparing files."""
    length = 64 + int.from_bytes(hashlib.sha256(name.encode()).digest()[:2], "big") % 4096
    comment = hashlib.shake_256(name.encode()).digest(length)
    return data[:2] + b"\xff\xfe" + (length + 2).to_bytes(2, "big") + comment + data[2:]


LOOPBACK = ("127.0.0.1", "localhost", "::1")
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class ServeOptions:
    """Options of ``holdfast people serve``, ``annotate`` and ``review``."""

    state: Path = Path("holdfast-people")
    database: str = ""  # a URL; empty: SQLite in the state folder
    host: str = "127.0.0.1"
    port: int = 8420  # 0: any free port
    public_url: str = ""  # the URL of the proxy in front, if there is one
    max_pixels: int = DEFAULT_MAX_PIXELS

    @property
    def on_loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in LOOPBACK

    @property
    def is_secure(self) -> bool:
        """Whether people reach the server by https."""
        return self.public_url.startswith("https://")

    @property
    def public_host(self) -> str:
        """Host (and port) of the public URL as browsers send it; empty without a public URL."""
        return urlsplit(self.public_url).netloc


MOST_ADDRESSES = 10_000


class Limiter:
    """Count failures per address in a sliding window, also in a file, so that a restart does not reset them."""

    def __init__(self, most: int = 20, seconds: float = 600.0, *, file: Path | None = None, now: float = 0.0) -> None:
        self.most, self.seconds = most, seconds
        self._failures: OrderedDict[str, list[float]] = OrderedDict()
        self._lock = threading.Lock()
        self._file = file
        self._written = 0
        if file is not None and file.exists():
            for line in file.read_text(encoding="utf8", errors="replace").splitlines():
                moment, _, network = line.partition(" ")
                with contextlib.suppress(ValueError):
                    self._failures.setdefault(network, []).append(float(moment))
            self._shorten(now)

    def wait(self, address: str, now: float) -> float:
        """Return the seconds until this address may try again; 0 if it may now."""
        with self._lock:
            recent = self._recent(address, now)
            return 0.0 if len(recent) < self.most else recent[-self.most] + self.seconds - now

    def fail(self, address: str, now: float) -> None:
        """Remember a wrong token."""
        with self._lock:
            recent = self._recent(address, now)
            network = _network(address)
            self._failures[network] = [*recent, now]
            self._failures.move_to_end(network)
            while len(self._failures) > MOST_ADDRESSES:
                self._failures.popitem(last=False)
            if self._file is not None:
                with contextlib.suppress(OSError), self._file.open("a", encoding="utf8") as log:  # a full disk
                    log.write(f"{now} {network}\n")
                self._written += 1
                if self._written > MOST_ADDRESSES:
                    self._shorten(now)

    def _shorten(self, now: float) -> None:
        """Write the file again with the failures that still count."""
        assert self._file is not None
        recent = [(at, name) for name, times in self._failures.items() for at in times if 0 <= now - at < self.seconds]
        self._written = 0
        with contextlib.suppress(OSError):
            write_atomic(self._file, "".join(f"{at} {name}\n" for at, name in sorted(recent)).encode())

    def _recent(self, address: str, now: float) -> list[float]:
        return [at for at in self._failures.get(_network(address), ()) if now - at < self.seconds]


def _network(address: str) -> str:
    """Return what counts as one address: of IPv6 the /64 network, since one client owns all of it."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 6:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return address


@dataclass
class ServerState:
    """Everything that requests share; the application keeps it as ``app.state.server``."""

    options: ServeOptions
    database: Database
    shelf: Shelf
    secret: bytes
    pictures: PictureCache
    results: LiveResults
    limiter: Limiter = field(default_factory=Limiter)
    clock: Callable[[], float] = time.time

    def now(self) -> float:
        """Return UTC seconds since 1970; tests move the clock."""
        return self.clock()

    @property
    def folder(self) -> Path:
        """The folder of the files that the server keeps."""
        return self.options.state

    @property
    def cookie(self) -> str:
        """The session cookie's name, unique per server, since browsers share cookies between ports."""
        return f"holdfast_{hashlib.sha256(self.secret).hexdigest()[:8]}"

    def close(self) -> None:
        """Close the database."""
        self.database.close()


def open_server(options: ServeOptions, *, clock: Callable[[], float] = time.time) -> ServerState:
    """Make the state folder where it is missing, open the database and read or make the secret."""
    options = replace(options, public_url=_as_browsers_say(options.public_url))
    if options.database and "://" not in options.database:
        # The error does not repeat it: a mistyped URL may contain a password.
        raise UserError(
            "--database takes a URL such as postgresql://USER@HOST/NAME; without it SQLite is used in --state"
        )
    try:
        options.state.mkdir(mode=0o700, parents=True, exist_ok=True)  # only its owner may read names and votes
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"--state {str(options.state)!r} is a file; name a folder") from None
    database = open_database(options.database or options.state.absolute() / "people.sqlite")
    shelf = Shelf(database, options.state)
    return ServerState(
        options=options,
        database=database,
        shelf=shelf,
        secret=write_once(options.state / "secret", secrets.token_hex(32)).encode(),  # survives a restart
        pictures=PictureCache(shelf.sample, max_pixels=options.max_pixels),
        results=LiveResults(database, shelf),
        limiter=Limiter(file=options.state / "wrong-invitations.log", now=clock()),
        clock=clock,
    )


def _as_browsers_say(url: str) -> str:
    """Return the public URL as browsers send it: in lower case, without the scheme's default port."""
    if not url:
        return ""
    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
    except ValueError:  # the port or the name is not valid
        host, port, parts = "", None, urlsplit("")
    more = parts.path not in ("", "/") or parts.query or parts.fragment or parts.username is not None
    if not host or more or parts.scheme not in _PORTS:
        raise UserError(f"--public-url must be http(s)://HOST or http(s)://HOST:PORT without a path, not {url!r}")
    host = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{host}" + ("" if port in (None, _PORTS[parts.scheme]) else f":{port}")


def write_once(path: Path, text: str) -> str:
    """Return the file's text; a missing one first appears, complete or not at all, with ``text`` for its owner only."""
    if path.exists() and path.stat().st_size == 0:
        path.unlink()  # a crash left it empty
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # only its owner can read it
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
