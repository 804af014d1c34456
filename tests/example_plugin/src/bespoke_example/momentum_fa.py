# SPDX-License-Identifier: Apache-2.0
"""Momentum LoRA-FA: LoRA-FA (arXiv 2308.03303) trains B alone; the update rule is heavy ball (Polyak 1964).

    A stays as it was;   u <- mu u + dL/dB;   B <- B - eta u

The backward pass goes in stages, as the how-to page shows; mu is a scalar of the plan, u a state of the method's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from pydantic import Field

from bespoke.contracts import ModelSpec, Optimizer, Scalar, Settings, StepBuilder, Value, hookimpl
from bespoke.methods import (
    Pass,
    attention_backward,
    attention_forward,
    attention_output,
    attention_output_backward,
    block_pass,
    embed,
    head_loss_and_gradient,
    inputs_backward,
    mlp_backward,
    summed_gradients,
)

Tree = dict[str, Value]


class MomentumFAOptions(Settings):
    momentum: Scalar = Field(default=0.9, ge=0, lt=1)

    @property
    def training_defaults(self) -> dict[str, float]:
        return {"learning_rate": 1e-2}


class MomentumFA:
    """Exact gradients of B, an update rule of its own."""

    name = "momentum_fa"
    promises = "exact_gradients"
    Options = MomentumFAOptions

    def train_step(self, b: StepBuilder, model: ModelSpec, options: MomentumFAOptions) -> None:
        batch = b.batch()
        x = embed(b, model, batch.tokens)
        passes = []
        for block, group in enumerate(model.blocks):
            passes.append(block_pass(b, model, block, x, b.adapter(group)))
            x = passes[-1].y
        loss, dx = head_loss_and_gradient(b, model, x, batch)
        b.emit(loss=loss)
        eta, mu = b.scalar("learning_rate"), b.scalar("momentum")
        for piece, gradient, clip in summed_gradients(b, self.gradients(b, model, passes, dx)):
            u = b.state(piece, "u")
            b.store([piece, u], list(b.call(rolled, piece, gradient, u, eta, mu, clip)))

    def gradients(self, b: StepBuilder, model: ModelSpec, passes: list[Pass], dy: Value) -> Iterator[tuple[Tree, Tree]]:
        """(B, gradients) of each block, last first."""
        for block, passed in reversed(list(enumerate(passes))):
            adapter, x = b.adapter(model.blocks[block]), passed.x
            attention = attention_forward(b, model, block, x, adapter)
            middle = attention_output(b, model, block, x, attention.o, adapter)
            dmiddle, mlp = mlp_backward(b, model, block, middle, passed.branch, dy, adapter)
            do, output = attention_output_backward(b, model, block, attention.o, dmiddle, adapter)
            dqkv = attention_backward(b, model, block, attention, do)
            dy, inputs = inputs_backward(b, model, block, x, dqkv, dmiddle, adapter)
            yield {name: piece for name, piece in adapter.items() if name.endswith("lora_B")}, mlp | output | inputs


def rolled(
    piece: torch.Tensor,
    gradient: torch.Tensor,
    u: torch.Tensor,
    eta: torch.Tensor,
    mu: torch.Tensor,
    clip: dict[str, Any],
) -> tuple[torch.Tensor, torch.Tensor]:
    u = mu * u + (gradient * clip["factor"] if clip else gradient)
    return piece - eta * u, u


@hookimpl
def register_optimizers(register: Callable[[Optimizer], None]) -> None:
    register(MomentumFA())
