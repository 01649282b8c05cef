"""HTTP as uvicorn speaks it, less the patience with clients that never come to the point."""

from __future__ import annotations

import asyncio

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol  # noqa: TID253  (itself imported by what serves only)

HEAD_S = 20.0
"""How long a client may take from its connection, or from the first byte of another request, to the end of the head;
and how long it may go on with a body that was refused."""


class Punctual(H11Protocol):
    """Closes connections on which no request arrives.

    Uvicorn waits for them without end, so that a few thousand of them, each with a byte now and then, would use up what
    the system lets a process open. What comes after the head is timed by ``web.security``.
    """

    _overdue: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Stop the time once a head is whole; bytes of one that is not do not start it anew."""
        super().data_received(data)
        refused = self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE  # a body nobody waits for
        if not refused and self.conn.their_state is not h11.IDLE:
            self._forget()
        elif self._overdue is None:
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is expected any more."""
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
