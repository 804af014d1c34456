# SPDX-License-Identifier: Apache-2.0
"""The native kernels against the torch reference in float64, on every instruction set that this processor or an emulator has:
odd sizes, slices of columns, one row to hundreds; the same bits for any number of threads; no more workspace than Python says.

AVX2, AVX-512 and NEON give the same bits. The last bits of two others differ: the baseline rounds products and sums one after the
other, AMX adds products of parts.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bespoke.ops  # noqa: F401  (registers the operators that serve as the reference)
from bespoke.model.quantize import quantize
from bespoke.ops.operators import operator_workspace_bytes
from tests.native.kernels_lab import Answer, Lab, Packed, compile_lab, missing

PRODUCTS = ("linear_int4", "linear_int4_transposed")
FUSED = ("AVX2", "AVX-512", "NEON")
TOLERANCE = 2e-6  # of the norm of a row: what sums of 256, added up, leave in fp32
quick = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="session")
def lab(native_build: Path) -> Iterator[Lab]:
    with Lab([native_build / "tests" / "kernels_lab"]) as lab:
        yield lab


def random(*shape: int, seed: int) -> np.ndarray:
    return np.random.Generator(np.random.Philox(seed)).standard_normal(shape, dtype=np.float32)


def packed(out: int, stored: int, *, first: int = 0, columns: int | None = None, seed: int = 0) -> Packed:
    """A random weight [out, stored], some columns of it. What pads its last group is garbage, as nothing may depend on it."""
    codes, scales = quantize("w", random(out, stored, seed=seed))
    assert out * stored < 1000 or {*np.sign(scales).ravel()} >= {-1, 1}  # scales of both signs
    scales[3::7, 1::3] = 0
    if stored % 32:
        nibbles = np.stack([codes & 15, codes >> 4], -1).reshape(out, -1)
        nibbles[:, stored:] = np.random.Generator(np.random.Philox(9)).integers(0, 16, nibbles[:, stored:].shape)
        codes = (nibbles[:, ::2] | nibbles[:, 1::2] << 4).astype(np.uint8)
    return Packed(codes, scales, first, stored - first if columns is None else columns)


def reference(name: str, x: np.ndarray, w: Packed) -> np.ndarray:
    start = torch.tensor(w.first)
    operator = getattr(torch.ops.bespoke, name)
    operands = (torch.from_numpy(x).double(), torch.from_numpy(w.codes), torch.from_numpy(w.scales), start, w.columns)
    found: np.ndarray = operator(*operands).numpy()
    return found


def dense_rows(w: Packed, tokens: np.ndarray) -> torch.Tensor:
    """The reference's embedding."""
    operands = (torch.from_numpy(array) for array in (tokens, w.codes, w.scales))
    found: torch.Tensor = torch.ops.bespoke.embedding_int4(*operands, w.columns)
    return found


def check_product(
    lab: Lab, name: str, rows: int, w: Packed, *, sets: tuple[str, ...] | None = None, threads: tuple[int, ...] = (2, 3)
) -> None:
    """Close to the reference, and the same bits on any number of threads and on all sets with fused multiplication."""
    x = random(rows, w.columns if name == "linear_int4" else w.codes.shape[0], seed=rows)
    expected = reference(name, x, w)
    size = np.linalg.norm(x.astype(np.float64)) * np.abs(w.scales.astype(np.float64)).max() * 8 + 1e-30
    fused = {}
    for instructions in sets or lab.sets:
        answer = lab.product(name, x, w, instructions=instructions)
        (found,) = answer.results
        assert np.abs(found - expected).max() <= TOLERANCE * size, instructions
        assert answer.workspace_bytes <= operator_workspace_bytes(name, rows, 1)
        for count in threads:
            other = lab.product(name, x, w, instructions=instructions, threads=count)
            assert other.results[0].tobytes() == found.tobytes(), f"{instructions}, {count} threads"
            assert other.workspace_bytes <= operator_workspace_bytes(name, rows, count)
        if instructions in FUSED:
            fused[instructions] = found.tobytes()
    assert len(set(fused.values())) <= 1, f"the bits of {', '.join(fused)} differ"


# ---- products --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRODUCTS)
@quick
@given(st.integers(1, 70), st.integers(1, 150), st.integers(1, 300))
def test_products_of_any_size(lab: Lab, name: str, rows: int, out: int, columns: int) -> None:
    check_product(lab, name, rows, packed(out, columns))


