# SPDX-License-Identifier: Apache-2.0
"""Steps of both demos: the memory estimate, memory as a table, training in half of the memory, the verdict."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bespoke import Personalizer
    from bespoke.rules.report import TrainReport

__all__ = ["LIMIT_OVER_ESTIMATE", "estimated_peak", "exit_code", "memory_table", "refused_in_half", "say", "size_of"]

LIMIT_OVER_ESTIMATE = 1.2


def estimated_peak(personalizer: Personalizer) -> int:
    """Bytes that training with MeSP takes, from the largest of its plans."""
    return max(plan.estimate.peak_bytes for plan in personalizer.estimate().plans if plan.method == "mesp")


def memory_table(report: TrainReport) -> str:
    memory = report.memory
    columns = {
        "estimate": memory.estimate_bytes,
        "measured": memory.peak_bytes,
        "limit": memory.limit_bytes or 0,
        "mapped, dirty": memory.mapped_dirty_bytes,
        "file pages": memory.file_bytes,
    }
    head = "   memory, MB " + " ".join(f"{name:>14}" for name in columns)
    return head + "\n              " + " ".join(f"{size / 1e6:>14.1f}" for size in columns.values())


def refused_in_half(bundle: Path, state: Path, copy: Path, peak_bytes: int, steps: int) -> str:
    """Train a copy of `state` in half of the memory that it needed; returns the name of the error."""
    from bespoke import BespokeError, PersonalModel

    half = peak_bytes // 2
    shutil.copytree(state, copy)
    refused, message = "no error", ""
    try:
        with PersonalModel.open(bundle, copy, memory_mb=half / 1e6) as model:
            model.train(run_steps=steps)
    except BespokeError as error:
        refused, message = type(error).__name__, str(error)
    say(f"   with {half / 1e6:.1f} MB: {refused}. {message}")
    return refused


def exit_code(*checks: tuple[str, bool]) -> int:
    """0 if all checks passed, otherwise 1. Prints the failures."""
    failures = [what for what, passed in checks if not passed]
    for failure in failures:
        say(f"FAILED: {failure}.")
    return 1 if failures else 0


def size_of(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def say(text: str) -> None:
    """Print on stderr, in order with the messages of libraries."""
    print(text, file=sys.stderr, flush=True)
