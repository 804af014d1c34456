# SPDX-License-Identifier: Apache-2.0
"""A weight in XNNPACK's qb4w format: our codes (low nibble first, 8 is zero) and their scales rounded from fp16 to bf16.

XNNPACK takes positive scales alone. If a group's scale s is negative, each code c becomes 15 - c, which still fits four bits:

    (c - 8) s = ((15 - c) - 8) |s| + |s|

Such a group lacks its shift |s| times the sum of the group's 32 activations. One more product in fp32 adds it, a 32nd as large.
A group with scale 0 gets codes of 8 and a scale of 1.

At load, XNNPACK packs the codes for the processor into a mapped file. The engine provides the file, and weights with the same name
share it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

PRODUCT = "int4_product"  # a node: int8 rows of x times the transpose of a weight
SHIFTS = "int4_shifts"  # a node: fp32 sums of groups of x [rows, groups] times the transpose of a weight's shifts
GROUP = 32
ZEROS = 0x88  # a byte of two codes that mean 0
PAGE_BYTES, TILE_ROWS, INDEX_BYTES = (
    4096,
    32,
    200,
)  # layout of a packed weight: page alignment, rows of a tile, bytes of its index entry
PROGRAM_BYTES, WEIGHT_BYTES = 24_000, 4_000  # anonymous memory of an open program and of each of its weights


@dataclass(frozen=True, eq=False)
class Int4Weight:
    """codes uint8 [out, 16 * groups]; scales: bits of bf16, uint16 [out, groups]; shifts float32 [out, groups]."""

    codes: np.ndarray
    scales: np.ndarray
    shifts: np.ndarray

    @classmethod
    def of(cls, codes: np.ndarray, scales: np.ndarray) -> Int4Weight:
        """A weight from a bundle's codes and its fp16 `scales`."""
        rounded = torch.from_numpy(scales.astype(np.float32)).to(torch.bfloat16)
        signed = rounded.float().numpy()
        below, none = signed < 0, signed == 0
        bytes_of = codes.reshape(*scales.shape, GROUP // 2)
        bytes_of = np.where(below[..., None], ~bytes_of, np.where(none[..., None], np.uint8(ZEROS), bytes_of))
        positive = torch.where(rounded == 0, 1.0, rounded.abs()).to(torch.bfloat16)
        return cls(
            bytes_of.reshape(codes.shape), positive.view(torch.uint16).numpy(), np.maximum(-signed, np.float32(0))
        )

    @property
    def shape(self) -> tuple[int, int]:
        return self.scales.shape[0], self.scales.shape[1] * GROUP

    @cached_property
    def name(self) -> str:
        """Hash of the whole content: XNNPACK checks nothing else before it reuses packed weights."""
        content = b"".join(
            (repr(self.shape).encode(), self.codes.tobytes(), self.scales.tobytes(), self.shifts.tobytes())
        )
        return hashlib.sha256(content).hexdigest()

    @property
    def parts(self) -> dict[str, int]:
        """Most packed bytes of each constant by name: the weight and its shifts."""
        out, columns = self.shape
        tiles = -(-out // TILE_ROWS) * TILE_ROWS  # each row also stores the sum of its weights and a bias
        return {
            self.name: _in_pages(tiles * (columns // 2 + columns // GROUP * 2 + 8)),
            self.shifts_name: _in_pages(tiles * (columns // GROUP + 1) * 4),
        }

    @property
    def shifts_name(self) -> str:
        return hashlib.sha256(f"{self.name} shifts".encode()).hexdigest()


def _in_pages(size: int) -> int:
    return -(-size // PAGE_BYTES) * PAGE_BYTES + INDEX_BYTES


def open_bytes(weights: Sequence[Int4Weight]) -> int:
    """Anonymous memory of an open program with these weights: structures of ExecuTorch and XNNPACK, as measured."""
    return PROGRAM_BYTES + WEIGHT_BYTES * sum(len(weight.parts) for weight in weights) if weights else 0


def packed_bytes(weights: Sequence[Int4Weight]) -> int:
    """Size of the packed file of a program with these weights."""
    return sum({name: size for weight in weights for name, size in weight.parts.items()}.values())
