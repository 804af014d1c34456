# SPDX-License-Identifier: Apache-2.0
"""Dual-forwarding (P-RGE, arXiv 2409.15520, Algorithm 2; MobiZO's Mobile MP-LoRA): a step whose update trails by one call, for
engines that only run forward.

Instead of theta, the state is B2_i = theta +- eps z_i for each query. A step computes the next B2_i from these, from its noise, and
from g and eta of the step before:

    diff_i = (B2_i+ - B2_i-) / 2                                                (eps z_i of the step before)
    centre = (B2_1+ + B2_1-) / 2 - (eta / q) sum_i g_i diff_i / eps             (one for all: copies of it would drift apart)
    B2_i+- <- centre +- eps z_i

State begins at zero, so it holds by how much B2 differs from the adapter that the run started from, which stays as it was. The
papers never say that the last update must be applied as well: section `finish` applies it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import torch

from bespoke.graph.step_builder import StepBuilder
from bespoke.graph.value import Value
from bespoke.methods.update import copy
from bespoke.methods.zeroth_order import ZerothOrderOptions, perturbed
from bespoke.model.spec import ModelSpec

__all__ = ["number_of_last_step", "trail", "trailing_perturbed"]


def trailing_perturbed(
    b: StepBuilder, model: ModelSpec, theta: Value, paths: Iterable[tuple[int, int]], options: ZerothOrderOptions
) -> list[Value]:
    """theta + sign eps z_query after the update of the step before, for each (query, sign).

    They become the next state. Ask for a path once in a step.
    """
    paths, pieces = list(paths), []
    for (query, sign), side in zip(
        paths, perturbed(b, _centre(b, model, theta, options), theta, paths, options), strict=True
    ):
        b.store(_side(b, theta, query, sign), side)
        pieces.append(b.call(add, theta, side))
    return pieces


def trail(b: StepBuilder, model: ModelSpec, gs: Sequence[Value], options: ZerothOrderOptions) -> None:
    """Ends the training step: leaves its update to the next step and writes section `finish`.

    gs: the recorded number of each query, ()
    """
    last = _Last.of(b, model, options)
    b.store([*last.gs, last.rate], [*gs, b.call(copy, b.scalar("learning_rate"))])
    b.begin_section("finish")
    for group in model.blocks:
        for theta in b.adapter(group).values():
            b.store(theta, b.call(add, theta, _centre(b, model, theta, options)))


_G, _RATE = "g_", "rate"


class _Last(NamedTuple):
    """g of each query of the step before, and the rate that goes with them; zero before the first."""

    gs: list[Value]
    rate: Value

    @classmethod
    def of(cls, b: StepBuilder, model: ModelSpec, options: ZerothOrderOptions) -> _Last:
        piece = next(iter(b.adapter(model.blocks[0]).values()))  # state belongs to a piece; this is of all of them
        return cls([b.state(piece, f"{_G}{query}", ()) for query in range(options.queries)], b.state(piece, _RATE, ()))


def number_of_last_step(state: str) -> int | Literal["rate"] | None:
    """The number of the step before that a state of this full name holds: the g of a query, by its number, or the rate.

    None: the state is as large as a piece. An app that calls steps itself keeps the numbers, so no engine has to.
    """
    kind = state.rsplit(".", 1)[-1]
    if kind == _RATE:
        return "rate"
    return int(kind.removeprefix(_G)) if kind.startswith(_G) else None


def _side(b: StepBuilder, theta: Value, query: int, sign: int) -> Value:
    return b.state(theta, f"{'plus' if sign > 0 else 'minus'}_{query}")


def _centre(b: StepBuilder, model: ModelSpec, theta: Value, options: ZerothOrderOptions) -> Value:
    """The change of a piece by the steps before this one."""
    last = _Last.of(b, model, options)
    pairs = [(_side(b, theta, query, +1), _side(b, theta, query, -1)) for query in range(options.queries)]
    centre: Value = b.call(middle, *pairs[0])
    for g, (plus, minus) in zip(last.gs, pairs, strict=True):
        centre = b.call(
            descend_between, centre, plus, minus, g, last.rate, b.scalar("epsilon"), queries=options.queries
        )
    return centre


def middle(plus: torch.Tensor, minus: torch.Tensor) -> torch.Tensor:
    return (plus + minus) / 2


def descend_between(
    centre: torch.Tensor,
    plus: torch.Tensor,
    minus: torch.Tensor,
    g: torch.Tensor,
    rate: torch.Tensor,
    epsilon: torch.Tensor,
    *,
    queries: int,
) -> torch.Tensor:
    return centre - (rate * g / queries) * ((plus - minus) / (2 * epsilon))


def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a + b
