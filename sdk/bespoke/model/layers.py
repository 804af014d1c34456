# SPDX-License-Identifier: Apache-2.0
"""Pieces of a decoder block as forward/backward pairs in plain torch.

The formulas are those of MeSP, appendix A. RoPE, biases, grouped queries, norm weights and the gated product are added.

Dimensions: N rows (batch and time flattened), T tokens of one sequence, S keys, D hidden, F intermediate width or a slice of
it, H query heads, K key-value heads, G = H / K, d head width, r rank. Weights are [out, in]; adapters in PEFT's layout,
A [r, in], B [out, r]; s = alpha / r.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import torch

from bespoke.ops import QuantizedWeight, product, product_columns, product_columns_transposed, product_transposed
from bespoke.ops.weight import Weight

# ---- RMSNorm: y = xhat * w, xhat = x * rho, rho = rsqrt(mean(x^2) + eps); any leading dimensions -----------------------


def norm(x: torch.Tensor, w: torch.Tensor, *, eps: float) -> torch.Tensor:
    """x [..., D], w [D] -> [..., D]."""
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + eps) * w


def norm_backward(x: torch.Tensor, w: torch.Tensor, dy: torch.Tensor, *, eps: float) -> torch.Tensor:
    """dx = rho * (gh - xhat * mean(gh * xhat)), gh = dy * w."""
    rho = torch.rsqrt((x * x).mean(-1, keepdim=True) + eps)
    xhat, gh = x * rho, dy * w
    return rho * (gh - xhat * (gh * xhat).mean(-1, keepdim=True))


# ---- RoPE, half-split layout: R(q) = q * cos + rot(q) * sin, rot([q1, q2]) = [-q2, q1] ---------------------------------


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """x [B, T, heads, d]; cos, sin [T, d / 2] -> the same shape."""
    cos, sin = cos[None, :, None, :], sin[None, :, None, :]
    x1, x2 = x.chunk(2, -1)
    return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], -1)


def rope_backward(dy: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The rotation by the negative angle."""
    return rope(dy, cos, -sin)


# ---- linear without and with an adapter: y = x W^T + b + s (x A^T) B^T ----------------------------------------------------
# A list of n A's or B's stands for n paths in one batch: rows of the first, then of the second, and so on, N / n of each.

Piece: TypeAlias = torch.Tensor | Sequence[torch.Tensor]


def times(x: torch.Tensor, piece: Piece) -> torch.Tensor:
    """x [N, i] times a piece [i, o], or each path's rows times its own: [N, o]."""
    if isinstance(piece, torch.Tensor):
        return x @ piece
    return torch.bmm(x.reshape(len(piece), -1, x.shape[1]), torch.stack(tuple(piece))).reshape(x.shape[0], -1)


def transposed(piece: Piece, *, copy: bool = False) -> Piece:
    """A piece [o, i] as [i, o]; a list of pieces path by path."""
    if not isinstance(piece, torch.Tensor):
        return [path.t().contiguous() if copy else path.t() for path in piece]
    return piece.t().contiguous() if copy else piece.t()


def linear(x: torch.Tensor, w: Weight, bias: torch.Tensor | None) -> torch.Tensor:
    """x [N, in] -> [N, out]."""
    y = product(x, w)
    return y if bias is None else y + bias


def lora_linear(
    x: torch.Tensor, w: Weight, bias: torch.Tensor | None, a: Piece, b: Piece, *, scale: float
) -> torch.Tensor:
    """x [N, in] -> [N, out]. W reads the rows of all paths at once."""
    y = product(x, w) + scale * times(times(x, transposed(a)), transposed(b))
    return y if bias is None else y + bias


