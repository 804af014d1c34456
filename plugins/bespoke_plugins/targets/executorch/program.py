# SPDX-License-Identifier: Apache-2.0
"""Writes a graph as an ExecuTorch program: a value table and a sequence of delegate and kernel calls.

Operands and results are the caller's memory and are not planned. Values between stages lie in one planned buffer.

All delegates of a process share one XNNPACK workspace. It grows when a delegate needs more, with the old and the new one in memory
at once. So a program has a second method, `reserve`: one delegate from a number to a number, through a tensor as large as the
workspace that `forward` needs. Running it first makes the workspace grow once, while nothing else is in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bespoke.graph import Graph
from bespoke.ops import operator_workspace_bytes
from bespoke_plugins.targets.executorch import attention, strided
from bespoke_plugins.targets.executorch.delegate import Delegate
from bespoke_plugins.targets.executorch.fusing import OPERATOR as ELEMENTWISE
from bespoke_plugins.targets.executorch.fusing import fuse
from bespoke_plugins.targets.executorch.lora import OPERATORS as WITH_ADAPTERS
from bespoke_plugins.targets.executorch.lora import add_adapters
from bespoke_plugins.targets.executorch.lowering import Lowering
from bespoke_plugins.targets.executorch.stages import Stage, stages
from bespoke_plugins.targets.executorch.tape import Op, Tape, Value
from bespoke_plugins.targets.executorch.together import OPERATOR as TOGETHER
from bespoke_plugins.targets.executorch.together import PLAIN, put_together
from bespoke_plugins.targets.executorch.workspace import TAIL_BYTES, place

REGION = "npu::region"  # an operation with its own delegate
NAMED_ALIGNMENT = 64
FEW_ROWS = 8  # VECTOR_ROWS of the kernels: as many as are answered or drafted at once
DELEGATE_BYTES = 1 << 17  # memory that is worth saving one delegate call


@dataclass(frozen=True)
class Compiled:
    """A program's bytes, its stages, and the memory of a call in addition to operands and results."""

    data: bytes
    stages: list[Stage]
    planned_bytes: int  # for values between stages
    operator_bytes: int  # workspace of our most demanding operator
    xnnpack_bytes: int  # XNNPACK's workspace for the most demanding delegate
    delegates: tuple[str, ...]  # ExecuTorch's names of the delegates that it calls, sorted

    @property
    def workspace_bytes(self) -> int:
        """Size of the memory region that the runtime provides."""
        return self.planned_bytes + self.operator_bytes


def compile_graph(graph: Graph, lowering: Lowering | None = None) -> Compiled:
    """Compiles a graph. `lowering` replaces the default."""
    lowering = lowering or Lowering(graph)
    results = _own_results(lowering, lowering.run())
    lowering.tape.drop_unused(results)
    add_adapters(lowering.tape, results)
    fuse(lowering.tape, results)
    operands = [node.meta["val"] for node in lowering.operands]
    if _has_few_rows(operands):
        put_together(lowering.tape)
    programs = [_Program(operands, row, results) for row in stages(lowering.tape.ops, results)]
    return min(programs, key=lambda program: program.price).compiled()


def _has_few_rows(operands: Sequence[torch.Tensor]) -> bool:
    """Whether a program is one for a few rows: of its first operand."""
    return bool(operands) and operands[0].dim() == 2 and operands[0].shape[0] <= FEW_ROWS


def _operator_bytes(op: Op) -> int:
    if op.name == attention.OPERATOR:
        return attention.workspace_bytes(op)
    if op.name == strided.OPERATOR:
        return strided.workspace_bytes(op)
    plain = next((plain for plain, adapted in WITH_ADAPTERS.items() if adapted == op.name), op.name)
    plain = PLAIN if op.name == TOGETHER else plain
    name = plain.removeprefix("bespoke::").removesuffix(".out")
    ours = op.name.startswith("bespoke::") and op.name != ELEMENTWISE  # a chain of elementwise steps needs no workspace
    return operator_workspace_bytes(name, op.inputs[0].shape[0]) if ours else 0


def _own_results(lowering: Lowering, results: list[Value]) -> list[Value]:
    """Gives each result its own memory: copies operands, constants and second results of the same memory."""
    tape, taken, own = lowering.tape, set(), []
    for result in results:
        base = result.base
        if base.constant is not None or base.operand is not None or base in taken:
            result = _copy(tape, result)
        taken.add(result.base)
        own.append(result)
    return own


def _copy(tape: Tape, x: Value) -> Value:
    op = Op("aten::clone.out", [x], arguments=[x, None])
    if x.constant is not None and x.constant.size == 1:
        op = Op("aten::full.out", [], arguments=[list(x.shape), float(x.constant)])
    op.outputs = [Value(x.shape, x.dtype, x.kind, op=op)]
    tape.ops.append(op)
    return op.outputs[0]


