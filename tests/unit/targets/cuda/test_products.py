# SPDX-License-Identifier: Apache-2.0
"""Target `cuda`: Triton's kernels, in its interpreter, against float64 products of what numpy decodes, and no operator of ours."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from bespoke.errors import GraphError
from bespoke_plugins.targets.cuda import products
from bespoke_plugins.targets.cuda.products import OPERATORS


class Weight(NamedTuple):
    codes: torch.Tensor  # uint8 [out, 16 * groups]
    scales: torch.Tensor  # float16 [out, groups]
    dense: np.ndarray  # float64 [out, columns]


def weight(out: int, columns: int, seed: int = 0) -> Weight:
    """Random codes, and scales of both signs and 0, read as the format says. Codes of the padding are random: no column of theirs
    is ever used."""
    generator = np.random.Generator(np.random.Philox(seed))
    groups = -(-columns // 32)
    codes = generator.integers(0, 256, (out, 16 * groups), dtype=np.uint8)
    signs = generator.choice([-1, -1, 1, 1, 0], (out, groups))
    scales = (signs * generator.uniform(0.01, 0.1, (out, groups))).astype(np.float16)
    dense = np.zeros((out, 32 * groups))
    for column in range(32 * groups):
        nibble = (codes[:, column // 2] >> (4 * (column % 2))) & 15
        dense[:, column] = (nibble.astype(float) - 8) * scales[:, column // 32].astype(float)
    return Weight(torch.from_numpy(codes), torch.from_numpy(scales), dense[:, :columns])


def random(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.from_numpy(np.random.Generator(np.random.Philox(seed)).standard_normal(shape, dtype=np.float32))


def error(found: torch.Tensor, expected: np.ndarray) -> float:
    """The largest, relative to the largest value."""
    assert found.shape == expected.shape
    return float(np.abs(found.double().numpy() - expected).max() / np.abs(expected).max())


# Rows of one tile and of several; of W fewer than a tile's, and more; widths with and without padding.
SHAPES = [(1, 5, 20), (17, 40, 172), (66, 70, 96)]


@pytest.mark.parametrize(("rows", "out", "columns"), SHAPES)
def test_products_are_those_of_the_decoded_weight(rows: int, out: int, columns: int) -> None:
    w = weight(out, columns)
    x, g = random(rows, columns), random(rows, out)
    forward = OPERATORS["linear_int4"](x, w.codes, w.scales, None, columns)
    transposed = OPERATORS["linear_int4_transposed"](g, w.codes, w.scales, None, columns)
    assert error(forward, x.double().numpy() @ w.dense.T) < 1e-6
    assert error(transposed, g.double().numpy() @ w.dense) < 1e-6


@pytest.mark.parametrize(("first", "stop"), [(32, 96), (96, 172), (160, 172)])
def test_slices_of_columns_are_those_of_the_decoded_weight(first: int, stop: int) -> None:
    w, start = weight(40, 172), torch.tensor(first)
    x, g = random(5, stop - first), random(5, 40)
    forward = OPERATORS["linear_int4"](x, w.codes, w.scales, start, stop - first)
    transposed = OPERATORS["linear_int4_transposed"](g, w.codes, w.scales, start, stop - first)
    assert error(forward, x.double().numpy() @ w.dense[:, first:stop].T) < 1e-6
    assert error(transposed, g.double().numpy() @ w.dense[:, first:stop]) < 1e-6


def test_operands_need_not_lie_in_one_piece() -> None:
    w = weight(40, 64)
    x = random(64, 5).t()
    cut = OPERATORS["linear_int4"](x, w.codes[8:40], w.scales[8:40], None, 64)
    assert error(cut, x.double().numpy() @ w.dense[8:40].T) < 1e-6


def test_products_in_bf16_parts_are_as_exact_as_in_fp32() -> None:
    w = weight(64, 512)
    x, g = random(16, 512), random(16, 64)
    exact_forward, exact_back = x.double().numpy() @ w.dense.T, g.double().numpy() @ w.dense
    single = torch.from_numpy(w.dense).float()
    forward = OPERATORS["linear_int4"](x, w.codes, w.scales, None, 512)
    back = OPERATORS["linear_int4_transposed"](g, w.codes, w.scales, None, 512)
    assert error(forward, exact_forward) <= 1.5 * error(x @ single.t(), exact_forward)
    assert error(back, exact_back) <= 1.5 * error(g @ single, exact_back)


def test_values_of_any_size_keep_their_digits_in_parts() -> None:
    """From the smallest sums of the parts to the largest: each product is compared with itself, not with its neighbours."""
    w = weight(16, 32)
    sizes = 10.0 ** torch.arange(-15, 16, 2).float()
    x = random(16, 32) * sizes[:, None]
    found = OPERATORS["linear_int4"](x, w.codes, w.scales, None, 32).double().numpy() / sizes.double().numpy()[:, None]
    expected = (x.double().numpy() / sizes.double().numpy()[:, None]) @ w.dense.T
    assert np.abs(found - expected).max() < 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("columns", [20, 172, 600])
def test_rows_of_a_table_are_exact(columns: int) -> None:
    w, tokens = weight(9, columns), torch.tensor([3, 8, 3, 0])
    found = OPERATORS["embedding_int4"](tokens, w.codes, w.scales, columns)
    assert np.array_equal(found.double().numpy(), w.dense[tokens.numpy()])


def test_what_is_outside_of_a_weight_is_not_read() -> None:
    """Scalars of a plan reach a kernel unseen: they must not lead out of its operands."""
    w, x = weight(40, 64), random(5, 64)
    rows = OPERATORS["embedding_int4"](torch.tensor([40, -1, 1 << 40, 39]), w.codes, w.scales, 64)
    assert torch.isnan(rows[:3]).all()
    assert torch.isfinite(rows[3]).all()
    for start in (-(1 << 30), -64, 64, 1 << 30):
        assert not OPERATORS["linear_int4"](x, w.codes, w.scales, torch.tensor(start), 64).any()
        assert not OPERATORS["linear_int4_transposed"](random(5, 40), w.codes, w.scales, torch.tensor(start), 64).any()


ROWS, VOCABULARY, WIDTH = 5, 150, 44


def head(w: Weight, h: torch.Tensor, targets: torch.Tensor, chunk: int, gradient: bool = True) -> list[torch.Tensor]:
    zeros = torch.zeros(len(h))
    state = [zeros - 1e30, zeros, zeros, zeros.long(), *([torch.zeros_like(h)] if gradient else [])]
    name = "head_chunk_gradient_int4" if gradient else "head_chunk_int4"
    for start in range(0, VOCABULARY, chunk):
        cut = w.codes[start : start + chunk], w.scales[start : start + chunk]
        state = list(OPERATORS[name](h, *cut, targets, torch.tensor(start), *state))
    return state


@pytest.mark.parametrize(("chunk", "at_once", "size"), [(150, 1 << 20, 1), (64, 32 * ROWS, 1), (149, 1 << 20, 300)])
def test_the_head_is_the_softmax_over_all_logits(
    chunk: int, at_once: int, size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(products, "LOGITS_AT_ONCE", at_once)
    w, h, targets = weight(VOCABULARY, WIDTH), size * random(ROWS, WIDTH), torch.arange(ROWS) * 30 + 7
    m, total, label, best, acc = head(w, h, targets, chunk)
    logits = h.double().numpy() @ w.dense.T
    p = np.exp(logits - logits.max(1, keepdims=True))
    assert error(m + total.log(), logits.max(1) + np.log(p.sum(1))) < 1e-6
    assert error(label, logits[np.arange(ROWS), targets.numpy()]) < 1e-6
    of_exp = max(1, size)  # an error of the argument is one of the result
    assert error(acc / total[:, None], (p / p.sum(1, keepdims=True)) @ w.dense) < 1e-6 * of_exp
    assert best.tolist() == logits.argmax(1).tolist()


@pytest.mark.slow
def test_the_heads_parts_are_of_widths_that_the_kernels_were_compiled_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """576 rows are what fzoo's nine paths make of four rows of 16 tokens: 2^20 logits are 1,820 of each."""
    widths = []
    monkeypatch.setattr(
        products, "_run_linear", lambda tf32, x, codes, scales, start, y: widths.append(y.zero_().shape[1])
    )
    w = weight(4000, 32)
    zeros = torch.zeros(576)
    state = [zeros - 1e30, zeros, zeros, zeros.long()]
    OPERATORS["head_chunk_int4"](torch.zeros(576, 32), w.codes, w.scales, zeros.long(), torch.tensor(0), *state)
    assert widths == [1792, 1792, 416]


