# SPDX-License-Identifier: Apache-2.0
"""The backward of a block in hand-derived stages, each a small graph: the counterpart of `forward`.

Dimensions: N rows, D hidden, F intermediate width or a slice of it, H and K query and key-value heads, d head width, r rank.
Every function records calls and returns gradients by the names of the trained pieces. Where B alone is trained, dA is no result
of a stage, and tracing leaves out what only dA needs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from bespoke.graph.step_builder import StepBuilder
from bespoke.graph.value import Value
from bespoke.methods.forward import (
    ATTENTION_LINEARS,
    Attention,
    attention_weights,
    mlp_projections,
    mlp_slices,
    output_weights,
    pick,
    query_tiles,
    rope_rows,
    row_tiles,
    slice_adapter,
    slice_weights,
    some_rows,
)
from bespoke.model import layers
from bespoke.ops import product_transposed
from bespoke.ops.dtypes import Tensors

if TYPE_CHECKING:
    from bespoke.model.spec import ModelSpec

# ---- MLP -------------------------------------------------------------------------------------------------------------------


def mlp_start(
    x: torch.Tensor, branch: Any, dy: torch.Tensor, weights: dict[str, Any], adapter: Tensors, *, model: ModelSpec
) -> Tensors:
    """The tensors that all slices share: those of `mlp_inputs`, and `dh_down` [N, r] where down has an adapter.

    Where the branch is normed again also the gradient before that norm, `dbranch` [N, D].
    """
    if not model.config.output_norms:
        return model.mlp_inputs(x, weights, adapter) | _dh_down(dy, adapter, model)
    dbranch = layers.norm_backward(branch["branch"], weights["mlp_output_norm"], dy, eps=model.config.norm_eps)
    dh_down = _dh_down(dbranch, adapter, model)
    return model.mlp_inputs(x, weights, adapter) | {"dbranch": dbranch} | dh_down


def _dh_down(dy: torch.Tensor, adapter: Tensors, model: ModelSpec) -> Tensors:
    return (
        {"dh_down": model.lora.scale * (dy @ adapter["down_proj.lora_B"])} if "down_proj" in model.lora.targets else {}
    )


def mlp_slice_backward(
    shared: Tensors,
    products: Tensors,
    weights: dict[str, Any],
    adapter: Tensors,
    a_down: torch.Tensor | None,
    start: torch.Tensor,
    *,
    model: ModelSpec,
) -> Tensors:
    """One slice of the width; see layers.gated_mlp_slice_backward. `products` are a and u where they were kept, else empty."""
    h_gate, h_up = shared.get("h_gate"), shared.get("h_up")
    if products:
        a, u = products["a"], products["u"]
    else:
        a, u = model.mlp_products(shared["x2"], h_gate, h_up, weights, adapter)
    gradients = layers.gated_mlp_slice_backward(
        a,
        u,
        h_gate,
        h_up,
        weights["gate_proj"],
        weights["up_proj"],
        weights["down_proj"],
        adapter.get("gate_proj.lora_B"),
        adapter.get("up_proj.lora_B"),
        a_down,
        start,
        shared["dbranch"],
        shared.get("dh_down"),
        scale=model.lora.scale,
        activation=model.config.activation,
    )
    return {
        name: leaf for name, leaf in gradients.items() if name != "da_down" or model.lora.trains("down_proj.lora_A")
    }


def mlp_end(
    x: torch.Tensor,
    dy: torch.Tensor,
    shared: Tensors,
    sums: Tensors,
    da_down: torch.Tensor | None,
    weights: dict[str, Any],
    adapter: Tensors,
    *,
    model: ModelSpec,
) -> tuple[torch.Tensor, Tensors]:
    """After the last slice: dx [N, D] of the residual before the MLP, and the gradients that need all slices."""
    gated = [name for name in ("gate", "up") if f"{name}_proj" in model.lora.targets]
    grads = {f"{name}_proj.lora_A": sums[f"dh_{name}"].t() @ shared["x2"] for name in gated if "x2" in shared}
    if da_down is not None:
        grads["down_proj.lora_A"] = da_down.t().contiguous()
    if "h_down" in sums:
        grads["down_proj.lora_B"] = model.lora.scale * (shared["dbranch"].t() @ sums["h_down"])
    dx2 = sums["dx"]
    for name in gated:
        dx2 = dx2 + sums[f"dh_{name}"] @ adapter[f"{name}_proj.lora_A"]
    return dy + layers.norm_backward(x, weights["mlp_norm"], dx2, eps=model.config.norm_eps), grads


def mlp_backward(
    b: StepBuilder,
    model: ModelSpec,
    block: int,
    x: Value,
    branch: Value,
    dy: Value,
    adapter: dict[str, Value],
    products: Sequence[dict[str, Value]] = (),
) -> tuple[Value, dict[str, Value]]:
    """dy [N, D] at the block's output -> gradient at the MLP's input x [N, D], and of gate, up and down, where they have adapters.

    `branch` is the down projection's output, read only where it is normed again; nothing else needs it. `products` are gate and up
    by slices where the forward pass kept them; else they are computed again.
    """
    weights = b.weights(model.blocks[block])
    norms = pick(weights, "mlp_norm", "mlp_output_norm")
    projections = mlp_projections(weights, adapter)
    needed = projections | {name: leaf for name, leaf in adapter.items() if name == "down_proj.lora_B"}
    seen = {"branch": branch} if model.config.output_norms else {}
    started = b.call(mlp_start, x, seen, dy, norms, needed, model=model)
    a_down = started.pop("a_down", None)
    shared = {"dbranch": dy, **started}
    used = {name: leaf for name, leaf in shared.items() if name != "x2" or not products}
    rank, width = model.lora.rank, model.config.intermediate_size
    gated = [name for name in ("gate", "up") if f"{name}_proj" in model.lora.targets]
    down = "down_proj" in model.lora.targets
    by_token = [*(f"dh_{name}" for name in gated), *(["h_down"] if down else [])]
    by_width = [*(f"db_{name}" for name in gated), *(["da_down"] if "down_proj.lora_A" in adapter else [])]
    sums = {name: b.zeros((x.shape[0], rank)) for name in by_token} | {"dx": b.zeros(x.shape)}
    rows = {name: b.zeros((width, rank)) for name in by_width}
    tiles = row_tiles(b, x.shape[0])
    for number, ((of, _), (start, stop)) in enumerate(itertools.product(tiles, mlp_slices(b, model))):
        summed = {name: value.rows(*of) for name, value in sums.items()}
        slices = {name: value.rows(start, stop) for name, value in rows.items()}
        b.call(
            mlp_slice_backward,
            {name: value.rows(*of) for name, value in used.items()},
            products[number] if products else {},
            slice_weights(weights, start, stop),
            slice_adapter(adapter, start, stop),
            some_rows(a_down, start, stop),
            b.constant(start),
            add_to=summed if len(tiles) == 1 else summed | slices,
            into=slices if len(tiles) == 1 else None,
            model=model,
        )
    wanted = {"x2": any(name.endswith("lora_A") for name in pick(adapter, "gate_proj", "up_proj")), "dbranch": down}
    shared = {name: shared[name] for name, is_wanted in wanted.items() if is_wanted}
    loras = pick(projections, "gate_proj", "up_proj")
    dx, grads = b.call(mlp_end, x, dy, shared, sums, rows.get("da_down"), pick(weights, "mlp_norm"), loras, model=model)
    return dx, grads | {f"{name}_proj.lora_B": rows[f"db_{name}"] for name in gated}


# ---- attention -------------------------------------------------------------------------------------------------------------


def output_backward(
    o: torch.Tensor, dy: torch.Tensor, weights: dict[str, Any], adapter: Tensors, *, model: ModelSpec
) -> tuple[torch.Tensor, Tensors]:
    """do [N, H * d] and the gradients of o_proj: back through Gemma's norm of the branch, if any, and the output projection."""
    if model.config.output_norms:
        branch = model.linear(o, "o_proj", weights, adapter)
        dy = layers.norm_backward(branch, weights["attention_output_norm"], dy, eps=model.config.norm_eps)
    return _linear_backward(o, dy, "o_proj", weights, adapter, model)


