# SPDX-License-Identifier: Apache-2.0
"""Update rules for first-order gradients, with accumulation and clipping; what plugins of first-order methods share.

SGD:   p <- p - lr g
AdamW: m <- b1 m + (1 - b1) g;  v <- b2 v + (1 - b2) g^2
       p <- p (1 - lr decay) - lr (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)        (Loshchilov & Hutter 2019)
clip:  g <- g min(1, clip / (||all g|| + 1e-6))                                          (as torch.nn.utils does)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Literal

import torch
from pydantic import Field

from bespoke.config import Settings
from bespoke.graph.step_builder import StepBuilder
from bespoke.graph.value import Value

Tree = dict[str, Value]


class FirstOrderOptions(Settings):
    """Options of methods that give gradients to `update`.

    A method with these options, or with more, that promises `exact_gradients` states this rule: it steps as `update` does. Golden
    vectors and the contract suite hold it to that. A method with a rule of its own derives its options from `Settings`.
    `federated_directions`: how many projections of the gradient a device sends in a round of federated learning; 0 sends none.
    """

    update: Literal["sgd", "adamw"] = "adamw"
    federated_directions: int = Field(default=0, ge=0, le=1024)
    beta1: float = Field(default=0.9, ge=0, lt=1)
    beta2: float = Field(default=0.999, ge=0, lt=1)
    adam_epsilon: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)

    @property
    def training_defaults(self) -> dict[str, float]:
        """A step of SGD is as long as the gradient, one of AdamW as long as the rate."""
        return {"learning_rate": {"sgd": 1e-2, "adamw": 2e-4}[self.update]}


def sgd(p: torch.Tensor, g: torch.Tensor, lr: torch.Tensor, clip: dict[str, torch.Tensor]) -> torch.Tensor:
    return p - lr * _clipped(g, clip)


def adamw(
    p: torch.Tensor,
    g: torch.Tensor,
    m: torch.Tensor,
    v: torch.Tensor,
    lr: torch.Tensor,
    step: torch.Tensor,
    clip: dict[str, torch.Tensor],
    *,
    beta1: float,
    beta2: float,
    epsilon: float,
    decay: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """New p, m, v. 1 - b^t by expm1, because in fp32 the plain form loses four digits at t = 1."""
    g = _clipped(g, clip)
    m = beta1 * m + (1 - beta1) * g
    v = beta2 * v + (1 - beta2) * (g * g)
    unbiased_m = m / -torch.expm1(step * math.log(beta1)) if beta1 else m
    unbiased_v = v / -torch.expm1(step * math.log(beta2)) if beta2 else v
    p = p * (1 - lr * decay) if decay else p
    return p - lr * unbiased_m / (torch.sqrt(unbiased_v) + epsilon), m, v


def _clipped(g: torch.Tensor, clip: dict[str, torch.Tensor]) -> torch.Tensor:
    return g * clip["factor"] if clip else g


def square_sum(g: torch.Tensor) -> torch.Tensor:
    return (g * g).sum()


def clip_factor(squares: torch.Tensor, *, clip_norm: float) -> torch.Tensor:
    return torch.clamp(clip_norm / (torch.sqrt(squares) + 1e-6), max=1.0)


def copy(g: torch.Tensor) -> torch.Tensor:
    return g.clone()


def summed_gradients(
    b: StepBuilder, gradients: Iterable[tuple[Tree, Tree]]
) -> Iterator[tuple[Value, Value, dict[str, Value]]]:
    """(piece, gradient, clip) for an update rule, which multiplies the gradient by clip["factor"] unless clip is empty.

    Takes (adapter, gradients) as they come, so that one block's gradients live at a time. With accumulation or clipping they are
    summed into accumulators first, and what is written for the results is a section of its own. In section `federated_measure` they
    are summed, and there are no results.
    """
    if b.section == "federated_measure":
        for adapter, grads in gradients:
            _accumulate(b, adapter, grads)
        return
    if not b.training.accumulates:
        for adapter, grads in gradients:
            for name, p in adapter.items():
                yield p, grads[name], {}
        return
    pieces: list[Value] = []
    for adapter, grads in gradients:
        pieces += _accumulate(b, adapter, grads)
    b.begin_section("apply_step")
    clip: dict[str, Value] = {}
    if b.training.clip_norm is not None:
        squares = b.zeros(())
        for p in pieces:
            b.call(square_sum, b.accumulator(p), add_to=squares)
        clip = {"factor": b.call(clip_factor, squares, clip_norm=b.training.clip_norm)}
    for p in pieces:
        yield p, b.accumulator(p), clip


def _accumulate(b: StepBuilder, adapter: Tree, grads: Tree) -> list[Value]:
    """Adds the gradients of a block to its accumulators. Returns its pieces."""
    for name, p in adapter.items():
        b.call(copy, grads[name], add_to=b.accumulator(p))
    return list(adapter.values())


def update(b: StepBuilder, gradients: Iterable[tuple[Tree, Tree]], options: FirstOrderOptions) -> None:
    """Applies the rule to (adapter, gradients), summed and clipped as the training asks."""
    for p, g, clip in summed_gradients(b, gradients):
        _apply(b, p, g, options, clip)


def _apply(b: StepBuilder, p: Value, g: Value, options: FirstOrderOptions, clip: dict[str, Value]) -> None:
    if options.update == "sgd":
        b.store(p, b.call(sgd, p, g, b.scalar("learning_rate"), clip))
        return
    m, v = b.state(p, "m"), b.state(p, "v")
    new = b.call(
        adamw,
        p,
        g,
        m,
        v,
        b.scalar("learning_rate"),
        b.scalar("step"),
        clip,
        beta1=options.beta1,
        beta2=options.beta2,
        epsilon=options.adam_epsilon,
        decay=options.weight_decay,
    )
    b.store([p, m, v], list(new))
