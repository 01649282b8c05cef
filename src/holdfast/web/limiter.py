"""How many wrong tokens an address may try."""

from __future__ import annotations

import ipaddress
import threading
from collections import OrderedDict

MOST_ADDRESSES = 10_000


class Limiter:
    """Counts failures by address in a sliding window.

    Only failures count, so that a class of two hundred behind one address can join in the same minute.
    """

    def __init__(self, most: int = 20, seconds: float = 600.0) -> None:
        self.most, self.seconds = most, seconds
        self._failures: OrderedDict[str, list[float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait(self, address: str, now: float) -> float:
        """Seconds until this address may try again; 0 where it may now."""
        with self._lock:
            recent = self._recent(address, now)
            return 0.0 if len(recent) < self.most else recent[-self.most] + self.seconds - now

    def fail(self, address: str, now: float) -> None:
        """Remember a wrong token."""
        with self._lock:
            recent = self._recent(address, now)
            self._failures[_network(address)] = [*recent, now]
            self._failures.move_to_end(_network(address))
            while len(self._failures) > MOST_ADDRESSES:
                self._failures.popitem(last=False)

    def _recent(self, address: str, now: float) -> list[float]:
        return [at for at in self._failures.get(_network(address), ()) if now - at < self.seconds]


def _network(address: str) -> str:
    """Who owns one IPv6 address owns the 2⁶⁴ beside it."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if parsed.version == 6:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return address
