# SPDX-License-Identifier: Apache-2.0
"""`make demo`'s own words, for the README: what a pretrained model learns and keeps, and how long each phase takes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from sample_apps.desktop.pretrain import DEFAULT_CACHE
from tests.benchmarks.figures import this_machine, write_text
from tests.conftest import REPOSITORY


@pytest.mark.benchmark
def test_what_the_demo_says(smollm2: Path, tmp_path: Path) -> None:
    script = REPOSITORY / "sample_apps" / "desktop" / "demo.py"
    command = [sys.executable, str(script), "--out", str(tmp_path / "demo"), "--cache", str(DEFAULT_CACHE)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    write_text("demo", shown(done.stderr) + f"\n\nMeasured on: {this_machine(threads=2)}.")


def shown(said: str) -> str:
    """The phases with their seconds, and of each what it found: int4's cost, memory, what is known, one fact before and after."""
    lines = said.splitlines()
    kept: list[str] = []
    phase = 0
    for number, line in enumerate(lines):
        if re.match(r"\d\. ", line):
            phase = len(kept)
            kept.append(line)
        elif (seconds := re.fullmatch(r"   (\d+\.\d s)", line)) and kept:
            kept[phase] = f"{kept[phase].rstrip(':')} ({seconds[1]}):"
        elif cost := re.search(r"loss on everyday text .*", line):
            kept.append(f"   int4: {cost[0]}")
        elif "memory, MB" in line:
            estimate, measured, limit = lines[number + 1].split()[:3]
            kept.append(f"   {estimate} MB estimated, {measured} MB measured, {limit} MB allowed")
        elif re.match(r"   (known|not taught): |\d+ seconds without", line):
            kept.append(line)
        elif line.startswith("   fact: "):
            kept += lines[number : number + 3]
        elif refused := re.match(r"   with [\d.]+ MB: \w+", line):
            kept.append(refused[0])
    joined = "\n".join(kept).replace("):\n   ", "): ")  # what a phase found first stands behind it
    return f"```\n{joined}\n```"
