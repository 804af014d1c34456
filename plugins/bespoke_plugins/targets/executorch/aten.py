# SPDX-License-Identifier: Apache-2.0
"""What each ATen operator of a traced graph is in operations that the device has. An operator that is not here is called as a
kernel where ExecuTorch has one, and refused where it has none."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from bespoke.errors import Unsupported
from bespoke.graph.trace import Graph
from bespoke_plugins.targets.executorch.kernels import out_variant
from bespoke_plugins.targets.executorch.tape import FARTHEST, Kind, Tape, Value

Rule = Callable[..., Any]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


class Lowering:
    """Goes through a graph once; `node` is the one at hand."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tape = Tape()
        self.node: torch.fx.Node
        self.values: dict[torch.fx.Node, Any] = {}

    def run(self) -> list[Value]:
        """The values of the results, in order, with the shapes and element types of the graph's signature."""
        position = 0
        for node in self.graph.module.graph.nodes:
            self.node = node
            if node.op == "placeholder":
                meta = node.meta["val"]
                self.values[node] = self.tape.operand(position, meta.shape, meta.dtype)
                position += 1
            elif node.op == "call_function":
                self.values[node] = self._call()
        output = self.graph.module.graph.output_node()
        return [self._result(node) for node in output.args[0]]

    def refuse(self, reason: str) -> Unsupported:
        return Unsupported(
            f"Graph '{self.graph.name}', operator {self.node.target}",
            got=reason,
            expected="an operator that XNNPACK or a kernel of ExecuTorch takes",
            next_step="Write the function with other operators, or choose another target",
        )

    def _call(self) -> Any:
        node, meta = self.node, self.node.meta.get("val")
        if "getitem" in str(node.target):
            return self._argument(node.args[0])[node.args[1]]
        if isinstance(meta, torch.Tensor) and meta.numel() == 0:
            return self.tape.full(meta.shape, 0.0)
        arguments = [self._argument(a) for a in node.args]
        found = RULES.get(str(node.target))
        result = None if found is None else found(self, *arguments, **{k: self._argument(v) for k, v in node.kwargs.items()})
        return self._kernel() if result is None else result

    def _argument(self, argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return self.values[argument]
        return [self._argument(item) for item in argument] if isinstance(argument, list | tuple) else argument

    def _kernel(self) -> Any:
        """The operator as ExecuTorch's kernels have it, with tensors as they are stored."""
        target, meta = self.node.target, self.node.meta["val"]
        name, schema = out_variant(target)
        if name is None:
            raise self.refuse("an operator without a kernel")
        arguments: list[Any] = []
        for i, wanted in enumerate(schema.arguments):
            if wanted.is_out:
                continue
            if wanted.name in self.node.kwargs:
                given = self.node.kwargs[wanted.name]
            elif i < len(self.node.args) and not wanted.kwarg_only:
                given = self.node.args[i]
            else:
                given = wanted.default_value
            arguments.append(self._stored(given))
        metas = meta if isinstance(meta, list | tuple) else [meta]
        results = self.tape.kernel(name, arguments, [(m.shape, m.dtype) for m in metas])
        return results if isinstance(meta, list | tuple) else results[0]

    def _stored(self, argument: Any) -> Any:
        if isinstance(argument, torch.fx.Node):
            return self.tape.stored(self.values[argument], argument.meta["val"].dtype)
        if isinstance(argument, list | tuple):
            return [self._stored(item) for item in argument]
        return argument

    def _result(self, node: torch.fx.Node) -> Value:
        meta = node.meta["val"]
        return self.tape.view(self.tape.stored(self.values[node], meta.dtype), meta.shape)

    # ---- what rules share --------------------------------------------------------------------------------------------------

    def value(self, x: Any) -> Value:
        """A tensor as it is, a number as a constant."""
        if isinstance(x, Value):
            return x
        return self.tape.full((), float(x), "integer" if isinstance(x, int) else "float")

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.node.meta["val"].shape)

    @property
    def kind(self) -> Kind:
        dtype = self.node.meta["val"].dtype
        return "truth" if dtype is torch.bool else "float" if dtype.is_floating_point else "integer"


# ---- shapes ------------------------------------------------------------------------------------------------------------------


