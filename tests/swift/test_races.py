# SPDX-License-Identifier: Apache-2.0
"""The tests of the Swift binding with ThreadSanitizer: in Swift's code and in a core that the same compiler has compiled.

ExecuTorch is not compiled for it; tests/native/executorch_races.txt lists what is passed over.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.native.conftest import RACES
from tests.swift.package import BUILT, REPOSITORY, compilers, swift

pytestmark = [pytest.mark.swift, pytest.mark.slow]

CHECKED = BUILT / "thread"

# Debian's ThreadSanitizer lacks the first of these two sizes, of a structure that nothing here uses.
MISSING = "_ZN11__sanitizer16struct_termio_szE=_ZN11__sanitizer17struct_termios_szE"


@pytest.fixture(scope="module")
def checked_core(has_toolchain: None) -> Path:
    """The folder of a core with ThreadSanitizer. CMake runs on this machine, and the compiler in the tree."""
    if not compilers():
        pytest.skip("the core is compiled by the clang of tools/install_swift.sh")
    folder = CHECKED / "core"
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("clang", "clang++"):
        compiler = CHECKED / name
        script = REPOSITORY / "tools" / "swift.sh"
        compiler.write_text(f'#!/bin/sh\nexec sh {script} {name} --gcc-install-dir={compilers()[0]} "$@"\n')
        compiler.chmod(0o755)
    options = {
        "CMAKE_C_COMPILER": CHECKED / "clang",
        "CMAKE_CXX_COMPILER": CHECKED / "clang++",
        "BESPOKE_SANITIZE": "thread",
        "Python3_EXECUTABLE": sys.executable,
    }
    for command in (
        ["cmake", "-G", "Ninja", "-S", REPOSITORY / "bindings/native", "-B", folder]
        + [f"-D{name}={value}" for name, value in options.items()],
        ["cmake", "--build", folder, "--target", "bespoke_core"],
    ):
        done = subprocess.run(
            command, capture_output=True, text=True, env={**os.environ, "BESPOKE_CORE": str(REPOSITORY)}
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    return folder


def test_there_are_no_races(checked_core: Path, prepared: Path) -> None:
    """But for the tests of the background, whose tasks end in time only where code runs at its usual speed."""
    said = swift(
        "test",
        "--no-parallel",
        "--skip",
        "BackgroundTests",
        "--sanitize=thread",
        "-Xlinker",
        f"--defsym={MISSING}",
        core=checked_core,
        built=CHECKED / "package",
        BESPOKE_FIXTURE=str(prepared),
        TSAN_OPTIONS=f"suppressions={RACES} exitcode=66",
    )
    assert "WARNING: ThreadSanitizer" not in said, said[-8000:]
    count = re.search(r"Test run with (\d+) tests in \d+ suites passed", said)
    assert count is not None, said[-8000:]
