# SPDX-License-Identifier: Apache-2.0
"""The script for a Mac, as far as a machine without Metal can run it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bespoke.core import find
from tests.apple.mlx.engine import NOT_BUILT, engine_library
from tests.apple.mlx.vectors import STEPS, write_vectors
from tests.support.bundles import made_once

pytestmark = pytest.mark.skipif(engine_library() is None, reason=NOT_BUILT)
SCRIPT = Path(__file__).with_name("on_a_mac") / "run_bundles.py"


@pytest.fixture(scope="module")
def vectors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made_once(tmp_path_factory, "mlx-on-a-mac", write_vectors)


def ran(folder: Path, *devices: str) -> tuple[int, str]:
    """Its exit code and what it prints, in a Python without any package."""
    core = find().path
    assert core is not None
    done = subprocess.run([sys.executable, "-I", "-S", SCRIPT, folder, core, *devices], capture_output=True, text=True)
    assert not done.stderr
    return done.returncode, done.stdout


def test_on_a_processor_everything_holds(vectors: Path) -> None:
    code, said = ran(vectors, "cpu")
    print(said)
    assert code == 0
    assert said.endswith("all of it holds\n")
    shares = [float(share) for share in re.findall(r"cpu golden .* ([\d.]+)% of the tolerance", said)]
    assert len(shares) > 3
    assert max(shares) <= 100
    assert len(re.search(r"seconds of each ([\d. ]+)$", said, re.MULTILINE)[1].split()) == STEPS  # type: ignore[index]
    assert int(re.search(r"cpu footprint (\d+) bytes", said)[1]) > 1_000_000  # type: ignore[index]


def test_losses_of_another_run_do_not_hold(vectors: Path, tmp_path: Path) -> None:
    for name in ("cpu.bundle", "state"):
        (tmp_path / name).symlink_to(vectors / name)
    other = re.sub(r'"losses": \[\s*[\d.]+', '"losses": [\n 1.0', (vectors / "run.json").read_text())
    (tmp_path / "run.json").write_text(other)
    code, said = ran(tmp_path, "cpu")
    assert code == 1
    assert said.endswith("not all of it holds\n")


def test_where_there_is_no_metal_it_says_so(vectors: Path) -> None:
    import mlx.core as mx

    if mx.metal.is_available():
        pytest.skip("here it is")
    code, said = ran(vectors, "gpu")
    assert code == 1
    assert re.match(r"gpu refused: .*\.mlxfn: got .+; expected a program that mlx can run\n", said), said