@rule(
    "aten.view.default", "aten._unsafe_view.default", "aten.reshape.default", "aten.unsqueeze.default", "aten.squeeze.dim",
    "aten.squeeze.dims", "aten.squeeze.default", "aten.clone.default", "aten.contiguous.default", "aten.detach.default",
    "aten.alias.default", "aten.lift_fresh_copy.default",
)  # fmt: skip
def _view(at: Lowering, x: Value, *_: Any, **__: Any) -> Value:
    return at.tape.view(x, at.shape)


@rule("aten.expand.default")
def _expand(at: Lowering, x: Value, *_: Any, **__: Any) -> Value:
    return at.tape.expand(x, at.shape)


@rule("aten._to_copy.default")
def _to_copy(at: Lowering, x: Value, **_: Any) -> Value:
    t, dtype = at.tape, at.node.meta["val"].dtype
    if x.kind == "truth" and at.kind != "truth":
        return t.binary("add", x, t.full((), 1.0), at.kind)
    if x.constant is not None and np.array_equal(x.constant, np.trunc(x.constant)):
        return t.full(x.shape, float(x.constant), at.kind) if x.constant.size == 1 else t.constant(x.constant, at.kind)
    if x.kind == at.kind and (x.dtype is dtype or at.kind == "integer"):
        return x
    if (x.kind, dtype) == ("integer", torch.float32) and x.dtype is torch.float32:
        return t.kernel("aten::clone.out", [t.dense(x), None], [(x.shape, dtype)])[0]
    return t.real(x) if dtype is torch.float32 else t.converted(t.stored(x, x.dtype), dtype)


@rule("aten.t.default")
def _t(at: Lowering, x: Value) -> Value:
    return at.tape.transpose(x, range(len(x.shape))[::-1])


@rule("aten.transpose.int")
def _transpose(at: Lowering, x: Value, a: int, b: int) -> Value:
    order = list(range(len(x.shape)))
    order[a], order[b] = order[b], order[a]
    return at.tape.transpose(x, order)


@rule("aten.permute.default")
def _permute(at: Lowering, x: Value, order: Sequence[int]) -> Value:
    return at.tape.transpose(x, [axis % len(x.shape) for axis in order])


@rule("aten.slice.Tensor")
def _slice(
    at: Lowering, x: Value, axis: int = 0, start: int | None = None, stop: int | None = None, step: int = 1
) -> Value | None:
    if step != 1:
        return None
    axis %= len(x.shape)
    first, last, _ = slice(start, stop).indices(x.shape[axis])
    return at.tape.slice(x, axis, first, last)


@rule("aten.select.int")
def _select(at: Lowering, x: Value, axis: int, index: int) -> Value:
    axis %= len(x.shape)
    index %= x.shape[axis]
    return at.tape.view(at.tape.slice(x, axis, index, index + 1), at.shape)


@rule("aten.split.Tensor", "aten.split_with_sizes.default")
def _split(at: Lowering, x: Value, _: Any, axis: int = 0) -> list[Value]:
    axis %= len(x.shape)
    ends = np.cumsum([0, *[part.shape[axis] for part in at.node.meta["val"]]])
    return [at.tape.slice(x, axis, int(a), int(b)) for a, b in zip(ends, ends[1:], strict=False)]


@rule("aten.cat.default")
def _cat(at: Lowering, xs: list[Value], axis: int = 0) -> Value:
    return at.tape.concatenate(xs, axis % len(at.shape))


@rule("aten.stack.default")
def _stack(at: Lowering, xs: list[Value], axis: int = 0) -> Value:
    axis %= len(at.shape)
    return at.tape.concatenate([at.tape.view(x, (*x.shape[:axis], 1, *x.shape[axis:])) for x in xs], axis)


@rule("aten.slice_backward.default")
def _slice_backward(
    at: Lowering, g: Value, sizes: Sequence[int], axis: int, start: int, stop: int, step: int
) -> Value | None:
    if step != 1:
        return None
    axis %= len(sizes)
    first, last, _ = slice(start, stop).indices(sizes[axis])
    around = [0] * axis, [0] * (len(sizes) - axis - 1)
    return at.tape.pad(g, [*around[0], first, *around[1]], [*around[0], sizes[axis] - last, *around[1]])


@rule("aten.select_backward.default")
def _select_backward(at: Lowering, g: Value, sizes: Sequence[int], axis: int, index: int) -> Value | None:
    axis %= len(sizes)
    index %= sizes[axis]
    return _slice_backward(at, at.tape.view(g, (*g.shape[:axis], 1, *g.shape[axis:])), sizes, axis, index, index + 1, 1)


