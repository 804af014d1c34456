# SPDX-License-Identifier: Apache-2.0
"""Which result of a call shares bytes with an operand or another result."""

from __future__ import annotations

from collections.abc import Sequence

from bespoke.plan.instructions import Call, Operand, ValueRecord


def overlapping_result(call: Call, values: Sequence[ValueRecord]) -> int | None:
    """The value of a result of a call that shares a byte with an operand or with another result. None: there is no such result."""
    spans = [_span(result.to, values) for result in call.results]
    others = [_span(operand, values) for operand in call.operands]
    for index, (span, result) in enumerate(zip(spans, call.results, strict=True)):
        for other in [*others, *spans[:index]]:
            if span[0] == other[0] and span[1] < other[2] and other[1] < span[2]:
                return result.to[0]
    return None


def _span(operand: Operand, values: Sequence[ValueRecord]) -> tuple[str, int, int]:
    """(what it lies in, first byte, byte after the last); a range placed at run time may be anywhere in its value."""
    value = values[operand[0]]
    base, home = 0, f"value {operand[0]}"
    if value.place.kind in ("arena", "scratch"):
        base, home = value.place.offset, value.place.kind
    if len(operand) != 3:
        return home, base, base + value.nbytes
    row = value.nbytes // value.shape[0] if value.shape and value.shape[0] else 0
    return home, base + operand[1] * row, base + (operand[1] + operand[2]) * row
