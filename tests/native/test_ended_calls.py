# SPDX-License-Identifier: Apache-2.0
"""Each verb of the store is ended at each place at which it may end: then nothing has changed, but for what `forget` has deleted.

What forget has deleted stays deleted, and after the next open no file holds a byte of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bespoke import pack
from tests.native.text_bundles import text_bundles
from tests.support.faults_library import compile_preloaded

__all__ = ["text_bundles"]

VERBS = (
    "add",
    "add_examples",
    "forget",
    "rollback",
    "reset",
    "abandon",
    "export",
    "import",
    "open",
    "reset_for_new_base",
    "install",
)


@pytest.fixture(scope="module")
def late_clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_preloaded(Path(__file__).with_name("late_clock.c"), tmp_path_factory.mktemp("clock"))


@pytest.mark.parametrize("verb", VERBS)
def test_a_call_that_is_ended_anywhere_changes_nothing(
    verb: str, late_clock: Path, text_bundles: dict[str, Path], tmp_path: Path
) -> None:
    if verb == "install":
        pack(text_bundles["llama"], tmp_path)
    command = [sys.executable, "-m", "tests.native.ended_calls_lab", verb]
    paths = [text_bundles["llama"], text_bundles["qwen2"], tmp_path]
    done = subprocess.run(
        [*command, *map(str, paths)], capture_output=True, text=True, env={**os.environ, "LD_PRELOAD": str(late_clock)}
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["wrong"] == []
    assert answer["ended"] >= 2  # before the first change, and within the work