def _reserving(xnnpack_bytes: int) -> _Program:
    """The method `reserve`: from one number to one number, through a tensor of `xnnpack_bytes` in XNNPACK's workspace."""
    given, wide, result = (Value((n,), torch.float32, "float") for n in (1, -(-xnnpack_bytes // 4), 1))
    given.operand = 0
    nodes = [
        Op("pad", [given], [wide], {"before": (0,), "after": (wide.numel - 1,)}),
        Op("slice", [wide], [result], {"offsets": (0,)}),
    ]
    for op in nodes:
        op.outputs[0].op = op
    return _Program([torch.empty(1)], [Stage(nodes, [])], [result])


class _Program:
    """A method of a program that takes tensors like `operands`."""

    def __init__(self, operands: Sequence[torch.Tensor], row: Sequence[Stage], results: Sequence[Value]) -> None:
        from executorch.exir import schema
        from executorch.exir.tensor import scalar_type_enum

        self.s: Any = schema
        self.row = list(row)
        self.scalar_type = scalar_type_enum
        self.operands = operands
        self.results = {result.base: result for result in results}
        self.order = results
        self.calls = self._calls(row)
        self.planned_bytes, self.offsets = self._plan()
        self.xnnpack_bytes = max((call.workspace_bytes for call in self.calls if isinstance(call, Delegate)), default=0)
        self.values: list[Any] = []
        self.known: dict[Any, int] = {}
        self.instructions: list[Any] = []
        self.operators: list[Any] = []
        self.delegates: list[Any] = []
        self.blobs: list[Any] = []  # shared by all methods of the program, like the constants
        self.named: dict[str, bytes] = {}  # constants that delegates ask for by name
        self.constants: list[Any] = [schema.Buffer(storage=b"")]

    @property
    def price(self) -> int:
        """Memory plus the cost of delegate calls."""
        delegates = sum(isinstance(call, Delegate) for call in self.calls)
        return self.planned_bytes + self.xnnpack_bytes + DELEGATE_BYTES * delegates

    def compiled(self) -> Compiled:
        operators = max((_operator_bytes(call) for call in self.calls if isinstance(call, Op)), default=0)
        data = self.to_bytes()
        called = tuple(sorted({delegate.id for delegate in self.delegates}))
        return Compiled(data, self.row, self.planned_bytes, operators, self.xnnpack_bytes, called)

    def _calls(self, row: Sequence[Stage]) -> list[Delegate | Op]:
        calls: list[Delegate | Op] = []
        read_by_kernels = {v.base for stage in row for op in stage.kernels for v in op.inputs}
        for number, stage in enumerate(row):
            later = {v.base for after in row[number + 1 :] for op in after.nodes for v in op.inputs}
            if stage.nodes:
                delegate = Delegate(stage.nodes, later | read_by_kernels | set(self.results))
                calls.append(self._as_kernel(delegate) or delegate)
            calls += stage.kernels
        return calls

    def _as_kernel(self, delegate: Delegate) -> Op | None:
        """A call of our own operator instead of the delegate, if the program is one for a few rows."""
        if not _has_few_rows(self.operands):
            return None
        return strided.as_one_call(delegate.nodes, delegate.inputs, delegate.outputs)

    # ---- memory ------------------------------------------------------------------------------------------------------------

    def _plan(self) -> tuple[int, dict[Value, int]]:
        """Total size and offsets of values that live between calls."""
        lives: dict[Value, list[int]] = {}
        for at, call in enumerate(self.calls):
            for value in call.outputs:
                lives[value] = [at, at]
            for value in call.inputs:
                if value.base in lives:
                    lives[value.base][1] = at
        planned = [value for value in lives if value not in self.results]
        total, offsets = place((value.nbytes + TAIL_BYTES, lives[value][0], lives[value][1]) for value in planned)
        return total, dict(zip(planned, offsets, strict=True))

    # ---- the value table -----------------------------------------------------------------------------------------------------

    def _value(self, content: Any) -> int:
        self.values.append(self.s.EValue(content))
        return len(self.values) - 1

    def _tensor(self, value: Value) -> int:
        """The number of a tensor in the table. A view of the caller's memory is created at run time."""
        if value in self.known:
            return self.known[value]
        base = value.base
        result = self.results.get(base)
        place, data = None, 0
        if value.constant is not None:
            data = len(self.constants)
            self.constants.append(self.s.Buffer(storage=np.broadcast_to(value.constant, value.shape).tobytes()))
        elif base in self.offsets:
            place = self.s.AllocationDetails(memory_id=1, memory_offset_low=self.offsets[base], memory_offset_high=0)
        self.known[value] = number = self._value(
            self.s.Tensor(
                scalar_type=self.scalar_type(value.dtype),
                storage_offset=0,
                sizes=list(value.shape),
                dim_order=list(range(len(value.shape))),
                requires_grad=False,
                layout=0,
                data_buffer_idx=data,
                allocation_info=place,
                shape_dynamism=self.s.TensorShapeDynamism.STATIC,
            )
        )
        given = result if result is not None else base
        if value is not given and value.constant is None and base not in self.offsets:
            sizes = self._argument(list(value.shape))
            self._call("executorch_prim::et_view.default", [self._tensor(given), sizes, number])
        return number

    def _argument(self, argument: Any) -> int:
        if isinstance(argument, Value):
            return self._tensor(argument)
        if isinstance(argument, torch.dtype):
            argument = int(self.scalar_type(argument))
        if isinstance(argument, list | tuple):
            key: Any = ("list", *[self._argument(item) for item in argument])
            content: Any = (self.s.TensorList if any(isinstance(i, Value) for i in argument) else self.s.IntList)(
                list(key[1:])
            )
        else:
            key = (type(argument).__name__, argument)
            kinds = {bool: self.s.Bool, int: self.s.Int, float: self.s.Double, str: self.s.String}
            content = self.s.Null() if argument is None else kinds[type(argument)](argument)
        if key not in self.known:
            self.known[key] = self._value(content)
        return self.known[key]

    # ---- instructions --------------------------------------------------------------------------------------------------------

    def _call(self, name: str, arguments: list[int]) -> None:
        operator = self.s.Operator(*name.rsplit(".", 1))
        if operator not in self.operators:
            self.operators.append(operator)
        number = self.operators.index(operator)
        self.instructions.append(self.s.Instruction(self.s.KernelCall(op_index=number, args=arguments)))

    def _kernel(self, op: Op) -> None:
        arguments = [self._argument(argument) for argument in op.arguments]
        results = [self._tensor(value) for value in op.outputs]
        returned = results if len(results) == 1 else [self._value(self.s.TensorList(results))]
        self._call(op.name, [*arguments, *results, *returned])

    def _delegate(self, delegate: Delegate) -> None:
        self._delegated("XnnpackBackend", delegate.to_bytes(), [], (*delegate.inputs, *delegate.outputs))
        self.named |= delegate.named

    def _delegated(
        self, backend: str, data: bytes, settings: Sequence[tuple[str, bytes]], tensors: Sequence[Value]
    ) -> None:
        arguments = [self._tensor(value) for value in tensors]
        self.blobs.append(self.s.BackendDelegateInlineData(data=data))
        reference = self.s.BackendDelegateDataReference(location=self.s.DataLocation.INLINE, index=len(self.blobs) - 1)
        specs = [self.s.CompileSpec(key=key, value=value) for key, value in settings]
        self.delegates.append(self.s.BackendDelegate(id=backend, processed=reference, compile_specs=specs))
        self.instructions.append(
            self.s.Instruction(self.s.DelegateCall(delegate_index=len(self.delegates) - 1, args=arguments))
        )

    def to_bytes(self) -> bytes:
        from executorch.exir._serialize._program import PTEFile, serialize_pte_binary

        plans = [self.plan("forward")]
        if self.xnnpack_bytes:
            reserving = _reserving(self.xnnpack_bytes)
            reserving.blobs, reserving.constants = self.blobs, self.constants
            plans.append(reserving.plan("reserve"))
        program = self.s.Program(
            version=0,
            execution_plan=plans,
            constant_buffer=self.constants,
            backend_delegate_data=self.blobs,
            segments=[],
            constant_segment=self.s.SubsegmentOffsets(segment_index=0, offsets=[]),
        )
        return bytes(
            serialize_pte_binary(PTEFile(program, named_data=self._named_data()), extract_delegate_segments=True)
        )

    def _named_data(self) -> Any:
        from executorch.exir._serialize._named_data_store import NamedDataStore

        store = NamedDataStore()
        for name, data in self.named.items():
            store.add_named_data(name, data, NAMED_ALIGNMENT)
        return store.get_named_data_store_output() if self.named else None

    def plan(self, name: str) -> Any:
        operands = self._operands()
        inputs = [self._tensor(value) for value in operands]
        outputs = [self._tensor(value) for value in self.order]
        for call in self.calls:
            if isinstance(call, Delegate):
                self._delegate(call)
            elif call.name == REGION:
                self._delegated(**call.attributes["delegate"].arguments(call))
            else:
                self._kernel(call)
        return self.s.ExecutionPlan(
            name=name,
            container_meta_type=self.s.ContainerMetadata("", ""),
            values=self.values,
            inputs=inputs,
            outputs=outputs,
            chains=[self.s.Chain(inputs=[], outputs=[], instructions=self.instructions, stacktrace=None)],
            operators=self.operators,
            delegates=self.delegates,
            non_const_buffer_sizes=[0, *([self.planned_bytes] if self.planned_bytes else [])],
        )

    def _operands(self) -> list[Value]:
        """All operands, including those that nothing reads."""
        read = {v.base.operand: v.base for call in self.calls for v in call.inputs if v.base.operand is not None}
        operands = []
        for position, like in enumerate(self.operands):
            operands.append(read.get(position) or Value(tuple(like.shape), like.dtype, "float", operand=position))
        return operands