def test_the_head_without_a_gradient_is_the_same() -> None:
    w, h, targets = weight(VOCABULARY, WIDTH), random(ROWS, WIDTH), torch.arange(ROWS)
    for one, other in zip(head(w, h, targets, 64, gradient=False), head(w, h, targets, 64)[:4], strict=True):
        assert torch.equal(one, other)


def test_of_equal_logits_the_first_row_is_the_best_token_and_what_is_no_number_shows() -> None:
    w = weight(VOCABULARY, WIDTH)
    w.codes[:], w.scales[:] = w.codes[:1].clone(), 0.125
    h = random(ROWS, WIDTH).round()
    h[3, 5] = torch.nan
    _, total, _, best, _ = head(w, h, torch.zeros(ROWS, dtype=torch.int64), 64)
    assert torch.isnan(total).tolist() == [row == 3 for row in range(ROWS)]
    assert not best[[0, 1, 2, 4]].any()


def test_operands_stay_as_they_are() -> None:
    w, h = weight(VOCABULARY, WIDTH), random(ROWS, WIDTH)
    zeros = torch.zeros(ROWS)
    state = [zeros - 1e30, zeros, zeros, zeros.long(), torch.ones_like(h)]
    operands = [h, w.codes, w.scales, torch.arange(ROWS), torch.tensor(0), *state]
    before = [value.clone() for value in operands]
    OPERATORS["head_chunk_gradient_int4"](*operands)
    assert all(torch.equal(one, other) for one, other in zip(operands, before, strict=True))


