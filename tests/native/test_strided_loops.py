# SPDX-License-Identifier: Apache-2.0
"""Loops with strides, of each instruction set, against numpy in float64: slices, transposes, broadcast operands, products."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.native.kernels_checked import lab
from tests.native.kernels_lab import LOOPS, Lab, compile_lab, missing

__all__ = ["lab"]

ONE_OPERAND: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "copy": lambda x: x,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
TWO_OPERANDS: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
}


class Operand(NamedTuple):
    """A tensor's elements, as a loop goes through them."""

    data: np.ndarray
    first: int
    strides: tuple[int, ...]

    def seen(self, dims: tuple[int, ...]) -> np.ndarray:
        steps = tuple(4 * stride for stride in self.strides)
        return np.lib.stride_tricks.as_strided(self.data[self.first :], dims, steps)


def operand(draw: st.DrawFn, dims: tuple[int, ...], *, repeats: bool = True, seed: int = 0) -> Operand:
    """Contiguous but for a permutation of dimensions, gaps between elements, and dimensions that repeat."""
    order = draw(st.permutations(range(4)))
    strides, size = [0] * 4, draw(st.sampled_from([1, 1, 1, 3]))
    for axis in order:
        if repeats and draw(st.integers(0, 4)) == 0:
            continue
        strides[axis], size = size, size * dims[axis]
    first = draw(st.integers(0, 5))
    last = first + sum((n - 1) * stride for n, stride in zip(dims, strides, strict=True))
    values = np.random.default_rng(seed).uniform(0.2, 3, last + 1)
    return Operand(values.astype(np.float32), first, tuple(strides))


def run(
    lab: Lab, name: str, dims: tuple[int, ...], to: Operand, a: Operand, b: Operand, instructions: str
) -> np.ndarray:
    operands = [(one.first, one.strides) for one in (to, a, b)]
    return lab.loop(LOOPS.index(name), dims, operands, to.data.size, a.data, b.data, instructions=instructions)


def check(lab: Lab, name: str, dims: tuple[int, ...], to: Operand, a: Operand, b: Operand) -> None:
    """Exact to fp32, the same bits of all sets with fused multiplication, and nothing written outside of the result."""
    wide = [one.seen(dims).astype(np.float64) for one in (a, b)]
    written = Operand(np.zeros(to.data.size, np.float32), to.first, to.strides)
    if name == "matmul":
        expected, written_dims = (wide[0] * wide[1]).sum(-1), (*dims[:3], 1)
        expected = expected[..., None]
    else:
        expected = TWO_OPERANDS[name](*wide) if name in TWO_OPERANDS else ONE_OPERAND[name](wide[0])
        written_dims = dims
    written.seen(written_dims)[...] = 1
    bits = set()
    for instructions in lab.sets:
        found = run(lab, name, dims, to, a, b, instructions)
        result = Operand(found, to.first, to.strides).seen(written_dims)
        np.testing.assert_allclose(result, expected, rtol=2e-6, err_msg=instructions)
        assert (np.isnan(found) == (written.data == 0)).all(), instructions
        bits |= {found.tobytes()} if instructions != "baseline" else set()
    assert len(bits) <= 1


quick = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
dimensions = st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 5), st.integers(1, 70))


@pytest.mark.parametrize("name", [*ONE_OPERAND, *TWO_OPERANDS])
@quick
@given(dims=dimensions, data=st.data())
def test_elementwise_loops_with_any_strides(lab: Lab, name: str, dims: tuple[int, ...], data: st.DataObject) -> None:
    to, a, b = (operand(data.draw, dims, repeats=seed > 0, seed=seed) for seed in range(3))
    check(lab, name, dims, to, a, b)


@quick
@given(st.integers(1, 3), st.integers(1, 8), st.integers(1, 40), st.integers(1, 300), st.booleans(), st.booleans())
def test_products(lab: Lab, batch: int, rows: int, columns: int, summands: int, transposed: bool, same: bool) -> None:
    """Summands side by side or a row apart; also those of a constant whose elements are all equal."""
    dims = (batch, rows, columns, summands)
    random = np.random.default_rng(sum(dims))
    a = Operand(
        random.uniform(0.2, 1, batch * rows * summands).astype(np.float32), 0, (rows * summands, summands, 0, 1)
    )
    strides = (summands * columns, 0, summands, 1) if transposed else (summands * columns, 0, 1, columns)
    b = Operand(random.uniform(0.2, 1, batch * summands * columns).astype(np.float32), 0, strides)
    if same:
        b = Operand(np.array([1 / summands], np.float32), 0, (0, 0, 0, 0))
    to = Operand(np.zeros(batch * rows * columns, np.float32), 0, (rows * columns, columns, 1, 0))
    check(lab, "matmul", dims, to, a, b)


@pytest.mark.slow
def test_nothing_is_read_or_written_beyond_a_tensor(tmp_path: Path) -> None:
    """Under the sanitizers of addresses and undefined behaviour, which end the process. Tensors are as large as their loops."""
    absent = missing("g++")
    if absent:
        pytest.skip(f"{absent} is not installed")
    flags = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    with Lab([compile_lab(tmp_path, "g++", *flags)]) as sanitized:
        for last in (1, 3, 15, 16, 17, 33):
            dims = (2, 1, 3, last)
            values = np.random.default_rng(last).uniform(0.2, 3, 6 * last).astype(np.float32)
            straight, turned = (Operand(values, 0, strides) for strides in ((3 * last, 0, last, 1), (3, 0, 1, 6)))
            one = Operand(values[:1], 0, (0, 0, 0, 0))
            for name, a in itertools.product((*ONE_OPERAND, *TWO_OPERANDS), (straight, turned, one)):
                for to in (straight, turned):
                    check(sanitized, name, dims, to, a, turned)
            x, w = (Operand(values, 0, strides) for strides in ((0, last, 0, 1), (0, 0, last, 1)))
            for b in (w, w._replace(strides=(0, 0, 1, 3)), one):
                check(sanitized, "matmul", (1, 2, 3, last), Operand(values[:6], 0, (0, 3, 1, 0)), x, b)


def test_a_row_has_the_same_bits_among_others(lab: Lab) -> None:
    """Drafts are rows next to the first one, and must not change it."""
    random = np.random.default_rng(5)
    x, w = random.standard_normal((8, 300)).astype(np.float32), random.standard_normal((16, 300)).astype(np.float32)
    for instructions in lab.sets:
        found = []
        for rows in (1, 8):
            dims = (1, rows, 16, 300)
            a = Operand(x[:rows].ravel(), 0, (0, 300, 0, 1))
            to = Operand(np.zeros(16 * rows, np.float32), 0, (0, 16, 1, 0))
            found.append(run(lab, "matmul", dims, to, a, Operand(w.ravel(), 0, (0, 0, 300, 1)), instructions)[:16])
        assert found[0].tobytes() == found[1].tobytes(), instructions
