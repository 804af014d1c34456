# SPDX-License-Identifier: Apache-2.0
"""Start-up: what `import bespoke` and `bespoke --help` take over Python itself."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

import pytest
from tests.benchmarks.figures import write_table

PROGRAMS = {
    "python -c pass": "pass",
    "import bespoke": "import bespoke",
    "import bespoke.personal_model": "import bespoke.personal_model",
    "bespoke --help": "from bespoke.cli import run; run(['--help'])",
}
REPEATS = 7


@pytest.mark.benchmark
def test_start_up_times() -> None:
    seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for _ in range(REPEATS):
        for name, program in PROGRAMS.items():
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - began)
    middle = {name: statistics.median(taken) * 1000 for name, taken in seconds.items()}
    rows = [[f"`{name}`", round(taken_ms)] for name, taken_ms in middle.items()]
    write_table("start_up", ("program", "ms"), rows, f"Median of {REPEATS}; none loads torch or opens a socket.")
    assert middle["bespoke --help"] < 2000
