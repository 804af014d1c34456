# SPDX-License-Identifier: Apache-2.0
"""Runs one request in a child process of the core under a limit, with its progress and its report or error.

To stop the child, `run` asks it to cancel; it commits its state and reports. An interrupt or an error in a callback sends it
SIGTERM. A second interrupt kills it, which loses nothing that was committed.
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

TERM_AGAIN_SECONDS = 0.25  # a child that does not listen yet misses the signal
STOP_SECONDS = 60.0  # limit for a child to end after an interrupt: it completes an instruction and a commit


def run(
    request: Mapping[str, Any],
    limit_bytes: int | None = None,
    on_progress: Listener | None = None,
    stop: Callable[[], bool] | None = None,
    orders: Orders | None = None,
) -> dict[str, Any]:
    """Returns the core's report on a request. Its "enforced_by" names what enforced the limit ("none" without a limit).

    Args:
        request: {"verb": "train" | "evaluate" | "verify", "bundle": PATH, "state": PATH, ...}.
        limit_bytes: Largest footprint of the whole process that the budget allows. The system enforces it with a small margin.
        on_progress: Called with each Progress.
        stop: Asked 20 times a second. Once it returns True, the core ends in a committed state and reports.
        orders: Orders that other threads send while it runs: {"do": "limit" | "pace", ...}.

    Raises the error that the core reports, BudgetExceeded if the system ended it for exceeding the limit, BespokeError if it
    crashed or went silent, MissingDependency without a core, and Unavailable if no process can be started.
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
    """Listens to the child until it ends. Returns its events of limit, report and error by kind."""
    last: dict[str, Any] = {}
    cancelled = computes = False
    with contextlib.suppress(EOFError):
        while True:
            event = core.hear(POLL_SECONDS)
            if not cancelled and stop is not None and stop():
                cancelled = True
                core.tell({"do": "cancel"})
            while computes and not orders.empty():  # before the first progress, orders could change nothing
                core.tell(orders.get())
            if event is None:
                continue

            kind = event["event"]
            computes = computes or kind == "progress"
            if kind == "progress" and on_progress is not None:
                on_progress(_progress(event))
            elif kind in ("report", "error", "limit"):
                last[kind] = event
    return last


def _progress(event: Mapping[str, Any]) -> Progress:
    loss = None
    if event["phase"] == "step":  # JSON has null for a loss that is not finite
        loss = float("nan") if event["loss"] is None else float(event["loss"])
    return Progress(event["phase"], int(event["step"]), int(event["steps"]), loss, int(event["footprint_bytes"]))


def _end(core: Child) -> None:
    """Ends a child that nobody listens to any more, with SIGTERM. A further interrupt kills it at once."""
    deadline = time.monotonic() + STOP_SECONDS
    while core.process.poll() is None and time.monotonic() < deadline:
        core.process.terminate()
        core.drain(TERM_AGAIN_SECONDS)
    core.close()