def _linear_backward(
    x: torch.Tensor, dy: torch.Tensor, name: str, weights: dict[str, Any], adapter: Tensors, model: ModelSpec
) -> tuple[torch.Tensor, Tensors]:
    """dy [N, out] at a linear -> dx [N, in], and dA and dB if it has an adapter and they are trained."""
    if name not in model.lora.targets:
        return product_transposed(dy, weights[name]), {}
    a, b = model.factors(name, weights, adapter)
    dx, da, db = layers.lora_linear_backward(x, weights[name], a, b, dy, scale=model.lora.scale)
    grads = {f"{name}.lora_A": da, f"{name}.lora_B": db}
    return dx, {piece: gradient for piece, gradient in grads.items() if model.lora.trains(piece)}


def tile_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    do: torch.Tensor,
    start: torch.Tensor,
    window: torch.Tensor,
    *,
    model: ModelSpec,
) -> Tensors:
    c = model.config
    return layers.attention_tile_backward(
        q, k, v, o, do, start, window, heads=c.num_heads, kv_heads=c.num_kv_heads, scale=c.attention_scale
    )


def qkv_backward(
    x: torch.Tensor,
    dqkv: Tensors,
    dresidual: Any,
    weights: dict[str, Any],
    adapter: Tensors,
    rope: Tensors,
    *,
    model: ModelSpec,
) -> tuple[dict[str, torch.Tensor], Tensors]:
    """Back through RoPE, qk-norm, the three linears and the block's first norm.

    `dresidual` holds the gradient that passes by the branch; without it, no gradient of x is wanted: ({"dx"} or {}, grads). What is
    not wanted is not in the graph: tracing drops what no result needs.
    """
    h = model.norm(x, weights["input_norm"])
    dh = torch.zeros_like(h)
    grads: Tensors = {}
    for name, dy in (("q_proj", dqkv["dq"]), ("k_proj", dqkv["dk"]), ("v_proj", dqkv["dv"])):
        if name != "v_proj":
            dy = _rotation_backward(h, dy, name, weights, adapter, rope, model)
        dx, pieces = _linear_backward(h, dy, name, weights, adapter, model)
        dh, grads = dh + dx, grads | pieces
    if not dresidual:
        return {}, grads
    dx = layers.norm_backward(x, weights["input_norm"], dh, eps=model.config.norm_eps)
    return {"dx": dresidual["dx"] + dx}, grads


