# SPDX-License-Identifier: Apache-2.0
"""The core where the system gives it less and less memory: it trains or says that the budget is exceeded, and loses nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

from bespoke import PersonalModel
from tests.native.core_lab import Core, tiny_core_bundle
from tests.support.statuses import STATUS
from tests.unit.personal_model.tiny import add_numbers

__all__ = ["tiny_core_bundle"]

LIMITS_MB = (64, 12, 11, 4, 3.5, 3, 2.5, 2)  # limits on writable addresses: a thread's stack takes 8


def test_no_memory_is_a_budget_exceeded_wherever_it_ends(
    native_build: Path, tiny_core_bundle: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    with PersonalModel.open(tiny_core_bundle, state) as model:
        add_numbers(model)
    core = Core(native_build / "bespoke-core", tiny_core_bundle)

    def end_under(limit_mb: float, state: Path) -> tuple[int, str]:
        """Exit status, and the kind of the error."""
        ended = core.train(state, run_steps=1, limit_mb=limit_mb)
        return ended.code, (ended.error or {}).get("kind", "")

    ends = {}
    for limit in LIMITS_MB:
        tried = tmp_path / f"{limit}"
        shutil.copytree(state, tried)
        ends[limit] = end_under(limit, tried)
        assert end_under(64, tried) == (0, ""), limit
    assert ends[64] == (0, "")
    assert set(ends.values()) == {(0, ""), (STATUS["BudgetExceeded"], "BudgetExceeded")}, ends
