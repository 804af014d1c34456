# SPDX-License-Identifier: Apache-2.0
"""Steps of 256 tokens by the device core, by torch + peft with gradient checkpointing, and torch's matmul, in turns."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.benchmarks.core_bundles import Bundle, model_folder
from tests.benchmarks.core_process import THREADS, fresh_state, warm
from tests.benchmarks.paced import PacedCore, PacedPython, Runner, take_turns
from tests.support.processor import processor_field, processor_flags

LENGTH, ROUNDS = 256, 5
WITHOUT_AMX = ", no AMX"
MASK = "BESPOKE_MASKED_FEATURES"
# Holds the core's kernels, and torch with its libraries, to AVX2. XNNPACK's operators in the core take what there is.
AVX2_ONLY = {
    MASK: "amx,avx512",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
PEFT, PEFT_BF16 = "torch + peft, fp32", "torch + peft, bf16"
MATMUL = {"float32": "fp32 matmul", "bfloat16": "bf16 matmul"}


def steps_in_turns(
    model: str, bundles: dict[str, Bundle], *, without_amx: bool = False, held_to: Mapping[str, str] | None = None
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds of each turn of matmul, the core with each bundle, and peft; and the median matmul rates in GFLOP/s by dtype.

    without_amx: where there is AMX, the core runs with and without it. held_to: environment of all that run, as AVX2_ONLY.
    """
    held = dict(held_to or {})
    variants = {"": held, WITHOUT_AMX: {MASK: "amx"}} if without_amx and "amx_bf16" in processor_flags() else {"": held}
    # Without these torch's bf16 is far slower than fp32.
    bf16 = not held and bool({"avx512_bf16", "amx_bf16"} & processor_flags())
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
            dtype: PacedPython(name, "tests.benchmarks.matmul_rate", {"dtype": dtype}, THREADS, **held)
            for dtype, name in MATMUL.items()
            if bf16 or dtype == "float32"
        }
        runners: list[Runner] = [*matmul.values()]
        for name, bundle in bundles.items():
            warm(bundle)
            for suffix, environment in variants.items():
                state: Path = stack.enter_context(fresh_state(bundle, f"speed_{len(runners)}"))
                runners.append(PacedCore(name + suffix, bundle, state, ROUNDS + 2, THREADS, environment))
        runners.append(PacedPython(PEFT, "tests.benchmarks.peft_step", settings, THREADS, **held))
        if bf16:
            runners.append(
                PacedPython(PEFT_BF16, "tests.benchmarks.peft_step", {**settings, "dtype": "bfloat16"}, THREADS)
            )
        seconds = take_turns(runners, ROUNDS)
    return seconds, {
        dtype: statistics.median(report["gflops"] for report in runner.reports if "gflops" in report)
        for dtype, runner in matmul.items()
    }


def matmul_rate() -> float:
    """GFLOP/s of torch's fp32 matmul with all that the processor has."""
    runner = PacedPython(MATMUL["float32"], "tests.benchmarks.matmul_rate", {"dtype": "float32"}, THREADS)
    take_turns([runner], 2)
    return statistics.median(report["gflops"] for report in runner.reports if "gflops" in report)


def table_of_processor(name: str) -> str:
    """Name of the table `name` for the widest instructions that this processor has: AMX, AVX-512 or AVX2.

    AMD's processors with AVX-512 have one of their own: torch multiplies and memory is read at other rates there.
    """
    if "amx_bf16" in processor_flags():
        return name
    if "avx512f" not in processor_flags():
        return f"{name}_avx2"
    return f"{name}_avx512_amd" if processor_field("vendor_id") == "AuthenticAMD" else f"{name}_avx512"
