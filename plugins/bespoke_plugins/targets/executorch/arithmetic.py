# SPDX-License-Identifier: Apache-2.0
"""Rules for arithmetic: elementwise operators, products, sums, softmax, and backward forms that autodiff leaves in a graph."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from bespoke_plugins.targets.executorch.rules import RuleBook
from bespoke_plugins.targets.executorch.tape import Value, number

if TYPE_CHECKING:
    from bespoke_plugins.targets.executorch.lowering import Lowering

RULES = RuleBook()
_PRODUCTS = ("aten.mm.default", "aten.bmm.default")


def _binary(at: Lowering, name: str, a: Any, b: Any, alpha: float = 1) -> Value | None:
    a, b = at.value(a), at.value(b)
    if "truth" in (a.kind, b.kind):
        return None
    if alpha != 1:
        b = at.tape.binary("multiply", b, at.value(alpha), b.kind)
    return at.tape.binary(name, a, b, at.kind)


@RULES("aten.add.Tensor", "aten.add.Scalar")
def _add(at: Lowering, a: Any, b: Any, alpha: float = 1) -> Value | None:
    return _binary(at, "add", a, b, alpha)


@RULES("aten.sub.Tensor", "aten.sub.Scalar")
def _sub(at: Lowering, a: Any, b: Any, alpha: float = 1) -> Value | None:
    return _binary(at, "subtract", a, b, alpha)


@RULES("aten.rsub.Scalar", "aten.rsub.Tensor")
def _rsub(at: Lowering, a: Any, b: Any, alpha: float = 1) -> Value | None:
    return _binary(at, "subtract", b, a, alpha)


@RULES("aten.mul.Tensor", "aten.mul.Scalar")
def _mul(at: Lowering, a: Any, b: Any) -> Value | None:
    """Multiplies. To scale a matrix product, it scales the smaller operand of the product instead."""
    a, b = at.value(a), at.value(b)
    for position, (x, factor) in enumerate(((a, b), (b, a))):
        source = at.node.args[position]
        if (
            isinstance(source, torch.fx.Node)
            and str(source.target) in _PRODUCTS
            and len(source.users) == 1
            and (scale := number(factor)) is not None
            and x.op is not None
        ):
            left, right = (at.values[n] for n in source.args)
            if min(left.numel, right.numel) < x.numel:
                if left.numel <= right.numel:
                    left = at.tape.binary("multiply", left, at.tape.full((), scale))
                else:
                    right = _scaled(at, right, scale)
                return at.tape.matmul(left, right)
    return _binary(at, "multiply", a, b)


def _scaled(at: Lowering, x: Value, factor: float) -> Value:
    """Scales below a transpose, so that the product can still use the transpose."""
    scale = at.tape.full((), factor)
    if x.op is not None and x.op.name == "transpose":
        inner = at.tape.binary("multiply", x.op.inputs[0], scale)
        return at.tape.transpose(inner, x.op.attributes["permutation"])
    return at.tape.binary("multiply", x, scale)


@RULES("aten.div.Tensor", "aten.div.Scalar")
def _div(at: Lowering, a: Any, b: Any) -> Value | None:
    b = at.value(b)
    divisor = number(b)
    if divisor is not None and math.frexp(abs(divisor))[0] == 0.5:
        return _binary(at, "multiply", a, 1.0 / divisor)  # a power of two gives the same bits
    return _binary(at, "divide", a, b)


@RULES("aten.maximum.default")
def _maximum(at: Lowering, a: Value, b: Value) -> Value | None:
    return _binary(at, "maximum", a, b)


@RULES("aten.minimum.default")
def _minimum(at: Lowering, a: Value, b: Value) -> Value | None:
    return _binary(at, "minimum", a, b)


@RULES("aten.clamp.default", "aten.clamp_min.default", "aten.clamp_max.default", "aten.relu.default")
def _clamp(at: Lowering, x: Value, low: float | None = None, high: float | None = None, **given: Any) -> Value:
    name = str(at.node.target)
    if name == "aten.relu.default":
        low = 0.0
    elif name == "aten.clamp_max.default":
        low, high = None, low
    low, high = given.get("min", low), given.get("max", high)
    return at.tape.clamp(x, -math.inf if low is None else low, math.inf if high is None else high)


_UNARY = {
    "neg": "negate",
    "exp": "exp",
    "log": "log",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
    "abs": "abs",
    "floor": "floor",
    "ceil": "ceiling",
    "sin": "sin",
    "cos": "cos",
}


@RULES(*[f"aten.{name}.default" for name in _UNARY])
def _unary(at: Lowering, x: Value) -> Value | None:
    return None if x.kind == "truth" else at.tape.unary(_UNARY[str(at.node.target).split(".")[1]], x, x.kind)


@RULES("aten.reciprocal.default")
def _reciprocal(at: Lowering, x: Value) -> Value:
    return at.tape.binary("divide", at.tape.full((), 1.0), x)


@RULES("aten.silu.default")
def _silu(at: Lowering, x: Value) -> Value:
    return at.tape.binary("multiply", x, at.tape.unary("sigmoid", x))


@RULES("aten.gelu.default")
def _gelu(at: Lowering, x: Value, approximate: str = "none") -> Value | None:
    t = at.tape
    if approximate == "none":
        return t.unary("gelu", x)
    cubed = t.binary("multiply", t.binary("multiply", x, x), x)
    inner = t.binary("add", x, t.binary("multiply", cubed, t.full((), 0.044715)))
    tanh = t.unary("tanh", t.binary("multiply", inner, t.full((), math.sqrt(2 / math.pi))))
    return t.binary("multiply", t.binary("multiply", x, t.full((), 0.5)), t.binary("add", tanh, t.full((), 1.0)))


@RULES("aten.pow.Tensor_Scalar")
def _pow(at: Lowering, x: Value, exponent: float) -> Value | None:
    t = at.tape
    if exponent in (2, 3):
        square = t.binary("multiply", x, x)
        return square if exponent == 2 else t.binary("multiply", square, x)
    if exponent in (0.5, -0.5):
        return t.unary("sqrt" if exponent == 0.5 else "rsqrt", x)
    return _reciprocal(at, x) if exponent == -1 else None


@RULES("aten.sigmoid_backward.default")
def _sigmoid_backward(at: Lowering, g: Value, y: Value) -> Value:
    t = at.tape
    return t.binary("multiply", g, t.binary("multiply", y, t.binary("subtract", t.full((), 1.0), y)))


@RULES("aten.tanh_backward.default")
def _tanh_backward(at: Lowering, g: Value, y: Value) -> Value:
    t = at.tape
    return t.binary("multiply", g, t.binary("subtract", t.full((), 1.0), t.binary("multiply", y, y)))


# ---- products, sums, softmax ---------------------------------------------------------------------------------------------------


@RULES("aten.mm.default", "aten.bmm.default")
def _matmul(at: Lowering, a: Value, b: Value) -> Value:
    return at.tape.matmul(a, b)


@RULES("aten.addmm.default")
def _addmm(at: Lowering, bias: Value, a: Value, b: Value, beta: float = 1, alpha: float = 1) -> Value | None:
    return at.tape.binary("add", at.tape.matmul(a, b), bias) if (alpha, beta) == (1, 1) else None


@RULES("aten.sum.dim_IntList", "aten.sum.default")
def _sum(at: Lowering, x: Value, dims: Sequence[int] | None = None, keep: bool = False, **_: Any) -> Value | None:
    return at.tape.sum(x, dims or [], keep) if x.kind == "float" else None


@RULES("aten.mean.dim", "aten.mean.default")
def _mean(at: Lowering, x: Value, dims: Sequence[int] | None = None, keep: bool = False, **_: Any) -> Value:
    count = math.prod(x.shape[dim] for dim in dims) if dims else x.numel
    return at.tape.sum(x, dims or [], keep, 1.0 / count)


@RULES("aten._softmax.default")
def _softmax(at: Lowering, x: Value, axis: int, half: bool) -> Value | None:
    if half or axis % len(x.shape) != len(x.shape) - 1:
        return None
    return at.tape.unary("softmax", x)


@RULES("aten._softmax_backward_data.default")
def _softmax_backward(at: Lowering, g: Value, p: Value, axis: int, _: Any) -> Value | None:
    t = at.tape
    if axis % len(p.shape) != len(p.shape) - 1:
        return None
    weighted = t.binary("multiply", g, p)
    return t.binary("subtract", weighted, t.binary("multiply", p, t.sum(weighted, [-1], True)))
