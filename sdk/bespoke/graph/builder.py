# SPDX-License-Identifier: Apache-2.0
"""The builder of plans: records what a method does with values. Nothing is computed; functions are traced into graphs.

The method writes the data flow. The passes in `bespoke.plan` decide where values live and when weights come and go, and
check that the whole is sound.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from bespoke.config import Settings, Training, scalar_options
from bespoke.errors import PlanError
from bespoke.graph.misuse import check_accumulates, check_array, check_group, check_places, own, whole, wrong_array
from bespoke.graph.states import GRADIENT, check_state, noise_counter
from bespoke.graph.step_builder import Choice
from bespoke.graph.trace import Graph, Tracer
from bespoke.graph.tree import flatten, leaves_of, map_leaves, paths, unflatten
from bespoke.graph.value import Batch, PlanValue, Value
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
    Receive,
    Record,
    Result,
    Role,
    SectionName,
    Send,
    Store,
    Zero,
    unchecked,
)
from bespoke.plan.kinds import ADAPTER_GROUP, ARRAY_PREFIX, FEDERATED, NO_BLOCK, OPTION_DTYPE, SCALARS, option_scalar

if TYPE_CHECKING:
    from bespoke.model.spec import ModelSpec


class PlanBuilder:
    """Records one method at one sequence length. A method sees it as a `StepBuilder`, whose methods are documented there."""

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
        self._named: dict[str, PlanValue] = {}
        self._graph_index: dict[str, int] = {}
        self._code: list[Instruction] | None = None
        self._section: SectionName | None = None

    @property
    def choices(self) -> dict[str, int | str | bool]:
        """The choice for each name that `choose` was asked about."""
        return {name: self._chosen.get(name, candidates[0]) for name, candidates in self.candidates.items()}

    # ---- what exists before the step ---------------------------------------------------------------------------------

    def weights(self, group: str) -> dict[str, Any]:
        check_group(group, ("embedding", *self.model.blocks, "head", "rope"))
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
        check_group(group, self.model.blocks)
        shapes = {
            name: shape for name, shape in self.model.adapter_shapes(group).items() if self.model.lora.trains(name)
        }
        return {
            name: self._find(f"{group}.{name}", shape, "float32", "adapter", "state") for name, shape in shapes.items()
        }

    def state(self, like: Value, name: str, shape: Sequence[int] | None = None) -> PlanValue:
        piece = own(like, "State")
        check_state(piece, name, shape)
        extents = piece.shape if shape is None else tuple(shape)
        state = self._find(f"{piece.name}.{name}", extents, "float32", "optimizer", "state")
        if shape is not None and state.shape != tuple(shape):
            raise PlanError(
                f"State '{state.name}'",
                got=f"the shape {list(shape)}",
                expected=f"{list(state.shape)}, its shape so far",
                next_step="Give one shape to one name, or take another name",
            )
        return state

    def batch(self, copies: int = 1) -> Batch:
        shape = (copies * self.batch_size, self.sequence_length)
        suffix = "" if copies == 1 else f"*{copies}"
        return Batch(
            self._find(f"tokens{suffix}", shape, "int64", "batch", "call"),
            self._find(f"targets{suffix}", shape, "int64", "batch", "call"),
            self._find(f"mask{suffix}", shape, "float32", "batch", "call"),
        )

    def array(self, name: str, dtype: Literal["int64", "float32"]) -> PlanValue:
        check_array(name, dtype)
        array = self._find(f"{ARRAY_PREFIX}{name}", (self.batch_size, self.sequence_length), dtype, "batch", "call")
        if array.dtype != dtype:
            raise wrong_array(name, f"{dtype}, and {array.dtype} before")
        return array

    def scalar(self, name: str) -> PlanValue:
        if name not in SCALARS and name not in self._declared:
            raise PlanError(
                f"Scalar '{name}'",
                got="a name that no runtime binds",
                expected=f"one of {', '.join(sorted({*SCALARS, *self._declared}))}",
                next_step=f"Declare it in the method's Options: `{name}: Scalar = ...`, with Scalar of bespoke.contracts",
            )
        scalar = option_scalar(name)
        return self._find(scalar, (), SCALARS.get(scalar, OPTION_DTYPE), "scalar", "call")

    def constant(self, number: int) -> PlanValue:
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

    def zeros(self, shape: Sequence[int], dtype: DType = "float32") -> PlanValue:
        value = self._new(tuple(shape), dtype, "temporary", "section", "zeros")
        self._add(Zero(op="zero", value=value.id))
        return value

    def accumulator(self, like: Value) -> PlanValue:
        if self.section not in FEDERATED:
            check_accumulates(self.training, like)
        return self._find(f"{like.name}.{GRADIENT}", like.shape, "float32", "temporary", "step")

    def choose(self, name: str, candidates: Sequence[Choice]) -> Choice:
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
        """Records the call. The function is traced the first time that these shapes are met."""
        leaves, form = flatten(trees)
        for leaf in leaves:
            own(leaf, f"Call of '{getattr(function, '__name__', function)}'")
        graph, result_form = self._tracer.trace(function, leaves, form, static)
        fill, add = _by_path(into), _by_path(add_to)
        names = paths(result_form)
        check_places(graph.name, names, fill, add)
        results: list[PlanValue] = []
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
        self._add(
            unchecked(
                Call, op="call", graph=self._number(graph), operands=[leaf.operand for leaf in leaves], results=records
            )
        )
        return unflatten(result_form, iter(results))

    def noise(self, tree: Any, query: int | Value = 0, distribution: Literal["normal", "rademacher"] = "normal") -> Any:
        number = query if isinstance(query, int) else [0, whole(query, "Query").id]

        def drawn(like: PlanValue) -> PlanValue:
            if like.role not in ("adapter", "optimizer") or like.start is not None:
                raise PlanError(
                    f"Noise of '{like.name}'",
                    got=f"a value of role {like.role}" if like.start is None else "some of its rows",
                    expected="whole pieces of an adapter, or whole states: the counter is theirs",
                    next_step="Draw the noise of b.adapter(group) or of b.state(...)",
                )
            states = (value.name for value in self.draft.values if value.role == "optimizer")
            block, tensor = noise_counter(self.model, like.name, states)
            z = self._new(like.shape, "float32", "temporary", "section", f"noise of {like.name}")
            self._add(
                Noise(op="noise", value=z.id, query=number, block=block, tensor=tensor, distribution=distribution)
            )
            return z

        return map_leaves(drawn, tree)

    def record(self, value: Value) -> PlanValue:
        source = whole(value, "Record")
        kept = self._new(source.shape, source.dtype, "recorded", "section", f"recorded {source.name}")
        self._add(Record(op="record", source=source.id, value=kept.id))
        return kept

    def signs(self, count: int, query: Value) -> PlanValue:
        z = self._new((count,), "float32", "temporary", "section", "signs")
        number = [0, whole(query, "Query").id]
        self._add(Noise(op="noise", value=z.id, query=number, block=NO_BLOCK, tensor=0, distribution="rademacher"))
        return z

    def receive(self, name: str, shape: Sequence[int], dtype: Literal["uint8", "float32"]) -> PlanValue:
        value = self._new(tuple(shape), dtype, "received", "section", name)
        self._add(Receive(op="receive", value=value.id, name=name))
        return value

    def send(self, value: Value) -> None:
        self._add(Send(op="send", source=self.record(value).id))

    def keep(self, *trees: Any) -> None:
        for value in leaves_of(trees):
            self.draft.values[value.id].kept = True

    def store(self, states: Any, values: Any) -> None:
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
            self._add(Store(op="store", state=old.id, source=new.operand))

    def emit(self, **metrics: Value) -> None:
        for name, value in metrics.items():
            self._add(Emit(op="emit", name=name, source=whole(value, f"Metric '{name}'").id))

    @property
    def section(self) -> SectionName:
        return self._section or self.training.step_section

    def begin_section(self, name: SectionName) -> None:
        self._section = name
        self._code = self.draft.sections.setdefault(name, [])

    # ---- what the SDK's own sections use -------------------------------------------------------------------------------

    def session(self, name: str, shape: tuple[int, ...]) -> PlanValue:
        """A value that lives as long as a conversation, such as a KV cache."""
        return self._find(name, shape, "float32", "temporary", "session")

    def prompt(self, length: int) -> PlanValue:
        """Tokens of the sequence that is answered, int64 [1, length]."""
        return self._find(f"prompt_{length}", (1, length), "int64", "batch", "call")

    # ---- bookkeeping -----------------------------------------------------------------------------------------------------

    def _add(self, instruction: Instruction) -> None:
        """Appends to the section that was begun last, by default the training step."""
        if self._code is None:
            self.begin_section(self.section)
        assert self._code is not None
        self._code.append(instruction)

    def _find(self, name: str, shape: tuple[int, ...], dtype: DType, role: Role, lifetime: Lifetime) -> PlanValue:
        if name not in self._named:
            self._named[name] = self._new(shape, dtype, role, lifetime, name)
        return self._named[name]

    def _new(
        self, shape: tuple[int, ...], dtype: DType, role: Role, lifetime: Lifetime, name: str, number: int | None = None
    ) -> PlanValue:
        value = PlanValue(len(self.draft.values), tuple(shape), dtype, role, name)
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


def _by_path(tree: Any) -> dict[str, PlanValue]:
    if tree is None:
        return {}
    leaves, form = flatten(tree)
    return dict(zip(paths(form), leaves, strict=True))
