# SPDX-License-Identifier: Apache-2.0
"""The contents of a plan as data: the table that drives every verifier.

tools/write_schemas.py writes `bindings/schema/plan_rules.json` from it, which is compiled into the device core. A combination that
is not here is refused, so code that runs a plan meets no other kind of value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from bespoke.plan.instructions import DTYPE_BYTES, DType, Lifetime, Role, SectionName

MAX_RANK = 8
MAX_VALUE_BYTES = 2**40  # of one value, as of one file of a bundle
MAX_REGION_BYTES = (
    2**46
)  # of the arena, of the scratch file, of all named values of a lifetime: no sum of sizes overflows 64 bits
MAX_ROW = 2**31  # where a range of rows may begin and end
MAX_QUERY = 2**31  # of noise: the counter has no room for more
ALIGNMENT = 16  # of offsets
NO_BLOCK = 2**16 - 1  # block of a noise counter that belongs to no piece of an adapter
MAX_SENT_BYTES = 4096  # of a measurement
MAX_DECODE_ROWS = 8  # of section decode_rows: up to as many, an engine computes a row as it computes one alone
GENERATION = "generation"  # what the plan for answers has for a method
ADAPTER_GROUP = "adapter"  # weight group of the bundle's adapter file: of its pieces those that are not trained


class Allowed(NamedTuple):
    """One kind of value: its place, and the ranks that it may have."""

    role: Role
    lifetime: Lifetime
    place: str
    dtype: DType
    least_rank: int
    most_rank: int


VALUES: tuple[Allowed, ...] = (
    Allowed("weight", "bundle", "named", "float32", 1, 2),
    Allowed("weight", "bundle", "named", "float16", 2, 2),
    Allowed("weight", "bundle", "named", "uint8", 2, 2),
    Allowed("adapter", "state", "named", "float32", 2, 2),
    Allowed("optimizer", "state", "named", "float32", 0, MAX_RANK),
    Allowed("batch", "call", "named", "int64", 2, 2),
    Allowed("batch", "call", "named", "float32", 2, 2),
    Allowed("scalar", "call", "named", "float32", 0, 0),
    Allowed("scalar", "call", "named", "int64", 0, 0),
    Allowed("constant", "call", "number", "int64", 0, 0),
    Allowed("recorded", "section", "arena", "float32", 0, MAX_RANK),
    Allowed("received", "section", "arena", "uint8", 1, 2),
    Allowed("received", "section", "arena", "float32", 1, 2),
    Allowed("temporary", "step", "named", "float32", 0, MAX_RANK),
    Allowed("temporary", "session", "named", "float32", 2, 2),
    *(
        Allowed("temporary", "section", place, dtype, 0, MAX_RANK)  # type: ignore[arg-type]
        for place in ("arena", "scratch")
        for dtype in DTYPE_BYTES
    ),
)

BATCH: dict[str, DType] = {"tokens": "int64", "targets": "int64", "mask": "float32"}
"""Tensors of shape [B, T]. `NAME*n` is n copies below each other, [n * B, T], n from 2 on."""

SCALARS: dict[str, DType] = {
    "learning_rate": "float32",
    "step": "float32",
    "batch_tokens": "float32",
    "epsilon": "float32",
    "position": "int64",
    "direction": "int64",
    "coefficient": "float32",
    "guidance_coefficient": "float32",
}
OPTION_PREFIX = "option."
OPTION_DTYPE: DType = "float32"
"""Type of the scalars that a method declares in its Options, named `option.<field>`."""

ARRAY_PREFIX = "array."
ARRAY_DTYPES: tuple[DType, ...] = ("int64", "float32")
"""Types of the arrays that a method asks for, named `array.<name>`, [B, T]: int64 for tokens, float32 for any finite number."""

NUMBERS = ("loss", "loss_sum", "correct")
"""Emitted values that the runtime computes with: of one element."""


@dataclass(frozen=True)
class SectionRule:
    """Values that a section may touch besides `section`, `state` and `bundle` values and constants, and what it must emit."""

    lifetimes: tuple[Lifetime, ...] = ()
    batch: bool = False  # the tensors of BATCH
    prompt: str = ""  # `prompt_<n>`, int64 [1, n]: of how many tokens ("T", "1", "R")
    scalars: tuple[str, ...] = ()
    options: bool = False  # the method's own scalars
    arrays: bool = False  # the method's own batch tensors
    stores: tuple[Role, ...] = ()  # the state that it may store
    noise: bool = True  # of the step that runs
    weights: bool = True  # loads them
    receives: bool = False
    sends: bool = False
    emits: tuple[str, ...] = ()  # at least these


_TRAINING = ("learning_rate", "step", "batch_tokens", "epsilon")
FEDERATED: tuple[SectionName, ...] = ("federated_measure", "federated_project", "federated_apply")
FEDERATED_SCALARS = ("direction", "coefficient", "guidance_coefficient")
_STATE: tuple[Role, ...] = ("adapter", "optimizer")

SECTIONS: dict[SectionName, SectionRule] = {
    "train_step": SectionRule(batch=True, scalars=_TRAINING, options=True, arrays=True, stores=_STATE),
    "micro_step": SectionRule(lifetimes=("step",), batch=True, scalars=_TRAINING, options=True, arrays=True),
    "apply_step": SectionRule(lifetimes=("step",), scalars=_TRAINING, options=True, stores=_STATE),
    "finish": SectionRule(scalars=("epsilon",), options=True, stores=("adapter",), noise=False),
    "evaluate_step": SectionRule(batch=True, emits=("loss_sum", "correct")),
    "prefill": SectionRule(lifetimes=("session",), prompt="T", scalars=("position",)),
    "decode": SectionRule(lifetimes=("session",), prompt="1", scalars=("position",), emits=("logits",)),
    "decode_rows": SectionRule(lifetimes=("session",), prompt="R", scalars=("position",), emits=("logits",)),
    "federated_measure": SectionRule(
        lifetimes=("step",),
        batch=True,
        scalars=("batch_tokens", "epsilon", *FEDERATED_SCALARS),
        options=True,
        arrays=True,
        receives=True,
        sends=True,
    ),
    "federated_project": SectionRule(lifetimes=("step",), scalars=("direction",), weights=False, sends=True),
    "federated_apply": SectionRule(scalars=FEDERATED_SCALARS, stores=("adapter",), weights=False, receives=True),
}


def option_scalar(field: str) -> str:
    """Name of the scalar that a method's option is bound to: its own where every runtime knows it, as `epsilon`."""
    return field if field in SCALARS else f"{OPTION_PREFIX}{field}"


