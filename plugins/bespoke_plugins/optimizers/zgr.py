# SPDX-License-Identifier: Apache-2.0
"""ZGR: zeroth-order steps of many devices, guided by a cloud ("CooperLLM: Cloud-Edge-End Cooperative Federated Fine-tuning for LLMs
via ZOO-based Gradient Correction", arXiv 2601.12917; its errata are in docs/explanation/federation.md).

    cloud:   V, an orthonormal basis of m recent gradients on public data
    device:  h = c z + c' V w         z: Rademacher;  c = sqrt(alpha), c' = sqrt((1 - alpha) d / m), so that every h is as long as z
             Delta = (L(theta + eps h) - L(theta - eps h)) / (2 eps)                                  the one number that goes up
    server:  theta <- theta - eta sum_i Delta_i h_i                                            seeds and numbers go down

c and c' belong to the round. With c = sqrt(alpha / d) and c' = sqrt((1 - alpha) / m) they are the paper's. With c = 1 and c' = 0
nothing is guided. w is -1 or 1 for each column, or with `probe` one column at a time, which the devices then measure themselves.

Alone on a device, a step is that of MeZO with one Rademacher direction.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

from pydantic import Field

from bespoke.contracts import ModelSpec, Optimizer, Promise, hookimpl
from bespoke.graph import StepBuilder, Value
from bespoke.methods import (
    MAX_COLUMNS,
    Guidance,
    ZerothOrderOptions,
    descended,
    directions_of,
    mean,
    moved,
    perturbed,
    perturbed_loss,
    projected_gradient,
)


class ZGROptions(ZerothOrderOptions):
    """Options of a step, and of what devices measure together.

    guidance_columns: m, the columns of the cloud's basis. 0: rounds are never guided
    probe:            each direction is one column, c z aside
    """

    distribution: Literal["rademacher"] = "rademacher"
    queries: Literal[1] = 1
    guidance_columns: int = Field(default=4, ge=0, le=MAX_COLUMNS)
    probe: bool = False

    @property
    def guidance(self) -> Guidance:
        return Guidance(self.guidance_columns, self.probe)


class ZGR:
    """Zeroth-order method for many devices that share one adapter."""

    name = "zgr"
    promises: Promise = "two_sided_loss_difference"
    Options = ZGROptions

    def train_step(self, b: StepBuilder, model: ModelSpec, options: ZGROptions) -> None:
        plus, minus = (perturbed_loss(b, model, partial(self.perturbed_adapter, b, options, sign)) for sign in (+1, -1))
        g = b.record(b.call(projected_gradient, plus, minus, b.scalar("epsilon")))
        for group in model.blocks:
            for theta in b.adapter(group).values():
                b.store(theta, descended(b, theta, [g], options))
        b.emit(loss=b.call(mean, [plus, minus]), projected_gradient=g)

    def perturbed_adapter(self, b: StepBuilder, options: ZGROptions, sign: int, group: str) -> dict[str, Value]:
        """theta + sign eps z of a block."""
        return {
            name: next(perturbed(b, theta, theta, [(0, sign)], options)) for name, theta in b.adapter(group).items()
        }

    def federated_measure(self, b: StepBuilder, model: ModelSpec, options: ZGROptions) -> Guidance:
        plus, minus = (
            perturbed_loss(b, model, partial(self.adapter_along, b, model, options, sign)) for sign in (+1, -1)
        )
        b.send(b.call(projected_gradient, plus, minus, b.scalar("epsilon")))
        b.emit(loss=b.call(mean, [plus, minus]))
        return options.guidance

    def adapter_along(
        self, b: StepBuilder, model: ModelSpec, options: ZGROptions, sign: int, group: str
    ) -> dict[str, Value]:
        """theta + sign eps h of a block, with h the direction of the round."""
        numbers = [b.scalar(name) for name in ("coefficient", "guidance_coefficient", "epsilon")]
        return {
            name: b.call(moved, theta, z, g, *numbers, sign=sign)
            for name, theta, z, g in directions_of(b, model, group, options.guidance)
        }


@hookimpl
def register_optimizers(register: Callable[[Optimizer], None]) -> None:
    register(ZGR())
