# SPDX-License-Identifier: Apache-2.0
"""ZO-signSGD: steps of one size in the direction of random probes ("signSGD via Zeroth-Order Oracle", Liu et al., ICLR 2019,
Algorithm 1, with two-sided probes).

    for each query i:  g_i = (L(theta + eps z_i) - L(theta - eps z_i)) / (2 eps)
    then               theta <- theta - eta sign(sum_i g_i z_i)

A step depends on the recorded g_i alone, so a journal of a few bytes replays it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from pydantic import Field

from bespoke.contracts import ModelSpec, Optimizer, Promise, Settings, StepBuilder, Value, hookimpl
from bespoke.methods import block_forward, embed, head_loss, move


class ZOSignSGDOptions(Settings):
    """Options of `zo_signsgd`.

    Args:
        epsilon: how far a probe goes to either side, in units of the noise.
        queries: probes a step. Raise it for a less noisy direction.
    """

    epsilon: float = Field(default=1e-3, gt=0)
    queries: int = Field(default=1, ge=1, le=64)


class ZOSignSGD:
    """Steps by the sign of an estimated gradient."""

    name = "zo_signsgd"
    promises: Promise | None = None  # it records two-sided differences, but steps by a sign
    Options = ZOSignSGDOptions

    def train_step(self, b: StepBuilder, model: ModelSpec, options: ZOSignSGDOptions) -> None:
        losses: list[Value] = []
        gs: list[Value] = []
        for query in range(options.queries):
            plus, minus = (self.loss(b, model, query, sign) for sign in (+1, -1))
            gs.append(b.record(b.call(difference, plus, minus, b.scalar("epsilon"))))
            losses += [plus, minus]
        b.emit(loss=b.call(mean, losses))
        for group in model.blocks:
            for theta in b.adapter(group).values():
                direction = b.zeros(theta.shape)
                for query, g in enumerate(gs):
                    b.call(scaled, b.noise(theta, query), g, add_to=direction)
                b.store(theta, b.call(stepped, theta, direction, b.scalar("learning_rate")))

    def loss(self, b: StepBuilder, model: ModelSpec, query: int, sign: int) -> Value:
        """L(theta + sign eps z)."""
        batch = b.batch()
        x = embed(b, model, batch.tokens)  # (N, D)
        for block, group in enumerate(model.blocks):
            probe = {
                name: b.call(move, theta, b.noise(theta, query), b.scalar("epsilon"), sign=sign)
                for name, theta in b.adapter(group).items()
            }
            x, _ = block_forward(b, model, block, x, probe)
        return head_loss(b, model, x, batch)


def difference(plus: torch.Tensor, minus: torch.Tensor, epsilon: torch.Tensor) -> torch.Tensor:
    return (plus - minus) / (2 * epsilon)


def scaled(z: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return g * z


def stepped(theta: torch.Tensor, direction: torch.Tensor, eta: torch.Tensor) -> torch.Tensor:
    return theta - eta * torch.sign(direction)


def mean(losses: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(losses).mean()


@hookimpl
def register_optimizers(register: Callable[[Optimizer], None]) -> None:
    register(ZOSignSGD())
