# SPDX-License-Identifier: Apache-2.0
"""MeZO: two forward passes and one number ("Fine-Tuning Language Models with Just Forward Passes", arXiv 2305.17333, Algorithm 1;
with q queries as in P-RGE, arXiv 2409.15520, Algorithm 3).

    for each query i:  g_i = (L(theta + eps z_i) - L(theta - eps z_i)) / (2 eps)
    then               theta <- theta - (eta / q) sum_i g_i z_i

z is regenerated from its counter wherever it is needed and never kept. theta +- eps z is a copy that is computed block by block
and dropped, so nothing drifts. The step depends on the recorded g_i alone. A journal of a few bytes replays it.
"""

from __future__ import annotations

from collections.abc import Callable

from bespoke.contracts import ModelSpec, Optimizer, Promise, hookimpl
from bespoke.graph import StepBuilder, Value
from bespoke.methods import (
    ZerothOrderOptions,
    descended,
    mean,
    move,
    perturbed_loss,
    projected_gradient,
)


class MeZO:
    """Zeroth-order method: the loss difference along a random direction times that direction."""

    name = "mezo"
    promises: Promise = "two_sided_loss_difference"
    Options = ZerothOrderOptions

    def train_step(self, b: StepBuilder, model: ModelSpec, options: ZerothOrderOptions) -> None:
        epsilon = b.scalar("epsilon")
        losses, gs = [], []
        for query in range(options.queries):
            plus, minus = (self.loss(b, model, options, query, sign) for sign in (+1, -1))
            gs.append(b.record(b.call(projected_gradient, plus, minus, epsilon)))
            losses += [plus, minus]
        for group in model.blocks:
            for theta in b.adapter(group).values():
                b.store(theta, descended(b, theta, gs, options))
        b.emit(loss=b.call(mean, losses), projected_gradient=gs[0])

    def loss(self, b: StepBuilder, model: ModelSpec, options: ZerothOrderOptions, query: int, sign: int) -> Value:
        """The loss L(theta + sign eps z), in tiles."""
        return perturbed_loss(b, model, lambda group: self.perturbed_adapter(b, group, options, query, sign))

    def perturbed_adapter(
        self, b: StepBuilder, group: str, options: ZerothOrderOptions, query: int, sign: int
    ) -> dict[str, Value]:
        """A copy theta + sign eps z of one block's adapter."""
        epsilon = b.scalar("epsilon")
        return {
            name: b.call(move, theta, b.noise(theta, query, options.distribution), epsilon, sign=sign)
            for name, theta in b.adapter(group).items()
        }


@hookimpl
def register_optimizers(register: Callable[[Optimizer], None]) -> None:
    register(MeZO())
