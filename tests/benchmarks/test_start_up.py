# SPDX-License-Identifier: Apache-2.0
"""Start-up: what `import bespoke` and `bespoke --help` take over Python itself."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import pytest

PROGRAMS = {
    "python -c pass": "pass",
    "import bespoke": "import bespoke",
    "bespoke --help": "from bespoke.cli import run; run(['--help'])",
}
REPEATS = 7


@pytest.mark.benchmark
def test_start_up_times(capsys: pytest.CaptureFixture[str]) -> None:
    seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(REPEATS):
        for name, program in PROGRAMS.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - began)
    middle = {name: statistics.median(taken) * 1000 for name, taken in seconds.items()}
    with capsys.disabled():
        print()
        for name, taken_ms in middle.items():
            print(f"{name:<16} {taken_ms:7.0f} ms (median of {REPEATS})")
    assert middle["bespoke --help"] < 2000