# ---- constants ---------------------------------------------------------------------------------------------------------------


@rule("aten.zeros.default", "aten.zeros_like.default", "aten.new_zeros.default")
def _zeros(at: Lowering, *_: Any, **__: Any) -> Value:
    return at.tape.full(at.shape, 0.0, at.kind)


@rule("aten.ones.default", "aten.ones_like.default", "aten.new_ones.default")
def _ones(at: Lowering, *_: Any, **__: Any) -> Value:
    return at.tape.full(at.shape, 1.0, at.kind)


@rule("aten.full.default", "aten.full_like.default", "aten.new_full.default")
def _full(at: Lowering, _: Any, number: float, **__: Any) -> Value:
    return at.tape.full(at.shape, number, at.kind)


@rule("aten.scalar_tensor.default")
def _scalar_tensor(at: Lowering, number: float, **_: Any) -> Value:
    return at.tape.full((), number, at.kind)


@rule("aten.arange.default", "aten.arange.start", "aten.arange.start_step")
def _arange(at: Lowering, *numbers: Any, **_: Any) -> Value:
    return at.tape.constant(np.arange(*numbers), at.kind)


# ---- arithmetic --------------------------------------------------------------------------------------------------------------


def _binary(at: Lowering, name: str, a: Any, b: Any, alpha: float = 1) -> Value | None:
    a, b = at.value(a), at.value(b)
    if "truth" in (a.kind, b.kind):
        return None
    if alpha != 1:
        b = at.tape.binary("multiply", b, at.value(alpha), b.kind)
    return at.tape.binary(name, a, b, at.kind)


@rule("aten.add.Tensor", "aten.add.Scalar")
def _add(at: Lowering, a: Any, b: Any, alpha: float = 1) -> Value | None:
    return _binary(at, "add", a, b, alpha)


@rule("aten.sub.Tensor", "aten.sub.Scalar")
def _sub(at: Lowering, a: Any, b: Any, alpha: float = 1) -> Value | None:
    return _binary(at, "subtract", a, b, alpha)


@rule("aten.rsub.Scalar", "aten.rsub.Tensor")
def _rsub(at: Lowering, a: Any, b: Any, alpha: float = 1) -> Value | None:
    return _binary(at, "subtract", b, a, alpha)


@rule("aten.mul.Tensor", "aten.mul.Scalar")
def _mul(at: Lowering, a: Any, b: Any) -> Value | None:
    """A product that is scaled scales its smaller operand instead."""
    a, b = at.value(a), at.value(b)
    for position, (x, factor) in enumerate(((a, b), (b, a))):
        source = at.node.args[position]
        if (
            isinstance(source, torch.fx.Node) and str(source.target) == "aten.mm.default" and len(source.users) == 1
            and factor.constant is not None and factor.constant.size == 1 and x.op is not None
        ):  # fmt: skip
            left, right = (at.values[n] for n in source.args)
            if min(left.numel, right.numel) < x.numel:
                if left.numel <= right.numel:
                    left = at.tape.binary("multiply", left, at.tape.full((), float(factor.constant)))
                else:
                    right = _scaled(at, right, float(factor.constant))
                return at.tape.matmul(left, right)
    return _binary(at, "multiply", a, b)


def _scaled(at: Lowering, x: Value, factor: float) -> Value:
    """Below a transpose, so that the product still sees one."""
    number = at.tape.full((), factor)
    if x.op is not None and x.op.name == "transpose":
        inner = at.tape.binary("multiply", x.op.inputs[0], number)
        return at.tape.transpose(inner, x.op.attributes["permutation"])
    return at.tape.binary("multiply", x, number)


@rule("aten.div.Tensor", "aten.div.Scalar")
def _div(at: Lowering, a: Any, b: Any) -> Value | None:
    b = at.value(b)
    if b.constant is not None and b.constant.size == 1 and math.frexp(abs(float(b.constant)))[0] == 0.5:
        return _binary(at, "multiply", a, 1.0 / float(b.constant))  # a power of two: the same bits
    return _binary(at, "divide", a, b)


@rule("aten.maximum.default")
def _maximum(at: Lowering, a: Value, b: Value) -> Value | None:
    return _binary(at, "maximum", a, b)


@rule("aten.minimum.default")
def _minimum(at: Lowering, a: Value, b: Value) -> Value | None:
    return _binary(at, "minimum", a, b)


