# SPDX-License-Identifier: Apache-2.0
"""Integers out of shared vectors, and distances between floats in units of the last place."""

from __future__ import annotations

import numpy as np


def integers(counter: list[int], key: list[int]) -> list[int]:
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = divmod(0xD2511F53 * c[0], 1 << 32), divmod(0xCD9E8D57 * c[2], 1 << 32)
        c = [b[0] ^ c[1] ^ k[0], b[1], a[0] ^ c[3] ^ k[1], a[1]]
        k = [(k[0] + 0x9E3779B9) % (1 << 32), (k[1] + 0xBB67AE85) % (1 << 32)]
    return c


def ulps(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Distance in representable float32 numbers, across zero too."""

    def ordered(values: np.ndarray) -> np.ndarray:
        bits = values.view(np.int32).astype(np.int64)
        return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)

    return np.abs(ordered(got) - ordered(expected))
