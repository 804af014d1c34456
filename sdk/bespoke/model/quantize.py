# SPDX-License-Identifier: Apache-2.0
"""Symmetric int4 in groups of 32 along the input, the format of every frozen weight.

A weight is (code - 8) * s: code is a nibble, s is the fp16 scale of its group and may be negative. Let w be a group of 32
neighbours in a row, m the largest of them in magnitude, and v the weight of an error of each (the mean square of its
activation, or 1 if that is unknown). For each d of STEPS:

    q_d = clamp(round(w * -d / m), -8, 7)      s_d = sum(v w q_d) / sum(v q_d^2)

s_d is the scale that brings q_d nearest to w. The s_d with the least weighted error is rounded to fp16. The codes are then
clamp(round(w / s), -8, 7) + 8, half to even, with the rounded s: the scale that a decoder reads. With d = 8 the largest
weight takes the code -8, which has no positive counterpart. So the sign of s is opposite to that of m. The reasons and the
loss: docs/explanation/int4.md. Arithmetic is fp32 in a fixed order, so every processor gives the same bytes.

Weights that lie on such a grid with a largest code of -8 or 7 keep their codes and scale: GGUF's Q4_0, symmetric GPTQ.
A group whose s rounds to 0 has code 8, which decodes to 0. So has the padding of a row to a multiple of 32. A byte holds
two codes, low nibble first. GGUF's Q4_0 holds the same numbers in another order of bytes.
"""

from __future__ import annotations

import numpy as np

from bespoke.errors import ModelError

__all__ = ["GROUP", "STEPS", "codes_width", "dequantize", "groups_of", "quantize"]

GROUP = 32
STEPS = (8.0, 7.3, 8.7)  # scales in the largest weight of a group
_ZERO = 8  # the code of 0
_BETTER = np.float32(1 + 1e-5)  # a later step must gain this much more than an earlier one: rounding must not choose


def groups_of(columns: int) -> int:
    """Groups in a row of `columns` numbers: its width in scales."""
    return -(-columns // GROUP)


def codes_width(columns: int) -> int:
    """Bytes of codes in a row of `columns` numbers."""
    return groups_of(columns) * (GROUP // 2)


def quantize(name: str, weight: np.ndarray, counts: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """(codes uint8 [rows, 16 * groups], scales float16 [rows, groups]) of `weight` float32 [rows, columns].

    `counts` float32 [columns], above 0 and at most 1: the weight of an error in each column. Rows are independent, so you
    can quantize a tensor a few rows at a time. Raises ModelError, naming the tensor, for NaN, infinity or a group whose
    scale does not fit fp16.
    """
    rows, columns = weight.shape
    groups = groups_of(columns)

    padded = np.zeros((rows, groups * GROUP), np.float32)
    padded[:, :columns] = weight
    # The group comes first: arithmetic over long rows is fast.
    across = np.ascontiguousarray(padded.reshape(-1, GROUP).T).reshape(GROUP, rows, groups)
    v = None
    if counts is not None:
        v = np.ones(groups * GROUP, np.float32)
        v[:columns] = counts
        v = np.ascontiguousarray(v.reshape(groups, GROUP).T)[:, None]  # (GROUP, 1, groups)

    largest = _largest(across)
    with np.errstate(over="ignore", invalid="ignore"):
        scales = _scales(across, largest, v).astype(np.float16)
    if not np.isfinite(scales).all():
        _refuse(name, largest)
    scales[scales == 0] = 0  # and not -0

    divisor = scales.astype(np.float32)
    divisor[divisor == 0] = np.inf  # everything rounds to 0 there
    np.divide(across, divisor, out=across)
    np.rint(across, out=across)
    np.maximum(across, -8, out=across)
    np.minimum(across, 7, out=across)
    across += _ZERO

    nibbles = across.astype(np.uint8)
    pairs = nibbles[0::2] | nibbles[1::2] << 4  # (16, rows, groups)
    return np.ascontiguousarray(pairs.reshape(GROUP // 2, -1).T).reshape(rows, -1), scales


def dequantize(codes: np.ndarray, scales: np.ndarray, columns: int) -> np.ndarray:
    """float32 [rows, columns] from the codes and scales of `quantize`."""
    rows, groups = scales.shape
    unpacked = np.empty((rows, groups * GROUP), np.float32)
    unpacked[:, 0::2] = codes & 0x0F
    unpacked[:, 1::2] = codes >> 4
    unpacked -= _ZERO
    grouped = unpacked.reshape(rows, groups, GROUP)
    grouped *= scales.astype(np.float32)[:, :, None]
    return unpacked[:, :columns]


def _scales(w: np.ndarray, largest: np.ndarray, v: np.ndarray | None) -> np.ndarray:
    """The best scale of each group of `w` [GROUP, rows, groups], float32 [rows, groups]; not finite if a weight is not."""
    share = w / np.where(largest == 0, np.float32(1), largest)  # of the largest: -1 to 1
    q, product = np.empty_like(share), np.empty_like(share)
    for number, step in enumerate(STEPS):
        np.multiply(share, np.float32(-step), out=q)
        np.rint(q, out=q)
        if step >= 7.5:
            np.minimum(q, 7, out=q)
        if step > 8.5:
            np.maximum(q, -8, out=q)
        counted = q if v is None else np.multiply(q, v, out=product)
        sums = _folded(np.add, counted * share)
        squares = _folded(np.add, np.multiply(counted, q, out=product))
        ratio = sums / np.where(squares == 0, np.float32(1), squares)
        gain = sums * ratio  # how much less the weighted error is than with all codes 0
        if number == 0:
            best, scale = gain, ratio
        else:
            better = gain > best * _BETTER
            best, scale = np.where(better, gain, best), np.where(better, ratio, scale)
    return scale * largest


def _largest(w: np.ndarray) -> np.ndarray:
    """The weight of largest magnitude in each group of `w`; the negative of two that are equal. A NaN stays a NaN."""
    high, low = _folded(np.maximum, w), _folded(np.minimum, w)
    return np.where(high > -low, high, low)


def _folded(operation: np.ufunc, w: np.ndarray) -> np.ndarray:
    """Reduction over the first axis by halves: the same order on every processor."""
    while len(w) > 1:
        w = operation(w[: len(w) // 2], w[len(w) // 2 :])
    return w[0]


def _refuse(name: str, largest: np.ndarray) -> None:
    if np.isnan(largest).any():
        got = "NaN"
    elif np.isinf(largest).any():
        got = "infinity"
    else:
        got = f"a weight of magnitude {np.abs(largest).max():.6g}"
    raise ModelError(
        f"tensor {name}",
        got=got,
        expected="finite weights below 478,000, so that the scale of each group fits fp16",
        next_step="Check the checkpoint: such weights come of a damaged file or a diverged training",
    )
