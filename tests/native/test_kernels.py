# SPDX-License-Identifier: Apache-2.0
"""The native kernels against the torch reference in float64, on every instruction set that this processor or an emulator has:
odd sizes, slices of columns, one row to hundreds; the same bits for any number of threads; no more workspace than Python says.

AVX2, AVX-512 and NEON give the same bits. The last bits of others differ: the baseline rounds products and sums one after the
other, AMX adds products of parts, and few rows are multiplied as whole numbers, many of them with i8mm.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import bespoke.ops  # noqa: F401  (registers the operators that serve as the reference)
from bespoke.ops.operators import operator_workspace_bytes
from tests.native.kernels_checked import (
    ATTENTION_CASES,
    PRODUCTS,
    SIGMOID,
    TANH,
    AttentionCase,
    check_attention,
    check_elementwise,
    check_exactness,
    check_head,
    check_product,
    check_rounded,
    check_rows_alone,
    dense_rows,
    hard_rows,
    lab,
    packed,
    random,
    random_adapter,
    reference,
    run_head,
)
from tests.native.kernels_lab import Lab, Packed, compile_lab, missing

__all__ = ["lab"]


quick = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


# ---- attention -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ATTENTION_CASES, ids=str)
def test_attention(lab: Lab, case: AttentionCase) -> None:
    assert len(check_attention(lab, case)) <= 1, "the bits differ from one instruction set to the other"


@quick
@given(st.integers(1, 40), st.integers(1, 4), st.integers(1, 6), st.integers(1, 70), st.data())
def test_attention_of_any_size(lab: Lab, rows: int, kv_heads: int, group: int, d: int, data: st.DataObject) -> None:
    start, window, more = (data.draw(st.integers(*limits)) for limits in ((0, 600), (1, 700), (0, 40)))
    case = AttentionCase(rows, start + rows + more, kv_heads * group, kv_heads, d, start, window)
    assert len(check_attention(lab, case)) <= 1


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


@pytest.mark.parametrize("name", PRODUCTS)
@quick
@given(st.integers(1, 70), st.integers(1, 150), st.integers(1, 300), st.integers(1, 64), st.booleans())
def test_products_with_an_adapter(
    lab: Lab, name: str, rows: int, out: int, columns: int, rank: int, transposed: bool
) -> None:
    adapter = random_adapter(rows, out if name == "linear_int4" else columns, rank, transposed=transposed)
    check_product(lab, name, rows, packed(out, columns), adapter=adapter)


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("rows", [1, 8, 256, 300])
def test_products_with_an_adapter_of_the_size_of_a_model(lab: Lab, name: str, rows: int) -> None:
    check_product(lab, name, rows, packed(896, 896), adapter=random_adapter(rows, 896, 8), threads=(2, 3, 8, 11))


@pytest.mark.slow
@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("rows", range(1, 301, 13))
def test_products_of_every_number_of_rows(lab: Lab, name: str, rows: int) -> None:
    check_product(lab, name, rows, packed(172, 300))


@pytest.mark.parametrize(("out", "columns"), [(96, 2048), (64, 4864)])
@pytest.mark.parametrize("rows", [3, 24])
def test_whole_numbers_are_as_exact_as_floats(lab: Lab, rows: int, out: int, columns: int) -> None:
    """In the norm of a row's results: at most twice the error of fp32."""
    check_exactness(lab, rows, out, columns)


@quick
@given(st.integers(9, 150), st.integers(1, 150), st.integers(1, 600), st.sampled_from([0, 1, 8, 64]))
def test_rounded_products_of_any_size(lab: Lab, rows: int, out: int, columns: int, rank: int) -> None:
    adapter = random_adapter(rows, out, rank, transposed=True) if rank else None
    check_rounded(lab, hard_rows(rows, columns), packed(out, columns), adapter, threads=(2, 3))


