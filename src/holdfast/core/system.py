"""What differs between operating systems: locks of files, users, memory and processes."""

from __future__ import annotations

import errno
import os
import time
from typing import IO, Any

locks: Any
try:
    import fcntl as locks
except ImportError:  # Windows
    locks = None

_PAUSE = 0.05  # seconds between two attempts if the system cannot wait for a lock


def lock_file(file: IO[Any], *, wait: bool) -> bool:
    """Lock an open file until it is closed; without ``wait``, return False if another process holds it."""
    while not _locked(file, wait=wait):
        if not wait:
            return False
        time.sleep(_PAUSE)
    return True


def _locked(file: IO[Any], *, wait: bool) -> bool:
    try:
        if locks is not None:
            locks.flock(file, locks.LOCK_EX | (0 if wait else locks.LOCK_NB))
        else:
            import msvcrt

            windows: Any = msvcrt
            windows.locking(file.fileno(), windows.LK_NBLCK, 1)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK):
            raise
        return False
    return True


def user_id() -> int:
    """Return the user's number; 0 on Windows, where files have no such owner."""
    return os.getuid() if hasattr(os, "getuid") else 0


def physical_memory() -> int:
    """Return the bytes of memory of this machine; 0 if they cannot be known, as on Windows."""
    if not hasattr(os, "sysconf"):
        return 0
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def process_has_ended(process: int) -> bool:
    """Return whether no process of this machine has this number; False if that cannot be asked, as on Windows."""
    if os.name == "nt":  # os.kill would end it, or send Ctrl-C to all
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False
