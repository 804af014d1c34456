# SPDX-License-Identifier: Apache-2.0
"""`make demo`'s own words, for the README: what a pretrained model learns and forgets, and how long each phase takes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from sample_apps.desktop.pretrain import DEFAULT_CACHE
from tests.benchmarks.figures import this_machine, write_text
from tests.conftest import REPOSITORY

LEFT_OUT = re.compile(r"plot:|mapped|step \d+:|Fetching|WARNING|Warning")


@pytest.mark.benchmark
def test_what_the_demo_says(smollm2: Path, tmp_path: Path) -> None:
    script = REPOSITORY / "sample_apps" / "desktop" / "demo.py"
    command = [sys.executable, str(script), "--out", str(tmp_path / "demo"), "--cache", str(DEFAULT_CACHE)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    write_text("demo", shown(done.stderr) + f"\n\nMeasured on: {this_machine(threads=2)}.")


def shown(said: str) -> str:
    """The phases, the memory, the first fact, the prompts that were not taught: a line each where that is enough."""
    lines = said.splitlines()
    kept: list[str] = []
    for number, line in enumerate(lines):
        if re.match(r"\d\. ", line):
            kept.append(line)
        elif re.fullmatch(r"   \d+\.\d s", line) and kept:
            kept[-1] = f"{kept[-1].rstrip(':')}: {line.strip()}"
        elif "nats a token (" in line or line.startswith(("   known:", "   with ")) or "seconds without" in line:
            kept.append(line[:140])
        elif "prompts that were not taught" in line:
            kept.append(line)
        elif "memory, MB" in line:
            estimate, measured, limit = lines[number + 1].split()[:3]
            kept.append(f"   memory: {estimate} MB estimated, {measured} MB measured, {limit} MB allowed")
    return "```\n" + "\n".join(kept) + "\n```"