@pytest.mark.parametrize(("rows", "out", "columns"), [(8, 96, 300), (128, 896, 896), (500, 64, 4864), (13, 4864, 896)])
def test_rounded_products_of_the_sizes_of_models(lab: Lab, rows: int, out: int, columns: int) -> None:
    check_rounded(lab, hard_rows(rows, columns), packed(out, columns), None, threads=(2, 3, 8, 11))


def test_rounding_costs_little_of_a_row(lab: Lab) -> None:
    """In norm, some 3e-5 of rows in which all numbers are of about one size."""
    w = packed(300, 896)
    for size in (1e20, 1.0, 1e-25):
        x = size * random(20, 896, seed=1)
        expected = reference("linear_int4", x, w)
        for instructions in lab.sets:
            (found,) = lab.product("linear_int4_rounded", x, w, instructions=instructions).results
            error = np.linalg.norm(found - expected, axis=1) / np.linalg.norm(expected, axis=1)
            assert error.max() <= 4e-5, (instructions, size)


def test_rounded_rows_have_the_same_bits_among_any_others(lab: Lab) -> None:
    x, w = hard_rows(40, 300), packed(100, 300)
    for instructions in lab.sets:
        (whole,) = lab.product("linear_int4_rounded", x, w, instructions=instructions).results
        for first, stop in ((0, 9), (3, 17), (10, 40)):
            (some,) = lab.product("linear_int4_rounded", x[first:stop], w, instructions=instructions).results
            assert some.tobytes() == whole[first:stop].tobytes(), (instructions, first, stop)


def test_a_row_has_the_same_bits_alone_and_among_others(lab: Lab) -> None:
    check_rows_alone(lab)


@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.parametrize("rows", [1, 8, 20])
def test_products_of_the_same_rows_are_what_each_is_alone(lab: Lab, rows: int, adapted: bool) -> None:
    """Also where a thread's columns end within a product, and where rows are not few."""
    x, weights = random(rows, 300, seed=1), [packed(out, 300, seed=out) for out in (5, 300, 64, 700)]
    adapters = [random_adapter(rows, w.codes.shape[0], 8, transposed=True) for w in weights] if adapted else []
    for instructions in lab.sets:
        alone = [
            lab.product("linear_int4", x, w, adapters[i] if adapted else None, instructions=instructions).results[0]
            for i, w in enumerate(weights)
        ]
        for threads in (1, 2, 3, 7):
            found = lab.together(x, weights, adapters, instructions=instructions, threads=threads)
            assert [one.tobytes() for one in found] == [one.tobytes() for one in alone], (instructions, threads)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("rows", [2, 20])
def test_what_is_not_a_number_shows_in_its_row(lab: Lab, bad: float, rows: int) -> None:
    x, w = random(rows, 300, seed=1), packed(40, 300)
    x[1, 5] = bad
    for name, instructions in itertools.product(("linear_int4", "linear_int4_rounded"), lab.sets):
        (found,) = lab.product(name, x, w, instructions=instructions).results
        assert (~np.isfinite(found)).any(1).tolist() == [row == 1 for row in range(rows)], instructions


@pytest.mark.parametrize("size", [0.0, 1e-44, 1e-38, 1e-30, 1e30])
def test_rows_of_any_size(lab: Lab, size: float) -> None:
    """Below the numbers whose bits are all kept, a row becomes less exact; it does not become something else."""
    x, w = random(4, 300, seed=1) * np.float32(size), packed(40, 300)
    expected = reference("linear_int4", x, w)
    for instructions in lab.sets:
        (found,) = lab.product("linear_int4", x, w, instructions=instructions).results
        np.testing.assert_allclose(
            found, expected, rtol=1e-4, atol=1e-36 + 1e-5 * np.abs(expected).max(), err_msg=instructions
        )


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
                lab.together(
                    random(rows, columns, seed=1), [packed(out, columns)] * 3, instructions=instructions, threads=2
                )


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
