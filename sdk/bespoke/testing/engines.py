# SPDX-License-Identifier: Apache-2.0
"""Engines that compute a run in a contract suite. Each trains the run, and trains it in a process that is killed.

Run as a module, this is the process that is killed: it trains until a step and sends itself SIGKILL within it.
"""

from __future__ import annotations

import ctypes as c
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Protocol, cast

from bespoke.bundle.reader import read_bundle
from bespoke.config import Settings
from bespoke.contracts import Target
from bespoke.core import finding, library
from bespoke.core.handle import Handle, Place, Request
from bespoke.core.own_process import BUILT_IN, OwnProcess
from bespoke.core.process import Child
from bespoke.core.torch_engine import TorchEngine
from bespoke.reference.threads import limited
from bespoke.rules.report import Progress
from bespoke.testing.target_engine import TargetEngine

__all__ = ["Runs", "runs_of"]

Choice = tuple[Target, Settings] | None
"""A target with its options. None means torch."""


class Runs(Protocol):
    """An engine for one run in one state folder, which it starts or continues."""

    def train(self, bundle: Path, state: Path) -> list[float]:
        """Trains to the end of the run. Returns the losses of the steps that it took."""

    def kill(self, bundle: Path, state: Path, after: int) -> str:
        """Trains in a process that gets SIGKILL after `after` steps. Returns how the process ended if it ended before, else ""."""


def runs_of(choice: Choice) -> Runs | None:
    """Returns the engine of a target whose artifacts open here, or None where nothing on this machine computes for it."""
    if choice is not None and choice[0].compiles and _is_of_the_core(choice[0].name):
        return AsCore(choice[0].name)
    return None if _engine_of(choice) is None else InPython(choice)


def opened(bundle: Path, state: Path, **options: Any) -> Handle:
    return Handle(library.load(), place_of(bundle, state), **options)


def place_of(bundle: Path, state: Path) -> Place:
    with read_bundle(bundle) as reader:
        return Place(bundle, state, reader.manifest_sha256)


def _is_of_the_core(name: str) -> bool:
    core = finding.find().library
    return core is not None and (name == BUILT_IN or any(core.parent.glob(f"libbespoke_engine_{name}.*")))


def _engine_of(choice: Choice) -> Callable[[], TorchEngine] | None:
    if choice is None:
        return TorchEngine
    target, options = choice
    if target.compiles:
        return lambda: TargetEngine(target, options)
    return cast("Callable[[], TorchEngine] | None", target.engine(options))


def _ended(status: int, stderr: bytes) -> str:
    return "" if status == -signal.SIGKILL else f"status {status}: {stderr[-300:].decode(errors='replace').strip()}"


class InPython:
    """The library of the core in a process of Python, with an engine that is written in Python."""

    def __init__(self, choice: Choice) -> None:
        self.choice = choice

    def train(self, bundle: Path, state: Path, on_progress: Callable[[Progress], None] | None = None) -> list[float]:
        make_engine = _engine_of(self.choice)
        assert make_engine is not None
        engine = make_engine()
        table = c.cast(c.pointer(engine.table), c.c_void_p)
        with limited(1), closing(opened(bundle, state, engine=table)) as core:  # one thread, as in the other process
            return list(core.train(Request(), None, on_progress, None)["losses"])

    def kill(self, bundle: Path, state: Path, after: int) -> str:
        with tempfile.TemporaryFile() as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(bundle), str(state), str(after)],
                stdin=subprocess.PIPE,
                stderr=stderr,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )
            process.communicate(pickle.dumps(self.choice))
            stderr.seek(0)
            return _ended(process.returncode, stderr.read())


class AsCore:
    """The core as a process of its own, as `bespoke train` starts it."""

    def __init__(self, engine: str) -> None:
        self.engine = engine

    def train(self, bundle: Path, state: Path) -> list[float]:
        return list(self._core(bundle, state).train(Request(), None, None, None).losses)

    def kill(self, bundle: Path, state: Path, after: int) -> str:
        last: dict[str, Any] = {}
        with Child(self._core(bundle, state).training(Request(), None), None) as core:
            with suppress(EOFError):
                while True:
                    last = core.hear(1.0) or last
                    if last.get("phase") == "step" and last["step"] >= after:
                        core.process.kill()
            return _ended(core.process.wait(), json.dumps(last).encode())

    def _core(self, bundle: Path, state: Path) -> OwnProcess:
        return OwnProcess(place_of(bundle, state), None, self.engine)


def main() -> None:
    bundle, state, after = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])

    def die(progress: Progress) -> None:
        if progress.phase == "step" and progress.step >= after:
            os.kill(os.getpid(), signal.SIGKILL)

    InPython(pickle.load(sys.stdin.buffer)).train(bundle, state, die)  # from the process that started this one


if __name__ == "__main__":
    main()
