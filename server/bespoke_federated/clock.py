# SPDX-License-Identifier: Apache-2.0
"""Two clocks: one of the calendar, which somebody may change, and one that only goes on."""

from __future__ import annotations

import time
from typing import Protocol

__all__ = ["Clock", "SystemClock"]


class Clock(Protocol):
    """What the server knows of time. Tests have one of their own."""

    def calendar(self) -> float:
        """Seconds since 1970. It may jump. Only what has to survive a restart rests on it."""
        ...

    def running(self) -> float:
        """Seconds since some moment. It never goes back. Deadlines and limits of a process rest on it."""
        ...


class SystemClock:
    """The machine's clocks."""

    def calendar(self) -> float:
        return time.time()

    def running(self) -> float:
        return time.monotonic()
