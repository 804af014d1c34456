# SPDX-License-Identifier: Apache-2.0
"""Shared parts of zeroth-order methods: options with what such a method promises, and a step. z and u are noise, L is the mean
loss of the batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import torch
from pydantic import Field

from bespoke.config import Scalar, Settings
from bespoke.graph.step_builder import StepBuilder
from bespoke.graph.value import Value

LOSS_ROUNDING = 1e-6  # of a loss of a few nats, as its share: the most that fp32 was seen to be off
LEAST_CURVATURE = 2.0**-24  # of h: the least for which h - 1, as it is kept, is not -1 in fp32


class ZerothOrderOptions(Settings):
    """Options of methods that step along random directions (SPSA, Spall 1992; MeZO, Malladi et al. 2023).

    A method with these options, or with more, that promises `two_sided_loss_difference` does this. Let theta be the pieces that it
    stores, and z_i = b.noise(theta, query=i, distribution). It records g_i = (L(theta + eps z_i) - L(theta - eps z_i)) / (2 eps)
    in order, emits the mean of all L as `loss`, and steps theta <- theta - (learning_rate / queries) sum_i g_i z_i. Golden vectors
    hold it to that. `epsilon` is the size of the step to
    either side: in fp32 a loss carries about 1e-6, so g carries 1e-6 / epsilon.
    """

    epsilon: float = Field(default=1e-3, gt=0)
    queries: int = Field(default=1, ge=1, le=64)
    distribution: Literal["normal", "rademacher"] = "normal"

    @property
    def training_defaults(self) -> dict[str, float]:
        """An estimate is as long as the gradient times the root of the number of weights: too high a rate diverges at once."""
        return {"learning_rate": 5e-5}


class NormalizedOptions(Settings):
    """Options of methods that divide one-sided differences by the spread of the losses (FZOO, Dang et al. 2025,
    arXiv 2506.09034).

    A method with these options, or with more, that promises `normalized_loss_difference` does this. Let theta be the pieces that it
    stores, u_i = b.noise(theta, query=i, distribution), l_0 = L(theta), l_i = L(theta + eps u_i), and sigma the sample standard
    deviation of l_1 to l_queries, but no less than loss_rounding max(1, l_0). It records g_i = (l_i - l_0) / (eps sigma) in order,
    emits l_0 as `loss`, and steps theta <- theta - (learning_rate / queries) sum_i g_i u_i.

    `loss_rounding` that nobody names is, in a bundle, what the roughest of its targets was measured to round, if that is more than
    fp32 does.
    """

    epsilon: float = Field(default=1e-3, gt=0)
    queries: int = Field(default=8, ge=2, le=63)
    distribution: Literal["normal", "rademacher"] = "rademacher"
    loss_rounding: Scalar = Field(default=LOSS_ROUNDING, gt=0, lt=1)

    @property
    def training_defaults(self) -> dict[str, float]:
        """A step is about rate / epsilon long for each weight, over the root of the queries, whatever the gradient."""
        return {"learning_rate": self.epsilon * 1e-3}


class CurvatureOptions(Settings):
    """Options of methods that scale directions by an estimate of the Hessian's diagonal (HiZOO, Zhao et al. 2025,
    arXiv 2402.15173).

    A method with these options, or with more, that promises `curvature_scaled_difference` does this. Let theta be the pieces that
    it stores, h a state that is 1 when a run starts, d = z / sqrt(h) with z = b.noise(theta), l_0 = L(theta), l+ = L(theta + eps d)
    and l- = L(theta - eps d). It records g = (l+ - l-) / (2 eps) and c = |l+ + l- - 2 l_0| / (2 eps^2), in this order, and emits
    l_0 as `loss`. Then h <- max((1 - smoothing) h + smoothing c h z^2, LEAST_CURVATURE), and with the new h
    theta <- theta - learning_rate g z / sqrt(h).
    """

    epsilon: float = Field(default=1e-3, gt=0)
    smoothing: Scalar = Field(default=1e-8, ge=0, lt=1)

    @property
    def training_defaults(self) -> dict[str, float]:
        """The rate of two-sided estimates: where h is 1, this is one."""
        return {"learning_rate": 5e-5}


def descended(
    b: StepBuilder, theta: Value, gs: Sequence[Value], options: ZerothOrderOptions | NormalizedOptions
) -> Value:
    """theta - (learning_rate / queries) sum_i g_i z_i, one z at a time. gs: the recorded number of each query, ()."""
    new = theta
    for query, g in enumerate(gs):
        z = b.noise(theta, query, options.distribution)
        new = b.call(descend, new, z, g, b.scalar("learning_rate"), queries=options.queries)
    return new


def perturbed(
    b: StepBuilder, start: Value, theta: Value, paths: Iterable[tuple[int, int]], options: ZerothOrderOptions
) -> Iterator[Value]:
    """start + sign eps z_query for each (query, sign), with z in the shape of theta.

    One z lives at a time if the paths of a query follow each other.
    """
    drawn: dict[int, Value] = {}
    for query, sign in paths:
        if query not in drawn:
            drawn = {query: b.noise(theta, query, options.distribution)}
        yield b.call(move, start, drawn[query], b.scalar("epsilon"), sign=sign)


def projected_gradient(plus: torch.Tensor, minus: torch.Tensor, epsilon: torch.Tensor) -> torch.Tensor:
    """(L+ - L-) / (2 eps), a scalar. A loss is () from a pass of its own, (1,) as one of several paths."""
    g = (plus - minus) / (2 * epsilon)
    return g.reshape(()) if g.ndim else g


def mean(losses: list[torch.Tensor]) -> torch.Tensor:
    """The mean of losses, all () or all (1,)."""
    return (torch.cat([loss.reshape(1) for loss in losses]) if losses[0].ndim else torch.stack(losses)).mean()


def move(theta: torch.Tensor, z: torch.Tensor, epsilon: torch.Tensor, *, sign: int) -> torch.Tensor:
    """A step to one side."""
    return theta + sign * (epsilon * z)


def descend(theta: torch.Tensor, z: torch.Tensor, g: torch.Tensor, eta: torch.Tensor, *, queries: int) -> torch.Tensor:
    return theta - (eta * g / queries) * z
