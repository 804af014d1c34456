# SPDX-License-Identifier: Apache-2.0
"""Kernels on other processors, in qemu: arm64 gives the bits of this one, and without AVX the baseline runs."""

from __future__ import annotations

import itertools
import platform
from pathlib import Path

import numpy as np
import pytest

import bespoke.ops  # noqa: F401  (registers the operators that serve as the reference)
from tests.native.kernels_checked import (
    ATTENTION_CASES,
    PRODUCTS,
    arithmetic,
    check_attention,
    check_elementwise,
    check_exactness,
    check_head,
    check_product,
    check_rounded,
    check_rows_alone,
    hard_rows,
    lab,
    loop_bits,
    packed,
    random,
    random_adapter,
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


def compare(lab: Lab, other: Lab, rows: int, out: int, columns: int) -> None:
    """The same bits as the sets of this processor that compute alike."""
    w = packed(out, columns)
    h, targets = random(rows, columns, seed=2), np.zeros(rows, np.int64)
    state = start_state(h, gradient=True)
    for name in PRODUCTS:
        adapter = random_adapter(rows, out if name == "linear_int4" else columns, 8)
        check_product(other, name, rows, w, threads=(3,))
        check_product(other, name, rows, w, adapter=adapter, threads=(3,))
        x = random(rows, w.columns if name == "linear_int4" else out, seed=1)
        for here, there in alike(name, rows, lab, other):
            for added in (None, adapter):
                ours = lab.product(name, x, w, added, instructions=here)
                assert bits(ours) == bits(other.product(name, x, w, added, instructions=there)), (here, there)
    adapter = random_adapter(rows, out, 8, transposed=True)
    check_rounded(other, hard_rows(rows, columns), w, adapter, threads=(3,))
    for here, there in alike("linear_int4_rounded", rows, lab, other):
        ours = lab.product("linear_int4_rounded", h, w, adapter, instructions=here)
        theirs = other.product("linear_int4_rounded", h, w, adapter, instructions=there)
        assert bits(ours) == bits(theirs), (here, there)
    check_head(other, rows, out, columns, out)
    for here, there in alike("head", rows, lab, other):
        ours = lab.head(h, w, targets, 0, state, instructions=here)
        assert bits(ours) == bits(other.head(h, w, targets, 0, state, instructions=there)), (here, there)


def alike(name: str, rows: int, lab: Lab, other: Lab) -> list[tuple[str, str]]:
    pairs = itertools.product(lab.sets, other.sets)
    return [(a, b) for a, b in pairs if a != "baseline" and arithmetic(name, rows, a) == arithmetic(name, rows, b)]


ARM_SETS = {
    "cortex-a57": ("baseline", "NEON"),
    "cortex-a76": ("baseline", "NEON", "NEON dotprod"),
    "max": ("baseline", "NEON", "NEON dotprod", "NEON i8mm"),
}


@pytest.mark.slow
@pytest.mark.parametrize("processor", ARM_SETS)
def test_arm64_gives_the_bits_of_this_processor(lab: Lab, arm_lab: Path, processor: str) -> None:
    with Lab(["qemu-aarch64-static", "-cpu", processor, arm_lab]) as arm:
        assert (arm.sets, arm.best) == (ARM_SETS[processor], ARM_SETS[processor][-1])
        for shape in ((1, 40, 33), (7, 300, 172), (31, 64, 300)):
            compare(lab, arm, *shape)
        check_exactness(arm, 3, 96, 2048)
        check_exactness(arm, 24, 96, 2048)
        here = next((name for name in lab.sets if name != "baseline"), None)
        for case in ATTENTION_CASES[:4]:
            there = check_attention(arm, case, ("NEON",))
            assert here is None or there == check_attention(lab, case, (here,))
        neon = check_elementwise(arm, 1000, ("NEON",))
        assert here is None or neon["NEON"] == check_elementwise(lab, 1000, (here,))[here]
        assert here is None or loop_bits(arm, "NEON") == loop_bits(lab, here)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("masked", "best"), [("i8mm", "NEON dotprod"), ("dotprod", "NEON"), ("i8mm,dotprod", "NEON"), ("amx", "NEON i8mm")]
)
def test_features_are_masked_by_the_environment(
    arm_lab: Path, masked: str, best: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BESPOKE_MASKED_FEATURES", masked)
    with Lab(["qemu-aarch64-static", "-cpu", "max", arm_lab]) as arm:
        assert arm.best == best


@pytest.mark.slow
def test_rows_alone_on_arm64(arm_lab: Path) -> None:
    with Lab(["qemu-aarch64-static", "-cpu", "max", arm_lab]) as arm:
        check_rows_alone(arm)


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 2, 5, 6, 7, 9, 12, 13, 64, 129])
def test_arm64_on_more_shapes(lab: Lab, arm_lab: Path, rows: int) -> None:
    with Lab(["qemu-aarch64-static", "-cpu", "max", arm_lab]) as arm:
        for out, columns in ((33, 172), (172, 64), (300, 300), (64, 32), (1, 1)):
            compare(lab, arm, rows, out, columns)


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
