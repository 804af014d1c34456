# SPDX-License-Identifier: Apache-2.0
"""Preloaded libraries, compiled: the one that makes calls fail or kills in the middle of them (faults.c), and others."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("faults.c")


def compile_preloaded(source: Path, folder: Path) -> Path:
    """Skips the test where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler: a preloaded library takes the place of calls")
    library = folder / source.with_suffix(".so").name
    subprocess.run([compiler, "-O1", "-Wall", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def compile_faults(folder: Path) -> Path:
    return compile_preloaded(SOURCE, folder)
