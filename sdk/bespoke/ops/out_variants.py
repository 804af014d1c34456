# SPDX-License-Identifier: Apache-2.0
"""Schemas of the operators as an engine calls them that writes results where it is told: ExecuTorch's out variants.

Results may lie where the operand of the same name does: `acc_out` may be `acc`, `m_out` may be `m`, and so on. Otherwise no
operand overlaps a result. Where these live in an engine, they are registered under the same namespace `bespoke`.
"""

from __future__ import annotations

_HEAD = (
    "Tensor h, Tensor codes, Tensor scales, Tensor targets, Tensor start, Tensor m, Tensor l, Tensor label, Tensor best"
)
_HEAD_OUT = "Tensor(a!) m_out, Tensor(b!) l_out, Tensor(c!) label_out, Tensor(d!) best_out"
_HEAD_RETURNS = "Tensor(a!), Tensor(b!), Tensor(c!), Tensor(d!)"

OUT_VARIANTS: tuple[str, ...] = (
    "linear_int4.out(Tensor x, Tensor codes, Tensor scales, Tensor? column_start, int columns, *, Tensor(a!) out) -> Tensor(a!)",
    "linear_int4_transposed.out(Tensor g, Tensor codes, Tensor scales, Tensor? column_start, int columns, *, Tensor(a!) out)"
    " -> Tensor(a!)",
    "embedding_int4.out(Tensor tokens, Tensor codes, Tensor scales, int columns, *, Tensor(a!) out) -> Tensor(a!)",
    f"head_chunk_int4.out({_HEAD}, *, {_HEAD_OUT}) -> ({_HEAD_RETURNS})",
    f"head_chunk_gradient_int4.out({_HEAD}, Tensor acc, *, {_HEAD_OUT}, Tensor(e!) acc_out) -> ({_HEAD_RETURNS}, Tensor(e!))",
)
