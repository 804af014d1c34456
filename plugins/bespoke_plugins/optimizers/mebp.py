# SPDX-License-Identifier: Apache-2.0
"""MeBP: exact gradients in the memory of one block ("Memory-Efficient Backpropagation for Fine-Tuning LLMs on
Resource-Constrained Mobile Devices", arXiv 2510.03425, Algorithm 1).

    forward:   x_{i+1} = f_i(theta_i, x_i), keeping only each block's input x_i
    backward:  for i = L-1 .. 0, recompute f_i from x_i:  (dtheta_i, dx_i) = vjp of f_i at dx_{i+1}

Autodiff derives the vjp from the forward. A block's gradient is used and dropped before the next block's is computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bespoke.contracts import ModelSpec, Optimizer, Promise, hookimpl
from bespoke.graph import StepBuilder, Value
from bespoke.methods import PreferenceOptions, embed, loss_and_gradient, rope_rows, update, vjp

Tree = dict[str, Value]


class MeBP:
    """Keeps each block's input; then recomputes block by block in reverse and back-propagates by autodiff."""

    name = "mebp"
    promises: Promise = "exact_gradients"
    Options = PreferenceOptions

    def train_step(self, b: StepBuilder, model: ModelSpec, options: PreferenceOptions) -> None:
        batch = b.batch()
        x = embed(b, model, batch.tokens)  # (N, D)
        inputs = []
        for block, group in enumerate(model.blocks):
            inputs.append(x)
            x = b.call(model.block, x, b.weights(group), b.adapter(group), *self.constants(b, model, block))
        loss, dx = loss_and_gradient(b, model, x, batch, options)
        b.emit(loss=loss)
        update(b, self.gradients(b, model, inputs, dx), options)

    def gradients(
        self, b: StepBuilder, model: ModelSpec, inputs: list[Value], dx: Value
    ) -> Iterator[tuple[Tree, Tree]]:
        """Yields (adapter, gradients) block by block, the last block first. The first block's input needs no gradient."""
        for block, x in reversed(list(enumerate(inputs))):
            group = model.blocks[block]
            backward = vjp(model.block, (0, 2) if block else (2,))
            *dxs, grads = b.call(backward, x, b.weights(group), b.adapter(group), *self.constants(b, model, block), dx)
            dx = dxs[0] if dxs else dx
            yield b.adapter(group), grads

    def constants(self, b: StepBuilder, model: ModelSpec, block: int) -> tuple[Tree, Value]:
        """RoPE tables and attention window. They are inputs because one graph serves every block."""
        return rope_rows(b, model, block, b.sequence_length), b.constant(model.window(block))


@hookimpl
def register_optimizers(register: Callable[[Optimizer], None]) -> None:
    register(MeBP())
