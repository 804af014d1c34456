# SPDX-License-Identifier: Apache-2.0
"""The int4 operators against dense products of what numpy decodes: odd widths, column slices, dtypes, gradients by autograd."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bespoke.ops import (
    QuantizedWeight,
    lookup,
    product,
    product_columns,
    product_columns_transposed,
    product_transposed,
)
from bespoke.ops import int4 as operators
from bespoke.ops.int4 import GROUP, decode, linear_int4
from tests.unit.ops.int4_weights import random, weight

EXACT = {"rtol": 0, "atol": 1e-10}  # float64: the decoded weights are the same numbers, only the order of sums differs


shapes = st.tuples(st.integers(1, 9), st.integers(1, 40), st.integers(1, 100))  # rows, out, columns


@settings(max_examples=40, deadline=None)
@given(shapes)
def test_products_are_those_of_the_dense_weight(shape: tuple[int, int, int]) -> None:
    rows, out, columns = shape
    w, dense = weight(out, columns)
    x, g = random(rows, columns), random(rows, out)
    torch.testing.assert_close(product(x, w), x @ dense.t(), **EXACT)
    torch.testing.assert_close(product_transposed(g, w), g @ dense, **EXACT)


@settings(max_examples=40, deadline=None)
@given(shapes, st.data())
def test_slices_of_columns_are_those_of_the_dense_weight(shape: tuple[int, int, int], data: st.DataObject) -> None:
    """A slice begins at a multiple of 32 and ends at one or at the last column."""
    rows, out, columns = shape
    w, dense = weight(out, columns)
    first = data.draw(st.integers(0, (columns - 1) // GROUP)) * GROUP
    ends = [*range(first + GROUP, columns, GROUP), columns]
    stop = data.draw(st.sampled_from(ends))
    start = torch.tensor(first)
    x, g = random(rows, stop - first), random(rows, out)
    torch.testing.assert_close(product_columns(x, w, start), x @ dense[:, first:stop].t(), **EXACT)
    torch.testing.assert_close(product_columns_transposed(g, w, start, stop - first), g @ dense[:, first:stop], **EXACT)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 50), st.integers(1, 100))
def test_decoded_weights_are_exact_in_fp32(out: int, columns: int) -> None:
    w, dense = weight(out, columns)
    torch.testing.assert_close(decode(w.codes, w.scales, columns, torch.float32).double(), dense, rtol=0, atol=0)
    tokens = torch.arange(out).flip(0)
    torch.testing.assert_close(lookup(tokens, w), dense.flip(0).float(), rtol=0, atol=0)


@pytest.mark.parametrize("columns", [172, 64])
def test_weights_decoded_in_several_pieces_give_the_same(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    w, dense = weight(70, columns)
    x, g = random(5, columns), random(5, 70)
    monkeypatch.setattr(operators, "DECODED_AT_ONCE", 1000)  # five rows at a time, the last piece shorter
    torch.testing.assert_close(product(x, w), x @ dense.t(), **EXACT)
    torch.testing.assert_close(product_transposed(g, w), g @ dense, **EXACT)


def test_fp32_operands_give_fp32_results_within_rounding() -> None:
    w, dense = weight(40, 172)
    x = random(6, 172, dtype=torch.float32)
    y = product(x, w)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y.double(), x.double() @ dense.t(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("columns", "start"), [(172, None), (172, 160), (172, 64), (64, None)])
def test_gradient_is_that_of_the_dense_product(columns: int, start: int | None) -> None:
    w, dense = weight(24, columns)
    first = start or 0
    x = random(5, columns - first).requires_grad_()
    dy = random(5, 24, seed=2)
    y = linear_int4(x, w.codes, w.scales, None if start is None else torch.tensor(start), columns - first)
    (found,) = torch.autograd.grad(y, x, dy)
    (expected,) = torch.autograd.grad(x @ dense[:, first:].t(), x, dy)
    torch.testing.assert_close(found, expected, **EXACT)
    assert torch.autograd.gradcheck(
        lambda v: product(v, w) if start is None else product_columns(v, w, torch.tensor(start)), x
    )


def test_functional_derivatives_go_through_the_operator() -> None:
    """torch.func is what vjp is made of."""
    w, dense = weight(24, 172)
    x, dy = random(5, 172), random(5, 24, seed=2)
    y, pull = torch.func.vjp(lambda v: product(v, w), x)
    torch.testing.assert_close(y, x @ dense.t(), **EXACT)
    torch.testing.assert_close(pull(dy)[0], dy @ dense, **EXACT)


def test_dense_weights_stand_behind_the_same_products() -> None:
    _, dense = weight(24, 172)
    x, g = random(5, 172), random(5, 24)
    torch.testing.assert_close(product(x, dense), x @ dense.t(), **EXACT)
    torch.testing.assert_close(product_transposed(g, dense), g @ dense, **EXACT)
    torch.testing.assert_close(lookup(torch.tensor([3, 3, 0]), dense), dense[[3, 3, 0]], **EXACT)


def test_fake_tensors_have_the_shapes_of_real_ones() -> None:
    """Tracing sees only these."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        w, _ = weight(24, 172)
        fake = QuantizedWeight(mode.from_tensor(w.codes), mode.from_tensor(w.scales), 172)
        x, g, start = torch.empty(5, 172), torch.empty(5, 24), torch.tensor(32)
        assert product(x, fake).shape == (5, 24)
        assert product_transposed(g, fake).shape == (5, 172)
        assert product_columns(torch.empty(5, 64), fake, start).shape == (5, 24)
        assert product_columns_transposed(g, fake, start, 140).shape == (5, 140)
        rows = lookup(torch.zeros(7, dtype=torch.int64), fake)
        assert (rows.shape, rows.dtype) == ((7, 172), torch.float32)


@pytest.mark.parametrize("name", ["linear_int4", "linear_int4_transposed", "embedding_int4"])
def test_operators_pass_torchs_own_checks(name: str) -> None:
    w, _ = weight(24, 172)
    arguments = {
        "linear_int4": (random(5, 172), w.codes, w.scales, None, 172),
        "linear_int4_transposed": (random(5, 24), w.codes, w.scales, torch.tensor(32), 140),
        "embedding_int4": (torch.tensor([0, 23]), w.codes, w.scales, 172),
    }[name]
    torch.library.opcheck(
        getattr(torch.ops.bespoke, name).default, arguments, test_utils=("test_schema", "test_faketensor")
    )
