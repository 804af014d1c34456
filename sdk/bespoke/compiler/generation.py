# SPDX-License-Identifier: Apache-2.0
"""The plan for answers. It prefills prompts in chunks, the longest for which a plan fits the budget."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from bespoke.compiler.plan_request import PlanRequest
from bespoke.compiler.planner import Planned, Planner
from bespoke.config import Training
from bespoke.errors import PlanDoesNotFit
from bespoke.graph.builder import PlanBuilder
from bespoke.methods.sections import decode, decode_rows, prefill
from bespoke.model.spec import ModelSpec
from bespoke.plan.costs import Costs
from bespoke.plan.kinds import GENERATION

__all__ = ["GenerationPlanner", "generation_request", "generation_requests"]

CHUNKS = (128, 64, 32, 16)  # a longer chunk reads the weights less often and holds more rows at once


def generation_request(
    chunk: int, context_length: int, costs: Costs, *, bakes: bool = False, draft_tokens: int = 0
) -> PlanRequest:
    """The request for answers with prompts in chunks of this many tokens, and with guesses of up to `draft_tokens` tokens."""

    def write(b: PlanBuilder, model: ModelSpec) -> None:
        prefill(b, model)
        decode(b, model)
        if draft_tokens:
            decode_rows(b, model, 1 + draft_tokens)

    return PlanRequest(
        GENERATION,
        write,
        Training(batch_size=1),
        chunk,
        context_length,
        costs,
        subject=f"The plan for answers in chunks of {chunk} tokens, with a context of {context_length}",
        way_out="lower the context",
        bakes=bakes,
    )


def generation_requests(
    context_length: int, costs: Costs, *, bakes: bool = False, rows: Collection[int] = (), draft_tokens: int = 0
) -> list[PlanRequest]:
    """A request for each length of a chunk within the context, the longest first.

    `rows`: numbers of rows that methods compute at once. A target that bakes weights has programs for these anyway, as large as
    the weights. A chunk of as many tokens uses the same programs, except attention of batches of several sequences.
    """
    chunks = [length for length in CHUNKS if length <= context_length] or [context_length]
    shared = max((count for count in rows if CHUNKS[-1] <= count <= chunks[0]), default=None)
    if bakes and shared is not None:
        chunks = [shared, *(length for length in chunks if length < shared)]
    return [
        generation_request(chunk, context_length, costs, bakes=bakes, draft_tokens=draft_tokens) for chunk in chunks
    ]


class GenerationPlanner:
    """A `Planner` of answers, over planners for chunks of several lengths, the longest first."""

    def __init__(self, planners: Sequence[Planner]) -> None:
        self._planners = planners

    def plan(self, budget_bytes: int | None) -> Planned:
        """The fastest plan of the longest chunk that fits. PlanDoesNotFit names the smallest peak of the shortest one."""
        for planner in self._planners[:-1]:
            try:
                return planner.plan(budget_bytes)
            except PlanDoesNotFit:
                continue
        return self._planners[-1].plan(budget_bytes)

    def smallest(self) -> Planned:
        return self._planners[-1].smallest()
