# SPDX-License-Identifier: Apache-2.0
"""A text that is too large is refused for its size before anything is made of it: a phone has no memory for that."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY
from tests.support.bundles import tiny_core_bundle

__all__ = ["tiny_core_bundle"]

BYTES = 40_000_000
# The text that is too large in each call, and how its error begins.
TEXTS = {
    "add_example": "example: got 40000015 bytes of JSON; expected at most 16777216",
    "add_example, id": "id of an example: got 40000000 characters",
    "correct, answer": "prompt: got 40000003 bytes of JSON; expected at most 16777216",
    "correct, better": "better: got 40000000 bytes; expected at most 16777216",
    "feed": "prompt: got 40000003 bytes of JSON; expected at most 16777216",
    "stop_texts": "stop_texts: got 40000003 bytes of JSON; expected at most 1048576",
    "score, prompt": "prompt: got 40000003 bytes of JSON; expected at most 16777216",
    "score, answers": "answers: got 40000003 bytes of JSON; expected at most 16777216",
    "classify": "labels: got 40000003 bytes of JSON; expected at most 16777216",
    "forget": "id of an example: got 40000000 characters",
    "train, settings": "train: got 40000015 bytes of JSON; expected at most 65536",
}


@pytest.fixture(scope="module")
def refused(tiny_core_bundle: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    command = [sys.executable, "-m", "tests.native.refused_sizes_lab", tiny_core_bundle]
    done = subprocess.run(
        [*command, tmp_path_factory.mktemp("refused") / "state", str(BYTES)],
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    said: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return said


def test_each_text_has_a_most_size(refused: dict[str, dict[str, Any]]) -> None:
    assert refused.keys() == TEXTS.keys()
    for name, error in TEXTS.items():
        assert refused[name]["error"].startswith(error), name


def test_a_refusal_takes_no_more_memory_than_a_copy_of_the_text(refused: dict[str, dict[str, Any]]) -> None:
    grown = {name: one["bytes"] for name, one in refused.items()}
    assert max(grown.values()) < 1.1 * BYTES, grown
