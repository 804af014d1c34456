# SPDX-License-Identifier: Apache-2.0
"""The plan as data: ten instructions over a table of values. The one source of the format.

The JSON Schema under `bindings/schema/` is generated from these models, and the other languages' readers from that. Unknown
fields, unknown instructions and other versions are errors. Nothing has a default: what a plan does not say, it does not mean.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

from bespoke.config import Settings

PLAN_VERSION = (1, 2)
MAX_PLAN_BYTES = 8_000_000

DType = Literal["float32", "float16", "uint8", "int64"]
MAX_NAME = 200  # characters
DTYPE_BYTES: dict[str, int] = {"float32": 4, "float16": 2, "uint8": 1, "int64": 8}


def tensor_bytes(shape: Sequence[int], dtype: str) -> int:
    return math.prod(shape) * DTYPE_BYTES[dtype]


Role = Literal["weight", "adapter", "optimizer", "batch", "scalar", "constant", "temporary", "recorded", "received"]
Lifetime = Literal["section", "step", "session", "state", "bundle", "call"]
"""`section`: an offset in the arena. `step`: from the first micro-batch to apply_step. `session`: a generation. `state`: adapter
and optimizer, changed by `store`. `bundle`: mapped weights. `call`: bound by the runtime (batch, scalars, constants)."""

# Slots, and no copies of repeated strings: a plan has tens of thousands of these, and as ordinary models that of Qwen2.5-0.5B held
# 20 MB while it was read, of which Python kept 9.
_STRICT = ConfigDict(extra="forbid", strict=True, cache_strings="keys")

Made = TypeVar("Made")


def unchecked(kind: type[Made], **fields: Any) -> Made:
    """`kind(**fields)` without validation: planning makes tens of thousands, and the plan is verified as a whole."""
    record = object.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(record, name, value)  # frozen
    return record


# [value] for the whole of it, [value, start, rows] for a row range, [value, start, rows, scalar] for a range that
# begins at `start` plus the integer scalar with that value id, known only at run time.
Operand = Annotated[list[int], Field(min_length=1, max_length=4)]


# A query number, or [start, scalar]: `start` plus the integer scalar with that value id, known only at run time.
Query = Annotated[int, Field(ge=0)] | Annotated[list[int], Field(min_length=2, max_length=2)]


@dataclass(slots=True, frozen=True, kw_only=True, config=_STRICT)
class Arena:
    """An offset in the one arena of the section."""

    kind: Literal["arena"]
    offset: int = Field(ge=0)


@dataclass(slots=True, frozen=True, kw_only=True, config=_STRICT)
class Scratch:
    """An offset in the mapped scratch file: a checkpoint that the budget keeps out of anonymous memory."""

    kind: Literal["scratch"]
    offset: int = Field(ge=0)


@dataclass(slots=True, frozen=True, kw_only=True, config=_STRICT)
class Named:
    """Found by name: a weight, a piece of adapter or optimizer state, a batch tensor, a scalar, a step or session value."""

    kind: Literal["named"]
    name: str = Field(min_length=1, max_length=MAX_NAME)


@dataclass(slots=True, frozen=True, kw_only=True, config=_STRICT)
class Number:
    """A number that is an input of graphs."""

    kind: Literal["number"]
    number: int


Place = Annotated[Arena | Scratch | Named | Number, Field(discriminator="kind")]


@dataclass(slots=True, frozen=True, kw_only=True, config=_STRICT)
class ValueRecord:
    """A tensor of the plan; its id is its position in the table."""

    shape: list[Annotated[int, Field(ge=0, le=2**40)]] = Field(max_length=8)
    dtype: DType
    role: Role
    lifetime: Lifetime
    place: Place

    @property
    def nbytes(self) -> int:
        return tensor_bytes(self.shape, self.dtype)


@dataclass(slots=True, frozen=True, kw_only=True, config=_STRICT)
class Load:
    """Bring a weight group within reach."""

    op: Literal["load"]
    group: str


@dataclass(slots=True, frozen=True, kw_only=True, config=_STRICT)
class Result:
    """Where one output of a graph goes: a new value, a row range of one, or added to one in fp32."""

    to: Operand
    how: Literal["make", "into", "add_to"]


@dataclass(slots=True, frozen=True, kw_only=True, config=_STRICT)
class Call:
    """Run graph number `graph` of the plan's list. Operands and results in the order of its signature."""

    op: Literal["call"]
    graph: int = Field(ge=0)
    operands: list[Operand]
    results: list[Result]


@dataclass(slots=True, frozen=True, kw_only=True, config=_STRICT)
class Zero:
    """Define a value, filled with zeros."""

    op: Literal["zero"]
    value: int = Field(ge=0)


