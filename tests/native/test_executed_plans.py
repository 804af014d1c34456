# SPDX-License-Identifier: Apache-2.0
"""Plans that passed the verifier run: mutated plans are executed by the core's machine on an engine that touches every byte of its
operands and results, under AddressSanitizer and UndefinedBehaviorSanitizer (bindings/native/fuzz/execute.cpp).

And that this would see: with one rule out of force a crash is found.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bespoke.plan.kinds import SECTIONS
from tests.native.conftest import compile_core
from tests.support.checks import count, full, new_seed, record_check
from tests.unit.plan.kinds import ALLOWED

pytestmark = pytest.mark.xdist_group("executed_plans")
EXECUTED, MOST_TO_A_CRASH = 1_000_000, 100_000
# Plans are small and many: no stacks of allocations are kept, and of freed memory the last MB.
ASAN = (
    "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=4096:malloc_context_size=0"
    ":quarantine_size_mb=1:thread_local_quarantine_size_kb=64"
)
# What each of them keeps from happening is memory that is read or written beyond what it belongs to.
RULES = (
    "region",
    "place",
    "table_session",
    "table_constant",
    "table_rank",
    "table_recorded",
    "batch",
    "batch_size",
    "one_shape",
    "noise",
    "record",
    "emit",
    "number",
    "weight_group",
    "weight_shape",
    "vocab_size",
    "state_shape",
    "recorded",
)


@pytest.fixture(scope="module")
def program() -> Path:
    for tool in ("clang++", "cmake", "ninja"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    options = [
        "-DCMAKE_CXX_COMPILER=clang++",
        "-DCMAKE_C_COMPILER=clang",
        "-DBESPOKE_FUZZ=ON",
        "-DBESPOKE_EXECUTORCH=OFF",
    ]
    return compile_core("fuzz", *options, targets=["fuzz_execute"], tests=False) / "fuzz" / "fuzz_execute"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.native.plan_corpus import corpus

    path = tmp_path_factory.mktemp("plans") / "corpus.json"
    path.write_text(json.dumps(corpus()))
    return path


def execute(
    program: Path, corpus: Path, times: int, seed: int, without: str | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ASAN_OPTIONS": ASAN}
    environment |= {"UBSAN_OPTIONS": "print_stacktrace=1"} | ({} if without is None else {"BESPOKE_WITHOUT": without})
    return subprocess.run([program, corpus, str(times), str(seed)], capture_output=True, text=True, env=environment)


@pytest.mark.slow
def test_mutated_plans_that_passed_the_verifier_run(
    program: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed, times = new_seed(), count(EXECUTED)
    done = execute(program, corpus, times, seed)
    assert done.returncode == 0, done.stderr[-6000:]
    found: dict[str, Any] = json.loads(done.stdout)
    with capsys.disabled():
        print(
            f"\n{found['executed']} mutated plans ran to the end of a section (seed {seed}); refused: {found['refused']}"
        )
        print("sections:", found["sections"])
        for name, counts in sorted(found["mutations"].items()):
            print(f"  {name}: {counts['passed']} of {counts['tried']} passed and ran")
    assert set(found["instructions"]) == {
        "load",
        "call",
        "zero",
        "noise",
        "record",
        "receive",
        "send",
        "store",
        "emit",
        "free",
    }
    assert set(found["sections"]) == set(SECTIONS)
    kinds = {tuple(kind) for kind in found["kinds"]}
    allowed = {(*kind, rank) for kind, ranks in ALLOWED.items() for rank in ranks}
    assert kinds <= allowed
    assert len(allowed - kinds) <= (0 if full() else 2)  # the rarest of them come once in some thousand plans
    passed = {name: counts["passed"] for name, counts in found["mutations"].items()}
    record_check(
        "mutated plans that passed the verifier, executed under ASan and UBSan",
        {"executed": found["executed"], "mutations": len(passed), "kinds of value": len(kinds), "crashes": 0},
        seed,
    )


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_without_a_rule_a_crash_is_found(program: Path, corpus: Path, rule: str) -> None:
    seed = new_seed()
    done = execute(program, corpus, MOST_TO_A_CRASH, seed, rule)
    assert done.returncode != 0, f"{MOST_TO_A_CRASH} executions without the rule '{rule}' and no crash"
    where = re.search(r"found after (\d+) executions, by (.*)", done.stderr)
    assert where, done.stderr[-3000:]
    assert re.search(r"AddressSanitizer|runtime error|terminating", done.stderr), done.stderr[-3000:]
    record_check(f"a crash without the rule '{rule}'", {"executions before it": int(where[1])}, seed)
