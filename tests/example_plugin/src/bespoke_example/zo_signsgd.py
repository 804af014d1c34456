# SPDX-License-Identifier: Apache-2.0
"""ZO-signSGD: steps of one size, in the direction that random probes point to ("signSGD via Zeroth-Order Oracle", Liu et al.,
ICLR 2019, Algorithm 1, with two-sided probes).

    for each query i:  g_i = (L(theta + eps z_i) - L(theta - eps z_i)) / (2 eps)
    then               theta <- theta - eta sign(sum_i g_i z_i)

A step depends on the recorded g_i alone, so that a journal of a few bytes replays it.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from pydantic import Field

from bespoke.contracts import ModelSpec, Optimizer, Promise, Settings, StepBuilder, Value, hookimpl
from bespoke.methods import block_forward, embed, head_loss


class ZOSignSGDOptions(Settings):
    """How far to probe to either side, and how often a step."""

    epsilon: float = Field(default=1e-3, gt=0)
    queries: int = Field(default=1, ge=1, le=64)


class ZOSignSGD:
    """The sign of an estimated gradient."""

    name = "zo_signsgd"
    promises: Promise | None = None  # it records two-sided differences, and steps by a sign
    Options = ZOSignSGDOptions

    def train_step(self, b: StepBuilder, model: ModelSpec, options: ZOSignSGDOptions) -> None:
        losses, slopes = [], []
        for query in range(options.queries):
            plus, minus = (self.probe(b, model, query, sign) for sign in (+1, -1))
            slopes.append(b.record(b.call(slope, plus, minus, b.scalar("epsilon"))))
            losses += [plus, minus]
        for group in model.blocks:
            for theta in b.adapter(group).values():
                gradient = b.zeros(theta.shape)
                for query, g in enumerate(slopes):
                    b.call(along, b.noise(theta, query), g, add_to=gradient)
                b.store(theta, b.call(step, theta, gradient, b.scalar("learning_rate")))
        b.emit(loss=b.call(mean, losses))

    def probe(self, b: StepBuilder, model: ModelSpec, query: int, sign: int) -> Value:
        """L(theta + sign eps z)."""
        batch = b.batch()
        x = embed(b, model, batch.tokens)
        for block, group in enumerate(model.blocks):
            moved = {
                name: b.call(move, theta, b.noise(theta, query), b.scalar("epsilon"), sign=sign)
                for name, theta in b.adapter(group).items()
            }
            x, _ = block_forward(b, model, block, x, moved)
        return head_loss(b, model, x, batch)


def move(theta: torch.Tensor, z: torch.Tensor, epsilon: torch.Tensor, *, sign: int) -> torch.Tensor:
    return theta + sign * (epsilon * z)


def slope(plus: torch.Tensor, minus: torch.Tensor, epsilon: torch.Tensor) -> torch.Tensor:
    return (plus - minus) / (2 * epsilon)


def along(z: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return g * z


def step(theta: torch.Tensor, gradient: torch.Tensor, eta: torch.Tensor) -> torch.Tensor:
    return theta - eta * torch.sign(gradient)


def mean(losses: list[torch.Tensor]) -> torch.Tensor:
    return torch.stack(losses).mean()


@hookimpl
def register_optimizers(register: Callable[[Optimizer], None]) -> None:
    register(ZOSignSGD())
