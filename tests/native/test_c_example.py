# SPDX-License-Identifier: Apache-2.0
"""The example in C (bindings/native/examples/personalize.c), compiled and run: adds, trains in two slices, answers twice, exports,
forgets."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.native.c_example import check_what_it_said, example_bundle
from tests.support.reading import read_state


@pytest.mark.parametrize("program", ["example_personalize", "example_personalize_static"])
def test_the_example_does_what_it_says(native_build: Path, tmp_path: Path, program: str) -> None:
    bundle = example_bundle(tmp_path)
    state, adapter = tmp_path / "alice", tmp_path / "adapter"
    done = subprocess.run(
        [native_build / program, bundle, state, adapter],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    check_what_it_said(done.stdout, adapter)
    assert read_state(state, bundle, ["because it was tired of sitting there"])["broken"] == []


def test_the_static_library_has_the_functions_of_the_header_alone(native_build: Path) -> None:
    said = subprocess.run(
        ["nm", "--defined-only", "--extern-only", native_build / "libbespoke_static.a"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    defined = {line.split()[-1] for line in said.splitlines() if len(line.split()) == 3}
    assert defined == set((native_build / "symbols").read_text(encoding="utf-8").split())
