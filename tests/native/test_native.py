# SPDX-License-Identifier: Apache-2.0
"""The core's own tests, those that need no bundle."""

from __future__ import annotations

import subprocess
from pathlib import Path


def test_the_cores_own_tests_pass(native_build: Path) -> None:
    done = subprocess.run([native_build / "tests" / "native_tests"], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
