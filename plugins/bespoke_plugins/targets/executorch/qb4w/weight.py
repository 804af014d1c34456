# SPDX-License-Identifier: Apache-2.0
"""A weight as XNNPACK's qb4w has it: our codes (low nibble first, 8 is zero), their scales rounded from fp16 to bf16.

XNNPACK takes positive scales alone. Where a group's scale s is negative, each code c becomes 15 - c, which has the same four bits:

    (c - 8) s = ((15 - c) - 8) |s| + |s|

so such a group lacks |s|, its shift, times the sum of the group's 32 activations: one more product in fp32, a 32nd as large.
A group whose scale is 0 has codes of 8 and a scale of 1.

When a program is loaded, XNNPACK lays the codes out anew for the processor at hand ("packs" them), into a file that is mapped: the
engine gives it one, and weights with the same name share it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

PRODUCT = "int4_product"  # a node: rows of x as int8, times the transpose of a weight
SHIFTS = "int4_shifts"  # a node: sums of groups of x [rows, groups] in fp32, times the transpose of a weight's shifts
GROUP = 32
ZEROS = 0x88  # a byte of codes
PAGE_BYTES, TILE_ROWS, INDEX_BYTES = (
    4096,
    32,
    200,
)  # of a packed weight: it starts a page, in tiles of rows; its entry in the index
PROGRAM_BYTES, WEIGHT_BYTES = 24_000, 4_000  # anonymous, of a program that is open and for each of its weights


@dataclass(frozen=True, eq=False)
class Int4Weight:
    """codes uint8 [out, 16 * groups]; scales: bits of bf16, uint16 [out, groups]; shifts float32 [out, groups]."""

    codes: np.ndarray
    scales: np.ndarray
    shifts: np.ndarray

    @classmethod
    def of(cls, codes: np.ndarray, scales: np.ndarray) -> Int4Weight:
        """`scales` as a bundle has them, in fp16."""
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
        """Of all that it holds: XNNPACK asks for nothing else before it takes what is packed."""
        said = b"".join((repr(self.shape).encode(), self.codes.tobytes(), self.scales.tobytes(), self.shifts.tobytes()))
        return hashlib.sha256(said).hexdigest()

    @property
    def parts(self) -> dict[str, int]:
        """By name, the bytes that each constant takes packed, at most: the weight itself, and its shifts."""
        out, columns = self.shape
        tiles = -(-out // TILE_ROWS) * TILE_ROWS  # for each row of them also the sum of its weights and a bias
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
    """Anonymous memory of a program with these weights that is open: ExecuTorch's and XNNPACK's own structures, as measured."""
    return PROGRAM_BYTES + WEIGHT_BYTES * sum(len(weight.parts) for weight in weights) if weights else 0


def packed_bytes(weights: Sequence[Int4Weight]) -> int:
    """Of the file of a program with these weights."""
    return sum({name: size for weight in weights for name, size in weight.parts.items()}.values())
