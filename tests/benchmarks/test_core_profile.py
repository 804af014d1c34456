# SPDX-License-Identifier: Apache-2.0
"""Where the seconds of a step go: by stage, as the core reports it, and by function, as `perf` sees it.

Qwen2.5-0.5B at sequence 256, with the plans of test_core_speed.py. Needs a machine that does nothing else; without `perf` the
second table is left out.
"""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
from pathlib import Path

import pytest
from tests.benchmarks.core_bundles import Bundle
from tests.benchmarks.core_process import (
    THREADS,
    CoreRun,
    ask,
    events,
    fresh_state,
    take,
    training_request,
    warm,
)
from tests.benchmarks.figures import Cell, this_machine, write_table
from tests.benchmarks.speed_cases import CASES, bundles_of
from tests.benchmarks.step_turns import LENGTH
from tests.native.conftest import compile_core

STEPS, LEAST_SHARE = 4, 1.0  # percent, of a function's row
STAGES = ("forward", "head", "backward", "update")
_LINE = re.compile(r"^\s*([0-9.]+)%\s*\|(\S+)\s*\|\[.\] ([^|]+?)\s*(?:\||$)", re.MULTILINE)


@pytest.mark.benchmark
def test_where_the_seconds_go(tmp_path: Path) -> None:
    case = CASES[0]
    stages: list[list[Cell]] = []
    functions: list[list[Cell]] = []
    for made in bundles_of(case):
        warm(made)
        run, samples = profiled(made, tmp_path / "perf.data")
        taken = run.report["seconds_by_stage"]
        whole = sum(taken.values())
        name = f"{made.wanted.memory_mb:g}"
        stages.append(
            [name, statistics.median(run.report["step_seconds"]), *(f"{taken.get(s, 0.0) / whole:.0%}" for s in STAGES)]
        )
        functions += [[name, *sample] for sample in samples]
    note = f"{case.model}, `mesp`, sequence {LENGTH}, SGD, {THREADS} threads, {STEPS} steps."
    write_table(
        "core_stages",
        ("built for, MB", "seconds a step", *STAGES),
        stages,
        f"{note} Backward computes what it needs of the forward pass again.",
        machine=this_machine(THREADS),
    )
    if functions:
        write_table(
            "core_functions",
            ("built for, MB", "of processor time", "library", "function"),
            functions,
            f"{note} By perf, of the whole process: opening and the gate are in it.",
            machine=this_machine(THREADS),
        )


def profiled(made: Bundle, data: Path) -> tuple[CoreRun, list[tuple[str, str, str]]]:
    """A run, and (share, library, function) from the largest share down to LEAST_SHARE; none without perf."""
    perf = shutil.which("perf")
    recorder = [perf, "record", "-q", "-e", "cpu-clock", "-F", "499", "-o", str(data)] if perf else []
    core = compile_core("core") / "bespoke-core"  # the installed one has no names
    run = CoreRun(code=-1)
    with fresh_state(made, "profile") as state:
        process = subprocess.Popen([*recorder, str(core)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        ask(process, training_request(made, state, STEPS, threads=THREADS))
        for event in events(process):
            take(run, event, 0.0)
        run.code = process.wait()
    assert run.code == 0, run.error
    if not perf:
        return run, []
    command = [perf, "report", "-i", str(data), "--stdio", "--sort", "dso,symbol", "-t", "|"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    shares: dict[tuple[str, str], float] = {}
    for share, library, symbol in _LINE.findall(printed):
        where = (
            library,
            "without a name" if symbol.startswith("0x") else symbol.replace("(anonymous namespace)::", "")[:100],
        )
        shares[where] = shares.get(where, 0.0) + float(share)
    largest = sorted(shares.items(), key=lambda entry: -entry[1])
    return run, [(f"{share:.1f}%", *where) for where, share in largest if share >= LEAST_SHARE]
