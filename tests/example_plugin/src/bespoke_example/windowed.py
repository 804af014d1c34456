# SPDX-License-Identifier: Apache-2.0
"""An update rule whose states have shapes of their own: a window of gradients, and Adafactor's factors (arXiv 1804.04235).

    G = the mean of the last n gradients;   R <- beta R + (1 - beta) mean_columns(G^2);   C <- beta C + (1 - beta) mean_rows(G^2)
    t <- t + 1;   V = R C / mean(R) / (1 - beta^t);   theta <- theta - eta G / (sqrt(V) + epsilon)

Of a piece [rows, columns], the window holds n gradients below each other, [n rows, columns]; R is [rows], C [columns], t a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from pydantic import Field

from bespoke.contracts import ModelSpec, Optimizer, Settings, StepBuilder, Value, hookimpl
from bespoke.methods import embed, head_loss_and_gradient, rope_rows, summed_gradients, vjp

EPSILON = 1e-8
Tree = dict[str, Value]


class WindowedOptions(Settings):
    window: int = Field(default=3, ge=1, le=64, description="gradients whose mean is stepped along")
    beta: float = Field(default=0.9, ge=0, lt=1)


class Windowed:
    """Exact gradients by autodiff, block by block; states that are larger and smaller than the pieces."""

    name = "windowed"
    promises = "exact_gradients"
    Options = WindowedOptions

    def train_step(self, b: StepBuilder, model: ModelSpec, options: WindowedOptions) -> None:
        batch = b.batch()
        x = embed(b, model, batch.tokens)
        inputs = []
        for block, group in enumerate(model.blocks):
            inputs.append(x)
            x = b.call(model.block, x, b.weights(group), b.adapter(group), *self.constants(b, model, block))
        loss, dx = head_loss_and_gradient(b, model, x, batch)
        b.emit(loss=loss)
        for piece, gradient, clip in summed_gradients(b, self.gradients(b, model, inputs, dx)):
            rows, columns = piece.shape
            states = [
                b.state(piece, "window", (options.window * rows, columns)),
                b.state(piece, "rows", (rows,)),
                b.state(piece, "columns", (columns,)),
                b.state(piece, "count", ()),
            ]
            eta = b.scalar("learning_rate")
            new = b.call(stepped, piece, gradient, *states, eta, clip, length=options.window, beta=options.beta)
            b.store([piece, *states], list(new))

    def gradients(
        self, b: StepBuilder, model: ModelSpec, inputs: list[Value], dx: Value
    ) -> Iterator[tuple[Tree, Tree]]:
        """(adapter, gradients) of each block, last first."""
        for block in reversed(range(len(inputs))):
            group = model.blocks[block]
            backward = vjp(model.block, (0, 2))
            constants = self.constants(b, model, block)
            dx, grads = b.call(backward, inputs[block], b.weights(group), b.adapter(group), *constants, dx)
            yield b.adapter(group), grads

    def constants(self, b: StepBuilder, model: ModelSpec, block: int) -> tuple[Tree, Value]:
        return rope_rows(b, model, block, b.sequence_length), b.constant(model.window(block))


def stepped(
    piece: torch.Tensor,
    gradient: torch.Tensor,
    window: torch.Tensor,
    rows: torch.Tensor,
    columns: torch.Tensor,
    count: torch.Tensor,
    eta: torch.Tensor,
    clip: dict[str, Any],
    *,
    length: int,
    beta: float,
) -> tuple[torch.Tensor, ...]:
    gradient = gradient * clip["factor"] if clip else gradient + 0
    window = torch.cat([window[piece.shape[0] :], gradient])  # (n * rows, columns), the newest last
    count = count + 1
    mean = window.reshape(length, *piece.shape).sum(0) / torch.clamp(count, max=float(length))  # (rows, columns)
    squares = mean * mean + EPSILON**2
    rows = beta * rows + (1 - beta) * squares.mean(1)
    columns = beta * columns + (1 - beta) * squares.mean(0)
    second = rows[:, None] * columns[None, :] / rows.mean() / -torch.expm1(count * math.log(beta))  # 1 - beta^count
    return piece - eta * mean / (torch.sqrt(second) + EPSILON), window, rows, columns, count


@hookimpl
def register_optimizers(register: Callable[[Optimizer], None]) -> None:
    register(Windowed())
