# SPDX-License-Identifier: Apache-2.0
"""What a server makes of the numbers of a round: the coefficients of the step that all devices take.

Device i measures direction j = i mod q of the q directions of a round. In mode *own* q is the number of devices, so each has a
direction of its own and nothing can be compared. In mode *shared* several devices measure one direction, and a median or a trimmed
mean leaves out what few of them say. Let v_j be the numbers of direction j and s the share of one direction, 1/q for an average:

    theta <- theta - sum_j rate s combine(v_j) h_j        h_j = c z_j + c' G_j
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from bespoke.rules.federation import rounded

__all__ = ["Along", "Combine", "combined", "direction_of", "step_of"]

Combine = Literal["mean", "median", "trimmed_mean"]

TRIMMED = 5  # of so many numbers a trimmed mean leaves out the largest and the smallest


class Along(NamedTuple):
    """A direction with its coefficients: coefficient z + guidance_coefficient G."""

    number: int
    coefficient: float
    guidance_coefficient: float


def direction_of(device: int, directions: int) -> int:
    """The number of the direction that a device of a round measures."""
    return device % directions


def combined(numbers: Sequence[float], combine: Combine = "mean") -> float:
    """One number for those of several devices. A trimmed mean leaves out a fifth at either end, at least one."""
    ordered = np.sort(np.asarray(numbers, np.float64))
    if combine == "median":
        return float(np.median(ordered))
    if combine == "trimmed_mean":
        cut = max(1, len(ordered) // TRIMMED)
        ordered = ordered[cut:-cut] if len(ordered) > 2 * cut else ordered[len(ordered) // 2 : len(ordered) // 2 + 1]
    return float(ordered.mean())


def step_of(
    numbers: Mapping[int, Sequence[float]],
    rate: float,
    *,
    coefficient: float = 1.0,
    guidance_coefficient: float = 0.0,
    combine: Combine = "mean",
) -> list[Along]:
    """The directions of a step in the round's order, with coefficients of the bits that keep their products exact.

    `numbers`: by direction, as devices sent them. `rate`: the step for a number of 1, a direction's share in it. A direction of
    which nothing came is left out.
    """
    steps = []
    for number in sorted(numbers):
        if len(numbers[number]):
            size = rate * combined(numbers[number], combine)
            steps.append(Along(number, rounded(size * coefficient), rounded(size * guidance_coefficient)))
    return steps
