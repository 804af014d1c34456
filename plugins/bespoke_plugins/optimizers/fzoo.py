# SPDX-License-Identifier: Apache-2.0
"""FZOO: one-sided differences, divided by the spread of the losses, from one batched forward pass ("FZOO: Fast Zeroth-Order
Optimizer for Fine-Tuning Large Language Models towards Adam-Scale Speed", arXiv 2506.09034).

    l_0 = L(theta);   l_i = L(theta + eps u_i), i = 1 .. N;   sigma = sample standard deviation of l_1 .. l_N
    theta <- theta - eta / sigma  1 / (N eps) sum_i (l_i - l_0) u_i

The N + 1 paths are stacked in one batch and read the frozen weights once. u is regenerated from its counter wherever it is needed.
The step records g_i = (l_i - l_0) / (eps sigma). A journal of these numbers replays it. sigma is never smaller than the rounding
of the losses (loss_rounding). Otherwise a flat spot would cause a step of full length along noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bespoke.contracts import ModelSpec, Optimizer, Promise, hookimpl
from bespoke.graph import StepBuilder, Value
from bespoke.methods import NormalizedOptions, block_forward, descended, embed, head_losses


class FZOO:
    """Zeroth-order method whose step length does not depend on the size of the gradient."""

    name = "fzoo"
    promises: Promise = "normalized_loss_difference"
    Options = NormalizedOptions

    def train_step(self, b: StepBuilder, model: ModelSpec, options: NormalizedOptions) -> None:
        results = b.call(normalized, self.losses(b, model, options), b.scalar("epsilon"), b.scalar("loss_rounding"))
        gs = [b.record(g) for g in results["g"]]
        for group in model.blocks:
            for theta in b.adapter(group).values():
                b.store(theta, descended(b, theta, gs, options))
        b.emit(loss=results["loss"], spread=results["spread"])

    def losses(self, b: StepBuilder, model: ModelSpec, options: NormalizedOptions) -> Value:
        """The losses l_0 to l_N, (N + 1)."""
        paths = options.queries + 1
        batch = b.batch(copies=paths)
        x = embed(b, model, batch.tokens)  # ((N + 1) B T, D)
        for block, group in enumerate(model.blocks):
            x, _ = block_forward(b, model, block, x, self.perturbed_adapter(b, group, options))
        return head_losses(b, model, x, batch, paths)

    def perturbed_adapter(self, b: StepBuilder, group: str, options: NormalizedOptions) -> dict[str, Any]:
        """One block's adapter and a copy theta + eps u for each query."""
        return {
            name: [
                theta,
                *(
                    b.call(move, theta, b.noise(theta, query, options.distribution), b.scalar("epsilon"))
                    for query in range(options.queries)
                ),
            ]
            for name, theta in b.adapter(group).items()
        }


def move(theta: torch.Tensor, u: torch.Tensor, epsilon: torch.Tensor) -> torch.Tensor:
    return theta + epsilon * u


def normalized(losses: torch.Tensor, epsilon: torch.Tensor, rounding: torch.Tensor) -> dict[str, Any]:
    """Computes l_0, sigma and the N numbers g_i from the losses (N + 1)."""
    here, there = losses[0], losses[1:]
    count = there.shape[0]
    variance = ((there - there.sum() / count) ** 2).sum() / (count - 1)
    sigma = torch.maximum(torch.sqrt(variance), rounding * torch.clamp(here, min=1.0))
    return {"loss": here.clone(), "spread": sigma, "g": [(there[i] - here) / (epsilon * sigma) for i in range(count)]}


@hookimpl
def register_optimizers(register: Callable[[Optimizer], None]) -> None:
    register(FZOO())
