# SPDX-License-Identifier: Apache-2.0
"""The preloaded library that makes calls fail or kills in the middle of them (faults.c), compiled."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("faults.c")


def compile_faults(folder: Path) -> Path:
    """Skips the test where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler: the faults are put in by a preloaded library")
    library = folder / "faults.so"
    subprocess.run([compiler, "-O1", "-Wall", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    return library
