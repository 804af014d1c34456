# SPDX-License-Identifier: Apache-2.0
"""An app in C++ that only calls `forward` trains with a step as a program for ExecuTorch's own runtime: the B that it reads from it
is the one that the plan's form comes to."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from bespoke.bundle.reader import read_bundle
from bespoke.exports.forward_only import DECOMPOSITIONS, ForwardOnly
from bespoke_plugins.targets.executorch.forward_only import write_forward_only
from tests.unit.exports.forward_only import RATE, STEPS, build, rows, walked

pytestmark = pytest.mark.xdist_group("forward_only")


@pytest.mark.slow  # exporting takes most of a minute
@pytest.mark.parametrize(("blocks", "queries", "partitioners"), [(1, 1, []), (2, 2, None)])
def test_an_app_in_c_plus_plus_trains_by_forward_alone(
    blocks: int,
    queries: int,
    partitioners: list[object] | None,
    native_build: Path,
    tmp_path: Path,
) -> None:
    with read_bundle(build(tmp_path, blocks, queries=queries, dual_forwarding=True)) as bundle:
        step = ForwardOnly(bundle)
        program = write_forward_only(tmp_path / "step.pte", step.methods(), DECOMPOSITIONS, partitioners)
        losses, adapter = walked(bundle)
        initial = bundle.initial_adapter()
    rows().astype("<i8").tofile(tmp_path / "rows.bin")
    done = subprocess.run(
        [
            native_build / "example_forward_only",
            program,
            tmp_path / "rows.bin",
            str(STEPS),
            str(RATE),
            tmp_path / "b.bin",
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    said = [float(line.split()[-1]) for line in done.stdout.splitlines() if line.startswith("step ")]
    assert said == pytest.approx(losses, rel=1e-6)
    found = np.fromfile(tmp_path / "b.bin", "<f4")
    wanted = np.concatenate([adapter[name].reshape(-1) for name in step.pieces])
    moved = np.abs(wanted - np.concatenate([initial[name].reshape(-1) for name in step.pieces])).max()
    assert np.abs(found - wanted).max() <= 1e-6 < moved / 1000
