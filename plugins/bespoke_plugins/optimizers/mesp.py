# SPDX-License-Identifier: Apache-2.0
"""MeSP: the gradients of MeBP, derived by hand and computed in stages ("Memory-Efficient Structured Backpropagation for On-Device
LLM Fine-Tuning", appendix A; bespoke.model.layers has the formulas, complete).

    LoRA linear, y = x W^T + s (x A^T) B^T:   h = x A^T, recomputed;  dh = s dy B;  dB = s dy^T h;  dA = dh^T x;  dx = dy W + dh A

For block i, given its input x and dy:  1  recompute q, k, v, o and the MLP's input (nothing needs the down projection);
2  back through the MLP, by slices of its width;  3  back through o, attention by query tiles, then q, k, v;  4  update.

With memory to spare, some of the last blocks keep q, k, v, o and the MLP's input from the forward pass and skip step 1. Some of
the last blocks also keep gate and up, which step 2 computes again otherwise. Both save about as much time for each byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bespoke.contracts import ModelSpec, Optimizer, Promise, hookimpl
from bespoke.graph import StepBuilder, Value
from bespoke.methods import (
    ATTENTION_LINEARS,
    Attention,
    Pass,
    PreferenceOptions,
    attention_backward,
    attention_forward,
    attention_output,
    attention_output_backward,
    block_pass,
    embed,
    inputs_backward,
    loss_and_gradient,
    mlp_backward,
    pick,
    update,
)

Tree = dict[str, Value]


class MeSP:
    """Exact gradients by a hand-derived backward pass in tiles."""

    name = "mesp"
    promises: Promise = "exact_gradients"
    Options = PreferenceOptions

    def train_step(self, b: StepBuilder, model: ModelSpec, options: PreferenceOptions) -> None:
        batch = b.batch()
        x = embed(b, model, batch.tokens)  # (N, D)
        blocks = len(model.blocks)
        first_attention = blocks - b.choose("kept_attention", range(blocks + 1))  # blocks from this one on keep it
        first_products = blocks - b.choose("kept_products", range(blocks + 1))
        passes: list[Pass] = []
        for block, group in enumerate(model.blocks):
            passes.append(block_pass(b, model, block, x, b.adapter(group), products=block >= first_products))
            x = passes[-1].y
        loss, dx = loss_and_gradient(b, model, x, batch, options)
        b.emit(loss=loss)
        update(b, self.gradients(b, model, passes, dx, first_attention), options)

    def gradients(
        self, b: StepBuilder, model: ModelSpec, passes: list[Pass], dy: Value, first_attention: int
    ) -> Iterator[tuple[Tree, Tree]]:
        """Yields (adapter, gradients) block by block, the last block first. The first block's input needs no gradient.

        It reads each pass's input and the values chosen to be kept. Models with Gemma's output norms also need the MLP's branch.
        """
        for block, passed in reversed(list(enumerate(passes))):
            adapter, x = b.adapter(model.blocks[block]), passed.x
            if block >= first_attention:
                attention, middle = passed.attention, passed.middle
                b.keep(attention.q, attention.k, attention.v, attention.o, middle)
            else:
                attention = attention_forward(b, model, block, x, adapter)
                middle = attention_output(b, model, block, x, attention.o, adapter)
            b.keep(passed.products)
            dmiddle, grads = mlp_backward(b, model, block, middle, passed.branch, dy, adapter, passed.products)
            dy, attention_grads = self.attention(b, model, block, x, attention, dmiddle, adapter)
            yield adapter, grads | attention_grads

    def attention(
        self,
        b: StepBuilder,
        model: ModelSpec,
        block: int,
        x: Value,
        attention: Attention,
        dmiddle: Value,
        adapter: Tree,
    ) -> tuple[Value, Tree]:
        """Goes back from the residual after attention to the block's input; in the first block only as far as adapters need it."""
        inputs = block > 0 or pick(adapter, *ATTENTION_LINEARS)
        if not inputs and not pick(adapter, "o_proj"):
            return dmiddle, {}
        do, output_grads = attention_output_backward(b, model, block, attention.o, dmiddle, adapter)
        if not inputs:
            return dmiddle, output_grads
        dqkv = attention_backward(b, model, block, attention, do)
        dx, input_grads = inputs_backward(b, model, block, x, dqkv, dmiddle, adapter)
        return dx, output_grads | input_grads


@hookimpl
def register_optimizers(register: Callable[[Optimizer], None]) -> None:
    register(MeSP())
