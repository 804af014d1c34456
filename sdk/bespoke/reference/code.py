# SPDX-License-Identifier: Apache-2.0
"""The form in which the interpreter keeps a plan: fixed records over shared operands.

As validated pydantic models, the plan of a large model takes tens of MB. These would count against the user's memory for as long as
training lasts.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass

from bespoke.plan.instructions import (
    Call,
    Emit,
    Free,
    Instruction,
    Load,
    Noise,
    Plan,
    Receive,
    Record,
    SectionName,
    Send,
    Store,
    ValueRecord,
    Zero,
    tensor_bytes,
)
from bespoke.plan.read import read_plan
from bespoke.plan.replay import recorded_values, replay_slice
from bespoke.plan.verify import Signature

Reference = tuple[int, ...]
"""An operand: (value,), (value, start, rows) or (value, start, rows, scalar)."""


@dataclass(frozen=True, slots=True)
class ValuePlace:
    """The type and the place of a value. `where` is an offset, a name or a number, depending on `kind`."""

    shape: tuple[int, ...]
    dtype: str
    role: str
    lifetime: str
    kind: str
    where: int | str

    @property
    def nbytes(self) -> int:
        return tensor_bytes(self.shape, self.dtype)


@dataclass(frozen=True, slots=True)
class CallCode:
    """Runs a graph. `graph` is its number in the plan. `adds` says which results are added to their place."""

    graph: int
    operands: tuple[Reference, ...]
    results: tuple[Reference, ...]
    adds: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class GroupCode:
    """Loads a weight group, or frees it."""

    group: str
    load: bool


@dataclass(frozen=True, slots=True)
class NoiseCode:
    """Fills a value with noise."""

    value: Reference
    query: int
    query_scalar: int | None
    block: int
    tensor: int
    distribution: str


@dataclass(frozen=True, slots=True)
class ZeroCode:
    """Fills a value with zeros."""

    value: Reference


@dataclass(frozen=True, slots=True)
class RecordCode:
    """Copies `source` to `value` and records it for the journal."""

    source: Reference
    value: Reference


@dataclass(frozen=True, slots=True)
class StoreCode:
    """Stores a piece of adapter or optimizer state."""

    name: str
    source: Reference


@dataclass(frozen=True, slots=True)
class EmitCode:
    """Reports a metric."""

    name: str
    source: Reference


@dataclass(frozen=True, slots=True)
class ReceiveCode:
    """Fills a value with what the round brought under a name."""

    name: str
    value: Reference


@dataclass(frozen=True, slots=True)
class SendCode:
    """Gives out a recorded value."""

    source: Reference


Code = CallCode | GroupCode | NoiseCode | ZeroCode | RecordCode | StoreCode | EmitCode | ReceiveCode | SendCode


@dataclass(frozen=True, slots=True)
class GraphCode:
    """A graph that the plan calls."""

    key: str
    name: str


@dataclass(frozen=True, slots=True)
class PlanCode:
    """The parts of a plan that are needed to run it."""

    method: str
    sequence_length: int
    batch_size: int
    replayable: bool
    arena_bytes: int
    scratch_bytes: int
    values: tuple[ValuePlace, ...]
    graphs: tuple[GraphCode, ...]
    sections: dict[SectionName, tuple[Code, ...]]
    replay: tuple[Code, ...]
    recorded: tuple[int, ...]


def read_code(data: bytes, subject: str, graphs: Sequence[Signature]) -> PlanCode:
    """Reads and verifies the plan in `data` and returns it as fixed records.

    The records are pickled and loaded again after the validated plan is freed. If they were allocated while it is alive, they would
    lie scattered over its memory and keep it from being given back (8 MB for 1.5 MB of records, with Qwen2.5-0.5B).
    """
    packed = pickle.dumps(plan_code(read_plan(data, subject, graphs)))
    return pickle.loads(packed)


class _Sharing:
    """Makes equal tuples one object."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], tuple[int, ...]] = {}

    def __call__(self, numbers: Sequence[int]) -> tuple[int, ...]:
        key = tuple(numbers)
        return self._known.setdefault(key, key)


def plan_code(plan: Plan) -> PlanCode:
    """The fixed records of a plan. Frees of values are left out, because their places in the arena are simply overwritten."""
    share = _Sharing()
    sections = {name: _section(plan, code, share) for name, code in plan.sections.items()}

    training = plan.sections.get("train_step", [])
    positions = replay_slice(training, [value.role for value in plan.values]) if plan.replayable else None
    kept = [training[p] for p in positions or [] if not isinstance(training[p], Record)]

    return PlanCode(
        method=plan.method,
        sequence_length=plan.sequence_length,
        batch_size=plan.batch_size,
        replayable=plan.replayable,
        arena_bytes=plan.estimate.arena_bytes,
        scratch_bytes=plan.estimate.scratch_bytes,
        values=tuple(_value(value, share) for value in plan.values),
        graphs=tuple(GraphCode(g.key, g.name) for g in plan.graphs),
        sections=sections,
        replay=_section(plan, kept, share),
        recorded=tuple(recorded_values(training)),
    )


def _value(value: ValueRecord, share: _Sharing) -> ValuePlace:
    place = value.place
    where: int | str = (
        place.offset if place.kind in ("arena", "scratch") else place.number if place.kind == "number" else place.name  # type: ignore[union-attr]
    )
    return ValuePlace(share(value.shape), value.dtype, value.role, value.lifetime, place.kind, where)


def _section(plan: Plan, code: Sequence[Instruction], share: _Sharing) -> tuple[Code, ...]:
    return tuple(record for instruction in code if (record := _record(plan, instruction, share)) is not None)


def _record(plan: Plan, instruction: Instruction, share: _Sharing) -> Code | None:
    """The record of an instruction, None for one that does nothing here."""

    def whole(value: int) -> Reference:
        return share([value])

    match instruction:
        case Call():
            return CallCode(
                instruction.graph,
                tuple(share(operand) for operand in instruction.operands),
                tuple(share(result.to) for result in instruction.results),
                tuple(result.how == "add_to" for result in instruction.results),
            )
        case Load():
            return GroupCode(instruction.group, True)
        case Free():
            return None if instruction.group is None else GroupCode(instruction.group, False)
        case Zero():
            return ZeroCode(whole(instruction.value))
        case Noise():
            query, scalar = instruction.query if isinstance(instruction.query, list) else (instruction.query, None)
            return NoiseCode(
                whole(instruction.value),
                query,
                scalar,
                instruction.block,
                instruction.tensor,
                instruction.distribution,
            )
        case Record():
            return RecordCode(whole(instruction.source), whole(instruction.value))
        case Store():
            return StoreCode(plan.values[instruction.state].place.name, share(instruction.source))  # type: ignore[union-attr]
        case Emit():
            return EmitCode(instruction.name, whole(instruction.source))
        case Receive():
            return ReceiveCode(instruction.name, whole(instruction.value))
        case Send():
            return SendCode(whole(instruction.source))
