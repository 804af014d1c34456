# SPDX-License-Identifier: Apache-2.0
"""The noise of bespoke.rules.noise as operators of a graph: Philox4x32-10 in int64, Box-Muller in float32.

The random words have the same bits. bespoke.rules.noise computes normals in float64 and rounds once. The normals here differ from
those by about 1e-7, and by 1e-4 if a uniform is closest to 1.
"""

from __future__ import annotations

from typing import Literal

import torch

from bespoke.rules.noise import KEY_STEPS, MULTIPLIERS, ROUNDS, TWO_PI, WORD

__all__ = ["noise_in_graph"]


def noise_in_graph(
    first: torch.Tensor,
    second: torch.Tensor,
    query: int,
    seed: torch.Tensor,
    step: torch.Tensor,
    distribution: Literal["normal", "rademacher"],
) -> torch.Tensor:
    """z, float32 (4 n), for the counters (first, second, query, step). first, second: int32 (n); seed, step: int64 (1)."""
    words = _philox(first.to(torch.int64), second.to(torch.int64), query, step, seed)
    if distribution == "rademacher":
        lanes = [2.0 * torch.bitwise_and(word, 1).to(torch.float32) - 1.0 for word in words]
    else:
        u = [(word.to(torch.float32) + 0.5) * 2.0**-32 for word in words]
        lanes = []
        for pair in (0, 2):
            radius, angle = torch.sqrt(torch.clamp(torch.log(u[pair]) * -2.0, min=0.0)), u[pair + 1] * TWO_PI
            lanes += [radius * torch.cos(angle), radius * torch.sin(angle)]
    return torch.stack(lanes, -1).reshape(-1)


def _philox(
    c0: torch.Tensor, c1: torch.Tensor, query: int, step: torch.Tensor, seed: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """Words 0 to 3 of each counter, int64.

    Products wrap at 2^64, so their low 64 bits are exact. A right shift of int64 keeps the sign, and the mask removes it.
    """
    c2, c3 = torch.zeros_like(c0) + query, torch.zeros_like(c0) + step
    key0, key1 = torch.bitwise_and(seed, WORD), torch.bitwise_and(torch.bitwise_right_shift(seed, 32), WORD)
    for _ in range(ROUNDS):
        product0, product1 = c0 * int(MULTIPLIERS[0]), c2 * int(MULTIPLIERS[1])
        high0, high1 = (torch.bitwise_and(torch.bitwise_right_shift(p, 32), WORD) for p in (product0, product1))
        c0, c2 = (
            torch.bitwise_xor(torch.bitwise_xor(high1, c1), key0),
            torch.bitwise_xor(torch.bitwise_xor(high0, c3), key1),
        )
        c1, c3 = torch.bitwise_and(product1, WORD), torch.bitwise_and(product0, WORD)
        key0, key1 = torch.bitwise_and(key0 + KEY_STEPS[0], WORD), torch.bitwise_and(key1 + KEY_STEPS[1], WORD)
    return c0, c1, c2, c3
