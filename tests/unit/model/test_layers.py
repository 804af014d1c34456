# SPDX-License-Identifier: Apache-2.0
"""Each forward/backward pair of a decoder block in float64: the forward against torch's own function or a plain loop, the backward
against autograd through the forward."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from bespoke.model import layers
from bespoke.model.quantize import dequantize, quantize
from bespoke.ops import QuantizedWeight

EXACT: dict[str, float] = {"rtol": 1e-10, "atol": 1e-10}
UNLIMITED = 2**40


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.Generator(np.random.Philox(key=[seed, len(shape)])).standard_normal(shape))


def int4(out: int, columns: int, seed: int) -> tuple[QuantizedWeight, torch.Tensor]:
    codes, scales = quantize("w", random(out, columns, seed=seed).float().numpy())
    dense = torch.from_numpy(dequantize(codes, scales, columns)).double()
    return QuantizedWeight(torch.from_numpy(codes), torch.from_numpy(scales), columns), dense


def same(found: Any, expected: Any) -> None:
    torch.testing.assert_close(found, expected, **EXACT)


# ---- RMSNorm -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(5, 24), (2, 5, 3, 8)])
def test_norm(shape: tuple[int, ...]) -> None:
    x, w, dy, eps = random(*shape), random(shape[-1], seed=1), random(*shape, seed=2), 1e-2  # an eps that counts
    same(layers.norm(x, w, eps=eps), torch.nn.functional.rms_norm(x, shape[-1:], w, eps))
    x.requires_grad_()
    (expected,) = torch.autograd.grad(layers.norm(x, w, eps=eps), x, dy)
    same(layers.norm_backward(x.detach(), w, dy, eps=eps), expected)


# ---- RoPE --------------------------------------------------------------------------------------------------------------------


def test_rope_rotates_pairs_and_its_backward_rotates_back() -> None:
    x, dy = random(2, 5, 3, 8), random(2, 5, 3, 8, seed=1)
    angles = random(5, 4, seed=2)
    cos, sin = angles.cos(), angles.sin()
    pairs = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(torch.ones_like(angles), angles)[None, :, None]
    same(layers.rope(x, cos, sin), torch.cat([pairs.real, pairs.imag], -1))
    same(layers.rope_backward(layers.rope(x, cos, sin), cos, sin), x)
    x.requires_grad_()
    (expected,) = torch.autograd.grad(layers.rope(x, cos, sin), x, dy)
    same(layers.rope_backward(dy, cos, sin), expected)


# ---- LoRA linear -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("quantized", [False, True])
@pytest.mark.parametrize("rank", [1, 3])
def test_lora_linear(rank: int, quantized: bool, bias: bool) -> None:
    packed, dense = int4(20, 44, 0)
    w = packed if quantized else dense
    x, a, b, dy = random(7, 44), random(rank, 44, seed=1), random(20, rank, seed=2), random(7, 20, seed=3)
    beta, scale = random(20, seed=4) if bias else None, 0.75
    y = x @ (dense + scale * b @ a).t() + (0 if beta is None else beta)
    same(layers.lora_linear(x, w, beta, a, b, scale=scale), y)
    for leaf in (x, a, b):
        leaf.requires_grad_()
    expected = torch.autograd.grad(x @ (dense + scale * b @ a).t(), (x, a, b), dy)
    x, a, b = x.detach(), a.detach(), b.detach()
    same(layers.lora_linear_backward(x, w, a, b, dy, scale=scale), expected)
    da, db, dh = layers.lora_gradients(x, a, b, dy, scale=scale)
    same((da, db), expected[1:])
    same(dh, scale * dy @ b)


# ---- attention ---------------------------------------------------------------------------------------------------------------

HEADS = {"heads": 6, "kv_heads": 2, "scale": 0.3}
WIDTH = 4


def by_definition(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, start: int, window: int) -> torch.Tensor:
    """One query and one head at a time."""
    q, k, v = q.view(-1, 6, WIDTH), k.view(-1, 2, WIDTH), v.view(-1, 2, WIDTH)
    rows = []
    for i in range(q.shape[0]):
        position = start + i
        seen = range(max(0, position - window + 1), position + 1)
        heads = []
        for head in range(6):
            keys, values = k[list(seen), head // 3], v[list(seen), head // 3]
            heads.append(torch.softmax(HEADS["scale"] * keys @ q[i, head], 0) @ values)
        rows.append(torch.cat(heads))
    return torch.stack(rows)


@pytest.mark.parametrize("window", [UNLIMITED, 1, 3])
@pytest.mark.parametrize(("start", "size"), [(0, 9), (0, 1), (4, 5), (8, 1)])
def test_attention_of_a_tile(start: int, size: int, window: int) -> None:
    q, k, v, do = random(size, 24), random(9, 8, seed=1), random(9, 8, seed=2), random(size, 24, seed=3)
    places = (torch.tensor(start), torch.tensor(window))
    expected = by_definition(q, k, v, start, window)
    o = layers.attention_tile(q, k, v, *places, **HEADS)
    same(o, expected)
    for leaf in (q, k, v):
        leaf.requires_grad_()
    dq, dk, dv = torch.autograd.grad(by_definition(q, k, v, start, window), (q, k, v), do)
    found = layers.attention_tile_backward(q.detach(), k.detach(), v.detach(), o, do, *places, **HEADS)
    same(found, {"dq": dq, "dk": dk, "dv": dv})


@pytest.mark.parametrize("size", [1, 2, 4, 9])
def test_tiles_of_queries_add_up(size: int) -> None:
    q, k, v, do = random(9, 24), random(9, 8, seed=1), random(9, 8, seed=2), random(9, 24, seed=3)
    window = torch.tensor(4)
    o = layers.attention_tile(q, k, v, torch.tensor(0), window, **HEADS)
    whole = layers.attention_tile_backward(q, k, v, o, do, torch.tensor(0), window, **HEADS)
    sums = {"dk": torch.zeros_like(k), "dv": torch.zeros_like(v)}
    for a in range(0, 9, size):
        rows = slice(a, a + size)
        same(layers.attention_tile(q[rows], k, v, torch.tensor(a), window, **HEADS), o[rows])
        part = layers.attention_tile_backward(q[rows], k, v, o[rows], do[rows], torch.tensor(a), window, **HEADS)
        same(part["dq"], whole["dq"][rows])
        for name in sums:
            sums[name] += part[name]
    same(sums, {name: whole[name] for name in sums})


# ---- gated MLP ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_gate(activation: str) -> None:
    a = torch.linspace(-12, 12, 101, dtype=torch.float64)
    expected = torch.nn.functional.silu(a) if activation == "silu" else torch.nn.functional.gelu(a, approximate="tanh")
    same(layers.gate(a, activation=activation), expected)
    a.requires_grad_()
    (slope,) = torch.autograd.grad(layers.gate(a, activation=activation).sum(), a)
    same(layers.gate_backward(a.detach(), activation=activation), slope)


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
@pytest.mark.parametrize("slices", [((0, 172),), ((0, 64), (64, 128), (128, 172))])
def test_mlp_slices_add_up_to_the_whole(slices: tuple[tuple[int, int], ...], activation: str) -> None:
    """F = 172, cut into 64, 64 and 44, as one LoRA MLP through autograd."""
    rows, hidden, width, rank, scale = 5, 24, 172, 3, 0.75
    (gate, gate_d), (up, up_d), (down, down_d) = int4(width, hidden, 0), int4(width, hidden, 1), int4(hidden, width, 2)
    x, dy = random(rows, hidden), random(rows, hidden, seed=9)
    pieces = {
        "a_gate": random(rank, hidden, seed=3),
        "b_gate": random(width, rank, seed=4),
        "a_up": random(rank, hidden, seed=5),
        "b_up": random(width, rank, seed=6),
        "a_down": random(rank, width, seed=7),
        "b_down": random(hidden, rank, seed=8),
    }

    def linear(v: torch.Tensor, w: torch.Tensor, name: str) -> torch.Tensor:
        return v @ (w + scale * pieces[f"b_{name}"] @ pieces[f"a_{name}"]).t()

    def whole() -> torch.Tensor:
        act = (
            torch.nn.functional.silu
            if activation == "silu"
            else lambda a: torch.nn.functional.gelu(a, approximate="tanh")
        )
        return linear(act(linear(x, gate_d, "gate")) * linear(x, up_d, "up"), down_d, "down")

    leaves = [x, *pieces.values()]
    for leaf in leaves:
        leaf.requires_grad_()
    expected_y = whole()
    expected = dict(zip(["x", *pieces], torch.autograd.grad(expected_y, leaves, dy), strict=True))

    with torch.no_grad():
        h_gate, h_up = x @ pieces["a_gate"].t(), x @ pieces["a_up"].t()
        dh_down = scale * dy @ pieces["b_down"]
        sums = {name: torch.zeros(rows, rank).double() for name in ("dh_gate", "dh_up", "h_down")}
        sums["dx"], y, h_down = torch.zeros_like(x), torch.zeros_like(x), torch.zeros(rows, rank).double()
        found: dict[str, list[torch.Tensor]] = {"db_gate": [], "db_up": [], "da_down": []}
        for start, stop in slices:

            def cut(w: QuantizedWeight, start: int = start, stop: int = stop) -> QuantizedWeight:
                return QuantizedWeight(w.codes[start:stop], w.scales[start:stop], w.columns)

            bs = pieces["b_gate"][start:stop], pieces["b_up"][start:stop]
            a, u = layers.gated_products(x, h_gate, h_up, cut(gate), cut(up), *bs, scale=scale)
            a_down, place = pieces["a_down"].t()[start:stop], torch.tensor(start)
            part = layers.gated_mlp_slice(a, u, down, a_down, place, activation=activation)
            y, h_down = y + part["y"], h_down + part["h_down"]
            back = layers.gated_mlp_slice_backward(
                a,
                u,
                h_gate,
                h_up,
                cut(gate),
                cut(up),
                down,
                *bs,
                a_down,
                place,
                dy,
                dh_down,
                scale=scale,
                activation=activation,
            )
            for name in sums:
                sums[name] = sums[name] + back[name]
            for name, values in found.items():
                values.append(back[name])

        same(y + scale * h_down @ pieces["b_down"].t(), expected_y.detach())
        same(sums["h_down"], h_down)
        same(torch.cat(found["db_gate"]), expected["b_gate"])
        same(torch.cat(found["db_up"]), expected["b_up"])
        same(torch.cat(found["da_down"]).t(), expected["a_down"])
        same(scale * dy.t() @ h_down, expected["b_down"])
        same(sums["dh_gate"].t() @ x, expected["a_gate"])
        same(sums["dh_up"].t() @ x, expected["a_up"])
        same(sums["dx"] + sums["dh_gate"] @ pieces["a_gate"] + sums["dh_up"] @ pieces["a_up"], expected["x"])


def test_a_query_sees_itself_even_in_the_narrowest_window() -> None:
    q, k, v = random(3, 24), random(3, 8, seed=1), random(3, 8, seed=2)
    o = layers.attention_tile(q, k, v, torch.tensor(0), torch.tensor(1), **HEADS)
    same(o.view(3, 2, 3, WIDTH), v.view(3, 2, 1, WIDTH).expand(3, 2, 3, WIDTH))
    assert math.isfinite(float(o.sum()))
