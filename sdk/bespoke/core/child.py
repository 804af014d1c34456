# SPDX-License-Identifier: Apache-2.0
"""One request to the core: a child process under a limit, its progress told as it comes, its report or its error.

Both sides write one JSON object a line. At a stop the child is told to cancel, goes to a committed state and reports. An
interrupt or an error in a callback sends it SIGTERM; a second interrupt kills it, which loses nothing that was committed.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bespoke.core.finding import find
from bespoke.core.library import error_of
from bespoke.core.limit import ChildLimit
from bespoke.core.page_cache import read_through
from bespoke.errors import BespokeError, BudgetExceeded, MissingDependency
from bespoke.rules.report import Listener, Progress

__all__ = ["Orders", "Started", "run", "started"]

Orders = queue.SimpleQueue[Mapping[str, Any]]

POLL_SECONDS = 0.05  # how late a stop may be noticed
TERM_AGAIN_SECONDS = 0.25  # a child that does not listen yet loses the signal
STOP_SECONDS = 60.0  # what a child may take to end after an interrupt: one instruction and one commit
_LAUNCH = str(Path(__file__).with_name("launch.py"))
_MAX_ERROR_TEXT = 2000


def run(
    request: Mapping[str, Any], limit_bytes: int | None = None, on_progress: Listener | None = None,
    stop: Callable[[], bool] | None = None, orders: Orders | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The core's report on a request, and under "enforced_by" what enforced the limit ("none" without one).

    request:      {"verb": "train" | "evaluate" | "verify", "bundle": PATH, "state": PATH, ...}
    limit_bytes:  footprint of the whole process that the budget allows; the system enforces it with a small margin
    on_progress:  told where it is
    stop:         asked 20 times a second; the core then ends in a committed state and reports
    orders:       what other threads tell it meanwhile: {"do": "limit" | "pace", ...}
    Raises the error that the core tells, BudgetExceeded where the system ended it for going over the limit, BespokeError where
    it crashed, MissingDependency where there is no core.
    """
    with started(request, limit_bytes) as core:
        try:
            last = _listen(core.process, on_progress, stop, orders or Orders())
            core.process.wait()
        except BaseException:
            _end(core.process)
            raise
        report = core.report(last)
        return {**report, "bytes_read": report.get("bytes_read", 0) + core.bytes_read_ahead}


@dataclass(frozen=True)
class Started:
    """The core as a process, under its limit."""

    process: subprocess.Popen[bytes]
    limit: ChildLimit
    limit_bytes: int | None
    said: IO[bytes]  # what it wrote to standard error
    bytes_read_ahead: int

    def tell(self, message: Mapping[str, Any]) -> None:
        tell(self.process, message)

    def report(self, found: Mapping[str, Any]) -> dict[str, Any]:
        """Of a process that has ended, by its last events; raises what it ended by."""
        return _report(found, self.process.returncode, self.limit, self.limit_bytes, self.said)


@contextmanager
def started(request: Mapping[str, Any], limit_bytes: int | None) -> Iterator[Started]:
    """A process of the core with its request. What still runs at the end is killed: nothing is lost that was committed.

    Raises MissingDependency where there is no core.
    """
    core = find()
    if core.path is None:
        raise MissingDependency("The device core", got=core.reason, expected="a core that runs", next_step=core.next_step)
    with ChildLimit(limit_bytes) as limit, tempfile.TemporaryFile() as said:
        ahead = read_through(Path(request["bundle"])) if limit.counts_files else 0
        command = [sys.executable, "-I", "-S", _LAUNCH, json.dumps(limit.request()), str(core.path)]
        # A group of its own: Ctrl-C in the terminal reaches the parent alone, which decides.
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, process_group=0)
        try:
            tell(process, request)
            yield Started(process, limit, limit_bytes, said, ahead)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                with contextlib.suppress(OSError):
                    pipe.close()


def tell(child: subprocess.Popen[bytes], message: Mapping[str, Any]) -> None:
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended already; its exit status says more
        child.stdin.write(json.dumps(message).encode() + b"\n")
        child.stdin.flush()