@pytest.mark.parametrize(
    "changed",
    [
        {"x": random(5, 32)},
        {"x": random(5, 64).double()},
        {"codes": weight(40, 32).codes},
        {"scales": torch.zeros(40, 2)},
    ],
    ids=["width", "dtype", "codes", "scales"],
)
def test_operands_of_other_shapes_or_types_are_refused(changed: dict[str, Any]) -> None:
    w = weight(40, 64)
    given = {"x": random(5, 64), "codes": w.codes, "scales": w.scales} | changed
    with pytest.raises(GraphError, match=r"linear_int4.*operands.*expected float32 rows"):
        OPERATORS["linear_int4"](given["x"], given["codes"], given["scales"], None, 64)


def test_a_result_of_more_numbers_than_a_kernel_counts_is_refused() -> None:
    """With operands that are smaller by far. On the device "meta" they take no memory."""
    many = 1 << 16
    x, g = torch.empty(many, 32, device="meta"), torch.empty(32, 32, device="meta")
    codes, scales = (torch.empty(many, n, dtype=d, device="meta") for n, d in ((16, torch.uint8), (1, torch.float16)))
    wide = [tensor[:32].expand(32, -1) for tensor in (codes, scales)]
    with pytest.raises(GraphError, match=r"linear_int4.*a result of 4,294,967,296 numbers; expected.*fewer than 2\^31"):
        OPERATORS["linear_int4"](x, codes, scales, None, 32)
    with pytest.raises(GraphError, match=r"linear_int4_transposed.*a result of 4,294,967,296 numbers"):
        OPERATORS["linear_int4_transposed"](g, *wide, None, 1 << 27)
    with pytest.raises(GraphError, match=r"embedding_int4.*a result of 8,589,934,592 numbers"):
        OPERATORS["embedding_int4"](torch.empty(many, dtype=torch.int64, device="meta"), *wide, 1 << 17)
