"""A local folder that mirrors a folder of an object store: finished files are sent, needed files are fetched.

The store is the truth. Which files it has follows from their times: a whole second is the store's own time of a file
that was fetched, a billionth more marks one that was sent. Files that are merely written have other billionths in their
time, and any change gives them new ones. An empty file stands for an object that was not fetched, so that its name can
be seen.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.core.files import UNFINISHED, whole_file
from holdfast.core.places import forget_listings, listing, reaching, store
from holdfast.core.system import lock_file

WRITER = ".holdfast-writer"  # the object that says who is writing
_THREADS = 16
_SECOND = 1_000_000_000
_FETCHED, _SENT = 0, 1  # billionths in the time of a file
_SCAN_SHARE = 20  # a look at all files is taken when the last one is at least so many times its own length ago
_BULKY = re.compile(r".*\.(png|jpe?g|webp|tar)|data-\d+\.parquet", re.IGNORECASE)


class Mirror:
    """A local folder and its address. Workers get a copy of this object and use the same folder on their own disks."""

    # ``url``: the address, as ``address`` gives it. ``folder``: the folder. ``session``: names the run; what another
    # session left in a worker's folder is not sent. ``whole``: images are fetched and kept, too; else they are only
    # known by name.

    def __init__(self, url: str, folder: Path, *, session: str = "", whole: bool = True) -> None:
        self.url, self.folder, self.session, self.whole = url, folder, session, whole
        self._noted: list[str] = []
        self._known: set[str] = set()
        self._arrived = False
        self._lock = threading.RLock()
        self._scanned = self._took = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(Mirror, session=self.session, whole=self.whole), (self.url, self.folder)

    def begin(self) -> None:
        """Fetch what the store has into the folder; called by the process that plans the work."""
        with locked(self.folder):
            self.fetch(afresh=True)
            _session_file(self.folder).write_text(self.session, encoding="utf8")
        self._arrived = True

    def arrive(self) -> None:
        """Prepare a worker's folder, once per process; files that another session left are deleted."""
        if self._arrived:
            return
        with locked(self.folder):
            note = _session_file(self.folder)
            if not note.is_file() or note.read_text(encoding="utf8") != self.session:
                shutil.rmtree(self.folder, ignore_errors=True)
                self.folder.mkdir(parents=True, exist_ok=True)
                note.write_text(self.session, encoding="utf8")
            if self.whole:
                self.fetch()
        self._arrived = True

    def fetch(self, *, afresh: bool = False) -> None:
        """Fetch files that are missing here; ``afresh``: also changed ones, and delete what the store does not have."""
        forget_listings(self.url)
        objects = {name: info for name, info in listing(self.url).items() if not _is_passing(name)}
        self.folder.mkdir(parents=True, exist_ok=True)
        if afresh:
            for name, _ in list(_files(self.folder)):
                if name not in objects:
                    (self.folder / name).unlink(missing_ok=True)
        with reaching(self.url), ThreadPoolExecutor(_THREADS) as threads:
            wanted = []
            for name, info in objects.items():
                path = self.folder / name
                if self.whole or not _BULKY.fullmatch(path.name):
                    if not _is_here(path, info, afresh=afresh):
                        wanted.append((path, info))
                elif not path.exists():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.touch()
            list(threads.map(lambda pair: self._get(*pair), wanted))
        self._known |= objects.keys()

    def _get(self, path: Path, info: dict[str, Any]) -> None:
        with whole_file(path) as temporary:
            store(self.url)[0].get_file(info["name"], str(temporary))
            modified = _modified(info)
            # One written a moment ago may be written again within the second that the store's times count.
            settled = modified if time.time() - modified > 2 else modified - 1
            os.utime(temporary, (settled, settled))

    def note(self, path: str) -> None:
        """Remember that this process finished a file."""
        with suppress(ValueError):  # elsewhere
            name = Path(path).relative_to(self.folder).as_posix()
            if not _is_passing(name):
                self._noted.append(name)

    def deliver(self, *, thorough: bool = False) -> None:
        """Send the files that this process finished; ``thorough``: look at all files and delete what is gone here."""
        # If images are kept, this finds also what was written in other ways than by ``core.files``. If they are
        # not, no one sends what another process wrote: a table could come to the store before the images it speaks of.
        with self._lock:
            count = len(self._noted)  # another thread may add to them
            noted = list(dict.fromkeys(self._noted[:count]))
            self.send(noted)
            del self._noted[:count]
            if self.whole and (thorough or time.monotonic() - self._scanned >= _SCAN_SHARE * self._took):
                self._scan()
            if thorough or self.whole:
                self._delete({name for name in self._known if not (self.folder / name).exists()})

    def _scan(self) -> None:
        """Send every file that the store does not have yet, in the order they were written."""
        # Files that appear meanwhile are left to the next time: the images of a table that is seen now may not be.
        begun, started = time.monotonic(), time.time_ns()
        here = dict(_files(self.folder))
        changed = [(stat.st_mtime_ns, name) for name, stat in here.items() if _is_new(stat)]
        self.send([name for written, name in sorted(changed) if written < started])
        self._known |= here.keys()
        self._scanned, self._took = time.monotonic(), time.monotonic() - begun

    def _delete(self, names: set[str]) -> None:
        with reaching(self.url):
            system, root = store(self.url)
            for name in names:
                with suppress(FileNotFoundError):
                    system.rm_file(f"{root}/{name}")
        self._known -= names

    def send(self, names: Sequence[str]) -> None:
        """Put these files into the store, images first, so that a table never refers to a missing image."""
        images = [name for name in names if _BULKY.fullmatch(name.rpartition("/")[2])]
        others = [name for name in names if not _BULKY.fullmatch(name.rpartition("/")[2])]
        with reaching(self.url), ThreadPoolExecutor(_THREADS) as threads:
            list(threads.map(lambda name: self._put(name, keep=self.whole), images))
            for name in others:
                self._put(name, keep=True)

    def _put(self, name: str, *, keep: bool) -> None:
        path = self.folder / name
        system, root = store(self.url)
        try:
            file = path.open("rb" if keep else "rb+")
        except FileNotFoundError:  # what is deleted meanwhile need not be sent
            return
        with file:
            before = os.fstat(file.fileno())
            if not _is_new(before):
                return
            try:
                system.put_file(str(path), f"{root}/{name}")
            except FileNotFoundError:
                if path.exists():  # so it is the bucket that is missing
                    raise
                return
            self._known.add(name)
            if not keep:
                file.truncate(0)
            elif os.fstat(file.fileno()).st_mtime_ns == before.st_mtime_ns:
                # By the open file: the name may be that of a newer one by now.
                sent = before.st_mtime_ns // _SECOND * _SECOND + _SENT
                os.utime(file.fileno(), ns=(sent, sent))


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files below a folder that belong into the store, with their sizes and times."""
    for root, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(UNFINISHED)]
        for name in names:
            if _is_passing(name):
                continue
            path = Path(root, name)
            with suppress(FileNotFoundError):
                yield path.relative_to(folder).as_posix(), path.stat()


def _is_passing(name: str) -> bool:
    last = name.rpartition("/")[2]
    return last in (".lock", WRITER) or UNFINISHED in name


def _is_new(stat: os.stat_result) -> bool:
    return stat.st_size > 0 and stat.st_mtime_ns % _SECOND not in (_FETCHED, _SENT)


def _is_here(path: Path, info: dict[str, Any], *, afresh: bool) -> bool:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return False
    same = stat.st_size == info["size"]
    if not afresh and (_is_new(stat) or stat.st_mtime_ns % _SECOND == _SENT):
        return same or _is_new(stat)  # a new one is ours, and still to be sent
    return same and stat.st_mtime_ns == _modified(info) * _SECOND + _FETCHED


def _modified(info: dict[str, Any]) -> int:
    """Return the time of change in seconds since 1970 by the store's clock; 0 if it does not say."""
    when = next((info[key] for key in ("LastModified", "mtime", "modified", "updated", "created") if key in info), 0)
    return int(when.timestamp()) if hasattr(when, "timestamp") else int(when) if isinstance(when, (int, float)) else 0


def _session_file(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.session")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Let one process of this machine at a time into the block."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.guard").open("w") as guard:
        lock_file(guard, wait=True)
        yield


@contextmanager
def every(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    """Call ``act`` every so many seconds while the block runs; an error in it is ignored until the next call."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(seconds):
            with suppress(Exception):
                act()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