def _listen(
    child: subprocess.Popen[bytes], on_progress: Listener | None, stop: Callable[[], bool] | None, orders: Orders
) -> dict[str, Any]:
    """Hears the child to its end; returns its limit and its report or error."""
    found: dict[str, Any] = {}
    cancelled = computes = False
    for line in _lines(child):
        if not cancelled and stop is not None and stop():
            cancelled = True
            tell(child, {"do": "cancel"})
        while computes and not orders.empty():  # before, there is nothing that they could change
            tell(child, orders.get())
        if line is None:
            continue
        try:
            event = json.loads(line)
            kind = event["event"]
        except (ValueError, TypeError, KeyError):
            continue  # a library that writes to stdout
        computes = computes or kind == "progress"
        if kind == "progress" and on_progress is not None:
            on_progress(_progress(event))
        elif kind in ("report", "error", "limit"):
            found[kind] = event
    return found


def _progress(event: Mapping[str, Any]) -> Progress:
    loss = None
    if event["phase"] == "step":
        loss = float("nan") if event["loss"] is None else float(event["loss"])  # JSON has no word for a loss that is not finite
    return Progress(event["phase"], int(event["step"]), int(event["steps"]), loss, int(event["footprint_bytes"]))


def _lines(child: subprocess.Popen[bytes]) -> Iterator[bytes | None]:
    """Lines as they come, and None every POLL_SECONDS in which none comes."""
    assert child.stdout is not None
    descriptor = child.stdout.fileno()
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(descriptor, selectors.EVENT_READ)
        while True:
            if not selector.select(POLL_SECONDS):
                yield None
                continue
            piece = os.read(descriptor, 1 << 16)
            if not piece:
                break
            *lines, rest = (rest + piece).split(b"\n")
            yield from lines
    if rest:
        yield rest


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends a child that nobody listens to any more: politely, and at once if interrupted again."""
    try:
        deadline = time.monotonic() + STOP_SECONDS
        while child.poll() is None and time.monotonic() < deadline:
            child.terminate()
            _drain(child, TERM_AGAIN_SECONDS)
    finally:
        if child.poll() is None:
            child.kill()
        child.wait()


def _drain(child: subprocess.Popen[bytes], seconds: float) -> None:
    """Reads for so long: a full pipe would keep the child from ending."""
    assert child.stdout is not None
    until = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while child.poll() is None and time.monotonic() < until:
            if selector.select(POLL_SECONDS) and not os.read(child.stdout.fileno(), 1 << 16):
                time.sleep(0.005)  # closed: it is about to end


# ---- how it ended ----------------------------------------------------------------------------------------------------------


def _report(
    found: Mapping[str, Any], status: int, limit: ChildLimit, limit_bytes: int | None, said: IO[bytes]
) -> dict[str, Any]:
    enforced_by = found.get("limit", {}).get("kind", "none")
    if "error" in found:
        raise error_of(found["error"])
    if "report" in found and status == 0:
        return {**found["report"]["report"], "enforced_by": enforced_by}
    allowed = "none" if limit_bytes is None else f"{limit_bytes / 1e6:.1f} MB"
    if status == -signal.SIGKILL and limit.killed():
        raise BudgetExceeded(
            "The device core", got=f"more memory than its own questions had seen; {enforced_by} ended the process",
            expected=f"at most {allowed}",
            next_step="Raise the memory budget. What was committed is intact: train again to go on from there",
        )  # fmt: skip
    raise BespokeError(
        "The device core", got=_ending(status, said), expected="a report",
        next_step="The state is as the last commit left it: train again to go on from there. "
        "If it happens again, report it with this message",
    )  # fmt: skip


def _ending(status: int, said: IO[bytes]) -> str:
    said.seek(0, os.SEEK_END)
    said.seek(max(0, said.tell() - _MAX_ERROR_TEXT))
    words = said.read().decode("utf-8", "replace").strip()
    if status < 0:
        try:
            how = f"an end by {signal.Signals(-status).name}"
        except ValueError:
            how = f"an end by signal {-status}"
        how += " from outside, perhaps because the machine had no memory left" if status == -signal.SIGKILL else ""
    else:
        how = f"exit status {status} without a report"
    return f"{how}; it said: {words}" if words else how