@rule("aten.clamp.default", "aten.clamp_min.default", "aten.clamp_max.default", "aten.relu.default")
def _clamp(at: Lowering, x: Value, low: float | None = None, high: float | None = None, **given: Any) -> Value:
    name = str(at.node.target)
    if name == "aten.relu.default":
        low = 0.0
    elif name == "aten.clamp_max.default":
        low, high = None, low
    low, high = given.get("min", low), given.get("max", high)
    return at.tape.clamp(x, -math.inf if low is None else low, math.inf if high is None else high)


_UNARY = {
    "neg": "negate", "exp": "exp", "log": "log", "sqrt": "sqrt", "rsqrt": "rsqrt", "sigmoid": "sigmoid", "tanh": "tanh",
    "abs": "abs", "floor": "floor", "ceil": "ceiling", "sin": "sin", "cos": "cos",
}  # fmt: skip


@rule(*[f"aten.{name}.default" for name in _UNARY])
def _unary(at: Lowering, x: Value) -> Value | None:
    return None if x.kind == "truth" else at.tape.unary(_UNARY[str(at.node.target).split(".")[1]], x, x.kind)


@rule("aten.reciprocal.default")
def _reciprocal(at: Lowering, x: Value) -> Value:
    return at.tape.binary("divide", at.tape.full((), 1.0), x)


@rule("aten.silu.default")
def _silu(at: Lowering, x: Value) -> Value:
    return at.tape.binary("multiply", x, at.tape.unary("sigmoid", x))


@rule("aten.gelu.default")
def _gelu(at: Lowering, x: Value, approximate: str = "none") -> Value | None:
    return at.tape.unary("gelu", x) if approximate == "none" else None


@rule("aten.pow.Tensor_Scalar")
def _pow(at: Lowering, x: Value, exponent: float) -> Value | None:
    t = at.tape
    if exponent in (2, 3):
        square = t.binary("multiply", x, x)
        return square if exponent == 2 else t.binary("multiply", square, x)
    if exponent in (0.5, -0.5):
        return t.unary("sqrt" if exponent == 0.5 else "rsqrt", x)
    return _reciprocal(at, x) if exponent == -1 else None


@rule("aten.sigmoid_backward.default")
def _sigmoid_backward(at: Lowering, g: Value, y: Value) -> Value:
    t = at.tape
    return t.binary("multiply", g, t.binary("multiply", y, t.binary("subtract", t.full((), 1.0), y)))


@rule("aten.tanh_backward.default")
def _tanh_backward(at: Lowering, g: Value, y: Value) -> Value:
    t = at.tape
    return t.binary("multiply", g, t.binary("subtract", t.full((), 1.0), t.binary("multiply", y, y)))


# ---- products, sums, softmax ---------------------------------------------------------------------------------------------------


@rule("aten.mm.default", "aten.bmm.default")
def _matmul(at: Lowering, a: Value, b: Value) -> Value:
    return at.tape.matmul(a, b)


@rule("aten.addmm.default")
def _addmm(at: Lowering, bias: Value, a: Value, b: Value, beta: float = 1, alpha: float = 1) -> Value | None:
    return at.tape.binary("add", at.tape.matmul(a, b), bias) if (alpha, beta) == (1, 1) else None


@rule("aten.sum.dim_IntList", "aten.sum.default")
def _sum(at: Lowering, x: Value, dims: Sequence[int] | None = None, keep: bool = False, **_: Any) -> Value | None:
    return at.tape.sum(x, dims or [], keep) if x.kind == "float" else None


@rule("aten.mean.dim", "aten.mean.default")
def _mean(at: Lowering, x: Value, dims: Sequence[int] | None = None, keep: bool = False, **_: Any) -> Value:
    count = math.prod(x.shape[dim] for dim in dims) if dims else x.numel
    return at.tape.sum(x, dims or [], keep, 1.0 / count)


@rule("aten._softmax.default")
def _softmax(at: Lowering, x: Value, axis: int, half: bool) -> Value | None:
    if half or axis % len(x.shape) != len(x.shape) - 1:
        return None
    return at.tape.unary("softmax", x)


@rule("aten._softmax_backward_data.default")
def _softmax_backward(at: Lowering, g: Value, p: Value, axis: int, _: Any) -> Value | None:
    t = at.tape
    if axis % len(p.shape) != len(p.shape) - 1:
        return None
    weighted = t.binary("multiply", g, p)
    return t.binary("subtract", weighted, t.binary("multiply", p, t.sum(weighted, [-1], True)))


