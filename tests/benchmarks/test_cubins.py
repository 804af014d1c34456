# SPDX-License-Identifier: Apache-2.0
"""What the kernels of the target `cuda` take of GPUs that are not here: registers, spilled bytes, shared memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.benchmarks.figures import write_table
from tests.unit.targets.cuda.cubins import GPUS, HEADER, KERNELS, NOTE, compiled, table


@pytest.mark.benchmark
def test_what_kernels_take_of_a_gpu(tmp_path: Path) -> None:
    write_table("cubins", HEADER, table(compiled(KERNELS, tuple(GPUS), tmp_path)), NOTE, machine="")
