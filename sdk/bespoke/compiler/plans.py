# SPDX-License-Identifier: Apache-2.0
"""Plans a bundle within the budget, for the costs of its first target. Reports estimates and a dial."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from bespoke.compiler.estimate import DialPoint, PlanEstimate, RunEstimate
from bespoke.compiler.generation import GenerationPlanner, generation_requests
from bespoke.compiler.plan_request import PlanRequest, training_request
from bespoke.compiler.planner import Planned, Planner, Recorded, remeasured
from bespoke.compiler.request import BuildListener, BuildRequest
from bespoke.errors import PlanDoesNotFit
from bespoke.graph.trace import OF_THIS_PROCESS, Graph, Tracer
from bespoke.model.architecture import ModelConfig
from bespoke.model.spec import ModelSpec
from bespoke.plan.kinds import GENERATION
from bespoke.plan.same_state import state_shapes
from bespoke.rules.run_length import shortest_run
from bespoke.rules.run_writes import most_written, tensor_file_bytes

if TYPE_CHECKING:
    from bespoke.plan.costs import Costs, Workspace

DEFAULT_CONTEXT = 1024  # rows of the KV cache
MAX_ROUNDS = 6  # most rounds of planning; a target may measure other workspaces than were estimated

Subject = tuple[str, int | None]
"""Method and sequence length. `ANSWERS` is the plan whose length follows from the budget."""
ANSWERS: Subject = (GENERATION, None)
AnyPlanner = Planner | GenerationPlanner
Compile = Callable[[Sequence[Graph]], Mapping[str, "Workspace"]]
"""Compiles the graphs that are not compiled yet. Returns the workspaces of all graphs so far, by key."""


class Key(NamedTuple):
    """A plan of a bundle: method, sequence length, and bytes of the budget."""

    method: str
    length: int | None
    budget: int | None


class Plans:
    """The planners of a bundle, and the graphs that they have traced so far."""

    def __init__(self, request: BuildRequest, model: ModelSpec) -> None:
        self._request = request
        self._model = model
        self.tracer = Tracer(traced=OF_THIS_PROCESS)
        self._planners: tuple[frozenset[tuple[str, Workspace]], dict[Subject, AnyPlanner]] | None = None
        self._recorded: defaultdict[tuple[str, int], Recorded] = defaultdict(dict)

    @property
    def costs(self) -> Costs:
        """The costs of the first target, which the bundle is planned for."""
        costs: Costs = self._request.targets[0].plugin.costs
        return costs

    @property
    def bakes(self) -> bool:
        """Whether any target bakes weights. All targets run the same plans, and a baking one compiles each call for itself."""
        return any(target.plugin.bakes(target.options) for target in self._request.targets)

    @property
    def budgets(self) -> tuple[int | None, ...]:
        """Budgets in bytes, the largest first."""
        budget = self._request.budget
        return (budget.memory_bytes, *budget.smaller_bytes)

    def planners(self, workspaces: Mapping[str, Workspace] | None = None) -> dict[Subject, AnyPlanner]:
        """A planner for each method and sequence length, and a planner of answers. `workspaces`: measured so far, by graph key.

        The last ones are given again where nothing more has been measured, since they know their forecasts already.
        """
        measured = frozenset((workspaces or {}).items())
        if self._planners is None or self._planners[0] != measured:
            self._planners = measured, self._new_planners(workspaces)
        return self._planners[1]

    def _new_planners(self, workspaces: Mapping[str, Workspace] | None) -> dict[Subject, AnyPlanner]:
        context = context_length(self._request, self._model.config)
        methods, lengths = self._request.methods, self._request.sequence_lengths
        planners: dict[Subject, AnyPlanner] = {}
        for method in methods:
            for length in lengths:
                request = training_request(method, length, context, self.costs, bakes=self.bakes)
                planners[method.name, length] = self._planner(request, workspaces)
        rows = {method.training.batch_size * length for method in methods for length in lengths}
        answers = generation_requests(
            context, self.costs, bakes=self.bakes, rows=rows, draft_tokens=self._request.draft_tokens
        )
        planners[ANSWERS] = GenerationPlanner([self._planner(request, workspaces) for request in answers])
        return planners

    def _planner(self, request: PlanRequest, workspaces: Mapping[str, Workspace] | None) -> Planner:
        recorded = self._recorded[request.method, request.sequence_length]
        return Planner(request, self._model, self.tracer, workspaces, recorded)

    def estimated(self, progress: BuildListener) -> dict[Key, Planned]:
        """Plans by workspaces estimated from the graphs, before anything is compiled. If none seems to fit, the smallest."""
        planners, planned = self.planners(), {}
        keys = _keys(planners, self.budgets)
        for done, (key, planner) in enumerate(keys.items()):
            progress("plans", done, len(keys))
            try:
                planned[key] = planner.plan(key.budget)
            except PlanDoesNotFit:
                planned[key] = planner.smallest()
        progress("plans", len(keys), len(keys))
        return planned

    def fitted(self, planned: dict[Key, Planned], compiled: Compile) -> dict[Key, Planned]:
        """Plans that fit with measured workspaces. Planning is repeated until all graphs that they use are measured."""
        compiled(self.graphs(planned))
        if self.budgets == (None,):
            return planned
        return self._settled(compiled, lambda planner, budget: planner.plan(budget), self.budgets)

    def _settled(
        self,
        compiled: Compile,
        choose: Callable[[AnyPlanner, int | None], Planned],
        budgets: Sequence[int | None] = (None,),
    ) -> dict[Key, Planned]:
        """Plans chosen by measured workspaces. The choice is repeated until all graphs that they use are measured.

        Before a refusal, the smallest and the fastest plan that it names are measured too.
        """
        measured = compiled([])
        for _ in range(MAX_ROUNDS):
            planned, ends, refusal, needed = {}, {}, None, 0
            for key, planner in _keys(self.planners(measured), budgets).items():
                try:
                    planned[key] = choose(planner, key.budget)
                except PlanDoesNotFit as error:
                    planned[key], ends[key] = planner.smallest(), planner.plan(None)
                    if planned[key].peak > needed:  # the budget that the error names is then enough for the others
                        refusal, needed = error, planned[key].peak
            graphs = self.graphs(planned) + self.graphs(ends)
            if all(graph.key in measured for graph in graphs):
                if refusal is not None:
                    raise refusal
                return planned
            measured = compiled(graphs)
        raise PlanDoesNotFit(
            f"Target '{self._request.targets[0].name}'",
            got=f"other workspaces than were estimated, {MAX_ROUNDS} times",
            expected="plans that fit as measured",
            next_step="Raise the budget a little",
        )

    def graphs(self, planned: Mapping[Key, Planned]) -> list[Graph]:
        """The graphs that plans use, in the order of their keys."""
        keys = {graph.key for p in planned.values() for graph in p.plan.graphs}
        return [self.tracer.graphs[key] for key in sorted(keys)]

    def estimates(self, planned: Mapping[Key, Planned], compiled: Compile) -> tuple[PlanEstimate, ...]:
        """Each plan of a bundle with the plan of least memory and the fastest one, all with measured workspaces."""
        least, fastest = self._ends(compiled)
        measured = compiled([])
        estimates = []
        for key, estimated in planned.items():
            plan = remeasured(estimated, self.costs, measured)
            ends = key._replace(budget=None)
            estimates.append(
                PlanEstimate(
                    plan.method,
                    plan.sequence_length,
                    key.budget,
                    plan.choices,
                    plan.estimate,
                    estimated.seconds,
                    least[ends].plan.estimate,
                    fastest[ends].plan.estimate,
                )
            )
        return tuple(estimates)

    def run_estimates(self, planned: Mapping[Key, Planned]) -> tuple[RunEstimate, ...]:
        """Bytes that a run of each method writes. All plans of a method share one state."""
        lora = self._model.lora
        pieces = self._model.config.adapter_shapes(lora)
        adapter = tensor_file_bytes({name: shape for name, shape in pieces.items() if lora.trains(name)})
        estimates = []
        for method in self._request.methods:
            plan = next(planned[key].plan for key in planned if key.method == method.name)
            slot = tensor_file_bytes(state_shapes(plan))
            written = most_written(slot, adapter, method.training, replayable=plan.replayable)
            steps = shortest_run(method.training)
            estimates.append(RunEstimate(method.name, steps, written, 0 if plan.replayable else slot))
        return tuple(estimates)

    def _ends(self, compiled: Compile) -> tuple[dict[Key, Planned], dict[Key, Planned]]:
        return (
            self._settled(compiled, lambda planner, _: planner.smallest()),
            self._settled(compiled, lambda planner, _: planner.plan(None)),
        )

    def dial(self, budgets: Sequence[int], compiled: Compile) -> tuple[DialPoint, ...]:
        """The plan for each budget. The smallest and the fastest plan are measured, and correct the estimates of the others."""
        self._ends(compiled)
        points = []
        for (method, _), planner in self.planners(compiled([])).items():
            for budget in budgets:
                try:
                    planned = planner.plan(budget)
                except PlanDoesNotFit:
                    least = planner.smallest().plan
                    points.append(DialPoint(method, least.sequence_length, budget, None, None, {}))
                    continue
                plan = planned.plan
                points.append(
                    DialPoint(method, plan.sequence_length, budget, plan.estimate, planned.seconds, plan.choices)
                )
        return tuple(points)


def context_length(request: BuildRequest, config: ModelConfig) -> int:
    if request.context is not None:
        return request.context
    return max(request.sequence_lengths[-1], min(DEFAULT_CONTEXT, config.max_positions))


def _keys(planners: Mapping[Subject, AnyPlanner], budgets: Sequence[int | None]) -> dict[Key, AnyPlanner]:
    """All plans that a bundle has, those of the largest budget first."""
    return {Key(*of, budget): planner for budget in budgets for of, planner in planners.items()}