# ---- truths: comparisons of whole numbers, and what is chosen by them ----------------------------------------------------------


def _at_most(at: Lowering, a: Any, b: Any, margin: float) -> Value | None:
    """a <= b - margin."""
    a, b = at.value(a), at.value(b)
    if a.kind != "integer" or b.kind != "integer":
        return None
    gap = at.tape.binary("subtract", b, a, "integer")
    gap = at.tape.binary("subtract", gap, at.tape.full((), margin), "integer")
    return at.tape.clamp(gap, -1.0, 0.0, "truth")


@rule("aten.le.Tensor", "aten.le.Scalar")
def _le(at: Lowering, a: Any, b: Any) -> Value | None:
    return _at_most(at, a, b, 0.0)


@rule("aten.lt.Tensor", "aten.lt.Scalar")
def _lt(at: Lowering, a: Any, b: Any) -> Value | None:
    return _at_most(at, a, b, 1.0)


@rule("aten.ge.Tensor", "aten.ge.Scalar")
def _ge(at: Lowering, a: Any, b: Any) -> Value | None:
    return _at_most(at, b, a, 0.0)


@rule("aten.gt.Tensor", "aten.gt.Scalar")
def _gt(at: Lowering, a: Any, b: Any) -> Value | None:
    return _at_most(at, b, a, 1.0)


@rule("aten.eq.Tensor", "aten.eq.Scalar")
def _eq(at: Lowering, a: Any, b: Any) -> Value | None:
    a, b = at.value(a), at.value(b)
    if a.kind != "integer" or b.kind != "integer":
        return None
    gap = at.tape.unary("abs", at.tape.binary("subtract", a, b, "integer"), "integer")
    return at.tape.clamp(at.tape.unary("negate", gap, "integer"), -1.0, 0.0, "truth")


@rule("aten.bitwise_and.Tensor", "aten.logical_and.default")
def _and(at: Lowering, a: Value, b: Value) -> Value | None:
    return at.tape.binary("minimum", a, b, "truth") if (a.kind, b.kind) == ("truth", "truth") else None


@rule("aten.bitwise_or.Tensor", "aten.logical_or.default")
def _or(at: Lowering, a: Value, b: Value) -> Value | None:
    return at.tape.binary("maximum", a, b, "truth") if (a.kind, b.kind) == ("truth", "truth") else None


@rule("aten.bitwise_not.default", "aten.logical_not.default")
def _not(at: Lowering, a: Value) -> Value | None:
    return at.tape.binary("subtract", at.tape.full((), -1.0), a, "truth") if a.kind == "truth" else None


@rule("aten.where.self")
def _where(at: Lowering, condition: Value, a: Value, b: Value) -> Value | None:
    """Both sides are computed and weighed with 1 and 0, so they must be finite; -inf is allowed where only a softmax reads it."""
    t = at.tape
    if condition.kind != "truth" or "truth" in (a.kind, b.kind):
        return None
    if b.constant is not None and b.constant.size == 1 and math.isinf(float(b.constant)):
        if float(b.constant) > 0 or any(str(user.target) != "aten._softmax.default" for user in at.node.users):
            return None
        return t.view(t.binary("add", a, _times(t, condition, FARTHEST)), at.shape)
    if any(v.constant is not None and not np.isfinite(v.constant).all() for v in (a, b)):
        return None
    kind = at.kind
    chosen = t.binary("multiply", a, _plus_one(t, condition), kind)
    other = t.binary("multiply", b, condition, kind) if not _is_zero(b) else b
    return t.view(t.binary("subtract", chosen, other, kind), at.shape)


def _is_zero(x: Value) -> bool:
    return x.constant is not None and x.constant.size == 1 and float(x.constant) == 0.0


def _times(t: Tape, x: Value, number: float) -> Value:
    """Of a broadcast value, its source is scaled."""
    if x.expanded is not None:
        source, shape = x.expanded
        return t.view(t.expand(t.binary("multiply", source, t.full((), number)), shape), x.shape)
    return t.binary("multiply", x, t.full((), number))


def _plus_one(t: Tape, x: Value) -> Value:
    if x.expanded is not None:
        source, shape = x.expanded
        return t.view(t.expand(t.binary("add", source, t.full((), 1.0)), shape), x.shape)
    return t.binary("add", x, t.full((), 1.0))
