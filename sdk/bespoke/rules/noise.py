# SPDX-License-Identifier: Apache-2.0
"""Noise that is regenerated instead of stored: Philox4x32-10 with counters, the same values in every language.

Paper: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). One round takes counter
(c0, c1, c2, c3) and key (k0, k1) to

    (hi(M1 c2) ^ c1 ^ k0,  lo(M1 c2),  hi(M0 c0) ^ c3 ^ k1,  lo(M0 c0)),   k0 += W0,  k1 += W1 after each of ten rounds.

Element i of a tensor (row-major over its PEFT shape: lora_A [rank, in], lora_B [out, rank]) comes from

    key     = (seed mod 2^32, seed div 2^32)
    counter = (i div 4, block << 16 | tensor, query, step)   ->   words w0, w1, w2, w3

and uses word or normal number i mod 4:

- rademacher: the lowest bit of the word; 1 gives +1, 0 gives -1.
- normal (Box-Muller, all in float64, rounded to float32 once): u_j = (w_j + 0.5) / 2^32, which float64 holds exactly;
  r = sqrt(-2 ln u_0), a = TWO_PI * u_1 with TWO_PI the float64 nearest to 2 pi and the product rounded to float64;
  normal 0 = r cos a, normal 1 = r sin a. Words 2 and 3 give normals 2 and 3 likewise. Libraries differ by an ulp of
  float64 in ln, sin and cos, hence by at most one ulp of float32 in the result. On one machine with one set of
  libraries, the bits do not depend on how the tensor is cut.

Queries stay below 2^31. The upper half of that counter word belongs to `Stream`, so the order of the data and the
sampling of tokens never use the same words as the noise of a run with the same seed.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from bespoke.errors import PlanError

__all__ = ["Distribution", "Stream", "noise", "philox"]

Distribution = Literal["normal", "rademacher"]

MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
WORD = 0xFFFFFFFF
TWO_PI = 6.283185307179586
# Counters per piece. The 7 temporaries have at most 64 KiB each, so a tensor of any size needs half a megabyte and stays in L2.
PIECE = 8192


class Stream(enum.IntEnum):
    """The values of counter word 2 for draws that are not noise."""

    SOURCE = 1 << 31
    USER_ORDER = (1 << 31) + 1
    GENERAL_ORDER = (1 << 31) + 2
    TOKEN = (1 << 31) + 3
    GOLDEN_TOKEN = (1 << 31) + 4
    GOLDEN_PLACE = (1 << 31) + 5
    JUDGED = (1 << 31) + 6
    SAMPLE = (1 << 31) + 7


def noise(
    shape: Sequence[int],
    *,
    seed: int,
    step: int,
    query: int,
    block: int,
    tensor: int,
    distribution: Distribution = "normal",
    out: np.ndarray | None = None,
) -> np.ndarray:
    """z, float32 of `shape`. The same arguments always give the same z.

    seed: [0, 2^64). step: [0, 2^32). query: [0, 2^31). block, tensor: [0, 2^16). `out`, C-contiguous float32 of
    `shape`, is filled and returned. Besides the result the call uses about half a megabyte, for any shape.
    Raises PlanError for a number out of its range, an unknown distribution or an `out` that does not fit.
    """
    shape = tuple(int(size) for size in shape)
    size = math.prod(shape)
    _check_range("seed", seed, 64)
    _check_range("step", step, 32)
    _check_range("query", query, 31)
    _check_range("block", block, 16)
    _check_range("tensor", tensor, 16)
    _check_range("last index", max(size - 1, 0), 34)
    if distribution not in ("normal", "rademacher"):
        raise PlanError(
            "noise: distribution",
            got=repr(distribution),
            expected="'normal' or 'rademacher'",
            next_step="Name one of these two",
        )
    if out is None:
        out = np.empty(shape, np.float32)
    elif out.shape != shape or out.dtype != np.float32 or not out.flags.c_contiguous or not out.flags.writeable:
        raise PlanError(
            "noise: out",
            got=f"{out.dtype} {list(out.shape)}, flags {out.flags.c_contiguous=}, {out.flags.writeable=}",
            expected=f"writable C-contiguous float32 {list(shape)}",
            next_step="Pass such an array, or none",
        )

    flat = out.reshape(-1)  # a view, since out is contiguous
    fill = _fill_normal if distribution == "normal" else _fill_rademacher
    for start in range(0, size, 4 * PIECE):
        piece = flat[start : start + 4 * PIECE]
        fill(piece, philox(start // 4, -(-piece.size // 4), (block << 16 | tensor, query, step), seed))
    return out


def philox(first: int, count: int, counter: tuple[int, int, int], seed: int) -> np.ndarray:
    """Words 0 to 3 of the counters (first + j, *counter), j = 0 .. count - 1, under key `seed`: uint32 [4, count].

    Word w of counter j is at [w, j]. first + count <= 2^32. The counter's numbers have 32 bits, the seed has 64.
    """
    c0 = np.arange(first, first + count, dtype=np.uint64)
    c1, c2, c3 = (np.full(count, word, np.uint64) for word in counter)
    product0, product1 = np.empty(count, np.uint64), np.empty(count, np.uint64)
    low, half = np.uint64(WORD), np.uint64(32)
    key0, key1 = seed & WORD, seed >> 32

    for _ in range(ROUNDS):
        np.multiply(c0, MULTIPLIERS[0], out=product0)
        np.multiply(c2, MULTIPLIERS[1], out=product1)
        # The upper half of product1 becomes c0 and that of product0 becomes c2; the old c0, c2 hold them meanwhile.
        np.right_shift(product1, half, out=c0)
        np.bitwise_xor(c0, c1, out=c0)
        np.bitwise_xor(c0, np.uint64(key0), out=c0)
        np.right_shift(product0, half, out=c2)
        np.bitwise_xor(c2, c3, out=c2)
        np.bitwise_xor(c2, np.uint64(key1), out=c2)
        np.bitwise_and(product1, low, out=c1)
        np.bitwise_and(product0, low, out=c3)
        key0, key1 = (key0 + KEY_STEPS[0]) & WORD, (key1 + KEY_STEPS[1]) & WORD

    words = np.empty((4, count), np.uint32)
    for row, value in zip(words, (c0, c1, c2, c3), strict=True):
        row[:] = value
    return words


def _fill_normal(piece: np.ndarray, words: np.ndarray) -> None:
    for pair in (0, 2):
        radius = words[pair] + 0.5
        radius *= 2.0**-32
        np.log(radius, out=radius)
        radius *= -2.0
        np.sqrt(radius, out=radius)
        angle = words[pair + 1] + 0.5
        angle *= 2.0**-32
        angle *= TWO_PI
        for lane, function in ((pair, np.cos), (pair + 1, np.sin)):
            target = piece[lane::4]
            value = function(angle)
            value *= radius
            target[:] = value[: target.size]


def _fill_rademacher(piece: np.ndarray, words: np.ndarray) -> None:
    words &= np.uint32(1)
    for lane in range(4):
        target = piece[lane::4]
        target[:] = words[lane, : target.size]
    piece *= 2.0
    piece -= 1.0


def _check_range(name: str, value: int, bits: int) -> None:
    if not 0 <= value < 1 << bits:
        raise PlanError(
            f"noise: {name}",
            got=str(value),
            expected=f"a whole number from 0 to 2^{bits} - 1",
            next_step="The counter has no room for it; use a smaller one",
        )
