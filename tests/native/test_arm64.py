# SPDX-License-Identifier: Apache-2.0
"""The core from the same sources for arm64, on ExecuTorch's own wheel for it, under qemu: its tests, and the example in C.

It is glibc's arm64, not Android's: what the NDK makes of the sources is not checked here. Needs the network once.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.arm64 import SYSTEM_ROOT, executorch_for_arm64
from tests.native.c_example import check_what_it_said, example_bundle
from tests.native.conftest import ROOT, compile_core
from tests.support.reading import read_state

pytestmark = pytest.mark.slow
HOST_HEADERS = Path("/usr/include")


@pytest.fixture(scope="module")
def build() -> Path:
    place = ROOT / "build" / "arm64_packages"
    (place / "include" / "doctest").mkdir(parents=True, exist_ok=True)
    # The only header from the host. All others come from the cross compiler.
    shutil.copy(HOST_HEADERS / "doctest" / "doctest.h", place / "include" / "doctest")
    return compile_core(
        "arm64",
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
        "-DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc",
        "-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++",
        f"-Dexecutorch_DIR={executorch_for_arm64(place) / 'share' / 'cmake'}",
        f"-DDOCTEST_INCLUDE={place / 'include'}",
        targets=["native_tests", "example_personalize"],
    )


def under_qemu(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["qemu-aarch64-static", "-L", SYSTEM_ROOT, *map(str, command)], capture_output=True, text=True
    )


def test_its_own_tests_pass(build: Path) -> None:
    done = under_qemu(build / "tests" / "native_tests")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "0 failed" in done.stdout


def test_the_example_trains_and_forgets(build: Path, tmp_path: Path) -> None:
    bundle = example_bundle(tmp_path)
    state, adapter = tmp_path / "alice", tmp_path / "adapter"
    done = under_qemu(build / "example_personalize", bundle, state, adapter)
    assert done.returncode == 0, done.stderr
    check_what_it_said(done.stdout, adapter)
    assert read_state(state, bundle, ["because it was tired of sitting there"])["broken"] == []