def lora_gradients(
    x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, dy: torch.Tensor, *, scale: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """h = x A^T recomputed, never stored: dA = dh^T x, dB = s dy^T h, and dh = s dy B [N, r]."""
    dh = scale * (dy @ b)
    return dh.t() @ x, scale * (dy.t() @ (x @ a.t())), dh


def lora_linear_backward(
    x: torch.Tensor, w: Weight, a: torch.Tensor, b: torch.Tensor, dy: torch.Tensor, *, scale: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """dx = dy W + dh A, dA, dB. W and b are frozen."""
    da, db, dh = lora_gradients(x, a, b, dy, scale=scale)
    return product_transposed(dy, w) + dh @ a, da, db


# ---- attention: one tile of queries against all keys of its sequence -----------------------------------------------------


def _visible(start: torch.Tensor, window: torch.Tensor, tile: int, keys: int) -> torch.Tensor:
    """Mask [tile, S]: row i of the tile is at position start + i and sees positions (position - window, position]."""
    i = start + torch.arange(tile, device=start.device)[:, None]
    j = torch.arange(keys, device=start.device)[None, :]
    return (j <= i) & (j > i - window)  # [tile, S]


def _by_kv_head(x: torch.Tensor, kv_heads: int, d: int) -> torch.Tensor:
    """[tile, H * d] -> [K, tile * G, d], query head j next to key-value head j // G."""
    return x.view(x.shape[0], kv_heads, -1).transpose(0, 1).reshape(kv_heads, -1, d)


def _probabilities(
    q: torch.Tensor, k: torch.Tensor, start: torch.Tensor, window: torch.Tensor, *, groups: int, scale: float
) -> torch.Tensor:
    """P = softmax(scale q k^T + mask): q [K, tile * G, d], k [K, S, d] -> [K, tile * G, S]."""
    scores = torch.bmm(q, k.transpose(1, 2)) * scale
    visible = _visible(start, window, q.shape[1] // groups, k.shape[1]).repeat_interleave(groups, 0)
    return torch.softmax(torch.where(visible, scores, -math.inf), -1)


def attention_tile(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    start: torch.Tensor,
    window: torch.Tensor,
    *,
    heads: int,
    kv_heads: int,
    scale: float,
) -> torch.Tensor:
    """o = P v for queries at positions start..start + tile: q [tile, H * d], k and v [S, K * d] -> [tile, H * d]."""
    tile, groups = q.shape[0], heads // kv_heads
    d = q.shape[1] // heads
    qk = _by_kv_head(q, kv_heads, d)
    kk, vk = (t.view(-1, kv_heads, d).transpose(0, 1) for t in (k, v))
    o = torch.bmm(_probabilities(qk, kk, start, window, groups=groups, scale=scale), vk)
    return o.view(kv_heads, tile, groups * d).transpose(0, 1).reshape(tile, heads * d)


def attention_tile_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    do: torch.Tensor,
    start: torch.Tensor,
    window: torch.Tensor,
    *,
    heads: int,
    kv_heads: int,
    scale: float,
) -> dict[str, torch.Tensor]:
    """P is recomputed; delta = rowsum(do * o), dS = P * (do v^T - delta) * scale.

    `dq` [tile, H * d] belongs to the tile; `dk` and `dv` [S, K * d] are the tile's share, to be summed over tiles.
    """
    tile, groups = q.shape[0], heads // kv_heads
    d = q.shape[1] // heads
    qk, ok, dok = (_by_kv_head(t, kv_heads, d) for t in (q, o, do))
    kk, vk = (t.view(-1, kv_heads, d).transpose(0, 1) for t in (k, v))
    p = _probabilities(qk, kk, start, window, groups=groups, scale=scale)
    dv = torch.bmm(p.transpose(1, 2), dok)
    delta = (dok * ok).sum(-1, keepdim=True)
    ds = p * (torch.bmm(dok, vk.transpose(1, 2)) - delta) * scale
    dq = torch.bmm(ds, kk).view(kv_heads, tile, groups * d).transpose(0, 1).reshape(tile, heads * d)
    dk, dv = (t.transpose(0, 1).reshape(-1, kv_heads * d) for t in (torch.bmm(ds.transpose(1, 2), qk), dv))
    return {"dq": dq, "dk": dk, "dv": dv}


# ---- gated MLP: p = act(a) * u; a, u and p for one slice of the intermediate width ------------------------------------------
# Operands of an adapter are None for a linear without one.

_GELU = math.sqrt(2.0 / math.pi)


def gate(a: torch.Tensor, *, activation: str) -> torch.Tensor:
    """silu(a), or GELU in its tanh form."""
    if activation == "silu":
        return a * torch.sigmoid(a)
    return 0.5 * a * (1 + torch.tanh(_GELU * (a + 0.044715 * a * a * a)))


def gate_backward(a: torch.Tensor, *, activation: str) -> torch.Tensor:
    """Derivative of `gate` at a."""
    if activation == "silu":
        sigma = torch.sigmoid(a)
        return sigma * (1 + a * (1 - sigma))
    t = torch.tanh(_GELU * (a + 0.044715 * a * a * a))
    return 0.5 * (1 + t) + 0.5 * a * (1 - t * t) * _GELU * (1 + 3 * 0.044715 * a * a)


def gated_products(
    x: torch.Tensor,
    h_gate: torch.Tensor | None,
    h_up: torch.Tensor | None,
    w_gate: Weight,
    w_up: Weight,
    b_gate: Piece | None,
    b_up: Piece | None,
    *,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """a and u [N, F] of a slice.

    x [N, D]; h_gate and h_up [N, r] are x A^T of gate and up; w_gate, w_up [F, D] and b_gate, b_up [F, r] are cut by rows.
    """
    return _with_adapter(product(x, w_gate), h_gate, b_gate, scale), _with_adapter(product(x, w_up), h_up, b_up, scale)


def _with_adapter(y: torch.Tensor, h: torch.Tensor | None, b: Piece | None, scale: float) -> torch.Tensor:
    return y if h is None or b is None else y + scale * times(h, transposed(b))


def gated_mlp_slice(
    a: torch.Tensor,
    u: torch.Tensor,
    w_down: QuantizedWeight,
    a_down: Piece | None,
    start: torch.Tensor,
    *,
    activation: str,
) -> dict[str, torch.Tensor]:
    """A slice's share of the down projection, to be summed over slices: `y` [N, D] and, for its adapter, `h_down` [N, r].

    a, u [N, F] of the slice; w_down whole, its columns cut at `start`; a_down [F, r] is down's A transposed and cut by rows.
    """
    p = gate(a, activation=activation) * u
    y = {"y": product_columns(p, w_down, start)}
    return y if a_down is None else y | {"h_down": times(p, a_down)}


def gated_mlp_slice_backward(
    a: torch.Tensor,
    u: torch.Tensor,
    h_gate: torch.Tensor | None,
    h_up: torch.Tensor | None,
    w_gate: Weight,
    w_up: Weight,
    w_down: QuantizedWeight,
    b_gate: torch.Tensor | None,
    b_up: torch.Tensor | None,
    a_down: torch.Tensor | None,
    start: torch.Tensor,
    dy: torch.Tensor,
    dh_down: torch.Tensor | None,
    *,
    scale: float,
    activation: str,
) -> dict[str, torch.Tensor]:
    """Gradients of a slice from its a, u [N, F], kept or computed again. dy [N, D]; dh_down = s dy B_down [N, r].

    To be summed over slices: `dx` [N, D] (without the adapters' share), `dh_gate`, `dh_up`, `h_down` [N, r]. Rows of the
    slice: `db_gate`, `db_up`, `da_down` [F, r]. A linear without an adapter has no entries.
    """
    act = gate(a, activation=activation)
    p = act * u
    down = None if a_down is None or dh_down is None else (p @ a_down, p.t() @ dh_down)
    dp = product_columns_transposed(dy, w_down, start, p.shape[1])
    if a_down is not None and dh_down is not None:
        dp = dp + dh_down @ a_down.t()
    du = dp * act
    da = dp * u * gate_backward(a, activation=activation)
    sums = {"dx": product_transposed(da, w_gate) + product_transposed(du, w_up)}
    sums |= {f"dh_{name}": scale * (d @ b) for name, d, b in (("gate", da, b_gate), ("up", du, b_up)) if b is not None}
    rows = {
        f"db_{name}": scale * (d.t() @ h) for name, d, h in (("gate", da, h_gate), ("up", du, h_up)) if h is not None
    }
    if down is None:
        return sums | rows
    return sums | {"h_down": down[0]} | rows | {"da_down": down[1]}
