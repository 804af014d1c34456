# SPDX-License-Identifier: Apache-2.0
"""Bespoke's operators on int4 weights. Importing this package registers them as `torch.ops.bespoke.*`."""

from bespoke.ops.head_chunk import head_chunk_bytes, head_chunk_int4, head_chunk_of_logits
from bespoke.ops.int4 import decode, decode_bytes, embedding_int4, linear_int4, linear_int4_transposed
from bespoke.ops.names import (
    EMBEDDING_INT4,
    HEAD_CHUNK_GRADIENT_INT4,
    HEAD_CHUNK_INT4,
    LINEAR_INT4,
    LINEAR_TRANSPOSED_INT4,
)
from bespoke.ops.operators import OUT_VARIANTS, attention_workspace_bytes, operator_workspace_bytes
from bespoke.ops.weight import (
    QuantizedWeight,
    lookup,
    product,
    product_columns,
    product_columns_transposed,
    product_transposed,
)

__all__ = [
    "EMBEDDING_INT4",
    "HEAD_CHUNK_GRADIENT_INT4",
    "HEAD_CHUNK_INT4",
    "LINEAR_INT4",
    "LINEAR_TRANSPOSED_INT4",
    "OUT_VARIANTS",
    "QuantizedWeight",
    "attention_workspace_bytes",
    "decode",
    "decode_bytes",
    "embedding_int4",
    "head_chunk_bytes",
    "head_chunk_int4",
    "head_chunk_of_logits",
    "linear_int4",
    "linear_int4_transposed",
    "lookup",
    "operator_workspace_bytes",
    "product",
    "product_columns",
    "product_columns_transposed",
    "product_transposed",
]
