# SPDX-License-Identifier: Apache-2.0
"""Two builds of the same input, in two folders and two processes, give the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bundles import stories_bundle
from tests.conftest import REPOSITORY
from tests.unit.personal_model.tiny import tiny_bundle, tiny_folder

__all__ = ["stories_bundle", "tiny_bundle", "tiny_folder"]

# The settings of tests.bundles, written again: another process, another folder, another seed of Python's hashes.
STORIES = """
import sys
from bespoke import Lora, Personalizer, Training
training = Training(learning_rate=3e-3, sequence_lengths=(32,), batch_size=2, steps=20, seed=1)
Personalizer(sys.argv[1], "mesp", "cuda", lora=Lora(rank=4), training=training).build(sys.argv[2])
"""
TINY = """
import sys
from pathlib import Path
from tests.unit.personal_model.tiny import build_from
build_from(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def compare(program: str, model: Path, built: Path, out: Path) -> None:
    out.parent.mkdir()
    environment = {**os.environ, "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-c", program, str(model), str(out)], check=True, env=environment, cwd=out.parent)
    first, second = files(built), files(out)
    assert first.keys() == second.keys()
    assert len(first) > 50
    different = [name for name, content in first.items() if content != second[name]]
    assert different == []


@pytest.mark.xdist_group("tiny")
def test_two_builds_of_three_methods_give_the_same_bytes(tiny_folder: Path, tmp_path: Path) -> None:
    compare(TINY, tiny_folder / "model", tiny_folder / "bundle", tmp_path / "elsewhere" / "of another name")


@pytest.mark.slow
def test_two_builds_give_the_same_bytes(stories: Path, stories_bundle: Path, tmp_path: Path) -> None:
    compare(STORIES, stories, stories_bundle, tmp_path / "elsewhere" / "of another name")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
