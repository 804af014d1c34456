# SPDX-License-Identifier: Apache-2.0
"""Plans of one method share one state: a run that began by one of them goes on by another, for longer rows or in less memory."""

from __future__ import annotations

from collections.abc import Sequence

from bespoke.errors import PlanError
from bespoke.plan.instructions import Named, Plan
from bespoke.plan.replay import recorded_values

__all__ = ["check_same_state", "state_shapes"]

Shapes = dict[str, tuple[str, ...]]


def check_same_state(method: str, plans: Sequence[Plan]) -> None:
    """PlanError where a plan keeps other pieces of adapter or optimizer state than the first one, or records other values."""
    first = _kept(plans[0])
    for plan in plans[1:]:
        kept = _kept(plan)
        other = sorted(name for name in first.keys() | kept.keys() if first.get(name) != kept.get(name))
        if other:
            name = other[0]
            raise PlanError(
                f"method '{method}', sequence length {plan.sequence_length}: '{name}'",
                got=_shown(kept, name),
                expected=f"{_shown(first, name)}, as in its other plans: one run may be stepped by all of them",
                next_step="Report it to the author of the method: what is stored or recorded must not depend on b.choose",
            )


def state_shapes(plan: Plan) -> dict[str, list[int]]:
    """The pieces of adapter and optimizer state that a run keeps between steps."""
    return {
        value.place.name: value.shape
        for value in plan.values
        if value.lifetime == "state" and isinstance(value.place, Named)
    }


def _kept(plan: Plan) -> Shapes:
    """State between steps, values in the journal for each step, and whether the adapter must be finished."""
    state = {
        value.place.name: (value.role, value.dtype, str(value.shape))
        for value in plan.values
        if value.lifetime == "state" and isinstance(value.place, Named)
    }
    finish: Shapes = {"section finish": ("there",)} if "finish" in plan.sections else {}
    recorded = [plan.values[number] for number in recorded_values(plan.sections.get("train_step", []))]
    return state | finish | {f"recorded value {n}": (value.dtype, str(value.shape)) for n, value in enumerate(recorded)}


def _shown(kept: Shapes, name: str) -> str:
    return " ".join(kept[name]) if name in kept else "nothing"
