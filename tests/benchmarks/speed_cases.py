# SPDX-License-Identifier: Apache-2.0
"""Models and budgets whose steps are timed, and what their rates are compared with."""

from __future__ import annotations

from typing import NamedTuple

from tests.benchmarks.core_bundles import Bundle, Wanted, first_that_fits
from tests.benchmarks.step_turns import LENGTH, PEFT_BF16, WITHOUT_AMX

AMPLE_MB = 512.0


class Case(NamedTuple):
    """Required work of a step of 256 tokens, in GFLOP; budgets in MB."""

    model: str
    useful_gflop: float
    at_most: dict[float, float | None]  # times peft, by the budget


CASES = [
    Case("Qwen2.5-0.5B", 669, {64: 0.8, AMPLE_MB: 0.65}),
    Case("Qwen2.5-1.5B", 2123, {110: 0.8}),
]


def multiplies_in(run: str, processor: set[str]) -> str:
    """The number format of a run's products: torch's matmul rate in that format is what the run is compared with."""
    on_amx = run.startswith("core") and not run.endswith(WITHOUT_AMX) and "amx_bf16" in processor
    return "bfloat16" if on_amx or run == PEFT_BF16 else "float32"


def share(useful: float, rate: float) -> str | None:
    """None where the run is faster than torch's matmul, which is then no bound of what the processor can do."""
    return f"{useful / rate:.0%}" if useful <= rate else None


def bundles_of(case: Case) -> list[Bundle]:
    wanted = Wanted(case.model, "mesp", LENGTH, None)
    return [first_that_fits(wanted, memory_mb) for memory_mb in case.at_most]