@pytest.mark.parametrize("name", PRODUCTS)
@quick
@given(st.integers(1, 40), st.integers(1, 80), st.integers(1, 400), st.data())
def test_slices_of_columns(lab: Lab, name: str, rows: int, out: int, stored: int, data: st.DataObject) -> None:
    """A slice begins at a multiple of 32 and ends at one or at the last column."""
    first = data.draw(st.integers(0, (stored - 1) // 32)) * 32
    stop = data.draw(st.sampled_from([*range(first + 32, stored, 32), stored]))
    check_product(lab, name, rows, packed(out, stored, first=first, columns=stop - first), threads=(2,))


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize(
    ("rows", "out", "columns"), [(256, 896, 896), (300, 172, 64), (1, 896, 896), (13, 300, 1100), (7, 64, 4864)]
)
def test_products_of_the_sizes_of_models(lab: Lab, name: str, rows: int, out: int, columns: int) -> None:
    check_product(lab, name, rows, packed(out, columns), threads=(2, 3, 8, 11))


@pytest.mark.slow
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("rows", range(1, 301, 13))
def test_products_of_every_number_of_rows(lab: Lab, name: str, rows: int) -> None:
    check_product(lab, name, rows, packed(172, 300))


@quick
@given(st.integers(1, 50), st.integers(1, 100))
def test_rows_are_decoded_exactly(lab: Lab, out: int, columns: int) -> None:
    w, tokens = packed(out, columns), np.arange(out)[::-1].copy()
    expected = dense_rows(w, tokens)
    for instructions in lab.sets:
        answer = lab.embedding(tokens, w, instructions=instructions)
        assert np.array_equal(answer.results[0], expected.numpy()), instructions
        assert answer.workspace_bytes == operator_workspace_bytes("embedding_int4", out) == 0


def test_every_scale_of_half_precision_is_read(lab: Lab) -> None:
    bits = np.array(
        [b for b in range(0x10000) if b & 0x7C00 != 0x7C00], np.uint16
    )  # all but infinite ones and not-a-number
    scales = bits.view(np.float16)[:, None]
    codes = np.full((len(bits), 16), 0x1F, np.uint8)  # 7 and -7
    expected = np.tile(scales.astype(np.float32), 32) * np.tile(np.array([7, -7], np.float32), 16)
    for instructions in lab.sets:
        (found,) = lab.embedding(np.arange(len(bits)), Packed(codes, scales, 0, 32), instructions=instructions).results
        assert np.array_equal(found, expected), instructions


# ---- the head --------------------------------------------------------------------------------------------------------------


def start_state(h: np.ndarray, *, gradient: bool) -> list[np.ndarray]:
    zeros = np.zeros(h.shape[0], np.float32)
    state: list[np.ndarray] = [zeros - np.float32(1e30), zeros, zeros, zeros.astype(np.int64)]
    return [*state, np.zeros_like(h)] if gradient else state


def run_head(
    lab: Lab, h: np.ndarray, w: Packed, targets: np.ndarray, chunk: int, *, gradient: bool = True, **how: Any
) -> list[np.ndarray]:
    state = start_state(h, gradient=gradient)
    for start in range(0, w.codes.shape[0], chunk):
        part = Packed(w.codes[start : start + chunk], w.scales[start : start + chunk], 0, w.columns)
        answer = lab.head(h, part, targets, start, state, **how)
        assert answer.workspace_bytes <= operator_workspace_bytes("head_chunk_int4", h.shape[0], how.get("threads", 1))
        state = list(answer.results)
    return state


def check_head(
    lab: Lab, rows: int, out: int, columns: int, chunk: int, *, scale: float = 1.0, sets: tuple[str, ...] | None = None
) -> None:
    h, w = scale * random(rows, columns, seed=3), packed(out, columns)
    targets = np.random.Generator(np.random.Philox(4)).integers(0, out, rows)
    dense, h64 = dense_rows(w, np.arange(out)).double(), torch.from_numpy(h).double()
    logits = h64 @ dense.t()
    size = float(h64.norm(dim=-1).max() * dense.norm(dim=-1).max())
    loss_error = 2e-6 * size + 1e-6 * float(np.log(out) + 1)
    p = torch.softmax(logits, -1)
    fused = {}
    for instructions in sets or lab.sets:
        state = run_head(lab, h, w, targets, chunk, instructions=instructions)
        m, total, label, best, acc = (torch.from_numpy(value.copy()) for value in state)
        assert (m.double() + total.double().log() - logits.logsumexp(-1)).abs().max() <= loss_error, instructions
        assert (label.double() - logits.gather(1, torch.from_numpy(targets)[:, None])[:, 0]).abs().max() <= loss_error
        worst = (acc.double() / total.double()[:, None] - p @ dense).abs().max() / dense.abs().max()
        assert worst <= 1e-5 + 4 * loss_error, instructions
        # the best token is one whose logit no other exceeds by more than rounding
        assert (logits.gather(1, best[:, None])[:, 0] >= logits.amax(-1) - loss_error).all()
        for threads in (2, 3):
            same = run_head(
                lab, h, w, targets, chunk, instructions=instructions, threads=threads, in_place=threads == 2
            )
            assert [a.tobytes() for a in same] == [a.tobytes() for a in state], f"{instructions}, {threads} threads"
        without = run_head(lab, h, w, targets, chunk, gradient=False, instructions=instructions)
        assert [a.tobytes() for a in without] == [a.tobytes() for a in state[:4]]
        if instructions in FUSED:
            fused[instructions] = b"".join(value.tobytes() for value in state)
    assert len(set(fused.values())) <= 1, f"the bits of {', '.join(fused)} differ"


@quick
@given(st.integers(1, 30), st.integers(1, 600), st.integers(1, 100), st.sampled_from([1.0, 100.0]), st.data())
def test_one_pass_over_chunks_of_any_size(
    lab: Lab, rows: int, out: int, columns: int, scale: float, data: st.DataObject
) -> None:
    check_head(lab, rows, out, columns, data.draw(st.integers(max(1, out // 4), out)), scale=scale)


@pytest.mark.parametrize(
    ("rows", "out", "columns", "chunk"), [(300, 1000, 172, 700), (1, 3000, 896, 3000), (257, 513, 64, 513)]
)
def test_one_pass_of_the_sizes_of_models(lab: Lab, rows: int, out: int, columns: int, chunk: int) -> None:
    check_head(lab, rows, out, columns, chunk)


def test_of_equal_logits_the_first_row_is_the_best_token(lab: Lab) -> None:
    one = packed(1, 64)
    w = Packed(np.repeat(one.codes, 700, 0), np.repeat(one.scales, 700, 0), 0, 64)
    for instructions in lab.sets:
        assert not run_head(lab, random(9, 64, seed=1), w, np.zeros(9, np.int64), 300, instructions=instructions)[
            3
        ].any()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_a_number_shows_in_the_loss(lab: Lab, bad: float) -> None:
    h, w = random(9, 64, seed=1), packed(500, 64)
    h[3, 5] = bad
    for instructions in lab.sets:
        m, total, *_ = run_head(lab, h, w, np.zeros(9, np.int64), 300, instructions=instructions)
        assert (~np.isfinite(m + np.log(total))).tolist() == [row == 3 for row in range(9)], instructions


def test_exponentials_are_exact_to_two_units_in_the_last_place(lab: Lab) -> None:
    """Logits k/64 of one row and one column of ones: with a second row far above, l is exp of their distance."""
    distances = np.arange(0, 86, 1 / 32, dtype=np.float32)
    w = Packed(np.full((1, 16), 0x99, np.uint8), np.ones((1, 1), np.float16), 0, 1)  # one weight: 1
    state: list[np.ndarray] = [
        distances,
        np.zeros_like(distances),
        np.zeros_like(distances),
        np.zeros(len(distances), np.int64),
    ]
    h = np.zeros((len(distances), 1), np.float32)
    for instructions in lab.sets:
        m, total, *_ = lab.head(h, w, np.zeros(len(distances), np.int64), 0, state, instructions=instructions).results
        assert np.array_equal(m, distances)
        exact = np.exp(-distances.astype(np.float64))
        units = np.abs(total - exact) / np.spacing(exact.astype(np.float32))
        assert units.max() <= 2, instructions


@pytest.mark.slow
def test_nothing_is_read_beyond_an_operand(tmp_path: Path) -> None:
    """Under the sanitizers of addresses and undefined behaviour, which end the process."""
    absent = missing("g++")
    if absent:
        pytest.skip(f"{absent} is not installed")
    flags = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    with Lab([compile_lab(tmp_path, "g++", *flags)]) as lab:
        for rows, out, columns in ((1, 1, 1), (13, 300, 172), (5, 33, 300), (31, 290, 64)):
            for name in PRODUCTS:
                check_product(lab, name, rows, packed(out, columns))
            check_product(lab, "linear_int4", rows, packed(out, columns + 64, first=64))
            check_head(lab, rows, out, columns, max(1, out // 2))
            for instructions in lab.sets:
                lab.embedding(np.arange(out), packed(out, columns), instructions=instructions)


@pytest.mark.slow
def test_threads_do_not_race(tmp_path: Path) -> None:
    """Under the sanitizer of threads; checks of bits take two and three of them."""
    absent = missing("g++")
    if absent:
        pytest.skip(f"{absent} is not installed")
    with Lab([compile_lab(tmp_path, "g++", "-O1", "-fsanitize=thread")]) as lab:
        for rows, out, columns in ((13, 300, 172), (300, 700, 600), (40, 1000, 900)):
            for name in PRODUCTS:
                check_product(lab, name, rows, packed(out, columns))
            check_head(lab, rows, out, columns, out // 2)
    assert lab.process.returncode == 0  # 66 where it saw a race


# ---- elementwise ---------------------------------------------------------------------------------------------------------------

ADD, SUBTRACT, MULTIPLY, SIGMOID, TANH, CONSTANT = range(6)
HALF = 0x3F000000  # the bits of 0.5
# Of x and y in registers 0 and 1, to outputs 2 and 3: sigmoid(x) * y, and tanh(x - y) + 0.5.
GATE = [
    (SIGMOID, 4, 0, 0, 0),
    (MULTIPLY, 2, 4, 1, 0),
    (SUBTRACT, 4, 0, 1, 0),
    (TANH, 5, 4, 4, 0),
    (CONSTANT, 4, 0, 0, HALF),
    (ADD, 3, 5, 4, 0),
]


def gated(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    x, y = x.astype(np.float64), y.astype(np.float64)
    return np.stack([y / (1 + np.exp(-x)), np.tanh(x - y) + 0.5])


def check_elementwise(lab: Lab, count: int, sets: tuple[str, ...]) -> dict[str, bytes]:
    x, y = 4 * random(count, seed=count), random(count, seed=1)
    found = {}
    for instructions in sets:
        answer = lab.elementwise(GATE, [x, y], 2, instructions=instructions)
        assert np.abs(answer - gated(x, y)).max() <= 5e-7 * (1 + np.abs(y).max()), instructions
        for threads in (2, 3):
            other = lab.elementwise(GATE, [x, y], 2, instructions=instructions, threads=threads)
            assert other.tobytes() == answer.tobytes(), f"{instructions}, {threads} threads"
        found[instructions] = answer.tobytes()
    return found


@pytest.mark.parametrize("count", [1, 15, 16, 17, 255, 256, 257, 1000, 4099])
def test_elementwise_steps_over_any_number_of_elements(lab: Lab, count: int) -> None:
    """A last handful of elements, and the same bits of all sets with fused multiplication."""
    found = check_elementwise(lab, count, lab.sets)
    assert len({bits for name, bits in found.items() if name != "baseline"}) <= 1


@pytest.mark.parametrize("operation", [SIGMOID, TANH])
def test_activations_are_as_exact_as_fp32(lab: Lab, operation: int) -> None:
    near = np.geomspace(1e-12, 100, 4001, dtype=np.float32)
    x = np.concatenate([near, -near, np.array([0, 1e30, -1e30, np.inf, -np.inf, np.nan], np.float32)])
    wide = x.astype(np.float64)
    with np.errstate(over="ignore"):
        expected = 1 / (1 + np.exp(-wide)) if operation == SIGMOID else np.tanh(wide)
    for instructions in lab.sets:
        (found,) = lab.elementwise([(operation, 1, 0, 0, 0)], [x], 1, instructions=instructions)
        np.testing.assert_allclose(found, expected, rtol=5e-7, atol=1e-37, err_msg=instructions)


# ---- other processors ------------------------------------------------------------------------------------------------------


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
