# SPDX-License-Identifier: Apache-2.0
"""A weight as XNNPACK's qb4w has it: our codes bit for bit (low nibble first, 8 is zero), their scales rounded from fp16 to bf16.

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
GROUP = 32
PAGE_BYTES, TILE_ROWS, INDEX_BYTES = 4096, 32, 200  # of a packed weight: it starts a page, in tiles of rows; its entry in the index
PROGRAM_BYTES, WEIGHT_BYTES = 24_000, 4_000  # anonymous, of a program that is open and for each of its weights


@dataclass(frozen=True, eq=False)
class Int4Weight:
    """codes uint8 [out, 16 * groups]; scales: bits of bf16, uint16 [out, groups]."""

    codes: np.ndarray
    scales: np.ndarray

    @classmethod
    def of(cls, codes: np.ndarray, scales: np.ndarray) -> Int4Weight:
        """`scales` as a bundle has them, in fp16."""
        rounded = torch.from_numpy(scales.astype(np.float32)).to(torch.bfloat16)
        return cls(np.ascontiguousarray(codes), rounded.view(torch.uint16).numpy())

    @property
    def shape(self) -> tuple[int, int]:
        return self.scales.shape[0], self.scales.shape[1] * GROUP

    @cached_property
    def name(self) -> str:
        """Of shape, codes and scales: XNNPACK asks for nothing else before it takes what is packed."""
        said = b"".join((repr(self.shape).encode(), self.codes.tobytes(), self.scales.tobytes()))
        return hashlib.sha256(said).hexdigest()

    @property
    def packed_bytes(self) -> int:
        """At most, in the file: codes, scales, and for each row the sum of its weights and a bias."""
        out, columns = self.shape
        tiles = -(-out // TILE_ROWS) * TILE_ROWS
        whole = tiles * (columns // 2 + columns // GROUP * 2 + 8)
        return -(-whole // PAGE_BYTES) * PAGE_BYTES + INDEX_BYTES


def open_bytes(weights: Sequence[Int4Weight]) -> int:
    """Anonymous memory of a program with these weights that is open: ExecuTorch's and XNNPACK's own structures, as measured."""
    return PROGRAM_BYTES + WEIGHT_BYTES * len(weights) if weights else 0


def packed_bytes(weights: Sequence[Int4Weight]) -> int:
    """Of the file of a program with these weights."""
    return sum({weight.name: weight.packed_bytes for weight in weights}.values())
