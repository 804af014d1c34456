# SPDX-License-Identifier: Apache-2.0
"""From recorded data flow to a plan: loads and frees, a place for every value, and the memory it takes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from bespoke.plan.arena import aligned, place
from bespoke.plan.draft import DraftPlan, DraftValue
from bespoke.plan.instructions import (
    PLAN_VERSION,
    Arena,
    Call,
    Estimate,
    GraphRef,
    Instruction,
    Named,
    Number,
    Place,
    Plan,
    Scratch,
    SectionName,
    ValueRecord,
)
from bespoke.plan.liveness import checkpoints, intervals, with_loads_and_frees, without_needless_zeros
from bespoke.plan.replay import is_replayable

TRAINING_SECTIONS: tuple[SectionName, ...] = ("train_step", "micro_step", "apply_step")


@dataclass(frozen=True)
class Costs:
    """What a target adds to what the plan knows: a factor on estimated workspaces, and what it holds whatever it runs, as a
    measured constant and so much for each value and instruction of the plan."""

    workspace_factor: float
    constant_bytes: int
    record_bytes: int = 0


@dataclass(frozen=True)
class Scheduled:
    """Sections with loads and frees. What does not depend on which checkpoints are spilled."""

    sections: dict[SectionName, list[Instruction]]
    waiting: dict[SectionName, dict[int, int]]


def schedule(draft: DraftPlan) -> Scheduled:
    sections, waiting = {}, {}
    for name, code in draft.sections.items():
        sections[name] = with_loads_and_frees(without_needless_zeros(code, draft.values), draft.values)
        waiting[name] = checkpoints(sections[name], draft.values)
    return Scheduled(sections, waiting)


def compile_plan(
    draft: DraftPlan, scheduled: Scheduled, costs: Costs, *, method: str, sequence_length: int, batch_size: int,
    choices: Mapping[str, int | str | bool], spilled: Collection[int] = (), workspaces: Mapping[str, int] | None = None,
) -> Plan:
    """The plan with the checkpoints `spilled` in scratch. `workspaces` are measured bytes by graph key, where there are any."""
    places: dict[int, Arena | Scratch] = {}
    arena_bytes = scratch_bytes = 0
    for name, code in scheduled.sections.items():
        live = intervals(code, draft.values)
        found, arena, scratch = place(live, draft.values, scheduled.waiting[name].keys(), spilled)
        places |= found
        arena_bytes, scratch_bytes = max(arena_bytes, arena), max(scratch_bytes, scratch)
    measured = workspaces or {}
    graphs = [
        GraphRef(
            key=graph.key,
            name=graph.name,
            workspace_bytes=measured.get(graph.key, int(graph.workspace_bytes * costs.workspace_factor)),
        )
        for graph in draft.graphs
    ]
    training = [code for name, code in scheduled.sections.items() if name in TRAINING_SECTIONS]
    workspace = max((g.workspace_bytes for g in graphs), default=0)
    records = len(draft.values) + sum(len(code) for code in scheduled.sections.values())
    constant = costs.constant_bytes + costs.record_bytes * records
    estimate = Estimate(
        arena_bytes=arena_bytes,
        workspace_bytes=workspace,
        constant_bytes=constant,
        step_bytes=_bytes_of(draft.values, "step"),
        state_bytes=_bytes_of(draft.values, "state"),
        session_bytes=_bytes_of(draft.values, "session"),
        scratch_bytes=scratch_bytes,
        peak_bytes=arena_bytes + workspace + constant,
        work_flops=sum(draft.graphs[i.graph].flops for code in training for i in code if isinstance(i, Call)),
    )
    return Plan(
        version=list(PLAN_VERSION),
        method=method,
        sequence_length=sequence_length,
        batch_size=batch_size,
        replayable=any(is_replayable(code, [v.role for v in draft.values]) for code in training),
        choices=dict(choices),
        estimate=estimate,
        graphs=graphs,
        values=[_record(value, places.get(number)) for number, value in enumerate(draft.values)],
        sections=scheduled.sections,
    )


def _bytes_of(values: Sequence[DraftValue], lifetime: str) -> int:
    return sum(aligned(value.nbytes) for value in values if value.lifetime == lifetime)


def _record(value: DraftValue, found: Arena | Scratch | None) -> ValueRecord:
    where: Place
    if value.number is not None:
        where = Number(kind="number", number=value.number)
    elif found is not None:
        where = found
    else:
        where = Named(kind="named", name=value.name)
    return ValueRecord(
        shape=list(value.shape), dtype=value.dtype, role=value.role, lifetime=value.lifetime, place=where
    )
