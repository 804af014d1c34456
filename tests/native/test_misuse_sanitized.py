# SPDX-License-Identifier: Apache-2.0
"""The C API as apps misuse it (bindings/native/tests/c_border*.c), compiled with sanitizers: each check ends in time, and no
sanitizer has anything to say."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from bespoke import PersonalModel
from tests.native.c_border import CHECKS, signed
from tests.native.conftest import RACES, sanitized_core
from tests.support.bundles import tiny_core_bundle
from tests.unit.personal_model.tiny import add_numbers

__all__ = ["signed", "tiny_core_bundle"]

pytestmark = pytest.mark.slow
MOST_SECONDS = 300
OWN_MALLOC = "no_memory_is_an_error_wherever_it_ends"  # replaces what a sanitizer replaces
OPTIONS = {
    # ExecuTorch and XNNPACK keep memory for the life of the process.
    "ASAN_OPTIONS": "exitcode=99:detect_leaks=0",
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": f"exitcode=66 halt_on_error=1 die_after_fork=0 suppressions={RACES}",
}


@pytest.mark.parametrize("check", [name for name in CHECKS if name != OWN_MALLOC])
@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_no_sanitizer_has_to_say_anything(
    sanitizer: str, check: str, signed: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    bundle, known_by = signed
    program = sanitized_core(sanitizer, targets=["c_border"]) / "tests" / "c_border"
    with PersonalModel.open(bundle, tmp_path / "state") as model:
        add_numbers(model)
    done = subprocess.run(
        [program, check, bundle, tmp_path / "state"],
        capture_output=True,
        text=True,
        env={**os.environ, **known_by, **OPTIONS},
        timeout=MOST_SECONDS,
    )
    assert "Sanitizer" not in done.stderr, done.stderr[-6000:]
    assert done.returncode == 0, done.stderr[-6000:]
