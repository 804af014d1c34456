# SPDX-License-Identifier: Apache-2.0
"""The core as a child process under a limit. Messages are lines of JSON, and every wait for the child is bounded.

The kernel kills the core with the thread that started it (PR_SET_PDEATHSIG in launch.py). So a single thread, which lives as long
as this process, starts all children. A core that is silent for SILENT_SECONDS gets a ping, which its listening thread answers even
while it computes. Without an answer within another SILENT_SECONDS it is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, Self

from bespoke.core.finding import find
from bespoke.core.library import error_of
from bespoke.core.limit import ChildLimit
from bespoke.core.page_cache import read_through
from bespoke.errors import BespokeError, BudgetExceeded, DataError, StateError, Unavailable
from bespoke.system.descriptors import no_free_descriptor

__all__ = ["MAX_LINE_BYTES", "POLL_SECONDS", "Child", "check_process"]

POLL_SECONDS = 0.05  # longest delay until a stop is noticed
SILENT_SECONDS = 60.0
END_SECONDS = 60.0  # longest time from the end of its output, or from its kill, to its end
MAX_LINE_BYTES = 64 << 20  # kMaxLineBytes in bindings/native/src/tool/lines.h
_LAUNCH = str(Path(__file__).with_name("launch.py"))
_MAX_ERROR_TEXT = 2000

_Process = subprocess.Popen[bytes]


class Child:
    """A process of the core with its request. A context manager, which kills a process that still runs at its end.

    A kill loses nothing that was committed. Only the process that started the child may end it, and a fork leaves it alone.
    """

    def __init__(self, request: Mapping[str, Any], limit_bytes: int | None) -> None:
        """Starts the process. Raises MissingDependency without a core, and Unavailable if the system cannot start a process."""
        core = find().required()
        self.limit_bytes = limit_bytes
        line = _line(request)

        with ExitStack() as undo:
            try:
                self._limit = undo.enter_context(ChildLimit(limit_bytes))
                self.bytes_read_ahead = read_through(Path(request["bundle"])) if self._limit.counts_files else 0
                self._stderr: IO[bytes] = undo.enter_context(tempfile.TemporaryFile())
                command = [sys.executable, "-I", "-S", _LAUNCH, json.dumps(self._limit.request()), str(core)]
                self.process = _start(command, self._stderr)
            except OSError as error:
                raise no_free_descriptor(error) or Unavailable(
                    "The device core",
                    got=f"a process that cannot be started ({error.strerror or error})",
                    expected="room for one more process",
                    next_step="End processes that are not needed, and try again",
                ) from error
            undo.callback(_end_process, os.getpid(), self.process)
            self._end = weakref.finalize(self, _undo_in, os.getpid(), undo.pop_all())

        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._input, self._output = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self._input, False)
        self._owner = os.getpid()
        self._telling = threading.Lock()
        self._lines: list[bytes] = []  # received and not asked for yet, the last one first
        self._rest = b""
        self._heard_at = time.monotonic()
        self._pinged = False
        self._killed_for = ""  # why this class killed the process
        self._send(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._end()

    # ---- speaking --------------------------------------------------------------------------------------------------------

    def tell(self, message: Mapping[str, Any]) -> None:
        """Sends a message, from any thread. Does nothing if the process has ended, because its exit status says why.

        Raises DataError for a message of more than MAX_LINE_BYTES bytes, before any of it is sent.
        """
        self._send(_line(message))

    def _send(self, line: bytes) -> None:
        check_process(self._owner, "the device core's process")
        with self._telling:
            view, last = memoryview(line), time.monotonic()
            try:
                while view and self.process.poll() is None:
                    if _is_ready(self._input, select.POLLOUT, 1.0):
                        view, last = view[os.write(self._input, view) :], time.monotonic()
                    elif time.monotonic() - last > SILENT_SECONDS:
                        self._kill(f"{SILENT_SECONDS:.0f} s in which it read nothing")
            except BrokenPipeError:
                return
            except BaseException:
                self.process.kill()  # after half a line it could not understand the next one
                raise

    # ---- hearing ---------------------------------------------------------------------------------------------------------

    def hear(self, seconds: float) -> dict[str, Any] | None:
        """Returns the next event, or None if none arrives in `seconds`. Raises EOFError at the end of its output."""
        check_process(self._owner, "the device core's process")
        while True:
            while self._lines:
                if (event := _event(self._lines.pop())) is not None:
                    return event
            if not _is_ready(self._output, select.POLLIN, seconds):
                self._check_life()
                return None
            piece = os.read(self._output, 1 << 16)
            self._heard_at, self._pinged = time.monotonic(), False
            if not piece:
                raise EOFError
            *lines, self._rest = (self._rest + piece).split(b"\n")
            self._lines = lines[::-1]

    def drain(self, seconds: float) -> None:
        """Reads for `seconds`, or until the process ends. A full pipe would keep it from ending."""
        until = time.monotonic() + seconds
        while self.process.poll() is None and (left := until - time.monotonic()) > 0:
            if _is_ready(self._output, select.POLLIN, left) and not os.read(self._output, 1 << 16):
                time.sleep(0.005)  # its output has ended, and it will end soon

    def _check_life(self) -> None:
        """Pings a silent process, and kills it if it did not answer the last ping."""
        if time.monotonic() - self._heard_at < SILENT_SECONDS:
            return
        if self._pinged:
            return self._kill(f"no answer to a ping for {SILENT_SECONDS:.0f} s")
        self._heard_at, self._pinged = time.monotonic(), True
        self.tell({"do": "ping"})

    def _kill(self, reason: str) -> None:
        """Kills the process. The end of its output follows."""
        self._killed_for = reason
        self.process.kill()

    # ---- its end ---------------------------------------------------------------------------------------------------------

    def ended(self, last: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the report of a process whose output has ended. `last` has the last event of each kind. Raises its error."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_SECONDS)

        enforced_by = last.get("limit", {}).get("kind", "none")
        if "error" in last:
            raise error_of(last["error"])

        status = self.process.poll()
        if "report" in last and status == 0:
            return {**last["report"]["report"], "enforced_by": enforced_by}

        if status == -signal.SIGKILL and self._limit.killed():
            allowed = "none" if self.limit_bytes is None else f"{self.limit_bytes / 1e6:.1f} MB"
            raise BudgetExceeded(
                "The device core",
                got=f"more memory than its own questions had seen; {enforced_by} ended the process",
                expected=f"at most {allowed}",
                next_step="Raise the memory budget. What was committed is intact: train again to go on from there",
            )
        raise BespokeError(
            "The device core",
            got=self._ending(status),
            expected="a report",
            next_step="The state is as the last commit left it: train again to go on from there. "
            "If it happens again, report it with this message",
        )

    def _ending(self, status: int | None) -> str:
        """How the process ended, with the end of its standard error."""
        self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, self._stderr.tell() - _MAX_ERROR_TEXT))
        words = self._stderr.read().decode("utf-8", "replace").strip()

        if status is None:
            how = "a process that has closed its output and does not end"
        elif self._killed_for:
            how = f"{self._killed_for}, so its process was ended"
        elif status < 0:
            try:
                how = f"an end by {signal.Signals(-status).name}"
            except ValueError:
                how = f"an end by signal {-status}"
            how += " from outside, perhaps because the machine had no memory left" if status == -signal.SIGKILL else ""
        else:
            how = f"exit status {status} without a report"
        return f"{how}; it said: {words}" if words else how


def check_process(owner: int, subject: str) -> None:
    """Raises StateError in a fork of the process `owner`."""
    if os.getpid() != owner:
        raise StateError(
            subject,
            got=f"a handle of process {owner} in its fork {os.getpid()}",
            expected="a handle that this process has opened",
            next_step="Open the model after the fork, or start the process without one: multiprocessing.get_context('spawn')",
        )


def _line(message: Mapping[str, Any]) -> bytes:
    line = json.dumps(message).encode() + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise DataError(
            "what the core is asked",
            got=f"{len(line):,} bytes of JSON",
            expected=f"at most {MAX_LINE_BYTES:,}",
            next_step="Ask with less text, or in several calls",
        )
    return line


def _is_ready(descriptor: int, event: int, seconds: float) -> bool:
    """Whether a descriptor is readable or writable within `seconds`, or closed. `select.select` takes none above 1023."""
    waiting = select.poll()
    waiting.register(descriptor, event)
    return bool(waiting.poll(1000 * seconds))


def _event(line: bytes) -> dict[str, Any] | None:
    """Returns the event of a line. None: the answer to a ping, or a line that a library wrote to stdout."""
    try:
        event = json.loads(line)
        return event if event["event"] != "alive" else None
    except (ValueError, TypeError, KeyError):
        return None


def _undo_in(owner: int, undo: ExitStack) -> None:
    if os.getpid() == owner:
        undo.close()


def _end_process(owner: int, process: _Process) -> None:
    if os.getpid() != owner:
        return
    if process.poll() is None:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        with contextlib.suppress(OSError):
            pipe.close()


# ---- the thread that starts them -------------------------------------------------------------------------------------------


class _Starter:
    """Starts processes in a thread of its own. The thread is a daemon: it outlives all others and does not delay an exit."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, name="bespoke starts processes", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._work.get()()

    def start(self, make: Callable[[], _Process]) -> _Process:
        started: Future[_Process] = Future()

        def work() -> None:
            try:
                started.set_result(make())
            except BaseException as error:
                started.set_exception(error)

        self._work.put(work)
        try:
            return started.result()
        except BaseException:  # an interrupt: nobody will use the process that starts
            started.add_done_callback(_kill_started)
            raise


def _kill_started(started: Future[_Process]) -> None:
    if started.exception() is None:
        _end_process(os.getpid(), started.result())


_starters: dict[int, _Starter] = {}  # by process id: a fork has no threads of its parent


def _start(command: list[str], stderr: IO[bytes]) -> _Process:
    def make() -> _Process:
        # In a process group of its own, so that Ctrl-C in the terminal reaches only the parent.
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, process_group=0)

    own = os.getpid()
    if own not in _starters:
        # Two threads at once may leave a starter idle. A lock would be worse: a fork could inherit it locked.
        _starters.setdefault(own, _Starter())
    return _starters[own].start(make)
