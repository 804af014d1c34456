# SPDX-License-Identifier: Apache-2.0
"""The batch of golden vectors: drawn by counter at build, padded to the shape of a plan when vectors are compared.

B rows of a plan's batch, T its positions, R rows of the golden batch, n its positions.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping

import numpy as np

from bespoke.plan.instructions import DType
from bespoke.rules.batches import TokenBatch
from bespoke.rules.noise import Stream, philox


def drawn_tokens(rows: int, positions: int, vocab_size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """tokens int32 [R, n + 1], mask uint8 [R, n + 1] with gaps; the second of two rows is half as long."""
    words = np.stack([philox(0, positions + 1, (row, Stream.GOLDEN_TOKEN, 0), seed)[0] for row in range(rows)])
    mask = np.tile((np.arange(positions + 1) % 5 != 3).astype(np.uint8), (rows, 1))
    mask[:, 0] = 0
    mask[0, -1] = 1
    if rows == 2:
        mask[1, max(1, positions // 2) + 1 :] = 0
    return (words.astype(np.int64) % vocab_size).astype(np.int32), mask


def drawn_arrays(
    arrays: Mapping[str, DType], shape: tuple[int, int], vocab_size: int, seed: int
) -> dict[str, np.ndarray]:
    """Stand-ins for the arrays that methods ask for, by name and dtype: int64 any token of the vocabulary, float32 0 or 1."""
    return {name: _drawn(name, dtype, shape, vocab_size, seed) for name, dtype in arrays.items()}


def _drawn(name: str, dtype: DType, shape: tuple[int, int], vocab_size: int, seed: int) -> np.ndarray:
    words = philox(0, shape[0] * shape[1], (zlib.crc32(name.encode()), Stream.GOLDEN_TOKEN, 1), seed)[0].reshape(shape)
    return words.astype(np.int64) % vocab_size if dtype == "int64" else (words >> np.uint32(31)).astype(np.float32)


def padded(
    tokens: np.ndarray, mask: np.ndarray, arrays: Mapping[str, np.ndarray], size: int, length: int
) -> TokenBatch:
    """The rows as a batch of `size` rows of `length` positions: padded on the right with zeros, and with empty rows."""
    rows, positions = tokens.shape[0], tokens.shape[1] - 1

    def placed(given: np.ndarray, dtype: type) -> np.ndarray:
        whole: np.ndarray = np.zeros((size, length), dtype)
        whole[:rows, :positions] = given
        return whole

    counted = placed(mask[:, 1:], np.float32)
    extra = {
        name: placed(array, np.float32 if array.dtype == np.float32 else np.int64) for name, array in arrays.items()
    }
    return TokenBatch(
        placed(tokens[:, :-1], np.int64),
        placed(tokens[:, 1:], np.int64),
        counted,
        length,
        int(counted.sum()),
        "general",
        tuple(range(rows)),
        extra,
    )
