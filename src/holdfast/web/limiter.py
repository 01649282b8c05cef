"""A limit on wrong tokens per address."""

from __future__ import annotations

import contextlib
import ipaddress
import threading
from collections import OrderedDict
from pathlib import Path

from holdfast.core.files import write_atomic

MOST_ADDRESSES = 10_000


class Limiter:
    """Count failures per address in a sliding window.

    Only failures count, so that two hundred people behind one address can join in the same minute. Failures are
    appended to a file, so that a restart does not reset them.
    """

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
        """Write the file anew with the failures that still count."""
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
