# SPDX-License-Identifier: Apache-2.0
"""The device core as a process of its own: a state with unmasked rows for it, a run of it under watch_memory, and what was seen.

Settings that hold for every benchmark: rank 8 on all linears, rows of unmasked tokens; a commit after every step, where nothing
else is said.
The core is the installed one, or the one that BESPOKE_CORE names. States lie under `.cache/benchmarks`, on a disk.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from tests.benchmarks.core_bundles import CACHE, Bundle

EVERY_STEP = {"commit_seconds": 1e-3, "write_mb_per_second": 1e6}
NO_LIMIT = -1.0
THREADS = int(os.environ.get("BESPOKE_BENCHMARK_THREADS") or len(os.sched_getaffinity(0)))
_WATCHER = Path(__file__).with_name("watch_memory.c")


@dataclass
class CoreRun:
    """`watched` is what watch_memory reports; `steps` are (seconds since the start, step, loss) as the core reported them."""

    code: int
    report: dict[str, Any] = field(default_factory=dict)
    error: dict[str, Any] = field(default_factory=dict)
    watched: dict[str, Any] = field(default_factory=dict)
    steps: list[tuple[float, int, float | None]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def peak_bytes(self) -> int:
        return int(self.watched["peak_bytes"])

    @property
    def readings(self) -> str:
        """How dense the readings of memory were: words for under a table."""
        seen = self.watched
        return (
            f"{seen['readings'] / seen['seconds']:.0f} readings a second, {seen['late_readings'] / seen['readings']:.2%} of them "
            f"more than 2 ms after the one before, the longest gap {seen['longest_gap_ms']:.1f} ms"
        )


def core_path() -> Path:
    """AssertionError with the reason where there is no core."""
    from bespoke.core.finding import find

    core = find()
    assert core.path is not None, f"no device core: {core.reason}. {core.next_step}"
    return core.path


def train(
    bundle: Bundle,
    state: Path,
    steps: int,
    *,
    threads: int = THREADS,
    memory_mb: float = NO_LIMIT,
    cgroup: Path | None = None,
) -> CoreRun:
    """A run of `steps` to its end, watched; `state` must be there. A core that fails is an AssertionError."""
    report = state.with_suffix(".watched.json")
    command = [str(watcher()), str(report), str(cgroup or "-"), str(core_path())]
    request = training_request(bundle, state, steps, threads=threads, memory_mb=memory_mb)
    began = time.monotonic()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    run = CoreRun(code=-1)
    try:
        ask(process, request)
        for event in events(process):
            take(run, event, time.monotonic() - began)
    finally:
        process.kill() if process.poll() is None and not run.report else None
        run.code = process.wait()
    run.seconds = time.monotonic() - began
    assert run.code == 0, f"the core ended with {run.code}: {run.error or 'no word'}"
    run.watched = json.loads(report.read_text())
    return run


def training_request(
    bundle: Bundle,
    state: Path,
    steps: int,
    *,
    threads: int,
    memory_mb: float = NO_LIMIT,
    settings: Mapping[str, float] = EVERY_STEP,
) -> dict[str, Any]:
    return {
        "verb": "train",
        "bundle": str(bundle.path),
        "state": str(state),
        "method": bundle.wanted.method,
        "run_steps": steps,
        "seed": 0,
        "threads": threads,
        "memory_mb": memory_mb,
        "settings": dict(settings),
    }


def ask(process: subprocess.Popen[bytes], request: dict[str, Any]) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.close()


def events(process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def take(run: CoreRun, event: dict[str, Any], seconds: float) -> None:
    if event.get("phase") == "step":
        run.steps.append((seconds, event["step"], event["loss"]))
    elif event["event"] == "report":
        run.report = event["report"]
    elif event["event"] == "error":
        run.error = event


@contextmanager
def fresh_state(
    bundle: Bundle, name: str = "state", rows: int = 1, use: Literal["train"] | None = None
) -> Iterator[Path]:
    """A state folder with rows of unmasked random tokens; removed at the end. None is kept for validation below five rows, nor
    with `use="train"`."""
    from bespoke import PersonalModel

    length = bundle.wanted.length
    folder = CACHE / "states" / f"{bundle.wanted.name}_{name}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.parent.mkdir(parents=True, exist_ok=True)
    drawn = np.random.default_rng(0)
    with PersonalModel.open(bundle.path, folder) as model:
        vocabulary = bundle.manifest["text"]["vocab_size"]
        for number in range(rows):
            tokens = drawn.integers(0, vocabulary, length + 1).tolist()
            model.examples.add({"tokens": tokens, "mask": [0] + [1] * length}, id=str(number), use=use)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        folder.with_suffix(".watched.json").unlink(missing_ok=True)


def watcher() -> Path:
    """watch_memory, compiled when its source has changed."""
    program = CACHE / "watch_memory"
    if not program.is_file() or program.stat().st_mtime < _WATCHER.stat().st_mtime:
        CACHE.mkdir(parents=True, exist_ok=True)
        command = ["cc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-o", str(program), str(_WATCHER), "-pthread"]
        subprocess.run(command, check=True)
    return program


def file_system_of(folder: Path) -> str:
    """Its type, as the kernel names it: a state on a tmpfs would count as memory."""
    name = subprocess.run(["stat", "-f", "-c", "%T", str(folder)], capture_output=True, text=True, check=True)
    return name.stdout.strip()


def warm(bundle: Bundle) -> None:
    """Reads the bundle's files once, so that no run waits for the disk."""
    for file in bundle.path.rglob("*"):
        if file.is_file():
            with file.open("rb") as opened:
                while opened.read(1 << 22):
                    pass
