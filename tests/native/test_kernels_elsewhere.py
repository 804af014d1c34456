# SPDX-License-Identifier: Apache-2.0
"""Kernels on other processors, in qemu: arm64 gives the bits of this one, and without AVX the baseline runs."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest

import bespoke.ops  # noqa: F401  (registers the operators that serve as the reference)
from tests.native.kernels_checked import (
    PRODUCTS,
    check_elementwise,
    check_head,
    check_product,
    lab,
    packed,
    random,
    start_state,
)
from tests.native.kernels_lab import Answer, Lab, compile_lab, missing

__all__ = ["lab"]


@pytest.fixture(scope="session")
def arm_lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    absent = missing("aarch64-linux-gnu-g++", "qemu-aarch64-static")
    if absent:
        pytest.skip(f"{absent} is not installed")
    return compile_lab(tmp_path_factory.mktemp("arm64"), "aarch64-linux-gnu-g++", "-static")


def bits(answer: Answer) -> list[bytes]:
    return [value.tobytes() for value in answer.results]


def compare(lab: Lab, other: Lab, instructions: str, rows: int, out: int, columns: int) -> None:
    """The same bits as this processor's fused instructions."""
    here = next((name for name in lab.sets if name != "baseline"), None)
    w = packed(out, columns)
    for name in PRODUCTS:
        check_product(other, name, rows, w, sets=(instructions,), threads=(3,))
        x = random(rows, w.columns if name == "linear_int4" else out, seed=1)
        if here:
            assert bits(lab.product(name, x, w, instructions=here)) == bits(
                other.product(name, x, w, instructions=instructions)
            )
    check_head(other, rows, out, columns, out, sets=(instructions,))
    if here:
        h, targets = random(rows, columns, seed=2), np.zeros(rows, np.int64)
        state = start_state(h, gradient=True)
        ours = lab.head(h, w, targets, 0, state, instructions=here)
        assert bits(ours) == bits(other.head(h, w, targets, 0, state, instructions=instructions))


@pytest.mark.slow
@pytest.mark.parametrize("processor", ["max", "cortex-a57"])
def test_arm64_gives_the_bits_of_this_processor(lab: Lab, arm_lab: Path, processor: str) -> None:
    with Lab(["qemu-aarch64-static", "-cpu", processor, arm_lab]) as arm:
        assert (arm.sets, arm.best) == (("baseline", "NEON"), "NEON")
        for shape in ((1, 40, 33), (7, 300, 172), (31, 64, 300)):
            compare(lab, arm, "NEON", *shape)
        here = next((name for name in lab.sets if name != "baseline"), None)
        neon = check_elementwise(arm, 1000, ("NEON",))
        assert here is None or neon["NEON"] == check_elementwise(lab, 1000, (here,))[here]


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 9, 12, 13, 64, 129])
def test_arm64_on_more_shapes(lab: Lab, arm_lab: Path, rows: int) -> None:
    with Lab(["qemu-aarch64-static", arm_lab]) as arm:
        for out, columns in ((33, 172), (172, 64), (300, 300), (64, 32), (1, 1)):
            compare(lab, arm, "NEON", rows, out, columns)


@pytest.fixture(scope="session")
def x86_lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    absent = missing("g++", "qemu-x86_64-static")
    if absent or platform.machine() != "x86_64":
        pytest.skip(f"{absent} is not installed" if absent else "the compiler here is for another processor")
    return compile_lab(tmp_path_factory.mktemp("x86"), "g++", "-static")


@pytest.mark.slow
def test_a_processor_without_avx_runs_the_baseline(x86_lab: Path) -> None:
    """An instruction that leaked out of the sources of another set would end the process."""
    with Lab(["qemu-x86_64-static", "-cpu", "Nehalem", x86_lab]) as old:
        assert (old.sets, old.best) == (("baseline",), "baseline")
        for name in PRODUCTS:
            check_product(old, name, 5, packed(40, 172))
        check_head(old, 5, 300, 64, 300)


@pytest.mark.slow
def test_a_processor_with_avx2_alone_runs_that(x86_lab: Path) -> None:
    with Lab(["qemu-x86_64-static", "-cpu", "max", x86_lab]) as emulated:
        if "AVX2" not in emulated.sets:
            pytest.skip("this emulator has no AVX2")
        assert (emulated.sets, emulated.best) == (("baseline", "AVX2"), "AVX2")
        for name in PRODUCTS:
            check_product(emulated, name, 5, packed(40, 172))
