# SPDX-License-Identifier: Apache-2.0
"""The rules of a plan's table of values, each value by itself: kind, name, shape, size, place."""

from __future__ import annotations

import re
from typing import NoReturn

from bespoke.errors import PlanError
from bespoke.plan.arena import aligned
from bespoke.plan.instructions import DType, Named, Number, Plan, ValueRecord
from bespoke.plan.kinds import (
    ALIGNMENT,
    ARRAY_DTYPES,
    ARRAY_PREFIX,
    BATCH,
    MAX_DECODE_ROWS,
    MAX_REGION_BYTES,
    MAX_VALUE_BYTES,
    OPTION_DTYPE,
    OPTION_PREFIX,
    SCALARS,
    VALUES,
    array_name,
    is_allowed,
    scalar_dtype,
)

_COPIES = re.compile(r"([a-z]+)(?:\*([1-9][0-9]{0,5}))?")
_PROMPT = re.compile(r"prompt_([1-9][0-9]{0,8})")


def check_values(plan: Plan, where: str) -> None:
    """Raises PlanError for the first value that no plan may have."""
    for name in ("arena_bytes", "scratch_bytes"):
        size = getattr(plan.estimate, name)
        if size > MAX_REGION_BYTES:
            refuse(where, f"estimate.{name}", str(size), f"at most {MAX_REGION_BYTES}")
    names: dict[str, int] = {}
    totals = dict.fromkeys(("step", "session", "state"), 0)
    pieces: set[str] = set()
    states: list[tuple[str, str]] = []
    for number, value in enumerate(plan.values):
        at = f"value {number}"
        _check_kind(plan, value, at, where)
        if isinstance(value.place, Named):
            other = names.setdefault(value.place.name, number)
            if other != number:
                refuse(where, at, f"the name of value {other}, '{value.place.name}'", "a name of its own")
            if value.role == "adapter":
                pieces.add(value.place.name)
            if value.role == "optimizer":
                states.append((at, value.place.name))
        if value.lifetime in totals:
            totals[value.lifetime] += aligned(value.nbytes)
            if totals[value.lifetime] > MAX_REGION_BYTES:
                refuse(where, at, f"more than {MAX_REGION_BYTES} bytes of {value.lifetime} values", "fewer")
    for at, name in states:  # a state is kept in one file with the piece that it belongs to
        piece, _, state = name.rpartition(".")
        if piece not in pieces or not state:
            refuse(where, at, f"optimizer '{name}'", "<piece>.<state>, of a piece of the adapter")


def _check_kind(plan: Plan, value: ValueRecord, at: str, where: str) -> None:
    kind, rank = value.place.kind, len(value.shape)
    if not is_allowed(value.role, value.lifetime, kind, value.dtype, rank):
        got = f"a {value.role} of lifetime {value.lifetime} placed by '{kind}', {value.dtype} of rank {rank}"
        refuse(where, at, got, allowed_of(value.role))
    if value.nbytes > MAX_VALUE_BYTES:
        refuse(where, at, f"more than {MAX_VALUE_BYTES} bytes", "fewer")
    limit = {"arena": plan.estimate.arena_bytes, "scratch": plan.estimate.scratch_bytes}.get(kind)
    if limit is not None:
        offset = value.place.offset  # type: ignore[union-attr]
        if offset + value.nbytes > limit:
            refuse(where, at, f"bytes up to {offset + value.nbytes}", f"bytes up to {limit}")
        if offset % ALIGNMENT:
            refuse(where, at, f"offset {offset}", "an aligned offset")
    if isinstance(value.place, Number) and not -(2**63) <= value.place.number < 2**63:
        refuse(where, at, str(value.place.number), "a number of 64 bits")
    if isinstance(value.place, Named):
        _check_name(plan, value, value.place.name, at, where)


def _check_name(plan: Plan, value: ValueRecord, name: str, at: str, where: str) -> None:
    got = f"{value.role} '{name}', {value.dtype} {value.shape}"
    if value.role == "weight" and "." not in name:
        refuse(where, at, got, "<group>.<tensor>")
    if value.role == "scalar" and scalar_dtype(name) != value.dtype:
        named = ", ".join(f"{scalar} {dtype}" for scalar, dtype in sorted(SCALARS.items()))
        refuse(where, at, got, f"one of {named}, or {OPTION_PREFIX}<name> {OPTION_DTYPE}")
    if value.role == "batch":
        expected = batch_shape(plan, name, value.dtype)
        if expected is None:
            refuse(
                where, at, got, f"{', '.join(sorted(BATCH))}, with *<copies>, {ARRAY_PREFIX}<name>, or prompt_<length>"
            )
        if (value.dtype, value.shape) != expected:
            refuse(where, at, got, f"{expected[0]} {expected[1]}")


def batch_shape(plan: Plan, name: str, dtype: str) -> tuple[str, list[int]] | None:
    """Dtype and shape of what the runtime binds under this name to a value of `dtype`; None where it binds nothing."""
    if array_name(name) is not None:
        return (dtype if dtype in ARRAY_DTYPES else ARRAY_DTYPES[0]), [plan.batch_size, plan.sequence_length]
    prompt = _PROMPT.fullmatch(name)
    if prompt is not None:
        length = int(prompt[1])
        lengths = {1, plan.sequence_length}
        if "decode_rows" in plan.sections:
            lengths |= set(range(2, MAX_DECODE_ROWS + 1))
        return ("int64", [1, length]) if length in lengths else None
    copies = _COPIES.fullmatch(name)
    if copies is None or copies[1] not in BATCH or copies[2] == "1":
        return None
    return BATCH[copies[1]], [plan.batch_size * int(copies[2] or 1), plan.sequence_length]


def arrays_of(plan: Plan) -> dict[str, DType]:
    """The arrays that a method asks for in addition to tokens, targets and mask, by its names."""
    named = (
        (value.place.name, value) for value in plan.values if value.role == "batch" and isinstance(value.place, Named)
    )
    return {name: value.dtype for full, value in named if (name := array_name(full)) is not None}


def allowed_of(role: str) -> str:
    """The rows of the table for a role, as an error says them."""
    rows = [row for row in VALUES if row.role == role]
    return "; ".join(
        f"{row.lifetime} '{row.place}' {row.dtype} of rank {row.least_rank}"
        + (f" to {row.most_rank}" if row.most_rank > row.least_rank else "")
        for row in rows
    )


def refuse(where: str, subject: str, got: str, expected: str) -> NoReturn:
    raise PlanError(
        f"{where}: {subject}",
        got=got,
        expected=expected,
        next_step="Report it to the author of the method" if where.startswith("method") else "Build the bundle again",
    )
