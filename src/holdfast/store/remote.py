"""Runs in an object store: a verb works on a local folder that mirrors ``s3://bucket/run``."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from holdfast.core.errors import UserError
from holdfast.core.files import check_own, hearing
from holdfast.core.places import address, place, reaching, stage, stands_for, store
from holdfast.core.system import process_has_ended, user_id
from holdfast.store.mirror import WRITER, Mirror, every, locked

Shard = TypeVar("Shard")
Result = TypeVar("Result")

CACHE_VARIABLE = "HOLDFAST_CACHE"
BEAT = 5.0  # seconds between two signs of life of a writer
SILENCE = 30.0  # seconds without one after which a writer counts as dead
_SENDING = 60.0  # seconds between two looks at what long work has left so far, such as checkpoints


@contextmanager
def workplace(out: str | Path, executor: Any = None, *, whole: bool = True) -> Iterator[tuple[Path, Any]]:
    """Yield the folder and the executor to work with, for an ``--out`` that may be in a store."""
    # A local folder and its executor are handed back as they are. For an address the folder is one of this machine's
    # disk (below $HOLDFAST_CACHE, else the system's temporary folder), filled with what the store has; workers send
    # what they write when a shard is done, this process does once a minute and at the end. A process that is killed can
    # continue, anywhere. One process at a time may write to an address. ``whole``: whether the verb reads images that
    # it wrote. Without, they do not stay on the disk.
    url = address(out)
    if not url:
        yield Path(out), executor
        return
    folder = local_folder(url, "write")
    # Workers of an executor that is not known here send nothing: everything is then found by looking.
    mirror = Mirror(url, folder, session=uuid.uuid4().hex, whole=whole or executor is None)
    with _sole_writer(url), _by_address(folder, url):
        mirror.begin()
        stage(folder, url)
        try:
            with hearing(mirror.note), every(_SENDING, mirror.deliver):
                yield folder, MirroringExecutor(executor, mirror) if executor is not None else None
        finally:
            mirror.deliver(thorough=True)


@contextmanager
def delivered(out: str | Path) -> Iterator[Path]:
    """Yield a folder to write something new into, such as a report; its files are in ``out`` after the block."""
    # A place in this machine's copy of a run means that place in the store.
    url = _meant(out)
    if not url:
        check_page_folder(Path(out))
        yield Path(out)
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-") as temporary:
        folder = Path(temporary) / url.rpartition("/")[2]
        folder.mkdir()
        with _by_address(folder, url):
            yield folder
        Mirror(url, folder).deliver(thorough=True)


def check_page_folder(folder: Path) -> None:
    """Raise a UserError if a folder has files that are not of a page of Holdfast."""
    page = folder / "index.html"
    if not page.is_file():
        check_own(folder, "figures", "tables")  # of a page that was not finished
    elif b'content="Holdfast"' not in page.read_bytes():
        check_own(folder)


def in_store(out: str | Path, folder: Path, path: Path) -> Path:
    """Return the final place of a file in the folder that ``delivered(out)`` gave."""
    url = _meant(out)
    return place(f"{url}/{path.relative_to(folder).as_posix()}") if url else path


def _meant(out: str | Path) -> str:
    return address(out) or stands_for(Path(out).absolute())


def fetched(path: str | Path) -> Path:
    """Return the local folder of a run to read: the path itself, or an up-to-date copy of an address."""
    url = address(path)
    if not url:
        return Path(path).expanduser()
    folder = local_folder(url, "read")
    with locked(folder):
        Mirror(url, folder).fetch(afresh=True)
    stage(folder, url)
    return folder


def local_folder(url: str, use: str) -> Path:
    """Return the local folder for an address; machines with the same settings choose the same one."""
    named = os.environ.get(CACHE_VARIABLE)
    base = Path(named).expanduser().absolute() if named else Path(tempfile.gettempdir()) / f"holdfast-{user_id()}"
    base.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = base.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != user_id():
        raise UserError(f"{base} belongs to another user; set {CACHE_VARIABLE} to a folder of your own")
    return base / use / hashlib.sha256(url.encode()).hexdigest()[:16] / url.rpartition("/")[2]


@dataclass(frozen=True)
class MirroringExecutor:
    """An executor whose workers send their files to the store before they report a shard as done."""

    executor: Any
    mirror: Mirror

    def __getattr__(self, name: str) -> Any:
        """Return what the wrapped executor has: its width, where its workers are, its ``close``."""
        return getattr(self.executor, name)

    def map(self, work: Callable[[Shard], Result], shards: Iterable[Shard]) -> Iterator[Result]:
        """Yield results as they are ready; in the end, fetch what workers on other machines wrote."""
        self.mirror.deliver(thorough=True)
        yield from self.executor.map(Mirrored(work, self.mirror), shards)
        self.mirror.fetch()


@dataclass(frozen=True)
class Mirrored(Generic[Shard, Result]):
    """Work that sends its files to the store before it returns."""

    work: Callable[[Shard], Result]
    mirror: Mirror

    def __call__(self, shard: Shard) -> Result:
        """Do a shard."""
        self.mirror.arrive()
        with hearing(self.mirror.note), every(_SENDING, self.mirror.deliver):
            result = self.work(shard)
        self.mirror.deliver()
        return result


@contextmanager
def _by_address(folder: Path, url: str) -> Iterator[None]:
    """Name the address instead of the local folder in the sentences of errors."""
    try:
        yield
    except UserError as error:
        raise UserError(str(error).replace(str(folder), url)) from error


@contextmanager
def _sole_writer(url: str) -> Iterator[None]:
    """Hold the right to write to an address; an object in the store names the writer and is renewed while it lives."""
    owner = {"token": uuid.uuid4().hex, "host": socket.gethostname(), "pid": os.getpid(), "home": _home()}
    owner["since"] = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    with reaching(url):
        system, root = store(url)
        name = f"{root}/{WRITER}"
        if not _claim(system, name, owner):
            other = _read(system, name)
            if other.get("token") != owner["token"] and not _lives(system, name, other):
                system.pipe_file(name, _beaten(owner, 0))
                time.sleep(_glance())  # several may have found it silent: the last to write has it
                other = _read(system, name)
            if other.get("token") != owner["token"]:
                raise UserError(
                    f"another process ({other.get('pid')} on {other.get('host')}, since {other.get('since')}) is "
                    f"writing to {url}; wait for it or choose another --out"
                )
    beats = [0]

    def beat() -> None:
        if _read(system, name).get("token") == owner["token"]:
            beats[0] += 1
            system.pipe_file(name, _beaten(owner, beats[0]))

    try:
        with every(BEAT, beat):
            yield
    finally:
        with suppress(Exception):  # what remains is found silent by the next
            if _read(system, name).get("token") == owner["token"]:
                system.rm_file(name)


def _claim(system: Any, name: str, owner: dict[str, Any]) -> bool:
    """Create the writer's object if it does not exist. S3 does so in one step; other stores are asked first."""
    try:
        system.pipe_file(name, _beaten(owner, 0), mode="create")
        return True
    except FileExistsError:
        return False
    except (TypeError, ValueError, NotImplementedError):
        if system.exists(name):
            return False
        system.pipe_file(name, _beaten(owner, 0))
        return True


def _lives(system: Any, name: str, other: dict[str, Any]) -> bool:
    """Return whether a writer is alive. Clocks of two machines differ, so its object is watched for a change."""
    if other.get("home") and other["home"] == _home():
        with suppress(ValueError):
            if process_has_ended(int(other.get("pid", 0)) or -1):
                return False
    until = time.monotonic() + SILENCE
    while time.monotonic() < until:
        time.sleep(_glance())
        if _read(system, name) != other:
            return bool(_read(system, name))  # gone: it has ended
    return False


def _glance() -> float:
    """Return the seconds between two looks at a writer's object."""
    return min(1.0, BEAT / 2)


def _read(system: Any, name: str) -> dict[str, Any]:
    try:
        content = json.loads(system.cat_file(name))
        return content if isinstance(content, dict) else {}
    except (FileNotFoundError, ValueError):
        return {}


def _beaten(owner: dict[str, Any], beats: int) -> bytes:
    return json.dumps({**owner, "beats": beats}).encode()


def _home() -> str:
    """Return the id of this machine's start and process namespace, or "" if it cannot be known."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{started}/{Path('/proc/self/ns/pid').stat().st_ino}"
    except OSError:
        return ""