def _rotation_backward(
    h: torch.Tensor,
    dy: torch.Tensor,
    name: str,
    weights: dict[str, Any],
    adapter: Tensors,
    rope: Tensors,
    model: ModelSpec,
) -> torch.Tensor:
    """RoPE, then qk-norm, whose input is recomputed: [N, heads * d] -> the same."""
    c = model.config
    heads = (-1, rope["cos"].shape[0], dy.shape[1] // c.head_dim, c.head_dim)
    dy4 = layers.rope_backward(dy.view(heads), rope["cos"], rope["sin"])
    norm = weights.get(f"{name[0]}_norm")
    if norm is not None:
        y = model.linear(h, name, weights, adapter).view(heads)
        dy4 = layers.norm_backward(y, norm, dy4, eps=c.norm_eps)
    return dy4.reshape(dy.shape)


def attention_output_backward(
    b: StepBuilder, model: ModelSpec, block: int, o: Value, dy: Value, adapter: dict[str, Value]
) -> tuple[Value, dict[str, Value]]:
    """dy [N, D] at the residual after attention -> do [N, H * d], and the gradients of o_proj if it has an adapter."""
    weights = b.weights(model.blocks[block])
    return b.call(output_backward, o, dy, output_weights(weights), pick(adapter, "o_proj"), model=model)


def attention_backward(
    b: StepBuilder, model: ModelSpec, block: int, attention: Attention, do: Value
) -> dict[str, Value]:
    """dq [N, H * d], dk and dv [N, K * d], by query tiles. k, v, dk, dv are whole; a tile recomputes its probabilities."""
    grads = {"dq": b.zeros(attention.q.shape), "dk": b.zeros(attention.k.shape), "dv": b.zeros(attention.v.shape)}
    length = b.sequence_length
    for tile in query_tiles(b, length, do.shape[0] // length, model.window(block)):
        rows, keys = tile.rows, tile.keys
        b.call(
            tile_backward,
            attention.q.rows(*rows),
            attention.k.rows(*keys),
            attention.v.rows(*keys),
            attention.o.rows(*rows),
            do.rows(*rows),
            b.constant(tile.start),
            b.constant(model.window(block)),
            into={"dq": grads["dq"].rows(*rows)},
            add_to={name: grads[name].rows(*keys) for name in ("dk", "dv")},
            model=model,
        )
    return grads


def inputs_backward(
    b: StepBuilder,
    model: ModelSpec,
    block: int,
    x: Value,
    dqkv: dict[str, Value],
    dresidual: Value,
    adapter: dict[str, Value],
) -> tuple[Value, dict[str, Value]]:
    """Gradient at the block's input x [N, D], and of q, k and v, where they have adapters; for the first block, whose input is
    frozen, dresidual as it is."""
    weights, tiles = b.weights(model.blocks[block]), row_tiles(b, x.shape[0])
    pieces, rope = pick(adapter, *ATTENTION_LINEARS), rope_rows(b, model, block, b.sequence_length)
    passing = {"dx": dresidual} if block else {}
    if not passing and not pieces:
        return dresidual, {}
    if len(tiles) == 1:
        inputs, grads = b.call(
            qkv_backward, x, dqkv, passing, attention_weights(model, weights), pieces, rope, model=model
        )
        return inputs.get("dx", dresidual), grads
    grads = {name: b.zeros(piece.shape) for name, piece in pieces.items()}
    dx = {name: b.zeros(x.shape) for name in passing}
    for rows, positions in tiles:
        b.call(
            qkv_backward,
            x.rows(*rows),
            {name: value.rows(*rows) for name, value in dqkv.items()},
            {name: value.rows(*rows) for name, value in passing.items()},
            attention_weights(model, weights),
            pieces,
            {name: table.rows(*positions) for name, table in rope.items()},
            into=({name: value.rows(*rows) for name, value in dx.items()}, {}),
            add_to=({}, grads),
            model=model,
        )
    return dx.get("dx", dresidual), grads
