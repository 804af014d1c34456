# SPDX-License-Identifier: Apache-2.0
"""The builder: records what an optimizer plugin does with values. Nothing is computed; functions are traced into graphs.

The plugin writes the data flow. Where values live, when weights come and go and whether the whole is sound are decided by
the passes in `bespoke.plan`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from bespoke.config import Settings, Training, scalar_options
from bespoke.errors import PlanError
from bespoke.graph.states import GRADIENT, check_state
from bespoke.graph.trace import Graph, Tracer
from bespoke.graph.tree import flatten, leaves_of, map_leaves, paths, unflatten
from bespoke.graph.value import Batch, Value
from bespoke.ops.int4 import GROUP
from bespoke.ops.weight import QuantizedWeight
from bespoke.plan.draft import DraftGraph, DraftPlan, DraftValue
from bespoke.plan.instructions import (
    Call,
    DType,
    Emit,
    Instruction,
    Lifetime,
    Noise,
    Record,
    Result,
    Role,
    SectionName,
    Store,
    Zero,
    unchecked,
)
from bespoke.plan.kinds import ADAPTER_GROUP, ARRAY_DTYPES, ARRAY_PREFIX, BATCH, OPTION_DTYPE, SCALARS, option_scalar

if TYPE_CHECKING:
    from bespoke.model.spec import ModelSpec

Choice = TypeVar("Choice", int, str, bool)


class PlanBuilder:
    """Records one method at one sequence length. Plugins meet the methods from `weights` to `emit`."""

    def __init__(
        self,
        model: ModelSpec,
        training: Training,
        sequence_length: int,
        context_length: int,
        tracer: Tracer,
        choices: dict[str, int | str | bool] | None = None,
        options: type[Settings] = Settings,
    ) -> None:
        self.model = model
        self.training = training
        self.batch_size = training.batch_size
        self.sequence_length = sequence_length
        self.context_length = context_length
        self.draft = DraftPlan()
        self.candidates: dict[str, tuple[int | str | bool, ...]] = {}
        self._chosen = choices or {}
        self._tracer = tracer
        self._declared = scalar_options(options)
        self._named: dict[str, Value] = {}
        self._graph_index: dict[str, int] = {}
        self._code: list[Instruction] = []
        self.begin_section("micro_step" if training.accumulates else "train_step")

    @property
    def choices(self) -> dict[str, int | str | bool]:
        """What was chosen for every name that `choose` was asked about."""
        return {name: self._chosen.get(name, candidates[0]) for name, candidates in self.candidates.items()}

    # ---- what exists before the step ---------------------------------------------------------------------------------

    def weights(self, group: str) -> dict[str, Any]:
        """Frozen tensors of a group, name -> value; a quantized one is a pair whose `.rows(a, b)` cuts both. Of a block also the
        pieces of its adapter that are not trained."""
        self._check_group(group, ("embedding", *self.model.blocks, "head", "rope"))
        tree: dict[str, Any] = {}
        if group == "rope":
            tables = {name for block in range(len(self.model.blocks)) for name in self.model.rope_names(block)}
            half = self.model.config.head_dim // 2
            return {
                name: self._find(f"rope.{name}", (self.context_length, half), "float32", "weight", "bundle")
                for name in sorted(tables)
            }
        for name, shape in self.model.weight_shapes(group).items():
            if self.model.is_quantized(name):
                out, columns = shape
                groups = -(-columns // GROUP)
                codes = self._find(f"{group}.{name}.codes", (out, groups * GROUP // 2), "uint8", "weight", "bundle")
                scales = self._find(f"{group}.{name}.scales", (out, groups), "float16", "weight", "bundle")
                tree[name] = QuantizedWeight(codes, scales, columns)
            else:
                tree[name] = self._find(f"{group}.{name}", shape, "float32", "weight", "bundle")
        if group in self.model.blocks:
            for name, shape in self.model.frozen_pieces(group).items():
                tree[name] = self._find(f"{ADAPTER_GROUP}.{group}.{name}", shape, "float32", "weight", "bundle")
        return tree

    def adapter(self, group: str) -> dict[str, Value]:
        """Trained tensors of a block, `q_proj.lora_A` [rank, in] and so on -> value."""
        self._check_group(group, self.model.blocks)
        shapes = {
            name: shape for name, shape in self.model.adapter_shapes(group).items() if self.model.lora.trains(name)
        }
        return {
            name: self._find(f"{group}.{name}", shape, "float32", "adapter", "state") for name, shape in shapes.items()
        }

    def state(self, like: Value, name: str, shape: Sequence[int] | None = None) -> Value:
        """Optimizer state kept with a piece of the adapter, float32, by default of the piece's shape; zero when a run starts.

        `name` is one that Python takes, other than `gradient`, which `accumulator` has. `shape`: up to 8 extents of 1 or more.
        """
        check_state(like, name, shape)
        found = self._find(
            f"{like.name}.{name}", like.shape if shape is None else tuple(shape), "float32", "optimizer", "state"
        )
        if shape is not None and found.shape != tuple(shape):
            raise PlanError(
                f"State '{found.name}'",
                got=f"the shape {list(shape)}",
                expected=f"{list(found.shape)}, its shape so far",
                next_step="Give one shape to one name, or take another name",
            )
        return found

    def batch(self, copies: int = 1) -> Batch:
        """Tokens, targets and mask, (copies * B, T)."""
        shape = (copies * self.batch_size, self.sequence_length)
        suffix = "" if copies == 1 else f"*{copies}"
        return Batch(
            self._find(f"tokens{suffix}", shape, "int64", "batch", "call"),
            self._find(f"targets{suffix}", shape, "int64", "batch", "call"),
            self._find(f"mask{suffix}", shape, "float32", "batch", "call"),
        )

    def array(self, name: str, dtype: Literal["int64", "float32"]) -> Value:
        """Another tensor that comes with the batch, (B, T), 0 where a row has nothing: int64 for tokens, float32 for numbers.

        Rows of training data must then hold it. Only the training step may read it.
        """
        found = None
        if name.isidentifier() and name not in BATCH and dtype in ARRAY_DTYPES:
            found = self._find(f"{ARRAY_PREFIX}{name}", (self.batch_size, self.sequence_length), dtype, "batch", "call")
        if found is None or found.dtype != dtype:
            raise PlanError(
                f"Array '{name}'",
                got=f"{dtype}" if found is None else f"{dtype}, and {found.dtype} before",
                expected=f"a name that Python takes, other than {', '.join(BATCH)}, and one of {' or '.join(ARRAY_DTYPES)}",
                next_step="Ask for one dtype under one name",
            )
        return found

    def scalar(self, name: str) -> Value:
        """A number that the runtime binds at each step: one of SCALARS, or an option that is declared as `Scalar`."""
        if name not in SCALARS and name not in self._declared:
            raise PlanError(
                f"Scalar '{name}'",
                got="a name that no runtime binds",
                expected=f"one of {', '.join(sorted({*SCALARS, *self._declared}))}",
                next_step=f"Declare it in the method's Options: `{name}: Scalar = ...`, with Scalar of bespoke.contracts",
            )
        scalar = option_scalar(name)
        return self._find(scalar, (), SCALARS.get(scalar, OPTION_DTYPE), "scalar", "call")

    def constant(self, number: int) -> Value:
        """A fixed integer as an input of the graph; a Python number would be compiled in, one graph for each."""
        if type(number) is not int or not -(2**63) <= number < 2**63:
            raise PlanError(
                f"Constant {str(number)[:40]}",
                got=repr(number)[:100],
                expected="a whole number of 64 bits",
                next_step="Write a number that is fixed into the function; one that is set belongs in the method's Options",
            )
        key = f"constant:{number}"
        if key not in self._named:
            self._named[key] = self._new((), "int64", "constant", "call", key, number)
        return self._named[key]

    # ---- tiles and sums ------------------------------------------------------------------------------------------------

    def zeros(self, shape: Sequence[int], dtype: DType = "float32") -> Value:
        """A value of zeros that results are added to, or whose rows results fill."""
        value = self._new(tuple(shape), dtype, "temporary", "section", "zeros")
        self._code.append(Zero(op="zero", value=value.id))
        return value

    def accumulator(self, like: Value) -> Value:
        """A sum over the micro-batches of a step, of the shape of `like`; zero when a step begins."""
        if not self.training.accumulates:
            raise PlanError(
                f"Accumulator of '{like.name}'",
                got="a training without accumulation or clipping, whose steps have no micro-batches",
                expected="b.training.accumulates",
                next_step="Use b.zeros for a sum within the step, or let bespoke.methods.update decide",
            )
        return self._find(f"{like.name}.{GRADIENT}", like.shape, "float32", "temporary", "step")

    def choose(self, name: str, candidates: Sequence[Choice]) -> Choice:
        """One of the candidates, ordered from least memory to fastest. The planner decides and records."""
        distinct = tuple(dict.fromkeys(candidates))
        if not distinct:
            raise PlanError(
                f"Choice '{name}'", got="no candidates", expected="at least one", next_step="Name what may be chosen"
            )
        self.candidates[name] = distinct
        chosen = self._chosen.get(name, distinct[0])
        if chosen not in distinct:
            raise PlanError(
                f"Choice '{name}'",
                got=repr(chosen),
                expected=f"one of {distinct}",
                next_step="Ask b.choose for the same candidates wherever the name is used",
            )
        return chosen  # type: ignore[return-value]

    # ---- instructions --------------------------------------------------------------------------------------------------

    def call(
        self, function: Callable[..., Any], *trees: Any, into: Any = None, add_to: Any = None, **static: Hashable
    ) -> Any:
        """Records a call of `function(*trees, **static)` and returns its tree of results.

        `into` and `add_to` are (parts of) a tree of the same form: a result found there fills that value, or is added to it.
        Traced the first time these shapes are met; functions see tensors of the values' shapes and dtypes.
        """
        leaves, form = flatten(trees)
        for leaf in leaves:
            if not isinstance(leaf, Value):
                raise PlanError(
                    f"Call of '{getattr(function, '__name__', function)}'",
                    got=f"an operand of type {type(leaf).__name__}",
                    expected="values of this builder, in dicts, lists and tuples",
                    next_step="Give numbers by name (**static), or as b.constant or b.scalar",
                )
        graph, result_form = self._tracer.trace(function, leaves, form, static)
        fill, add = _by_path(into), _by_path(add_to)
        names = paths(result_form)
        for path in (*fill, *add):
            if path not in names or (path in fill and path in add):
                raise PlanError(
                    f"Call of '{graph.name}'",
                    got=f"{'two places' if path in names else 'a place'} for a result '{path}'",
                    expected=f"one place for one of its results: {', '.join(names)}",
                    next_step="Give `into` and `add_to` in the form of the function's result",
                )
        results: list[Value] = []
        records: list[Result] = []
        for path, spec in zip(names, graph.outputs, strict=True):
            target = fill.get(path) or add.get(path)
            how: Literal["make", "into", "add_to"] = "into" if path in fill else "add_to" if path in add else "make"
            if target is None:
                target = self._new(spec.shape, spec.dtype, "temporary", "section", f"{graph.name}.{path}")
            elif (target.shape, target.dtype) != (spec.shape, spec.dtype):
                raise PlanError(
                    f"Call of '{graph.name}', result '{path}'",
                    got=f"{how} a value of {target.dtype} {list(target.shape)}",
                    expected=f"{spec.dtype} {list(spec.shape)}",
                    next_step="Cut the value with .rows to what the function returns",
                )
            results.append(target)
            records.append(unchecked(Result, to=target.operand, how=how))
        self._code.append(
            unchecked(
                Call, op="call", graph=self._number(graph), operands=[leaf.operand for leaf in leaves], results=records
            )
        )
        return unflatten(result_form, iter(results))

    def noise(self, tree: Any, query: int = 0, distribution: Literal["normal", "rademacher"] = "normal") -> Any:
        """z of the shapes of a tree of adapter pieces and states; the same arguments give the same z, so it is never kept."""

        def one(like: Value) -> Value:
            if like.role not in ("adapter", "optimizer") or like.start is not None:
                raise PlanError(
                    f"Noise of '{like.name}'",
                    got=f"a value of role {like.role}" if like.start is None else "some of its rows",
                    expected="whole pieces of an adapter, or whole states: the counter is theirs",
                    next_step="Draw the noise of b.adapter(group) or of b.state(...)",
                )
            block, tensor = self._counter(like)
            z = self._new(like.shape, "float32", "temporary", "section", f"noise of {like.name}")
            self._code.append(
                Noise(op="noise", value=z.id, query=query, block=block, tensor=tensor, distribution=distribution)
            )
            return z

        return map_leaves(one, tree)

    def record(self, value: Value) -> Value:
        """Keeps this small value in the journal; what depends only on recorded values can be replayed from it."""
        self._check_whole("Record", value)
        kept = self._new(value.shape, value.dtype, "recorded", "section", f"recorded {value.name}")
        self._code.append(Record(op="record", source=value.id, value=kept.id))
        return kept

    def keep(self, *trees: Any) -> None:
        """These values wait in memory until they are used again. Without this, what waits for the backward pass may be written to a
        file where memory is short: right for what cannot be computed again, wrong for what is kept to save time."""
        for value in leaves_of(trees):
            self.draft.values[value.id].kept = True

    def store(self, states: Any, values: Any) -> None:
        """New content for pieces of adapter or optimizer state; reads within the step see the old one."""
        olds, news = leaves_of(states), leaves_of(values)
        if len(olds) != len(news):
            raise PlanError(
                "Store",
                got=f"{len(news)} values for {len(olds)} pieces of state",
                expected="a value for each",
                next_step="Give both trees in the same form",
            )
        for old, new in zip(olds, news, strict=True):
            fits = (old.shape, old.dtype, old.start) == (new.shape, new.dtype, None)
            if old.role not in ("adapter", "optimizer") or not fits:
                raise PlanError(
                    f"Store to '{old.name}'",
                    got=f"{new.dtype} {list(new.shape)} for a value of role {old.role}",
                    expected=f"a whole piece of adapter or optimizer state and float32 {list(old.shape)}",
                    next_step="Store whole pieces, each once per step",
                )
            self._code.append(Store(op="store", state=old.id, source=new.operand))

    def emit(self, **metrics: Value) -> None:
        """Reports values under these names."""
        for name, value in metrics.items():
            self._check_whole(f"Metric '{name}'", value)
            self._code.append(Emit(op="emit", name=name, source=value.id))

    # ---- what the SDK's own sections use -------------------------------------------------------------------------------

    def begin_section(self, name: SectionName) -> None:
        """Instructions from here on belong to section `name`."""
        self._code = self.draft.sections.setdefault(name, [])

    def session(self, name: str, shape: tuple[int, ...]) -> Value:
        """A value that lives for a generation, such as a KV cache."""
        return self._find(name, shape, "float32", "temporary", "session")

    def prompt(self, length: int) -> Value:
        """Tokens of one sequence that is being answered, int64 [1, length]."""
        return self._find(f"prompt_{length}", (1, length), "int64", "batch", "call")

    def _counter(self, like: Value) -> tuple[int, int]:
        """Block and tensor of the noise counter: the adapter's pieces, then the block's states in the order of their first use."""
        group = like.name.split(".", 1)[0]
        pieces = self.model.adapter_shapes(group)
        states = (v.name for v in self.draft.values if v.role == "optimizer" and v.name.startswith(f"{group}."))
        tensors = [*(f"{group}.{name}" for name in pieces), *states]
        return self.model.blocks.index(group), tensors.index(like.name)

    # ---- checks ----------------------------------------------------------------------------------------------------------

    def _check_group(self, group: str, groups: Sequence[str]) -> None:
        if group not in groups:
            raise PlanError(
                f"Group '{group}'",
                got="a name that the model lacks",
                expected=f"one of {', '.join(groups)}",
                next_step="Take the names of model.blocks",
            )

    def _check_whole(self, what: str, value: Value) -> None:
        if value.start is not None:
            raise PlanError(
                f"{what} of '{value.name}'",
                got="some of its rows",
                expected="a whole value",
                next_step="Return the rows from a call and give that value",
            )

    # ---- bookkeeping -----------------------------------------------------------------------------------------------------

    def _find(self, name: str, shape: tuple[int, ...], dtype: DType, role: Role, lifetime: Lifetime) -> Value:
        if name not in self._named:
            self._named[name] = self._new(shape, dtype, role, lifetime, name)
        return self._named[name]

    def _new(
        self, shape: tuple[int, ...], dtype: DType, role: Role, lifetime: Lifetime, name: str, number: int | None = None
    ) -> Value:
        value = Value(len(self.draft.values), tuple(shape), dtype, role, name)
        self.draft.values.append(DraftValue(tuple(shape), dtype, role, lifetime, name, number))
        return value

    def _number(self, graph: Graph) -> int:
        if graph.key not in self._graph_index:
            self._graph_index[graph.key] = len(self.draft.graphs)
            inputs = [(spec.shape, spec.dtype) for spec in graph.inputs]
            outputs = [(spec.shape, spec.dtype) for spec in graph.outputs]
            self.draft.graphs.append(
                DraftGraph(
                    graph.key,
                    graph.name,
                    inputs,
                    outputs,
                    graph.workspace_bytes,
                    graph.flops,
                    graph.in_place_bytes,
                    graph.traffic_bytes,
                )
            )
        return self._graph_index[graph.key]


def _by_path(tree: Any) -> dict[str, Value]:
    if tree is None:
        return {}
    leaves, form = flatten(tree)
    return dict(zip(paths(form), leaves, strict=True))
