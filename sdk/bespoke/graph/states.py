# SPDX-License-Identifier: Apache-2.0
"""State of a method: which names and shapes a device can keep in a file with a piece of the adapter, and the noise of states."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from bespoke.errors import PlanError
from bespoke.graph.value import PlanValue
from bespoke.plan.instructions import DTYPE_BYTES, MAX_NAME
from bespoke.plan.kinds import MAX_RANK, MAX_VALUE_BYTES

if TYPE_CHECKING:
    from bespoke.model.spec import ModelSpec

GRADIENT = "gradient"  # with a piece's name: its sum over the micro-batches of a step
MAX_ELEMENTS = MAX_VALUE_BYTES // DTYPE_BYTES["float32"]


def noise_counter(model: ModelSpec, name: str, states: Iterable[str]) -> tuple[int, int]:
    """Block and tensor of the noise counter of a piece or a state, by its full name.

    A block counts the pieces of its adapter, then its states in the order of their first use: `states`, by full name.
    """
    group = name.split(".", 1)[0]
    pieces = (f"{group}.{piece}" for piece in model.adapter_shapes(group))
    tensors = [*pieces, *(state for state in states if state.startswith(f"{group}."))]
    return model.blocks.index(group), tensors.index(name)


def check_state(like: PlanValue, name: Any, shape: Any) -> None:
    """Raises PlanError where no device can keep a state of this name and shape. `shape` None: that of `like`."""
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
    """Got and expected of an error, or None where the name is fine."""
    if not isinstance(name, str) or not name.isascii() or not name.isidentifier() or name == GRADIENT:
        return f"the name {str(name)[:60]!r}", f"letters, digits and _, no digit first, other than '{GRADIENT}'"
    return (f"a name of {len(name)} characters", f"at most {longest}") if len(name) > longest else None


def _shape(shape: Any) -> tuple[str, str] | None:
    extents = list(shape) if isinstance(shape, Sequence) else None
    if extents is None or len(extents) > MAX_RANK or not all(type(extent) is int and extent > 0 for extent in extents):
        return f"the shape {str(shape)[:60]}", f"up to {MAX_RANK} whole numbers of 1 or more; () is one number"
    return (f"the shape {extents}", f"at most {MAX_ELEMENTS} elements") if prod(extents) > MAX_ELEMENTS else None
