# SPDX-License-Identifier: Apache-2.0
"""What `b.state` may be asked for: what a device can keep in a file, between the steps of a run, next to a piece of the adapter."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from bespoke.errors import PlanError
from bespoke.graph.value import Value
from bespoke.plan.instructions import DTYPE_BYTES, MAX_NAME
from bespoke.plan.kinds import MAX_RANK, MAX_VALUE_BYTES

GRADIENT = "gradient"  # with a piece's name: its sum over the micro-batches of a step
MAX_ELEMENTS = MAX_VALUE_BYTES // DTYPE_BYTES["float32"]


def check_state(like: Value, name: Any, shape: Any) -> None:
    """Raises PlanError where no device could keep a state of this name and shape; `shape` None is that of `like`."""
    if like.role != "adapter" or like.start is not None:
        raise PlanError(
            f"State '{str(name)[:60]}' of '{like.name}'",
            got=f"a value of role {like.role}" if like.start is None else "some of its rows",
            expected="a whole piece of the adapter, with which it is kept",
            next_step="Give b.state an entry of b.adapter(group)",
        )
    wrong = _name(name, MAX_NAME - len(like.name) - 1) or (None if shape is None else _shape(shape))
    if wrong is not None:
        raise PlanError(
            f"State '{str(name)[:60]}' of '{like.name}'",
            got=wrong[0],
            expected=wrong[1],
            next_step="Give b.state a name and a shape that a file of tensors can hold",
        )


def _name(name: Any, longest: int) -> tuple[str, str] | None:
    """What is wrong with it and what it may be; None where nothing is."""
    if not isinstance(name, str) or not name.isascii() or not name.isidentifier() or name == GRADIENT:
        return f"the name {str(name)[:60]!r}", f"letters, digits and _, no digit first, other than '{GRADIENT}'"
    return (f"a name of {len(name)} characters", f"at most {longest}") if len(name) > longest else None


def _shape(shape: Any) -> tuple[str, str] | None:
    extents = list(shape) if isinstance(shape, Sequence) else None
    if extents is None or len(extents) > MAX_RANK or not all(type(extent) is int and extent > 0 for extent in extents):
        return f"the shape {str(shape)[:60]}", f"up to {MAX_RANK} whole numbers of 1 or more; () is one number"
    return (f"the shape {extents}", f"at most {MAX_ELEMENTS} elements") if prod(extents) > MAX_ELEMENTS else None
