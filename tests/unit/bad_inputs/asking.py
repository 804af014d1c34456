# SPDX-License-Identifier: Apache-2.0
"""Asks python_lab.py, with a time limit for each answer."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from tests.support.checks import REPOSITORY

HANG_SECONDS = 300  # far more than any call takes on a busy machine: who waits for a pipe waits for ever


class Lab:
    """The lab as a process; a context manager. A call that does not end is an AssertionError, and ends the lab."""

    def __init__(self, bundle: Path, model: Path, place: Path) -> None:
        program = [sys.executable, Path(__file__).with_name("python_lab.py"), bundle, model, place]
        self._process = subprocess.Popen(
            program,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=place,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1"},
        )
        self._rest = b""
        assert self._line("its start") == "ready"

    def ask(self, call: str) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(call).encode() + b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = self._line(call)
        return answer

    def _line(self, call: str) -> Any:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                if not selector.select(HANG_SECONDS):
                    raise AssertionError(f"no end of {call} within {HANG_SECONDS} s")
                piece = os.read(self._process.stdout.fileno(), 1 << 20)
                assert piece, f"{call} ended the process: {self._process.wait()}"
                self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
