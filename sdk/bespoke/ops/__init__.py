# SPDX-License-Identifier: Apache-2.0
"""Our three operators on int4 weights. Importing this registers them as `torch.ops.bespoke.*`."""

from bespoke.ops.int4 import decode_bytes, embedding_int4, linear_int4, linear_int4_transposed
from bespoke.ops.weight import (
    QuantizedWeight,
    lookup,
    product,
    product_columns,
    product_columns_transposed,
    product_transposed,
)

__all__ = [
    "QuantizedWeight",
    "decode_bytes",
    "embedding_int4",
    "linear_int4",
    "linear_int4_transposed",
    "lookup",
    "product",
    "product_columns",
    "product_columns_transposed",
    "product_transposed",
]
