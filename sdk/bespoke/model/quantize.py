# SPDX-License-Identifier: Apache-2.0
"""Symmetric int4 in groups of 32 along the input, the format of every frozen weight.

For a group w of 32 neighbours in a row: s = fp16(max|w| / 7); code = clamp(round(w / s), -8, 7) + 8, half to even, with
the rounded s, so that decoding, (code - 8) * s, undoes what was stored and not what was meant. Arithmetic is fp32.
A group whose s rounds to 0 and the padding of a row to a multiple of 32 have code 8, which decodes to 0. Two codes a
byte, low nibble first. GGUF's Q4_0 holds the same numbers in another order of bytes.
"""

from __future__ import annotations

import numpy as np

from bespoke.errors import ModelError

__all__ = ["GROUP", "codes_width", "dequantize", "groups_of", "quantize"]

GROUP = 32
_ZERO = 8  # the code of 0


def groups_of(columns: int) -> int:
    """Groups in a row of `columns` numbers: its width in scales."""
    return -(-columns // GROUP)


def codes_width(columns: int) -> int:
    """Bytes of codes in a row of `columns` numbers."""
    return groups_of(columns) * (GROUP // 2)


def quantize(name: str, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(codes uint8 [rows, 16 * groups], scales float16 [rows, groups]) of `weight` float32 [rows, columns].

    Rows are independent, so a tensor may be quantized a few rows at a time. Raises ModelError, naming the tensor,
    for NaN, infinity or a group whose scale is beyond fp16.
    """
    rows, columns = weight.shape
    groups = groups_of(columns)
    padded = np.zeros((rows, groups * GROUP), np.float32)
    padded[:, :columns] = weight
    grouped = padded.reshape(rows, groups, GROUP)
    largest = _largest(grouped)
    with np.errstate(over="ignore"):
        scales = (largest / np.float32(7)).astype(np.float16)
    if not np.isfinite(scales).all():
        _refuse(name, largest)
    divisor = scales.astype(np.float32)
    divisor[divisor == 0] = np.inf  # everything rounds to 0 there
    np.divide(grouped, divisor[:, :, None], out=grouped)
    np.rint(grouped, out=grouped)
    np.maximum(grouped, -8, out=grouped)
    np.minimum(grouped, 7, out=grouped)
    grouped += _ZERO
    pairs = padded.astype(np.uint8).view("<u2")  # two codes, the first in the low byte: (rows, 16 * groups)
    pairs |= pairs >> 4
    return pairs.astype(np.uint8), scales


def dequantize(codes: np.ndarray, scales: np.ndarray, columns: int) -> np.ndarray:
    """float32 [rows, columns] from what `quantize` gives."""
    rows, groups = scales.shape
    unpacked = np.empty((rows, groups * GROUP), np.float32)
    unpacked[:, 0::2] = codes & 0x0F
    unpacked[:, 1::2] = codes >> 4
    unpacked -= _ZERO
    grouped = unpacked.reshape(rows, groups, GROUP)
    grouped *= scales.astype(np.float32)[:, :, None]
    return unpacked[:, :columns]


def _largest(grouped: np.ndarray) -> np.ndarray:
    """max|w| of each group, (rows, groups), by halves: four times faster than a reduction over 32. A NaN stays a NaN."""
    magnitude = np.abs(grouped)
    half = GROUP // 2
    while half:
        magnitude = np.maximum(magnitude[..., :half], magnitude[..., half : 2 * half])
        half //= 2
    return magnitude[..., 0]


def _refuse(name: str, largest: np.ndarray) -> None:
    if np.isnan(largest).any():
        got = "NaN"
    elif np.isinf(largest).any():
        got = "infinity"
    else:
        got = f"a weight of magnitude {largest.max():.6g}"
    raise ModelError(
        f"tensor {name}",
        got=got,
        expected="finite weights below 458,640, so that a seventh of each fits fp16",
        next_step="Check the checkpoint: such weights come of a damaged file or a diverged training",
    )
