# SPDX-License-Identifier: Apache-2.0
"""The lab of kernels, and checks of its products."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bespoke.ops  # noqa: F401  (registers the operators that serve as the reference)
from bespoke.model.layers import attention_tile
from bespoke.model.quantize import quantize
from bespoke.ops.operators import ALIGNMENT, attention_workspace_bytes, operator_workspace_bytes
from tests.native.kernels_lab import LOOPS, Adapter, Lab, Packed

PRODUCTS = ("linear_int4", "linear_int4_transposed")
# Sets that multiply a few rows, or any number of them, by whole numbers.
FEW_BY_WHOLE_NUMBERS = ("AVX2", "AVX-512", "AVX-512 VNNI", "AMX", "NEON dotprod", "NEON i8mm")
BY_WHOLE_NUMBERS = ("NEON i8mm",)
ROUNDING, ROUNDED = ("AVX-512 VNNI", "NEON i8mm"), "16 bits"  # sets that round x, where it may be rounded
VECTOR_ROWS = 8  # at most, that are few
TOLERANCE = 2e-6  # of the norm of a row: what sums of 256, added up, leave in fp32


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


def arithmetic(name: str, rows: int, instructions: str) -> str:
    """How a set computes a product, or the head: sets with the same arithmetic give the same bits."""
    if name == "linear_int4_rounded" and rows > VECTOR_ROWS and instructions in ROUNDING:
        return ROUNDED
    forward = name in ("linear_int4", "linear_int4_rounded")
    if instructions == "baseline":
        return "rounded products"
    if instructions in BY_WHOLE_NUMBERS and (forward or name == "head"):
        return "whole numbers" if forward else "whole numbers and fused"
    if forward and rows <= VECTOR_ROWS and instructions in FEW_BY_WHOLE_NUMBERS:
        return "whole numbers"
    return "parts in bf16" if instructions == "AMX" else "fused"


def all_the_same(answers: dict[str, set[bytes]]) -> None:
    for kind, values in answers.items():
        assert len(values) == 1, f"the bits of {kind} differ from one instruction set to the other"


def random_adapter(rows: int, columns: int, rank: int, *, transposed: bool = False) -> Adapter:
    b = random(columns, rank, seed=3)
    return Adapter(random(rows, rank, seed=2), b if transposed else np.ascontiguousarray(b.T), transposed, 0.25)


def check_product(
    lab: Lab,
    name: str,
    rows: int,
    w: Packed,
    *,
    adapter: Adapter | None = None,
    sets: tuple[str, ...] | None = None,
    threads: tuple[int, ...] = (2, 3),
) -> None:
    """Close to the reference, and the same bits on any number of threads and on all sets that compute alike."""
    x = random(rows, w.columns if name == "linear_int4" else w.codes.shape[0], seed=rows)
    expected = reference(name, x, w)
    size = np.linalg.norm(x.astype(np.float64)) * np.abs(w.scales.astype(np.float64)).max() * 8 + 1e-30
    if adapter is not None:
        h, b = adapter.h.astype(np.float64), adapter.b.astype(np.float64)
        expected = expected + adapter.factor * (h @ (b.T if adapter.transposed else b))
        size += np.linalg.norm(h) * np.abs(b).max()
    alike: dict[str, set[bytes]] = {}
    for instructions in sets or lab.sets:
        answer = lab.product(name, x, w, adapter, instructions=instructions)
        (found,) = answer.results
        assert np.abs(found - expected).max() <= TOLERANCE * size, instructions
        assert answer.workspace_bytes <= operator_workspace_bytes(name, rows)
        for count in threads:
            other = lab.product(name, x, w, adapter, instructions=instructions, threads=count)
            assert other.results[0].tobytes() == found.tobytes(), f"{instructions}, {count} threads"
            assert other.workspace_bytes <= operator_workspace_bytes(name, rows)
        alike.setdefault(arithmetic(name, rows, instructions), set()).add(found.tobytes())
    all_the_same(alike)


def check_rounded(lab: Lab, x: np.ndarray, w: Packed, adapter: Adapter | None, threads: tuple[int, ...]) -> None:
    """A number is off by half a step at most, which is the largest of its group / 32638 or less.

    Sets that round give the same bits, and others those of an exact product.
    """
    weights = dense_rows(w, np.arange(len(w.codes))).double().numpy()
    half_steps, sizes = by_group(x).max(-1) / 32638, by_group(weights).sum(-1)
    expected = reference("linear_int4", x, w)
    allowed = 1.001 * half_steps @ sizes.T + TOLERANCE * (np.abs(x.astype(np.float64)) @ np.abs(weights).T)
    if adapter is not None:
        expected = expected + adapter.factor * (adapter.h.astype(np.float64) @ adapter.b.astype(np.float64).T)
        allowed += TOLERANCE * np.linalg.norm(adapter.h, axis=1)[:, None] * np.abs(adapter.b).max()
    alike: dict[str, set[bytes]] = {}
    for instructions in lab.sets:
        (exact,) = lab.product("linear_int4", x, w, adapter, instructions=instructions).results
        (found,) = lab.product("linear_int4_rounded", x, w, adapter, instructions=instructions).results
        way = arithmetic("linear_int4_rounded", len(x), instructions)
        if way == ROUNDED:
            assert (np.abs(found - expected) <= allowed).all(), instructions
        else:
            assert found.tobytes() == exact.tobytes(), instructions
        for count in threads:
            other = lab.product("linear_int4_rounded", x, w, adapter, instructions=instructions, threads=count)
            assert other.results[0].tobytes() == found.tobytes(), f"{instructions}, {count} threads"
        alike.setdefault(way, set()).add(found.tobytes())
    all_the_same(alike)


def by_group(values: np.ndarray) -> np.ndarray:
    """The sizes of [rows, columns] as [rows, groups, 32]."""
    whole = np.pad(np.abs(values.astype(np.float64)), ((0, 0), (0, -values.shape[1] % 32)))
    return whole.reshape(len(values), -1, 32)


def hard_rows(rows: int, columns: int) -> np.ndarray:
    """In turns: normal numbers, some of them a thousand times larger, and of very different sizes."""
    x = random(rows, columns, seed=1)
    x[1::3, 5::97] *= 1000
    x[2::3] *= np.exp2(6 * random(*x[2::3].shape, seed=2))
    return x


def check_exactness(lab: Lab, rows: int, out: int, columns: int) -> None:
    x, w = hard_rows(rows, columns), packed(out, columns)
    expected = reference("linear_int4", x, w)
    dense = dense_rows(w, np.arange(out)).float()
    in_fp32 = (torch.from_numpy(x) @ dense.t()).double().numpy()
    allowed = 2 * np.linalg.norm(in_fp32 - expected, axis=1) + 1e-7 * np.linalg.norm(expected, axis=1)
    for instructions in lab.sets:
        (found,) = lab.product("linear_int4", x, w, instructions=instructions).results
        assert (np.linalg.norm(found - expected, axis=1) <= allowed).all(), instructions


def check_rows_alone(lab: Lab) -> None:
    """For each number of rows that are few; for any number where all are multiplied by whole numbers."""
    for out, columns in ((5, 300), (100, 33), (300, 896)):
        x, w = hard_rows(21, columns), packed(out, columns)
        whole = random_adapter(len(x), out, 8, transposed=True)
        for instructions in lab.sets:
            alone = b"".join(
                _rows(lab, x, w, whole, i, i + 1, instructions=instructions).tobytes() for i in range(len(x))
            )
            most = len(x) if instructions in BY_WHOLE_NUMBERS else VECTOR_ROWS
            for rows in range(2, most + 1):
                found = _rows(lab, x, w, whole, 0, rows, instructions=instructions, threads=2)
                assert alone.startswith(found.tobytes()), (instructions, rows, out, columns)


def _rows(lab: Lab, x: np.ndarray, w: Packed, adapter: Adapter, first: int, stop: int, **how: Any) -> np.ndarray:
    some = replace(adapter, h=adapter.h[first:stop])
    (found,) = lab.product("linear_int4", x[first:stop], w, some, **how).results
    return found


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
        assert answer.workspace_bytes <= operator_workspace_bytes("head_chunk_int4", h.shape[0])
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
    alike: dict[str, set[bytes]] = {}
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
        bits = b"".join(value.tobytes() for value in state)
        alike.setdefault(arithmetic("head", rows, instructions), set()).add(bits)
    all_the_same(alike)


@dataclass(frozen=True)
class AttentionCase:
    """Positions from `start` on that attend to `keys`, each to `window` of them. d: the width of a head."""

    rows: int
    keys: int
    heads: int
    kv_heads: int
    d: int
    start: int
    window: int


ATTENTION_CASES = (
    AttentionCase(1, 1024, 9, 3, 64, 1000, 4096),  # an answer's next token: spans of keys are shared out
    AttentionCase(1, 64, 8, 4, 8, 0, 4096),
    AttentionCase(4, 300, 6, 2, 40, 290, 100),  # a window
    AttentionCase(7, 520, 4, 4, 300, 513, 37),  # heads wider than a panel; spans that nobody sees
    AttentionCase(33, 77, 4, 1, 256, 20, 4096),
    AttentionCase(128, 600, 14, 2, 64, 400, 512),
    AttentionCase(65, 65, 40, 1, 16, 0, 1),  # each position sees itself; more heads than a task has queries
)


def check_attention(lab: Lab, case: AttentionCase, sets: tuple[str, ...] | None = None) -> set[bytes]:
    """Close to the reference in float64 and the same bits on any number of threads, and for a position alone.

    Keys after the last position are not numbers: nothing may depend on them. Returns the bits of the sets with fused sums.
    """
    q, k, v = (
        random(count, heads * case.d, seed=seed)
        for seed, (count, heads) in enumerate(((case.rows, case.heads), *[(case.keys, case.kv_heads)] * 2))
    )
    k[case.start + case.rows :] = v[case.start + case.rows :] = np.nan
    seen = [torch.from_numpy(x).double().nan_to_num() for x in (q, k, v)]
    scale = case.d**-0.5
    sizes: dict[str, Any] = {"heads": case.heads, "kv_heads": case.kv_heads, "scale": scale}
    expected = attention_tile(*seen, torch.tensor(case.start), torch.tensor(case.window), **sizes).numpy()
    bits = set()
    for instructions in sets or lab.sets:
        how: dict[str, Any] = {**sizes, "window": case.window, "instructions": instructions}
        answer = lab.attention(q, k, v, start=case.start, **how)
        planned = attention_workspace_bytes(case.rows, case.keys, case.heads, case.kv_heads, case.d)
        assert answer.workspace_bytes + ALIGNMENT == planned
        assert np.abs(answer.results[0] - expected).max() <= 5e-6, instructions
        for threads in (2, 3, 7):
            other = lab.attention(q, k, v, start=case.start, threads=threads, **how)
            assert other.results[0].tobytes() == answer.results[0].tobytes(), f"{instructions}, {threads} threads"
        for i in range(0, case.rows, 1 + case.rows // 4):
            alone = lab.attention(q[i : i + 1], k, v, start=case.start + i, threads=2, **how)
            assert alone.results[0].tobytes() == answer.results[0][i : i + 1].tobytes(), f"{instructions}, row {i}"
        if instructions != "baseline":
            bits.add(answer.results[0].tobytes())
    return bits


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


def loop_bits(lab: Lab, instructions: str) -> bytes:
    """A product of rows and activations of every second element, by strided loops."""
    x, w = random(8, 300, seed=1).astype(np.float32).ravel(), random(16, 300, seed=2).astype(np.float32).ravel()
    of_product = [(0, (0, 16, 1, 0)), (0, (0, 300, 0, 1)), (0, (0, 0, 300, 1))]
    of_elements = [(1, (0, 0, 150, 1)), (0, (0, 0, 300, 2)), (0, (0, 0, 300, 2))]
    product = lab.loop(LOOPS.index("matmul"), (1, 8, 16, 300), of_product, 128, x, w, instructions=instructions)
    found = [
        lab.loop(LOOPS.index(name), (1, 1, 8, 150), of_elements, 1201, x, x, instructions=instructions)[1:]
        for name in ("sigmoid", "tanh")
    ]
    return b"".join(one.tobytes() for one in (product, *found))


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
