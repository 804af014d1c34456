# SPDX-License-Identifier: Apache-2.0
"""Kernels that ExecuTorch calls by name, and the out variant of a functional operator, which writes into given memory."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from bespoke.ops import HEAD_CHUNK_GRADIENT_INT4, LINEAR_TRANSPOSED_INT4, OUT_VARIANTS

# Our operators for a backward pass. Programs that contain their weights have none of them.
BACKWARD = (LINEAR_TRANSPOSED_INT4, HEAD_CHUNK_GRADIENT_INT4)
# The kernels of libexecutorch_kernels_optimized in ExecuTorch 1.5 that a graph may need in addition to XNNPACK.
AVAILABLE = {
    "abs.out",
    "acos.out",
    "add.out",
    "add.Scalar_out",
    "addmm.out",
    "amax.out",
    "amin.out",
    "any.out",
    "argmax.out",
    "argmin.out",
    "asin.out",
    "atan.out",
    "bitwise_and.Tensor_out",
    "bitwise_not.out",
    "bitwise_or.Tensor_out",
    "bitwise_xor.Tensor_out",
    "bmm.out",
    "clamp.out",
    "clamp.Tensor_out",
    "clone.out",
    "cos.out",
    "cosh.out",
    "cumsum.out",
    "div.out",
    "div.Scalar_out",
    "div.out_mode",
    "embedding.out",
    "eq.Scalar_out",
    "eq.Tensor_out",
    "erf.out",
    "exp.out",
    "expm1.out",
    "flip.out",
    "floor_divide.out",
    "full.out",
    "gather.out",
    "ge.Scalar_out",
    "ge.Tensor_out",
    "gelu.out",
    "gt.Scalar_out",
    "gt.Tensor_out",
    "index.Tensor_out",
    "index_select.out",
    "isinf.out",
    "isnan.out",
    "le.Scalar_out",
    "le.Tensor_out",
    "log10.out",
    "log1p.out",
    "log2.out",
    "logical_and.out",
    "logical_not.out",
    "logical_or.out",
    "logical_xor.out",
    "lt.Scalar_out",
    "lt.Tensor_out",
    "masked_fill.Scalar_out",
    "max.dim_max",
    "max.unary_out",
    "mean.out",
    "min.dim_min",
    "min.unary_out",
    "mul.out",
    "mul.Scalar_out",
    "ne.Scalar_out",
    "ne.Tensor_out",
    "neg.out",
    "pow.Scalar_out",
    "pow.Tensor_Scalar_out",
    "pow.Tensor_Tensor_out",
    "prod.int_out",
    "prod.out",
    "reciprocal.out",
    "remainder.Scalar_out",
    "remainder.Tensor_out",
    "repeat.out",
    "roll.out",
    "round.out",
    "scatter.src_out",
    "scatter.value_out",
    "scatter_add.out",
    "sign.out",
    "sin.out",
    "sinh.out",
    "slice_copy.Tensor_out",
    "sqrt.out",
    "sub.out",
    "sub.Scalar_out",
    "sum.IntList_out",
    "tan.out",
    "tanh.out",
    "topk.values",
    "tril.out",
    "trunc.out",
    "var.correction_out",
    "where.self_out",
    "_log_softmax.out",
    "_softmax.out",
    "_to_copy.out",
}


@cache
def out_variant(operator: torch._ops.OpOverload) -> tuple[str | None, Any]:
    """Name and schema of the variant that writes into a given buffer, or (None, None) if ExecuTorch has no such kernel."""
    namespace, packet = operator.namespace, operator._schema.name.split("::")[1]
    if namespace == "bespoke":
        for schema in OUT_VARIANTS:
            if schema.startswith(f"{packet}.out("):
                return f"bespoke::{packet}.out", torch._C.parse_schema(f"bespoke::{schema}")
        return None, None
    wanted = [(a.name, str(a.type)) for a in operator._schema.arguments]
    overloads = getattr(getattr(torch.ops, namespace), packet)
    for overload in overloads.overloads():
        schema = getattr(overloads, overload)._schema
        given = [(a.name, str(a.type)) for a in schema.arguments if not a.is_out]
        if (
            any(a.is_out for a in schema.arguments)
            and given[: len(wanted)] == wanted
            and f"{packet}.{overload}" in AVAILABLE
        ):
            return f"{namespace}::{packet}.{overload}", schema
    return None, None