def scalar_dtype(name: str) -> DType | None:
    """Type of the scalar of this name, or None where there is none."""
    if name.startswith(OPTION_PREFIX) and len(name) > len(OPTION_PREFIX):
        return OPTION_DTYPE
    return SCALARS.get(name)


def array_name(value: str) -> str | None:
    """The method's name for the array that a batch value of this name is; None for another value."""
    name = value.removeprefix(ARRAY_PREFIX)
    return name if name and name != value and "*" not in name else None


def is_allowed(role: str, lifetime: str, place: str, dtype: str, rank: int) -> bool:
    return any(row[:4] == (role, lifetime, place, dtype) and row.least_rank <= rank <= row.most_rank for row in VALUES)


def rules_document() -> dict[str, Any]:
    """The table as JSON."""
    return {
        "values": [row._asdict() for row in VALUES],
        "batch": BATCH,
        "scalars": SCALARS,
        "option_scalars": {"prefix": OPTION_PREFIX, "dtype": OPTION_DTYPE},
        "arrays": {"prefix": ARRAY_PREFIX, "dtypes": list(ARRAY_DTYPES)},
        "numbers": list(NUMBERS),
        "sections": {
            name: {field: list(value) if isinstance(value, tuple) else value for field, value in vars(rule).items()}
            for name, rule in SECTIONS.items()
        },
        "limits": {
            "value_bytes": MAX_VALUE_BYTES,
            "region_bytes": MAX_REGION_BYTES,
            "row": MAX_ROW,
            "query": MAX_QUERY,
            "sent_bytes": MAX_SENT_BYTES,
            "decode_rows": MAX_DECODE_ROWS,
            "alignment": ALIGNMENT,
        },
    }
