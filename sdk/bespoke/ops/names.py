# SPDX-License-Identifier: Apache-2.0
"""Names of our operators in a graph, as `str(node.target)` gives them."""

from __future__ import annotations

__all__ = ["EMBEDDING_INT4", "HEAD_CHUNK_GRADIENT_INT4", "HEAD_CHUNK_INT4", "LINEAR_INT4", "LINEAR_TRANSPOSED_INT4"]

LINEAR_INT4 = "bespoke.linear_int4.default"
LINEAR_TRANSPOSED_INT4 = "bespoke.linear_int4_transposed.default"
EMBEDDING_INT4 = "bespoke.embedding_int4.default"
HEAD_CHUNK_INT4 = "bespoke.head_chunk_int4.default"
HEAD_CHUNK_GRADIENT_INT4 = "bespoke.head_chunk_gradient_int4.default"
