# SPDX-License-Identifier: Apache-2.0
"""Threads of an app on one model, and another process on its state (bindings/native/tests/stress_lab.cpp): they add, list and
forget while one trains, two converse and others ask to compute, are cancelled, and limits and pace change. Ten seconds; under a
sanitizer in full mode ten minutes.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.native.conftest import RACES, sanitized_core
from tests.support.bundles import tiny_core_bundle
from tests.support.checks import full, new_seed, record_check
from tests.support.reading import read_state

__all__ = ["tiny_core_bundle"]

# What the app's threads are answered at least once.
AWAITED = ("add", "forget", "list", "train", "evaluate Busy", "next", "next Busy", "next Cancelled")
SHORT, LONG = (10.0, 600.0) if full() else (2.0, 10.0)


def stressed(program: Path, bundle: Path, state: Path, seconds: float, what: str, app: str = "app") -> dict[str, Any]:
    """What each process was answered; `app` is the lab's name for the first. No sanitizer complains, and no example is lost or
    comes back."""
    seed = new_seed()
    known = f" suppressions={RACES}" if app == "engine" else ""
    sanitizers = {
        "ASAN_OPTIONS": "exitcode=99"
        + (":detect_leaks=0" if app == "engine" else ""),  # XNNPACK keeps memory to the end
        "TSAN_OPTIONS": "exitcode=66 halt_on_error=1" + known,
    }
    roles = {
        role: subprocess.Popen(
            [
                program,
                role,
                bundle,
                state,
                str(int(seconds * 1000)),
                str(seed + 100 * number),
                *(AWAITED if role == app else ()),
            ],
            env={**os.environ, **sanitizers},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number, role in enumerate((app, "store"))
    }
    ended = {role: (process.communicate(timeout=seconds + 300), process.returncode) for role, process in roles.items()}
    for (_, complaints), code in ended.values():
        assert "Sanitizer" not in complaints, complaints[-6000:]
        assert code == 0, complaints[-6000:]
    said = {role: json.loads(out) for role, ((out, _), _) in ended.items()}
    assert read_state(state, bundle)["broken"] == []
    with closing(sqlite3.connect(state / "state.sqlite")) as connection:
        ids = {id for (id,) in connection.execute("SELECT id FROM examples")}
    assert ids == {id for one in said.values() for id in one["kept"]}
    answers: dict[str, dict[str, int]] = {role: one["answers"] for role, one in said.items()}
    assert set(AWAITED) <= set(answers[app]), answers
    verbs = ("add", "forget", "train", "train Busy", "evaluate Busy", "session", "next", "next Busy", "next Cancelled")
    counts = {verb: sum(of.get(verb, 0) for of in answers.values()) for verb in verbs}
    record_check(f"threads and another process on one state, {what}", {"seconds": int(seconds), **counts}, seed)
    return answers


def test_threads_and_another_process_share_a_state(native_build: Path, tiny_core_bundle: Path, tmp_path: Path) -> None:
    stressed(native_build / "tests" / "stress_lab", tiny_core_bundle, tmp_path / "state", SHORT, "no sanitizer")


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_no_sanitizer_has_to_say_anything(sanitizer: str, tiny_core_bundle: Path, tmp_path: Path) -> None:
    """With an engine that computes nothing, and without suppressions. The other process's core has no engine and says so."""
    program = sanitized(sanitizer, "-DBESPOKE_EXECUTORCH=OFF")
    answers = stressed(program, tiny_core_bundle, tmp_path / "state", LONG, f"{sanitizer} sanitizer")
    assert answers["store"]["evaluate MissingDependency"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_no_sanitizer_has_to_say_anything_while_the_engine_computes(
    sanitizer: str, tiny_core_bundle: Path, tmp_path: Path
) -> None:
    what = f"{sanitizer} sanitizer, ExecuTorch computes"
    stressed(sanitized(sanitizer), tiny_core_bundle, tmp_path / "state", LONG, what, app="engine")


def sanitized(sanitizer: str, *defines: str) -> Path:
    return sanitized_core(sanitizer, *defines, targets=["stress_lab"]) / "tests" / "stress_lab"
