# SPDX-License-Identifier: Apache-2.0
"""The sections that do not depend on the method: evaluate_step, prefill, decode and decode_rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from bespoke.graph.builder import PlanBuilder
from bespoke.graph.step_builder import StepBuilder
from bespoke.graph.value import Value
from bespoke.methods.forward import (
    ATTENTION_LINEARS,
    MLP_LINEARS,
    after_attention_weights,
    attention_output,
    attention_weights,
    block_forward,
    embed,
    mlp_forward,
    pick,
    query_tile,
    rope_rows,
)
from bespoke.methods.head import head_pass
from bespoke.ops import product
from bespoke.ops.weight import Weight

if TYPE_CHECKING:
    from bespoke.model.spec import ModelSpec


def evaluate_step(b: StepBuilder, model: ModelSpec) -> None:
    """Emits `loss_sum` and `correct` of the unmasked tokens of a batch."""
    b.begin_section("evaluate_step")
    batch = b.batch()
    x = embed(b, model, batch.tokens)
    for block, group in enumerate(model.blocks):
        x, _ = block_forward(b, model, block, x, b.adapter(group))
    sums, _ = head_pass(b, model, x, batch, gradient=False)
    b.emit(**sums)


def prefill(b: PlanBuilder, model: ModelSpec) -> None:
    """Takes T tokens of a prompt at `position` into the KV cache. Rows past the end of the prompt are overwritten later."""
    b.begin_section("prefill")
    _extend(b, model, b.prompt(b.sequence_length))


def decode(b: PlanBuilder, model: ModelSpec) -> None:
    """Takes one token at `position` into the KV cache and emits `logits` [V, 1] for the next."""
    b.begin_section("decode")
    _emit_logits(b, model, b.prompt(1))


def decode_rows(b: PlanBuilder, model: ModelSpec, rows: int) -> None:
    """Takes R tokens at `position` into the KV cache and emits `logits` [V, R]: column r is of what follows token r.

    The tokens after the first are guesses (`bespoke.rules.drafts`). What a wrong guess leaves in the cache is overwritten.
    """
    b.begin_section("decode_rows")
    _emit_logits(b, model, b.prompt(rows))


def _emit_logits(b: PlanBuilder, model: ModelSpec, tokens: Value) -> None:
    """Emits `logits` [V, R] of what follows each of the tokens [1, R]."""
    x = _extend(b, model, tokens)
    h = b.call(model.final_norm, x, b.weights("head")["norm"])
    table = b.weights(model.head_table_group)["table"]
    chunk = b.choose("head_chunk", [min(size, table.out) for size in (1024, 4096, 8192)])
    logits = b.zeros((table.out, tokens.shape[1]))
    for start in range(0, table.out, chunk):
        stop = min(start + chunk, table.out)
        b.call(logits_of_rows, h, table.rows(start, stop), into=logits.rows(start, stop))
    b.emit(logits=logits)


def logits_of_rows(h: torch.Tensor, w: Weight) -> torch.Tensor:
    """h [R, D], rows of the head [C, D] -> [C, R]."""
    logits = product(h, w)
    return logits.reshape(-1, 1) if h.shape[0] == 1 else logits.t().contiguous()


def advance(position: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    return position + by


def _attention(
    b: StepBuilder, model: ModelSpec, block: int, q: Value, keys: Value, values: Value, position: Value
) -> Value:
    """Attention of queries [n, H * d] from `position` on, in tiles: the cache holds more keys than a sequence has."""
    length, size, window = q.shape[0], query_tile(b), b.constant(model.window(block))
    if length <= size:
        return b.call(model.attention_tile, q, keys, values, position, window)
    o = b.zeros(q.shape)
    for begin in range(0, length, size):
        rows = (begin, min(begin + size, length))
        start = b.call(advance, position, b.constant(begin))
        b.call(model.attention_tile, q.rows(*rows), keys, values, start, window, into=o.rows(*rows))
    return o


def _extend(b: PlanBuilder, model: ModelSpec, tokens: Value) -> Value:
    """Hidden states of tokens [1, n] that continue the cached sequence: [n, D]."""
    position, length = b.scalar("position"), tokens.shape[1]
    width = model.config.num_kv_heads * model.config.head_dim
    x = embed(b, model, tokens)
    for block, group in enumerate(model.blocks):
        weights, adapter = b.weights(group), b.adapter(group)
        keys, values = (b.session(f"{group}.{name}_cache", (b.context_length, width)) for name in ("key", "value"))
        inputs = b.call(
            model.attention_inputs,
            x,
            attention_weights(model, weights),
            pick(adapter, *ATTENTION_LINEARS),
            rope_rows(b, model, block, length, position),
            into={"k": keys.rows_at(position, length), "v": values.rows_at(position, length)},
        )
        o = _attention(b, model, block, inputs["q"], keys, values, position)
        x = _after_attention(b, model, block, x, o, adapter)
    return x


def _after_attention(
    b: StepBuilder, model: ModelSpec, block: int, x: Value, o: Value, adapter: dict[str, Any]
) -> Value:
    """x [n, D] after a block. A few rows take one call. A prompt takes the calls of a step, whose programs may be shared."""
    weights = b.weights(model.blocks[block])
    if x.shape[0] < b.sequence_length:
        loras = pick(adapter, "o_proj", *MLP_LINEARS)
        return b.call(model.after_attention, x, o, after_attention_weights(weights), loras)
    x = attention_output(b, model, block, x, o, adapter)
    branch, _ = mlp_forward(b, model, block, x, adapter)
    return b.call(model.mlp_output, x, branch, pick(weights, "mlp_output_norm"))
