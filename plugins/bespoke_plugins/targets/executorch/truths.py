# SPDX-License-Identifier: Apache-2.0
"""Rules for truths: comparisons of whole numbers, and choices by them. A truth is 0 for true and -1 for false."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from bespoke_plugins.targets.executorch.rules import RuleBook
from bespoke_plugins.targets.executorch.tape import FARTHEST, Tape, Value, number

if TYPE_CHECKING:
    from bespoke_plugins.targets.executorch.lowering import Lowering

RULES = RuleBook()


def _at_most(at: Lowering, a: Any, b: Any, margin: float) -> Value | None:
    """The truth of a <= b - margin."""
    a, b = at.value(a), at.value(b)
    if a.kind != "integer" or b.kind != "integer":
        return None
    gap = at.tape.binary("subtract", b, a, "integer")
    gap = at.tape.binary("subtract", gap, at.tape.full((), margin), "integer")
    return at.tape.clamp(gap, -1.0, 0.0, "truth")


@RULES("aten.le.Tensor", "aten.le.Scalar")
def _le(at: Lowering, a: Any, b: Any) -> Value | None:
    return _at_most(at, a, b, 0.0)


@RULES("aten.lt.Tensor", "aten.lt.Scalar")
def _lt(at: Lowering, a: Any, b: Any) -> Value | None:
    return _at_most(at, a, b, 1.0)


@RULES("aten.ge.Tensor", "aten.ge.Scalar")
def _ge(at: Lowering, a: Any, b: Any) -> Value | None:
    return _at_most(at, b, a, 0.0)


@RULES("aten.gt.Tensor", "aten.gt.Scalar")
def _gt(at: Lowering, a: Any, b: Any) -> Value | None:
    return _at_most(at, b, a, 1.0)


@RULES("aten.eq.Tensor", "aten.eq.Scalar")
def _eq(at: Lowering, a: Any, b: Any) -> Value | None:
    a, b = at.value(a), at.value(b)
    if a.kind != "integer" or b.kind != "integer":
        return None
    gap = at.tape.unary("abs", at.tape.binary("subtract", a, b, "integer"), "integer")
    return at.tape.clamp(at.tape.unary("negate", gap, "integer"), -1.0, 0.0, "truth")


@RULES("aten.bitwise_and.Tensor", "aten.logical_and.default")
def _and(at: Lowering, a: Value, b: Value) -> Value | None:
    return at.tape.binary("minimum", a, b, "truth") if (a.kind, b.kind) == ("truth", "truth") else None


@RULES("aten.bitwise_or.Tensor", "aten.logical_or.default")
def _or(at: Lowering, a: Value, b: Value) -> Value | None:
    return at.tape.binary("maximum", a, b, "truth") if (a.kind, b.kind) == ("truth", "truth") else None


@RULES("aten.bitwise_not.default", "aten.logical_not.default")
def _not(at: Lowering, a: Value) -> Value | None:
    return at.tape.binary("subtract", at.tape.full((), -1.0), a, "truth") if a.kind == "truth" else None


@RULES("aten.where.self")
def _where(at: Lowering, condition: Value, a: Value, b: Value) -> Value | None:
    """Weighs both branches with 1 and 0, so they must be finite. -inf is allowed if only a softmax reads the result."""
    t = at.tape
    if condition.kind != "truth" or "truth" in (a.kind, b.kind):
        return None
    if number(b) in (math.inf, -math.inf):
        if number(b) == math.inf or any(str(user.target) != "aten._softmax.default" for user in at.node.users):
            return None
        return t.view(t.binary("add", a, _times(t, condition, FARTHEST)), at.shape)
    if any(v.constant is not None and not np.isfinite(v.constant).all() for v in (a, b)):
        return None
    kind = at.kind
    chosen = t.binary("multiply", a, _plus_one(t, condition), kind)
    other = b if number(b) == 0.0 else t.binary("multiply", b, condition, kind)
    return t.view(t.binary("subtract", chosen, other, kind), at.shape)


def _times(t: Tape, x: Value, factor: float) -> Value:
    """Scales a value; scales the source of a broadcast."""
    if x.expanded is not None:
        source, shape = x.expanded
        return t.view(t.expand(t.binary("multiply", source, t.full((), factor)), shape), x.shape)
    return t.binary("multiply", x, t.full((), factor))


def _plus_one(t: Tape, x: Value) -> Value:
    if x.expanded is not None:
        source, shape = x.expanded
        return t.view(t.expand(t.binary("add", source, t.full((), 1.0)), shape), x.shape)
    return t.binary("add", x, t.full((), 1.0))
