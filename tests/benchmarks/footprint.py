# SPDX-License-Identifier: Apache-2.0
"""The anonymous memory of a child process, seen from outside: RssAnon + RssShmem + swap, read every millisecond.

The child names the phases it enters and waits for an answer, so that each reading belongs to one phase. A fresh process for
each figure: one that has done something else before holds freed memory, which would hide what comes after.
"""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Any, TextIO

from tests.conftest import REPOSITORY

INTERVAL_S = 0.001
_COUNTED = re.compile(rb"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB", re.MULTILINE)
IDLE = "idle"


@dataclass
class Watched:
    """What a child took. Bytes of anonymous memory: as it stood idle, and the highest in each phase after it."""

    idle_bytes: int = 0
    peaks: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)
    readings: int = 0

    def added(self, *phases: str) -> int:
        """The most that was added to the idle process, in these phases or in all."""
        return max(peak for name, peak in self.peaks.items() if not phases or name in phases) - self.idle_bytes


def watch(module: str, settings: dict[str, Any]) -> Watched:
    """Runs `python -m module` with `settings` as JSON, and watches it to its end. AssertionError where it fails."""
    child = subprocess.Popen(
        [sys.executable, "-m", module, json.dumps(settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    watched, phase, began, unread = Watched(), "imports", time.monotonic(), b""
    status = os.open(f"/proc/{child.pid}/status", os.O_RDONLY)
    try:
        while True:
            if select.select([child.stdout], [], [], INTERVAL_S)[0]:
                data = os.read(child.stdout.fileno(), 65536)
                if not data:
                    break
                *lines, unread = (unread + data).split(b"\n")
                for line in lines:
                    message = json.loads(line)
                    if "phase" not in message:
                        watched.report |= message
                        continue
                    watched.seconds[phase] = time.monotonic() - began
                    phase, began = message["phase"], time.monotonic()
                    if phase == IDLE:
                        watched.idle_bytes = _anonymous_bytes(status)
                    child.stdin.write(b"go\n")
                    child.stdin.flush()
            elif phase not in ("imports", IDLE):
                watched.peaks[phase] = max(watched.peaks.get(phase, 0), _anonymous_bytes(status))
                watched.readings += 1
    finally:
        os.close(status)
        child.kill() if child.poll() is None and sys.exc_info()[0] is not None else None
        code = child.wait()
    watched.seconds[phase] = time.monotonic() - began
    assert code == 0, f"{module} ended with {code}; its report so far: {watched.report}"
    return watched


def _anonymous_bytes(status: int) -> int:
    """0 once the process is gone."""
    try:
        return anonymous_in(os.pread(status, 8192, 0))
    except ProcessLookupError:
        return 0


def anonymous_in(status: bytes) -> int:
    """Anonymous bytes by /proc/PID/status."""
    return sum(int(found) for found in _COUNTED.findall(status)) * 1024


class Phases:
    """The child's side."""

    def __init__(self) -> None:
        self._out: TextIO = sys.stdout
        sys.stdout = sys.stderr  # what libraries print must not stand between the messages

    def enter(self, name: str) -> bool:
        """Waits for the parent's answer; False where it has none to give, because it wants no more."""
        self.report({"phase": name})
        return sys.stdin.readline() != ""

    def idle(self) -> None:
        """Imports are done. Freed memory is given back first, so that it does not count as idle."""
        import gc

        from bespoke.system.malloc import release_free_memory

        gc.collect()
        release_free_memory()
        self.enter(IDLE)

    def report(self, message: dict[str, Any]) -> None:
        print(json.dumps(message), file=self._out, flush=True)
