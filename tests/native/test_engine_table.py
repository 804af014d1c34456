# SPDX-License-Identifier: Apache-2.0
"""The engine table of bespoke.h, whole: an engine with memory of its own, whose runs are over when the core asks for it, gives the
bits of one over memory of the process; and the core is built without any engine."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.native.conftest import compile_core
from tests.native.core_lab import METHODS, Core, States, tiny_core_bundle

__all__ = ["tiny_core_bundle"]

ELSEWHERE = 1 << 40  # bytes that the engine of remote_lab.cpp says it holds


@pytest.mark.parametrize("method", METHODS)
def test_an_engine_with_its_own_memory_gives_the_same_bits(
    native_build: Path, tiny_core_bundle: Path, tmp_path: Path, method: str
) -> None:
    states = States(tiny_core_bundle, tmp_path, method)
    near, far = states.fresh(tmp_path / "near"), states.fresh(tmp_path / "far")
    expected = Core(native_build / "bespoke-core", tiny_core_bundle).train(near)
    done = subprocess.run(
        [native_build / "tests" / "remote_lab", tiny_core_bundle, far, method], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr)
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["losses"] == expected.report["losses"]
    assert states.at_end(far) == states.at_end(near)
    assert report["memory"]["peak_bytes"] > ELSEWHERE > expected.report["memory"]["peak_bytes"]
    assert min(report["step_peak_bytes"]) > ELSEWHERE


@pytest.mark.slow
def test_the_core_is_built_without_executorch(tiny_core_bundle: Path, tmp_path: Path) -> None:
    build = compile_core("bare", "-DBESPOKE_EXECUTORCH=OFF")
    linked = subprocess.run(["ldd", build / "libbespoke_core.so"], capture_output=True, text=True, check=True).stdout
    assert "executorch" not in linked
    assert "xnnpack" not in linked
    subprocess.run([build / "tests" / "native_tests"], capture_output=True, check=True)
    ended = Core(build / "bespoke-core", tiny_core_bundle).train(tmp_path / "state", steps=1)
    assert ended.error is not None
    assert ended.error["kind"] == "MissingDependency"
