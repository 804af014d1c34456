# SPDX-License-Identifier: Apache-2.0
"""What a builder says to the author of a method who misuses it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from bespoke.errors import PlanError
from bespoke.graph.value import PlanValue, Value
from bespoke.plan.kinds import ARRAY_DTYPES, BATCH

if TYPE_CHECKING:
    from bespoke.config import Training


def own(value: Any, subject: str) -> PlanValue:
    """`value` if it is one of a plan, else PlanError."""
    if not isinstance(value, PlanValue):
        raise PlanError(
            subject,
            got=f"an operand of type {type(value).__name__}",
            expected="values of this builder, in dicts, lists and tuples",
            next_step="Give numbers by name (**static), or as b.constant or b.scalar",
        )
    return value


def whole(value: Value, subject: str) -> PlanValue:
    """`value` if it is a value of a plan and no row range of one, else PlanError."""
    checked = own(value, subject)
    if checked.start is not None:
        raise PlanError(
            f"{subject} of '{checked.name}'",
            got="some of its rows",
            expected="a whole value",
            next_step="Return the rows from a call and give that value",
        )
    return checked


def check_group(group: str, groups: Sequence[str]) -> None:
    if group not in groups:
        raise PlanError(
            f"Group '{group}'",
            got="a name that the model lacks",
            expected=f"one of {', '.join(groups)}",
            next_step="Take the names of model.blocks",
        )


def check_array(name: str, dtype: str) -> None:
    if not name.isidentifier() or name in BATCH or dtype not in ARRAY_DTYPES:
        raise wrong_array(name, dtype)


def wrong_array(name: str, got: str) -> PlanError:
    return PlanError(
        f"Array '{name}'",
        got=got,
        expected=f"a name that Python takes, other than {', '.join(BATCH)}, and one of {' or '.join(ARRAY_DTYPES)}",
        next_step="Ask for one dtype under one name",
    )


def check_accumulates(training: Training, like: Value) -> None:
    if not training.accumulates:
        raise PlanError(
            f"Accumulator of '{like.name}'",
            got="a training without accumulation or clipping, whose steps have no micro-batches",
            expected="b.training.accumulates",
            next_step="Use b.zeros for a sum within the step, or let bespoke.methods.update decide",
        )


def check_places(function: str, results: Sequence[str], into: Collection[str], add_to: Collection[str]) -> None:
    """Raises PlanError unless `into` and `add_to` name results of the function, each once."""
    for path in (*into, *add_to):
        if path not in results or (path in into and path in add_to):
            raise PlanError(
                f"Call of '{function}'",
                got=f"{'two places' if path in results else 'a place'} for a result '{path}'",
                expected=f"one place for one of its results: {', '.join(results)}",
                next_step="Give `into` and `add_to` in the form of the function's result",
            )
