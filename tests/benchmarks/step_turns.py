# SPDX-License-Identifier: Apache-2.0
"""Steps of 256 tokens by the device core, by torch + peft with gradient checkpointing, and torch's matmul, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.benchmarks.core_bundles import Bundle, model_folder
from tests.benchmarks.core_process import THREADS, core_path, fresh_state, warm
from tests.benchmarks.paced import PacedCore, PacedPython, Runner, take_turns
from tests.native.conftest import compile_core

LENGTH, ROUNDS = 256, 5
WITHOUT_AMX = ", no AMX"
PEFT, PEFT_BF16 = "torch + peft, fp32", "torch + peft, bf16"
MATMUL = {"float32": "fp32 matmul", "bfloat16": "bf16 matmul"}


def steps_in_turns(
    model: str, bundles: dict[str, Bundle], *, without_amx: bool = False
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds of each turn of matmul, the core with each bundle, and peft; and the median matmul rates in GFLOP/s by dtype."""
    bf16 = bool({"avx512_bf16", "amx_bf16"} & flags())
    settings: dict[str, Any] = {
        "model": str(model_folder(model)),
        "sequence_length": LENGTH,
        "steps": ROUNDS + 3,
        "rank": 8,
        "alpha": 16.0,
        "learning_rate": 2e-4,
        "update": "sgd",
    }
    with ExitStack() as stack:
        matmul = {
            dtype: PacedPython(name, "tests.benchmarks.matmul_rate", {"dtype": dtype}, THREADS)
            for dtype, name in MATMUL.items()
            if bf16 or dtype == "float32"
        }
        runners: list[Runner] = [*matmul.values()]
        for name, bundle in bundles.items():
            warm(bundle)
            for suffix, core in cores(without_amx):
                state: Path = stack.enter_context(fresh_state(bundle, f"speed_{len(runners)}"))
                runners.append(PacedCore(name + suffix, bundle, state, ROUNDS + 2, THREADS, core))
        runners.append(PacedPython(PEFT, "tests.benchmarks.peft_step", settings, THREADS))
        if bf16:
            runners.append(
                PacedPython(PEFT_BF16, "tests.benchmarks.peft_step", {**settings, "dtype": "bfloat16"}, THREADS)
            )
        seconds = take_turns(runners, ROUNDS)
    return seconds, {
        dtype: statistics.median(report["gflops"] for report in runner.reports if "gflops" in report)
        for dtype, runner in matmul.items()
    }


def cores(without_amx: bool) -> Iterator[tuple[str, Path]]:
    """What to add to a name, and the core: the installed one, and where asked for and there is AMX one without it."""
    yield "", core_path()
    if without_amx and "amx_bf16" in flags():
        yield WITHOUT_AMX, compile_core("core_without_amx", "-DBESPOKE_HAS_AMX=OFF") / "bespoke-core"


def flags() -> set[str]:
    """The processor's flags. Without avx512_bf16 or amx_bf16, torch's bf16 is far slower than fp32."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(("flags", "Features")):
            return set(line.split(":", 1)[1].split())
    return set()
