# SPDX-License-Identifier: Apache-2.0
"""The connections of the page's server, of which any program on this machine may open as many as it likes.

A connection is a stranger's until a request with the token has come over it. A stranger has a few seconds; where there are too many
connections, the oldest stranger's goes first, then the oldest of a browser that waits for nothing. So neither idle connections nor
half a request keep a browser with the token out, or take the process its descriptors.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["ACCEPTED_AT_ONCE", "MOST_OPEN", "Connections"]

MOST_OPEN = 64  # a browser opens six
ACCEPTED_AT_ONCE = 16  # so many more may be open for a moment; the others wait in the system's queue
STRANGER_SECONDS = 10.0


class Connections:
    """For the event loop of one server."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], _Connection] = {}  # by the address of the other end, the oldest first
        connections = self

        class Protocol(_Connection):
            owner = connections

        self.protocol: type[H11Protocol] = Protocol

    def trust(self, client: tuple[str, int] | None) -> None:
        """A request with the token came from there."""
        if client is not None and (found := self._open.get(client)) is not None:
            found.trusted = True

    def opened(self, one: _Connection) -> None:
        if len(self._open) >= MOST_OPEN:
            self._make_room()
        if len(self._open) >= MOST_OPEN or one.client is None:
            one.transport.abort()
            return
        self._open[one.client] = one

    def used(self, one: _Connection) -> None:
        """It is the newest now."""
        if one.client is not None and self._open.pop(one.client, None) is one:
            self._open[one.client] = one

    def closed(self, one: _Connection) -> None:
        if one.client is not None and self._open.get(one.client) is one:
            del self._open[one.client]

    def _make_room(self) -> None:
        listed = list(self._open.values())
        strangers = (one for one in listed if not one.trusted)
        idle = (one for one in listed if one.is_idle())
        if (goes := next(strangers, None) or next(idle, None)) is not None:
            self.closed(goes)
            goes.transport.abort()


class _Connection(H11Protocol):
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
