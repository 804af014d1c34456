# SPDX-License-Identifier: Apache-2.0
"""HiZOO: two-sided differences along directions scaled by an estimate of the Hessian's diagonal ("Second-Order Fine-Tuning without
Pain for LLMs: A Hessian Informed Zeroth-Order Optimizer", arXiv 2402.15173, Algorithm 1).

    d = z / sqrt(h);   l_0 = L(theta);   l+ = L(theta + eps d);   l- = L(theta - eps d)
    g = (l+ - l-) / (2 eps);   c = |l+ + l- - 2 l_0| / (2 eps^2)
    h <- max((1 - w) h + w c h z^2, 2^-24);   theta <- theta - eta g z / sqrt(h), with the new h

h begins at 1, but a state begins at 0. And 1 - w rounds to 1 in fp32 for the authors' w. So the state is k = h - 1:

    k <- max(k + w (1 + k) (c z^2 - 1), 2^-24 - 1)

The authors' least h is 1e-8. 1e-8 - 1 is -1 in fp32 and would make h 0. LEAST_CURVATURE is the least h for which that is not so.

The three paths are one batch and read the frozen weights once. The step records g and c. A journal of them replays the step from
the state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bespoke.contracts import ModelSpec, Optimizer, Promise, hookimpl
from bespoke.graph import StepBuilder, Value
from bespoke.methods import LEAST_CURVATURE, CurvatureOptions, block_forward, embed, head_losses

PATHS = 3  # theta, theta + eps d, theta - eps d


class HiZOO:
    """Zeroth-order method with longer steps where the loss is flat."""

    name = "hizoo"
    promises: Promise = "curvature_scaled_difference"
    Options = CurvatureOptions

    def train_step(self, b: StepBuilder, model: ModelSpec, options: CurvatureOptions) -> None:
        results = b.call(differences, self.losses(b, model), b.scalar("epsilon"))
        g, c = b.record(results["g"]), b.record(results["c"])
        rates = {"eta": b.scalar("learning_rate"), "w": b.scalar("smoothing")}
        for group in model.blocks:
            for theta in b.adapter(group).values():
                k = b.state(theta, "h")
                b.store([theta, k], list(b.call(descend, theta, k, b.noise(theta), g, c, rates)))
        b.emit(loss=results["loss"], projected_gradient=g, curvature=c)

    def losses(self, b: StepBuilder, model: ModelSpec) -> Value:
        """The losses l_0, l+ and l-, (3)."""
        batch = b.batch(copies=PATHS)
        x = embed(b, model, batch.tokens)  # (3 B T, D)
        for block, group in enumerate(model.blocks):
            x, _ = block_forward(b, model, block, x, self.perturbed_adapter(b, group))
        return head_losses(b, model, x, batch, PATHS)

    def perturbed_adapter(self, b: StepBuilder, group: str) -> dict[str, Any]:
        """One block's adapter and its copies theta + eps d and theta - eps d."""
        return {
            name: [theta, *b.call(sides, theta, b.state(theta, "h"), b.noise(theta), b.scalar("epsilon"))]
            for name, theta in b.adapter(group).items()
        }


def sides(
    theta: torch.Tensor, k: torch.Tensor, z: torch.Tensor, epsilon: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    step = epsilon * z / torch.sqrt(1 + k)
    return theta + step, theta - step


def differences(losses: torch.Tensor, epsilon: torch.Tensor) -> dict[str, torch.Tensor]:
    """Computes l_0, g and c from the losses (3)."""
    here, plus, minus = losses[0], losses[1], losses[2]
    c = torch.abs((plus - here) + (minus - here)) / (2 * epsilon * epsilon)
    return {"loss": here.clone(), "g": (plus - minus) / (2 * epsilon), "c": c}


def descend(
    theta: torch.Tensor,
    k: torch.Tensor,
    z: torch.Tensor,
    g: torch.Tensor,
    c: torch.Tensor,
    rates: dict[str, torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor]:
    """New theta and k."""
    k = torch.clamp(k + rates["w"] * (1 + k) * (c * z * z - 1), min=LEAST_CURVATURE - 1)
    return theta - rates["eta"] * g * z / torch.sqrt(1 + k), k


@hookimpl
def register_optimizers(register: Callable[[Optimizer], None]) -> None:
    register(HiZOO())
