# SPDX-License-Identifier: Apache-2.0
"""One request to the core: a child process under a limit, its progress as it comes, its report or its error.

At a stop the child is asked to cancel, goes to a committed state and reports. An interrupt or an error in a callback sends it
SIGTERM; a second interrupt kills it, which loses nothing that was committed.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Callable, Mapping
from typing import Any

from bespoke.core.process import POLL_SECONDS, Child
from bespoke.rules.report import Listener, Progress

__all__ = ["Orders", "run"]

Orders = queue.SimpleQueue[Mapping[str, Any]]

TERM_AGAIN_SECONDS = 0.25  # a child that does not listen yet loses the signal
STOP_SECONDS = 60.0  # what a child may take to end after an interrupt: one instruction and one commit


def run(
    request: Mapping[str, Any],
    limit_bytes: int | None = None,
    on_progress: Listener | None = None,
    stop: Callable[[], bool] | None = None,
    orders: Orders | None = None,
) -> dict[str, Any]:
    """The core's report on a request, and under "enforced_by" what enforced the limit ("none" without one).

    request:      {"verb": "train" | "evaluate" | "verify", "bundle": PATH, "state": PATH, ...}
    limit_bytes:  footprint of the whole process that the budget allows; the system enforces it with a small margin
    on_progress:  called with each Progress
    stop:         asked 20 times a second; the core then ends in a committed state and reports
    orders:       what other threads send it meanwhile: {"do": "limit" | "pace", ...}
    Raises the error that the core reports, BudgetExceeded where the system ended it for going over the limit, BespokeError where
    it crashed or went silent, MissingDependency where there is no core, Unavailable where no process can be started.
    """
    with Child(request, limit_bytes) as core:
        try:
            last = _listen(core, on_progress, stop, orders or Orders())
        except BaseException:
            _end(core)
            raise
        report = core.ended(last)
        return {**report, "bytes_read": report.get("bytes_read", 0) + core.bytes_read_ahead}


def _listen(
    core: Child, on_progress: Listener | None, stop: Callable[[], bool] | None, orders: Orders
) -> dict[str, Any]:
    """Hears the child to its end; returns its limit and its report or error."""
    found: dict[str, Any] = {}
    cancelled = computes = False
    with contextlib.suppress(EOFError):
        while True:
            event = core.hear(POLL_SECONDS)
            if not cancelled and stop is not None and stop():
                cancelled = True
                core.tell({"do": "cancel"})
            while computes and not orders.empty():  # before, there is nothing that they could change
                core.tell(orders.get())
            if event is None:
                continue
            kind = event["event"]
            computes = computes or kind == "progress"
            if kind == "progress" and on_progress is not None:
                on_progress(_progress(event))
            elif kind in ("report", "error", "limit"):
                found[kind] = event
    return found


def _progress(event: Mapping[str, Any]) -> Progress:
    loss = None
    if event["phase"] == "step":
        loss = (
            float("nan") if event["loss"] is None else float(event["loss"])
        )  # JSON has no word for a loss that is not finite
    return Progress(event["phase"], int(event["step"]), int(event["steps"]), loss, int(event["footprint_bytes"]))


def _end(core: Child) -> None:
    """Ends a child that nobody listens to any more: politely, and at once if interrupted again."""
    deadline = time.monotonic() + STOP_SECONDS
    while core.process.poll() is None and time.monotonic() < deadline:
        core.process.terminate()
        core.drain(TERM_AGAIN_SECONDS)
    core.close()
