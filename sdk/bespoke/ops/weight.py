# SPDX-License-Identifier: Apache-2.0
"""Weights inside a traced function: a quantized pair and a dense tensor have the same three products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from bespoke.ops.int4 import embedding_int4, linear_int4, linear_int4_transposed


@dataclass(frozen=True)
class QuantizedWeight:
    """W [out, columns] as (codes, scales). Leaves are tensors while a function is traced, plan values in the builder."""

    codes: Any
    scales: Any
    columns: int

    def rows(self, start: int, stop: int) -> QuantizedWeight:
        """Rows [start, stop) of W, without a copy."""
        return QuantizedWeight(self.codes.rows(start, stop), self.scales.rows(start, stop), self.columns)

    @property
    def out(self) -> int:
        return self.codes.shape[0]


Weight: TypeAlias = "QuantizedWeight | torch.Tensor"


def product(x: torch.Tensor, w: Weight) -> torch.Tensor:
    """x [N, in] -> x W^T [N, out]."""
    if isinstance(w, QuantizedWeight):
        return linear_int4(x, w.codes, w.scales, None, w.columns)
    return x @ w.t()


def product_transposed(g: torch.Tensor, w: Weight) -> torch.Tensor:
    """g [N, out] -> g W [N, in]."""
    if isinstance(w, QuantizedWeight):
        return linear_int4_transposed(g, w.codes, w.scales, None, w.columns)
    return g @ w


def product_columns(x: torch.Tensor, w: QuantizedWeight, start: torch.Tensor) -> torch.Tensor:
    """x [N, c] -> x W[:, start : start + c]^T [N, out]; start an int64 scalar, a multiple of 32."""
    return linear_int4(x, w.codes, w.scales, start, x.shape[1])


def product_columns_transposed(g: torch.Tensor, w: QuantizedWeight, start: torch.Tensor, columns: int) -> torch.Tensor:
    """g [N, out] -> g W[:, start : start + columns] [N, columns]."""
    return linear_int4_transposed(g, w.codes, w.scales, start, columns)


def lookup(tokens: torch.Tensor, w: Weight) -> torch.Tensor:
    """Rows of W: tokens [N] -> [N, in]."""
    if isinstance(w, QuantizedWeight):
        return embedding_int4(tokens, w.codes, w.scales, w.columns)
    return w[tokens]
