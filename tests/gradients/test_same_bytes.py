# SPDX-License-Identifier: Apache-2.0
"""Two builds of the same input, in two folders and two processes, give the same bytes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.bundles import stories_bundle

__all__ = ["stories_bundle"]

# The settings of tests.bundles, written again: another process, another folder, another seed of Python's hashes.
BUILD = """
import sys
from bespoke import Lora, Personalizer, Training
training = Training(learning_rate=3e-3, sequence_lengths=(32,), batch_size=2, steps=20, seed=1)
Personalizer(sys.argv[1], "mesp", "cuda", lora=Lora(rank=4), training=training).build(sys.argv[2])
"""


def test_two_builds_give_the_same_bytes(stories: Path, stories_bundle: Path, tmp_path: Path) -> None:
    out = tmp_path / "elsewhere" / "of another name"
    out.parent.mkdir()
    environment = {**os.environ, "PYTHONHASHSEED": "7", "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", BUILD, str(stories), str(out)], check=True, env=environment, cwd=out.parent)
    first, second = files(stories_bundle), files(out)
    assert first.keys() == second.keys()
    different = [name for name, content in first.items() if content != second[name]]
    assert different == []
    assert sum(map(len, first.values())) > 500_000


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
