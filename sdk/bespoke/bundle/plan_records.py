# SPDX-License-Identifier: Apache-2.0
"""Manifest records of methods and their plans."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from bespoke.bundle.fields import MAX_COUNT, Bytes, FileName, Name, OptionValue
from bespoke.config import Settings, Training, as_tuple
from bespoke.plan.instructions import Estimate

__all__ = ["MethodRecord", "PlanRecord", "SmallerGenerationRecord", "SmallerPlansRecord"]


class PlanRecord(Settings):
    """The plan of a method for one sequence length, or the plan for answers."""

    sequence_length: int = Field(
        ge=1,
        le=MAX_COUNT,
        description="positions of a batch row; in the plan for answers, tokens of a chunk of the prompt",
    )
    file: FileName = Field(description="the plan")
    estimate: Estimate = Field(description="its memory and work")
    choices: dict[Name, OptionValue] = Field(
        max_length=256, description="choices of the planner, by the builder's names"
    )


class SmallerPlansRecord(Settings):
    """Plans of a method for a smaller budget. Weights and state are the same, so a run may continue with them."""

    memory_bytes: Bytes = Field(description="budget that the plans fit")
    plans: Annotated[tuple[PlanRecord, ...], BeforeValidator(as_tuple)] = Field(
        min_length=1, max_length=64, description="a plan for each sequence length, shortest first"
    )


class SmallerGenerationRecord(Settings):
    """The plan for answers for a smaller budget."""

    memory_bytes: Bytes = Field(description="budget that the plan fits")
    plan: PlanRecord = Field(description="the plan")


class MethodRecord(Settings):
    """A method: an optimizer plugin with its options, lowered to plans."""

    name: Name = Field(description="name of the optimizer plugin")
    training: Training = Field(description="settings of a run with this method, all of them resolved")
    options: dict[Name, OptionValue] = Field(max_length=256, description="options of the plugin, all of them resolved")
    scalars: dict[Name, float] = Field(max_length=256, description="numbers that the engine binds by name in each step")
    replayable: bool = Field(description="whether a journal of a few bytes a step replaces the adapter")
    plans: Annotated[tuple[PlanRecord, ...], BeforeValidator(as_tuple)] = Field(
        min_length=1, max_length=64, description="a plan for each sequence length, shortest first"
    )
    smaller_plans: Annotated[tuple[SmallerPlansRecord, ...], BeforeValidator(as_tuple)] = Field(
        default=(), max_length=64, description="plans for each smaller budget, the largest first"
    )

    @property
    def variants(self) -> tuple[tuple[int | None, MethodRecord], ...]:
        """(None, this record), then for each smaller budget (bytes, this record with the plans for that budget)."""
        variants = (
            (smaller.memory_bytes, self.model_copy(update={"plans": smaller.plans})) for smaller in self.smaller_plans
        )
        return ((None, self), *variants)
