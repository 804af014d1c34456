# SPDX-License-Identifier: Apache-2.0
"""Target `cuda`: its kernels compile for Orin and two other GPUs, spill no register and fit into a block's shared memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.figures import markdown
from tests.benchmarks.overview import text_of
from tests.conftest import REPOSITORY
from tests.unit.targets.cuda.cubins import GPUS, HEADER, KERNELS, ORIN_SHARED_BYTES, Cubin, compiled, table

PAGE = REPOSITORY / "docs" / "how_to" / "use_a_gpu.md"


def check(cubins: list[Cubin]) -> None:
    assert [cubin for cubin in cubins if cubin.stack_bytes or cubin.shared_bytes > ORIN_SHARED_BYTES] == []
    assert all(0 < cubin.registers < 255 for cubin in cubins)


@pytest.mark.slow
def test_two_kernels_compile_for_orin_without_a_gpu(tmp_path: Path) -> None:
    cubins = compiled(("embedding", "head_statistics"), (87,), tmp_path)
    assert {(cubin.kernel, cubin.aligned) for cubin in cubins} == {
        (name, aligned) for name in ("embedding", "head_statistics") for aligned in (True, False)
    }
    check(cubins)


@pytest.mark.slow
def test_every_kernel_and_configuration_compiles_as_the_page_says(tmp_path: Path) -> None:
    cubins = compiled(KERNELS, tuple(GPUS), tmp_path)
    assert {(cubin.kernel, cubin.capability) for cubin in cubins} == {
        (kernel, gpu) for kernel in KERNELS for gpu in GPUS
    }
    check(cubins)
    assert text_of(PAGE.read_text(encoding="utf-8"), "cubins").startswith(markdown(HEADER, table(cubins)) + "\n")
