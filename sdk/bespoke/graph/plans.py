# SPDX-License-Identifier: Apache-2.0
"""All plans of a bundle: made for the costs of its first target, held against the budget, told as estimates and as a dial."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from bespoke.errors import PlanDoesNotFit
from bespoke.graph.planner import Planned, Planner, Request
from bespoke.graph.trace import Graph, Tracer
from bespoke.model.config import ModelConfig
from bespoke.model.spec import ModelSpec
from bespoke.personalizer import DialPoint, Personalizer, PlanEstimate, Progress

if TYPE_CHECKING:
    from bespoke.plan.compile import Costs, Workspace

CONTEXT_FACTOR = 2  # rows of the KV cache for each position of the longest plan
MAX_ROUNDS = 6  # plans made anew because a target measured other workspaces than were told

Key = tuple[str, int]
"""Method and sequence length."""


class Plans:
    """The planners of a bundle, and the graphs that they have traced so far."""

    def __init__(self, personalizer: Personalizer, model: ModelSpec) -> None:
        self._personalizer = personalizer
        self._model = model
        self.tracer = Tracer()

    @property
    def costs(self) -> Costs:
        """Of the first target: what the bundle is planned for."""
        found: Costs = self._personalizer.targets[0].plugin.costs
        return found

    @property
    def budget(self) -> int | None:
        return self._personalizer.budget.memory_bytes

    def planners(self, workspaces: Mapping[str, Workspace] | None = None) -> dict[Key, Planner]:
        """One for each method and sequence length, by what targets have measured."""
        context = context_length(self._personalizer, self._model.config)
        made = {}
        for method in self._personalizer.methods:
            for length in sorted(method.training.sequence_lengths):
                request = Request(
                    method.name, method.plugin, method.options, method.training, length, context, self.budget, self.costs
                )
                made[method.name, length] = Planner(request, self._model, self.tracer, workspaces)
        return made

    def told(self, progress: Progress) -> dict[Key, Planned]:
        """By what is told from the graphs, before anything is compiled."""
        planners, planned = self.planners(), {}
        for done, (key, planner) in enumerate(planners.items()):
            progress("plans", done, len(planners))
            planned[key] = planner.plan(self.budget)
        progress("plans", len(planners), len(planners))
        return planned

    def fitted(
        self, planned: dict[Key, Planned], compiled: Callable[[Sequence[Graph]], Mapping[str, Workspace]]
    ) -> dict[Key, Planned]:
        """Held against the budget again with measured workspaces, and made anew until what they use is measured and fits.

        `compiled` compiles graphs that it has not met and gives the workspaces of all that it has, by key.
        """
        measured = compiled(self.graphs(planned))
        if self.budget is None:
            return planned
        for _ in range(MAX_ROUNDS):
            planned = {key: planner.plan(self.budget) for key, planner in self.planners(measured).items()}
            if all(graph.key in measured for graph in self.graphs(planned)):
                return planned
            measured = compiled(self.graphs(planned))
        raise PlanDoesNotFit(
            f"Target '{self._personalizer.targets[0].name}'", got=f"other workspaces than were told, {MAX_ROUNDS} times",
            expected=f"plans that fit {self.budget / 1e6:.1f} MB as measured", next_step="Raise the budget a little",
        )  # fmt: skip

    def graphs(self, planned: Mapping[Key, Planned]) -> list[Graph]:
        """Those that plans use, by key."""
        keys = {graph.key for p in planned.values() for graph in p.plan.graphs}
        return [self.tracer.graphs[key] for key in sorted(keys)]

    def estimates(self) -> tuple[PlanEstimate, ...]:
        """Each plan within the budget, between the one of least memory and the fastest."""
        found = []
        for planner in self.planners().values():
            planned, least, fastest = planner.plan(self.budget), planner.smallest(), planner.plan(None)
            plan = planned.plan
            found.append(
                PlanEstimate(
                    plan.method, plan.sequence_length, plan.choices, plan.estimate, planned.seconds, least.plan.estimate,
                    fastest.plan.estimate,
                )
            )
        return tuple(found)

    def dial(self, budgets: Sequence[int]) -> tuple[DialPoint, ...]:
        """What each budget buys."""
        found = []
        for (method, length), planner in self.planners().items():
            for budget in budgets:
                try:
                    planned = planner.plan(budget)
                except PlanDoesNotFit:
                    found.append(DialPoint(method, length, budget, None, None, {}))
                    continue
                plan = planned.plan
                found.append(DialPoint(method, length, budget, plan.estimate, planned.seconds, plan.choices))
        return tuple(found)


def context_length(personalizer: Personalizer, config: ModelConfig) -> int:
    longest = max(personalizer.methods[0].training.sequence_lengths)
    return max(longest, min(CONTEXT_FACTOR * longest, config.max_positions))