@dataclass(slots=True, frozen=True, kw_only=True, config=_STRICT)
class Noise:
    """Define a value as z from the counter (seed, step, query, block, tensor); Philox4x32-10."""

    op: Literal["noise"]
    value: int = Field(ge=0)
    query: Query
    block: int = Field(ge=0, lt=2**16)
    tensor: int = Field(ge=0, lt=2**16)
    distribution: Literal["normal", "rademacher"]


@dataclass(slots=True, frozen=True, kw_only=True, config=_STRICT)
class Record:
    """Define `value` as a copy of `source` that the journal keeps at the end of the step."""

    op: Literal["record"]
    source: int = Field(ge=0)
    value: int = Field(ge=0)


@dataclass(slots=True, frozen=True, kw_only=True, config=_STRICT)
class Store:
    """The state value's new content, visible from the next step on; in `finish`, what a piece of the adapter comes to."""

    op: Literal["store"]
    state: int = Field(ge=0)
    source: Operand


@dataclass(slots=True, frozen=True, kw_only=True, config=_STRICT)
class Emit:
    """Report a value under a name."""

    op: Literal["emit"]
    name: str
    source: int = Field(ge=0)


@dataclass(slots=True, frozen=True, kw_only=True, config=_STRICT)
class Receive:
    """Define a value as what the round brought under its name; zeros where it brought nothing."""

    op: Literal["receive"]
    value: int = Field(ge=0)
    name: str = Field(min_length=1, max_length=MAX_NAME)


@dataclass(slots=True, frozen=True, kw_only=True, config=_STRICT)
class Send:
    """Give out a recorded value: the only part of a measurement that leaves the device."""

    op: Literal["send"]
    source: int = Field(ge=0)


@dataclass(slots=True, frozen=True, kw_only=True, config=_STRICT)
class Free:
    """Drop a value; exactly one of the two is set."""

    op: Literal["free"]
    value: int | None
    group: str | None


Instruction = Annotated[
    Load | Call | Zero | Noise | Record | Store | Emit | Receive | Send | Free, Field(discriminator="op")
]

SectionName = Literal[
    "train_step",
    "micro_step",
    "apply_step",
    "finish",
    "evaluate_step",
    "prefill",
    "decode",
    "decode_rows",
    "federated_measure",
    "federated_project",
    "federated_apply",
]
SECTION_SINCE: dict[SectionName, int] = {
    "finish": 1,
    "decode_rows": 2,
    "federated_measure": 2,
    "federated_project": 2,
    "federated_apply": 2,
}
"""The minor version that brought a section, if not 0. A plan is written as the oldest version that has all of its sections."""


class GraphRef(Settings):
    """A graph of the bundle, and the memory of a call of it in addition to its operands."""

    key: str = Field(pattern=r"^[0-9a-f]{64}$")
    name: str
    workspace_bytes: int = Field(ge=0, description="free again after the call")
    engine_bytes: int = Field(ge=0, description="allocated and kept by the engine, which reuses it for all graphs")


class Estimate(Settings):
    """Memory in bytes and work in floating-point operations, known before anything runs."""

    arena_bytes: int = Field(ge=0)
    workspace_bytes: int = Field(ge=0, description="of the call that takes most")
    engine_bytes: int = Field(ge=0, description="of the call for which the engine keeps most")
    constant_bytes: int = Field(ge=0, description="what the engine holds for itself and for the plan, measured")
    step_bytes: int = Field(ge=0, description="accumulators, in mapped scratch")
    state_bytes: int = Field(ge=0, description="one copy of adapter and optimizer state, mapped")
    session_bytes: int = Field(ge=0, description="KV cache, of the plan for answers")
    scratch_bytes: int = Field(ge=0, description="checkpoints in mapped scratch")
    peak_bytes: int = Field(
        ge=0, description="anonymous memory that running it adds to the idle process, the KV cache included"
    )
    work_flops: int = Field(
        ge=0, description="of one training step; of the plan for answers, of one chunk and one token"
    )


class Plan(Settings):
    """One method at one sequence length, or how a bundle answers."""

    version: list[int] = Field(min_length=2, max_length=2)
    method: str
    sequence_length: int = Field(ge=1)
    batch_size: int = Field(ge=1)
    replayable: bool
    choices: dict[str, int | str | bool]
    estimate: Estimate
    graphs: list[GraphRef] = Field(max_length=10_000)
    values: list[ValueRecord] = Field(max_length=1_000_000)
    sections: dict[SectionName, list[Instruction]]
