"""Uvicorn's HTTP protocol with limits on silent clients and on the number of connections."""

from __future__ import annotations

import asyncio
import logging
import resource
from collections import Counter
from dataclasses import dataclass, field

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: TID253  (itself imported by what serves only)

HEAD_S = 20.0
"""Seconds that a client may take for the head of a request, and to go on with a body that was refused."""


_SPARE_FILES = 256
"""Files that the server may open besides its connections: the database, images, libraries."""
_MOST_CONNECTIONS = 16_384
ACCEPTED_AT_ONCE = 128
"""Connections that asyncio accepts before the first of them is counted; they must fit into the spare files."""

logger = logging.getLogger("uvicorn.error")


@dataclass
class ConnectionCaps:
    """How many connections the server holds, in all and per address; further ones are closed at once.

    Both stay below the number of files that the process may open: at that number ``accept`` fails for everybody.
    """

    total: int
    per_address: int
    open_connections: Counter[str] = field(default_factory=Counter)
    warned: bool = False

    @classmethod
    def below_open_files(cls, *, one_address: bool) -> ConnectionCaps:
        """Raise the soft limit of open files to the hard one, and derive the caps from it.

        Behind a proxy all connections come from one address, which may then use all of them.
        """
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = _MOST_CONNECTIONS + _SPARE_FILES
        files = most if hard == resource.RLIM_INFINITY else min(hard, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
        total = max(16, files - _SPARE_FILES)
        return cls(total, total if one_address else max(8, total // 4))

    def enter(self, address: str) -> bool:
        """Count a new connection; False where a cap is reached, which is logged once until there is room again."""
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


def capped_protocol(caps: ConnectionCaps) -> type[TimedProtocol]:
    """Return the protocol class of one server, whose connections share these caps."""
    return type("CappedProtocol", (TimedProtocol,), {"caps": caps})


class TimedProtocol(H11Protocol):
    """Close connections on which no request arrives, and those above the caps.

    Uvicorn waits for them forever, so a few thousand slow clients would use up all files that a process may open.
    ``web.security`` limits the time of the body.
    """

    caps: ConnectionCaps
    _overdue: asyncio.TimerHandle | None = None
    _address: str | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer; abort where the server holds too many connections."""
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
        self._overdue = self.loop.call_later(HEAD_S, self._close)

    def _forget(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
