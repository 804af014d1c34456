# SPDX-License-Identifier: Apache-2.0
"""The next token from logits: greedy, or drawn by temperature, top-k and top-p with a counter instead of a generator.

The rule is the same in every language. Greedy takes the largest logit, the lowest id among equals. Otherwise, in float64:

1. p ~ exp((logit - largest) / temperature).
2. top_k keeps the k largest logits, the lower id first among equals.
3. top_p keeps, of those and by falling logit (the lower id first among equals), the fewest that hold at least top_p of
   their sum (Holtzman et al., "The curious case of neural text degeneration", 2020).
4. u = (w + 0.5) / 2^32, w = word 0 of Philox counter (position, 0, TOKEN, 0) under key `seed`. The token is the first
   kept one, by rising id, at which the running sum of p exceeds u times the whole.

V = size of the vocabulary.
"""

from __future__ import annotations

import math

import numpy as np

from bespoke.arguments import number, whole_number
from bespoke.errors import GenerationError
from bespoke.rules.noise import Stream, philox

__all__ = ["check_sampling", "choose_token"]


def choose_token(
    logits: np.ndarray,
    *,
    temperature: float,
    top_p: float = 1.0,
    top_k: int | None = None,
    seed: int = 0,
    position: int = 0,
) -> int:
    """The id of the next token.

    logits: float32 [V], -inf for a forbidden token. temperature 0 is greedy. top_p in (0, 1], top_k at least 1 or
    None for all. (seed, position) decide the draw, where position is the number of tokens before this one.
    Raises GenerationError for a setting out of range or logits that hold a NaN, +inf or nothing but -inf.
    """
    check_sampling(temperature=temperature, top_p=top_p, top_k=top_k, seed=seed)
    whole_number("position", position, 0, (1 << 32) - 1, error=GenerationError)
    if logits.ndim != 1 or not logits.size:
        raise GenerationError(
            "logits", got=f"shape {list(logits.shape)}", expected="[V]", next_step="Pass the last position's logits"
        )
    best = int(np.argmax(logits))  # the place of a NaN, if there is one
    if not math.isfinite(float(logits[best])):
        raise GenerationError(
            "logits",
            got=f"{float(logits[best])} at token {best}",
            expected="finite numbers, -inf for forbidden tokens",
            next_step="Check the adapter: training may have diverged; roll back to an earlier one",
        )
    if temperature == 0:
        return best

    kept = _largest(logits, top_k) if top_k is not None and top_k < logits.size else np.arange(logits.size)
    weights = np.exp((logits[kept].astype(np.float64) - float(logits[best])) / temperature)
    if top_p < 1:
        order = np.argsort(-logits[kept], kind="stable")  # kept is by rising id
        running = np.cumsum(weights[order])
        count = int(np.searchsorted(running, top_p * running[-1])) + 1
        chosen = np.sort(order[:count])
        kept, weights = kept[chosen], weights[chosen]

    running = np.cumsum(weights)
    u = (int(philox(position, 1, (0, Stream.TOKEN, 0), seed)[0, 0]) + 0.5) * 2.0**-32
    return int(kept[np.searchsorted(running, u * running[-1], side="right")])


def check_sampling(*, temperature: float, top_p: float = 1.0, top_k: int | None = None, seed: int = 0) -> None:
    """Raises GenerationError for a setting out of its range. Call it before the first token is computed."""
    number("temperature", temperature, "a number, 0 (greedy) or more", lambda value: value >= 0, error=GenerationError)
    number("top_p", top_p, "a number above 0, at most 1", lambda share: 0 < share <= 1, error=GenerationError)
    if top_k is not None:
        whole_number("top_k", top_k, 1, error=GenerationError)
    whole_number("seed", seed, 0, (1 << 64) - 1, error=GenerationError)


def _largest(logits: np.ndarray, count: int) -> np.ndarray:
    """The ids of the `count` largest logits, ascending. Among equal logits the lower ids come first."""
    least = np.partition(logits, logits.size - count)[logits.size - count]
    above = np.flatnonzero(logits > least)
    equal = np.flatnonzero(logits == least)[: count - above.size]
    return np.sort(np.concatenate([above, equal]))
