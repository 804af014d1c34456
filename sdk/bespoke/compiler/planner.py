# SPDX-License-Identifier: Apache-2.0
"""The planner: chooses among the candidates of `b.choose` the fastest plan that fits the budget.

Speed comes from a formula, not from a clock, so two builds choose alike (`plan.costs.Speed`). Plans grow linearly with the number
of blocks, so models of two and three blocks show what each candidate costs. The chosen plan is then made for the whole model and
checked.

A choice with more candidates in a deeper model is a count of blocks that keep something. Spare memory goes to the count that saves
most time for a byte, then to the next. Where memory is short nothing is kept, and the checkpoints that wait longest go to the
scratch file.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from bespoke.compiler.plan_request import PlanRequest, record_sections
from bespoke.errors import PlanDoesNotFit, PlanError
from bespoke.graph.builder import PlanBuilder
from bespoke.graph.trace import Tracer
from bespoke.model.spec import ModelSpec
from bespoke.plan.compile import LiveSections, compile_plan, step_seconds, with_liveness
from bespoke.plan.costs import Costs, Workspace
from bespoke.plan.draft import DraftPlan
from bespoke.plan.instructions import Plan
from bespoke.remedies import setting

MAX_COMBINATIONS = 4096
MAX_TRIES = 8  # combinations that are planned for the whole model, and plans of one combination to use a budget up
GOOD_TRIES = 2  # combinations that are planned for the whole model where they fit: their forecasts are not exact
Choices = dict[str, Any]
Recorded = dict[tuple[Any, ...], tuple[PlanBuilder, LiveSections]]
"""Drafts of shallow models by their depth and choices. They do not depend on workspaces, so planners of one request share them."""


@dataclass(frozen=True)
class Planned:
    """A plan, with its draft for compiling it again once workspaces are measured. `seconds`: time of a step by the formula."""

    plan: Plan
    draft: DraftPlan
    live: LiveSections
    spilled: frozenset[int]
    seconds: float

    @property
    def peak(self) -> int:
        return self.plan.estimate.peak_bytes


@dataclass(frozen=True)
class _Figures:
    """Costs of a combination when nothing is kept and every checkpoint is in the scratch file."""

    seconds: float
    arena: float
    workspace: float
    engine: float
    constant: float
    session: float
    waiting: float  # what the arena grows by with the checkpoints

    def at_depth(self, deeper: _Figures, more: int) -> _Figures:
        """`more` blocks more, where one more gives `deeper`."""
        mine, theirs = vars(self), vars(deeper)
        return _Figures(**{name: mine[name] + more * (theirs[name] - mine[name]) for name in mine})


@dataclass(frozen=True)
class _Count:
    """Memory that one more block of a count takes, and time that it saves."""

    limit: int
    bytes: float
    seconds: float


@dataclass(frozen=True)
class _Prospect:
    """A combination and its forecast. `smallest`: its peak with nothing kept and all checkpoints in the scratch file."""

    choices: Choices
    counts: dict[str, int]
    seconds: float
    smallest: float


class Planner:
    """Plans one method at one sequence length, for any number of budgets.

    Args:
        request: what to plan.
        model: the whole model.
        tracer: keeps the graphs.
        workspaces: measured so far, by graph key. None: all are estimated.
        recorded: the drafts of earlier planners of the same request, which this one adds to.
    """

    def __init__(
        self,
        request: PlanRequest,
        model: ModelSpec,
        tracer: Tracer,
        workspaces: Mapping[str, Workspace] | None = None,
        recorded: Recorded | None = None,
    ) -> None:
        self.request = request
        self._model = model
        self._tracer = tracer
        self._workspaces = workspaces or {}
        self._recorded = {} if recorded is None else recorded
        deep = min(3, len(model.blocks))
        self._shallow = [_first_blocks(model, count) for count in (max(1, deep - 1), deep)]
        self._more = len(model.blocks) - len(self._shallow[0].blocks)

    def plan(self, budget_bytes: int | None) -> Planned:
        """The fastest plan within the budget, by default the fastest of all. Raises PlanDoesNotFit."""
        if budget_bytes is None or self._fastest.peak <= budget_bytes:
            return self._fastest
        fitting: list[Planned] = []
        for number, prospect in enumerate(self._prospects(budget_bytes)[:MAX_TRIES]):
            if fitting and number >= GOOD_TRIES:
                break
            planned = self._within(prospect, budget_bytes)
            fitting += [planned] if planned is not None else []
        if fitting:
            return min(fitting, key=lambda planned: (bool(planned.spilled), planned.seconds, planned.peak))
        smallest = self.smallest()
        if smallest.peak <= budget_bytes:
            return smallest
        raise self._does_not_fit(budget_bytes, smallest)

    @cached_property
    def _fastest(self) -> Planned:
        best = self._prospects(None)[0]
        return self._whole({**best.choices, **best.counts}, None)

    def smallest(self) -> Planned:
        """The plan of the least memory: small tiles, nothing kept, every checkpoint in the scratch file."""
        least = min(self._combinations(), key=lambda p: (p.smallest, p.seconds))
        return self._whole(least.choices, 0)

    def _does_not_fit(self, budget_bytes: int, smallest: Planned) -> PlanDoesNotFit:
        fastest = self._fastest
        figures = [
            f"{p.peak / 1e6:.1f} MB at {p.plan.estimate.work_flops / 1e9:.2f} GFLOP a step" for p in (smallest, fastest)
        ]
        return PlanDoesNotFit(
            self.request.subject,
            got=f"a budget of {budget_bytes / 1e6:.1f} MB",
            expected=f"at least {figures[0]}, the smallest plan that it has; the fastest takes {figures[1]}",
            next_step="Set "
            + setting("budget.memory_mb", -(-smallest.peak // 100_000) / 10)
            + f", {self.request.way_out}",
        )

    # ---- forecasts of combinations ---------------------------------------------------------------------------------------

    @cached_property
    def _candidates(self) -> tuple[dict[str, tuple[Any, ...]], dict[str, int]]:
        """Candidates of ordinary choices by name, and the most that counts may be."""
        two, three = (record_sections(self.request, model, self._tracer, {}).candidates for model in self._shallow)
        counts = {name: len(three[name]) - 1 for name in three if len(three[name]) != len(two[name])}
        first = -1 if self.request.bakes else 0
        return {name: candidates[first:] for name, candidates in three.items() if name not in counts}, counts

    def _figures(self, choices: Choices, model: ModelSpec) -> _Figures:
        builder, live = self._record(model, choices)
        e, held = (self._compiled(builder, live, spilled).plan.estimate for spilled in (None, ()))
        return _Figures(
            step_seconds(builder.draft, self.request.costs.speed),
            e.arena_bytes,
            e.workspace_bytes,
            e.engine_bytes,
            e.constant_bytes,
            e.session_bytes,
            held.arena_bytes - e.arena_bytes,
        )

    def _at_depth(self, choices: Choices) -> _Figures:
        two, three = (self._figures(choices, model) for model in self._shallow)
        return two.at_depth(three, self._more)

    @cached_property
    def _counts(self) -> dict[str, _Count]:
        """Counts by name, the one that saves most for a byte first."""
        deep = self._shallow[1]
        without = self._figures({}, deep)
        counts = {}
        for name, most in self._candidates[1].items():
            kept, live = self._record(deep, {name: most})
            planned = self._compiled(kept, live, ())
            size = sum(value.nbytes for value in kept.draft.values if value.kept) / most
            counts[name] = _Count(len(self._model.blocks), max(1.0, size), (without.seconds - planned.seconds) / most)
        return dict(sorted(counts.items(), key=lambda item: -item[1].seconds / item[1].bytes))

    @cached_property
    def _parts(self) -> tuple[_Figures, dict[tuple[str, Any], _Figures]]:
        """Figures of the combination of first candidates, and of those that differ from it in one choice."""
        first = self._at_depth({})
        others = {
            (name, candidate): self._at_depth({name: candidate})
            for name, candidates in self._candidates[0].items()
            for candidate in candidates[1:]
        }
        return first, others

    def _combinations(self) -> Iterator[_Prospect]:
        """All combinations with nothing kept. Choices affect different calls: times add up, and the largest memory counts."""
        candidates = self._candidates[0]
        if math.prod(map(len, candidates.values())) > MAX_COMBINATIONS:
            raise PlanError(
                f"Method '{self.request.method}'",
                got=f"{math.prod(map(len, candidates.values()))} combinations of {', '.join(candidates)}",
                expected=f"at most {MAX_COMBINATIONS}",
                next_step="Leave fewer candidates to b.choose",
            )
        first, others = self._parts
        for combination in itertools.product(*candidates.values()):
            choices = dict(zip(candidates, combination, strict=True))
            parts = [first, *(others[item] for item in choices.items() if item in others)]
            regions = ("arena", "workspace", "engine", "constant", "session")
            memory = sum(max(getattr(part, name) for part in parts) for name in regions)
            seconds = first.seconds + sum(part.seconds - first.seconds for part in parts)
            yield _Prospect(choices, {}, seconds, memory)

    def _prospects(self, budget_bytes: int | None) -> list[_Prospect]:
        """Combinations that should fit, the fastest first. Those that need the scratch file come last, since flash wears."""
        limit = math.inf if budget_bytes is None else budget_bytes
        waiting = self._parts[0].waiting
        prospects = []
        for prospect in self._combinations():
            room = limit - prospect.smallest - waiting
            if room < -waiting:
                continue
            seconds, counts = prospect.seconds + max(0.0, -room) / self.request.costs.speed.scratch_bytes_per_second, {}
            for name, count in self._counts.items():
                counts[name] = int(min(count.limit, max(0.0, room) // count.bytes)) if count.seconds > 0 else 0
                room -= counts[name] * count.bytes
                seconds -= counts[name] * count.seconds
            prospects.append(_Prospect(prospect.choices, counts, seconds, prospect.smallest))
        return sorted(prospects, key=lambda p: (p.smallest + waiting > limit, p.seconds, p.smallest))

    # ---- whole plans -------------------------------------------------------------------------------------------------------

    def _within(self, prospect: _Prospect, budget_bytes: int) -> Planned | None:
        """The plan of a prospect, with counts corrected by the memory of the whole model."""
        counts, best = dict(prospect.counts), None
        tried: list[dict[str, int]] = []
        while counts not in tried and len(tried) < MAX_TRIES:
            tried.append(dict(counts))
            planned = self._whole({**prospect.choices, **counts}, budget_bytes)
            if planned.peak <= budget_bytes:
                best = planned if best is None or planned.seconds < best.seconds else best
                if planned.spilled:
                    break
            counts = self._corrected(counts, budget_bytes - planned.peak)
        return best

    def _corrected(self, counts: dict[str, int], room: int) -> dict[str, int]:
        """More blocks where there is room, fewer where there is not. The first count is lowered last."""
        corrected = dict(counts)
        for name in self._counts if room >= 0 else reversed(self._counts):
            count = self._counts[name]
            if name in corrected and count.seconds > 0:
                corrected[name] = min(count.limit, max(0, corrected[name] + math.floor(room / count.bytes)))
                room -= int((corrected[name] - counts[name]) * count.bytes)
                if corrected[name] < counts[name] and room > -count.bytes:
                    break
        return corrected

    def _whole(self, choices: Choices, budget_bytes: int | None) -> Planned:
        """The plan of the whole model. Without a count above 0, checkpoints go to the scratch file until the budget is met."""
        builder, live = self._record(self._model, choices)
        planned = self._compiled(builder, live, ())
        if budget_bytes is None or planned.peak <= budget_bytes or any(value.kept for value in builder.draft.values):
            return planned
        spillable = _spillable(builder.draft, live)
        spilled: list[int] = []
        while planned.peak > budget_bytes and len(spilled) < len(spillable):
            over = planned.peak - budget_bytes
            for value in spillable[len(spilled) :]:
                spilled.append(value)
                over -= builder.draft.values[value].nbytes
                if over <= 0:
                    break
            planned = self._compiled(builder, live, spilled)
        return planned

    def _record(self, model: ModelSpec, choices: Choices) -> tuple[PlanBuilder, LiveSections]:
        firsts = {name: candidates[0] for name, candidates in self._candidates[0].items()}
        made = {**firsts, **choices}
        key = (len(model.blocks), *sorted(made.items()))
        if key in self._recorded:
            return self._recorded[key]
        builder = record_sections(self.request, model, self._tracer, made)
        recorded = builder, with_liveness(builder.draft)
        if model in self._shallow:
            self._recorded[key] = recorded
        return recorded

    def _compiled(self, builder: PlanBuilder, live: LiveSections, spilled: Collection[int] | None) -> Planned:
        """A plan with these checkpoints in the scratch file; None: all of them."""
        draft, request = builder.draft, self.request
        chosen = frozenset(_spillable(draft, live) if spilled is None else spilled)
        plan = compile_plan(
            draft,
            live,
            request.costs,
            method=request.method,
            sequence_length=request.sequence_length,
            batch_size=request.training.batch_size,
            choices=builder.choices,
            spilled=chosen,
            workspaces=self._measured(draft),
        )
        return Planned(plan, draft, live, chosen, step_seconds(draft, request.costs.speed, chosen))

    def _measured(self, draft: DraftPlan) -> dict[str, Workspace]:
        """Workspaces by graph key, as a target measured them. Estimates of other graphs are scaled by those that were measured."""
        if not self._workspaces:
            return {}
        estimated = {key: self.request.costs.workspace_bytes(graph) for key, graph in self._tracer.graphs.items()}
        met = [(self._workspaces[key], estimated[key]) for key in self._workspaces if key in estimated]
        whole = max(1, sum(size for _, size in met))
        shares = [sum(sizes) / whole for sizes in zip(*(measured for measured, _ in met), strict=True)]
        return {
            graph.key: self._workspaces.get(graph.key)
            or Workspace(*(int(estimated[graph.key] * share) for share in shares))
            for graph in draft.graphs
        }


def _spillable(draft: DraftPlan, live: LiveSections) -> list[int]:
    """Checkpoints that may go to the scratch file, the one that waits longest first.

    Not the values that one block hands to the next, nor those that are recorded or received, which the runtime finds in the arena.
    """
    waits = {value: wait for section in live.waiting.values() for value, wait in section.items() if wait > 1}
    spillable = (value for value in waits if not draft.values[value].kept and draft.values[value].role == "temporary")
    return sorted(spillable, key=lambda value: (-waits[value], value))


def _first_blocks(model: ModelSpec, count: int) -> ModelSpec:
    return ModelSpec(model.config.model_copy(update={"num_layers": count}), model.lora)


def remeasured(planned: Planned, costs: Costs, workspaces: Mapping[str, Workspace]) -> Plan:
    """The same plan with workspaces that a target measured, by graph key."""
    plan = planned.plan
    return compile_plan(
        planned.draft,
        planned.live,
        costs,
        method=plan.method,
        sequence_length=plan.sequence_length,
        batch_size=plan.batch_size,
        choices=plan.choices,
        spilled=planned.spilled,
        workspaces=workspaces,
    )
