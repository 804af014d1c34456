# SPDX-License-Identifier: Apache-2.0
"""Several processes that take turns, a step each: A B C A B C ...; a process whose turn it is not is stopped (SIGSTOP).

Other load on the machine and changes of its speed then affect all of them alike: compare ratios of neighbouring turns.
"""

from __future__ import annotations

import json
import os
import select
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from tests.benchmarks.core_bundles import Bundle
from tests.benchmarks.core_process import EVERY_STEP, CoreRun, ask, core_path, take, training_request
from tests.conftest import REPOSITORY


class Runner(Protocol):
    """Started by `with`; has done one step, which warms it up, when `turn` is first called."""

    name: str

    def turn(self) -> float: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def take_turns(runners: Sequence[Runner], rounds: int) -> dict[str, list[float]]:
    """Seconds of each turn by the runner's name, round by round; the first round is thrown away."""
    seconds: dict[str, list[float]] = {runner.name: [] for runner in runners}
    with ExitStack() as stack:
        for runner in runners:
            stack.enter_context(runner)
        for number in range(rounds + 1):
            for runner in runners:
                taken = runner.turn()
                print(f"round {number}: {runner.name} {taken:.3f} s", flush=True)
                if number:
                    seconds[runner.name].append(taken)
    return seconds


def paired_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median of the ratios within rounds."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


class PacedCore:
    """The core trains one run; a turn lasts from one step's end to the next one's, a commit between them included. `cut`: the run
    is stopped after the last turn, without a gate."""

    def __init__(
        self,
        name: str,
        bundle: Bundle,
        state: Path,
        steps: int,
        threads: int,
        environment: Mapping[str, str] | None = None,
        settings: Mapping[str, float] = EVERY_STEP,
        *,
        cut: bool = False,
    ) -> None:
        self.name = name
        self._cut = cut
        self._environment = {**os.environ, **(environment or {})}
        self.run = CoreRun(code=-1)
        self._request = training_request(bundle, state, steps, threads=threads, settings=settings)
        self._rest = b""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [core_path()], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self._environment
        )
        ask(self._process, self._request)
        self._began = time.perf_counter()
        self._next_step()
        self._process.send_signal(signal.SIGSTOP)
        return self

    def turn(self) -> float:
        while self._has_said_more():  # steps that ended before it was stopped, where this process was late
            self._expect_event()
        began = time.perf_counter()
        self._process.send_signal(signal.SIGCONT)
        self._next_step()
        self._process.send_signal(signal.SIGSTOP)
        return time.perf_counter() - began

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Ends, for the report; is killed where something has failed."""
        if self._cut:
            self._process.send_signal(signal.SIGTERM)
        self._process.send_signal(signal.SIGCONT)
        if kind is not None:
            self._process.kill()
        while self._next_event() is not None:
            pass
        self.run.code = self._process.wait()
        self.run.seconds = time.perf_counter() - self._began
        assert kind is not None or self.run.code == 0, f"the core ended with {self.run.code}: {self.run.error}"

    def _next_step(self) -> None:
        known = len(self.run.steps)
        while len(self.run.steps) == known:
            self._expect_event()

    def _expect_event(self) -> None:
        assert self._next_event() is not None, f"the core ended before its next step: {self.run.error or 'no word'}"

    def _has_said_more(self) -> bool:
        assert self._process.stdout is not None
        return b"\n" in self._rest or bool(select.select([self._process.stdout], [], [], 0)[0])

    def _next_event(self) -> dict[str, Any] | None:
        """Read without Python's buffer, which would hide a line that has come."""
        assert self._process.stdout is not None
        while b"\n" not in self._rest:
            data = os.read(self._process.stdout.fileno(), 65536)
            if not data:
                return None
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        event: dict[str, Any] = json.loads(line)
        take(self.run, event, time.perf_counter() - self._began)
        return event


class PacedPython:
    """A module of benchmarks that asks before each of its turns (`Phases.enter("turn")`)."""

    def __init__(self, name: str, module: str, settings: dict[str, Any], threads: int, **environment: str) -> None:
        self.name = name
        self.reports: list[dict[str, Any]] = []
        self._command = [sys.executable, "-m", module, json.dumps({**settings, "paced": True})]
        self._environment = {**os.environ, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": str(threads), **environment}

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=REPOSITORY, env=self._environment
        )
        self._until_asked()
        self.turn()
        return self

    def turn(self) -> float:
        assert self._process.stdin is not None
        self._process.send_signal(signal.SIGCONT)
        began = time.perf_counter()
        self._process.stdin.write(b"go\n")
        self._process.stdin.flush()
        self._until_asked()
        taken = time.perf_counter() - began
        self._process.send_signal(signal.SIGSTOP)
        return taken

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.send_signal(signal.SIGCONT)
        if kind is not None:
            self._process.kill()
        self._process.stdin.close()
        self.reports += [json.loads(line) for line in self._process.stdout]
        code = self._process.wait()
        assert kind is not None or code == 0, f"{self.name} ended with {code}"

    def _until_asked(self) -> None:
        """Answers every phase that comes before the turns."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if message.get("phase") == "turn":
                return
            if "phase" in message:
                self._process.stdin.write(b"go\n")
                self._process.stdin.flush()
            else:
                self.reports.append(message)
        raise AssertionError(f"{self.name} ended before its next turn")
