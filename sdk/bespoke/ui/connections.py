# SPDX-License-Identifier: Apache-2.0
"""Limits on the connections of the page's server, since any program on this machine may open as many as it likes.

A connection is trusted once a request with the token has come over it. Until then it may stay open for a few seconds. If there are
too many connections, the oldest untrusted one is closed first, then the oldest trusted one that is idle. So idle connections and
incomplete requests cannot keep a browser with the token out, and cannot use up the process's descriptors.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["ACCEPTED_AT_ONCE", "MOST_OPEN", "Connections"]

MOST_OPEN = 64  # a browser opens six
ACCEPTED_AT_ONCE = 16  # this many more may be open for a moment; the others wait in the system's queue
STRANGER_SECONDS = 10.0  # for a request with the token


class Connections:
    """The open connections of one server. Only the server's event loop calls it."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], _Connection] = {}  # by the address of the other end, the oldest first
        connections = self

        class Protocol(_Connection):
            owner = connections

        self.protocol: type[H11Protocol] = Protocol

    def trust(self, client: tuple[str, int] | None) -> None:
        """Trusts the connection from this address, since a request with the token came over it."""
        if client is not None and (connection := self._open.get(client)) is not None:
            connection.trusted = True

    def opened(self, connection: _Connection) -> None:
        """Adds a connection, or aborts it if there is no room."""
        if len(self._open) >= MOST_OPEN:
            self._make_room()
        if len(self._open) >= MOST_OPEN or connection.client is None:
            connection.transport.abort()
            return
        self._open[connection.client] = connection

    def used(self, connection: _Connection) -> None:
        """Counts a connection as the newest."""
        if connection.client is not None and self._open.pop(connection.client, None) is connection:
            self._open[connection.client] = connection

    def closed(self, connection: _Connection) -> None:
        """Removes a connection."""
        if connection.client is not None and self._open.get(connection.client) is connection:
            del self._open[connection.client]

    def _make_room(self) -> None:
        """Aborts the oldest connection that is untrusted, else the oldest that is idle."""
        oldest_first = list(self._open.values())
        untrusted = (connection for connection in oldest_first if not connection.trusted)
        idle = (connection for connection in oldest_first if connection.is_idle())
        if (victim := next(untrusted, None) or next(idle, None)) is not None:
            self.closed(victim)
            victim.transport.abort()


class _Connection(H11Protocol):
    """A connection that reports to its `Connections` and ends after a few seconds without the token."""

    owner: Connections
    trusted = False
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._timer = self.loop.call_later(STRANGER_SECONDS, self._end_of_patience)
        self.owner.opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self.owner.closed(self)
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self.owner.used(self)
        super().on_response_complete()

    def is_idle(self) -> bool:
        cycle: Any = self.cycle
        return cycle is None or cycle.response_complete

    def _end_of_patience(self) -> None:
        if not self.trusted:
            self.transport.abort()
