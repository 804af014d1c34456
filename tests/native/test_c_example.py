# SPDX-License-Identifier: Apache-2.0
"""The example in C (bindings/native/examples/personalize.c), compiled and run: adds, trains in two slices, answers twice, exports,
forgets."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.native.c_example import check_what_it_said, example_bundle
from tests.support.reading import read_state


def test_the_example_does_what_it_says(native_build: Path, tmp_path: Path) -> None:
    bundle = example_bundle(tmp_path)
    state, adapter = tmp_path / "alice", tmp_path / "adapter"
    done = subprocess.run(
        [native_build / "example_personalize", bundle, state, adapter],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    check_what_it_said(done.stdout, adapter)
    assert read_state(state, bundle, ["because it was tired of sitting there"])["broken"] == []
