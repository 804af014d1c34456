# SPDX-License-Identifier: Apache-2.0
"""The core where the system gives it less and less memory: it trains or says that the budget is exceeded, and loses nothing."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
from pathlib import Path

from bespoke import PersonalModel
from tests.native.core_lab import tiny_core_bundle
from tests.unit.personal_model.tiny import add_numbers

__all__ = ["tiny_core_bundle"]

BUDGET_EXCEEDED = 10
LIMITS_MB = (64, 12, 11, 4, 3.5, 3, 2.5, 2)  # of addresses that may be written to: a thread's stack takes 8


def end_under(limit_mb: float, program: Path, bundle: Path, state: Path) -> tuple[int, str]:
    """Exit code, and the kind of the error."""
    request = {"verb": "train", "bundle": str(bundle), "state": str(state), "steps": 1, "threads": 1, "memory_mb": -1}

    def limited() -> None:
        size = int(limit_mb * 1e6)
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))

    done = subprocess.run([program], input=json.dumps(request), capture_output=True, text=True, preexec_fn=limited)
    last = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}
    return done.returncode, last.get("kind", "")


def test_no_memory_is_a_budget_exceeded_wherever_it_ends(native_build: Path, tiny_core_bundle: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with PersonalModel.open(tiny_core_bundle, state, runtime="torch") as model:
        add_numbers(model)
    ends = {}
    for limit in LIMITS_MB:
        tried = tmp_path / f"{limit}"
        shutil.copytree(state, tried)
        ends[limit] = end_under(limit, native_build / "bespoke-core", tiny_core_bundle, tried)
        assert end_under(64, native_build / "bespoke-core", tiny_core_bundle, tried) == (0, ""), limit
    assert ends[64] == (0, "")
    assert set(ends.values()) == {(0, ""), (BUDGET_EXCEEDED, "BudgetExceeded")}, ends
