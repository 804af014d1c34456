# SPDX-License-Identifier: Apache-2.0
"""Seconds a step of the device core and of torch + peft with gradient checkpointing, taking turns, with as many threads.

Both take SGD steps on one row of 256 unmasked tokens, rank 8 on all linears; the core commits after each. The core runs with plans
for several budgets; where the processor has AMX, also without it, as on others. Each run's rate of useful work is compared with
torch's matmul rate in the number format that the run multiplies in. Processors with AMX and those with AVX-512 alone have tables of
their own. Another table holds both to AVX2. Needs a machine that does nothing else.

    BESPOKE_BENCHMARK_THREADS=1 measures with one thread, and then writes nothing; BESPOKE_BENCHMARK_MODELS=... as for memory
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping

import pytest
from tests.benchmarks.core_process import THREADS
from tests.benchmarks.figures import Cell, this_machine, write_table
from tests.benchmarks.overview import write_overview
from tests.benchmarks.paced import paired_ratio
from tests.benchmarks.speed_cases import CASES, bundles_of, multiplies_in, share
from tests.benchmarks.step_turns import (
    AVX2_ONLY,
    LENGTH,
    MATMUL,
    PEFT,
    ROUNDS,
    matmul_rate,
    steps_in_turns,
    table_of_processor,
)
from tests.support.processor import processor_flags

TABLE = "core_speed"
HEADER = (
    "model",
    "runs",
    "seconds a step",
    "times peft in fp32",
    "useful GFLOP/s",
    "share of the matmul rate",
    "tiles and choices",
)

SHARE_NOTE = (
    "Share: useful work against torch's rate of square products of 2,048 in the same rounds, in the format that the run multiplies "
    "in: bf16 for peft in bf16 and for the core on AMX, which takes five bf16 products for one of fp32 accuracy; fp32 for the "
    "others. A dash: no such rate was measured in these rounds, or the run was faster than it."
)


_ASKED = os.environ.get("BESPOKE_BENCHMARK_MODELS", "").split(",")


@pytest.mark.benchmark
@pytest.mark.parametrize("held_to", [None, AVX2_ONLY], ids=["all instructions", "AVX2"])
def test_steps_compared_with_peft(held_to: Mapping[str, str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    table = f"{TABLE}_avx2" if held_to else table_of_processor(TABLE)
    if held_to and table == table_of_processor(TABLE):
        pytest.skip("this processor has no more than AVX2")
    rows: list[list[Cell]] = []
    notes: list[str] = []
    problems: list[str] = []
    for case in CASES:
        if _ASKED != [""] and case.model not in _ASKED:
            continue
        named = {f"core, built for {b.wanted.memory_mb:g} MB": b for b in bundles_of(case)}
        whole = matmul_rate()
        seconds, rates = steps_in_turns(case.model, named, without_amx=not held_to, held_to=held_to)
        if held_to and "avx512f" in processor_flags():
            assert rates["float32"] < 0.8 * whole, f"torch was not held: {rates['float32']:.0f} of {whole:.0f} GFLOP/s"
        processor = set() if held_to else processor_flags()
        for name in seconds:
            if name in MATMUL.values():
                continue
            median, ratio = statistics.median(seconds[name]), paired_ratio(seconds[name], seconds[PEFT])
            useful = case.useful_gflop / median
            choices = named[name].choices if name in named else None  # once for each bundle
            rows.append(
                [case.model, name, median, ratio, useful, share(useful, rates[multiplies_in(name, processor)]), choices]
            )
            print(rows[-1], flush=True)
        for name, most in zip(named, case.at_most.values(), strict=True):
            ratio = paired_ratio(seconds[name], seconds[PEFT])
            if not held_to and most is not None and ratio > most:
                problems.append(f"{case.model}, {name}: {ratio:.2f} times peft, at most {most}")
        meanwhile = " and ".join(f"{rate:.0f} GFLOP/s of {MATMUL[dtype]}" for dtype, rate in rates.items())
        notes.append(
            f"{case.model}: {case.useful_gflop:g} GFLOP of useful work a step, {meanwhile} in the same rounds."
        )
    if _ASKED != [""] or "BESPOKE_BENCHMARK_THREADS" in os.environ:
        monkeypatch.setenv("BESPOKE_FIGURES", "print")
    held = (
        " The core's kernels and torch's libraries are held to AVX2; XNNPACK's operators in the core are not."
        if held_to
        else ""
    )
    write_table(
        table,
        HEADER,
        rows,
        f"Sequence {LENGTH}, batch 1, rank 8, SGD; medians of {ROUNDS} rounds in which each does one step, on {THREADS} threads, "
        f"warm page cache; times peft: the median of the ratios within rounds. {' '.join(notes)} Work that a plan does twice, to "
        f"save memory, counts once. {SHARE_NOTE}{held}",
        machine=this_machine(THREADS),
    )
    if table == TABLE:
        write_overview()
    assert not problems, "\n".join(problems)
