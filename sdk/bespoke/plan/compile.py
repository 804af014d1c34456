# SPDX-License-Identifier: Apache-2.0
"""From recorded data flow to a plan: loads and frees, a place for every value, and the memory it takes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from bespoke.plan.arena import aligned, place
from bespoke.plan.costs import Costs, Speed, Workspace
from bespoke.plan.draft import DraftPlan, DraftValue
from bespoke.plan.instructions import (
    PLAN_VERSION,
    SECTION_SINCE,
    Arena,
    Call,
    Estimate,
    Free,
    GraphRef,
    Instruction,
    Load,
    Named,
    Number,
    Place,
    Plan,
    Scratch,
    SectionName,
    ValueRecord,
    tensor_bytes,
)
from bespoke.plan.liveness import checkpoints, intervals, with_loads_and_frees, without_needless_zeros
from bespoke.plan.replay import is_replayable

WEIGHT_HEADER_BYTES = 16384  # of a group's file, before its tensors
TRAINING_SECTIONS: tuple[SectionName, ...] = ("train_step", "micro_step", "apply_step")
STEP_SECTIONS: tuple[SectionName, ...] = (
    *TRAINING_SECTIONS,
    "prefill",
    "decode",
)  # whose work and time a plan is judged by


@dataclass(frozen=True)
class LiveSections:
    """Sections with loads and frees, and the checkpoints in them. They do not depend on which checkpoints are spilled."""

    sections: dict[SectionName, list[Instruction]]
    waiting: dict[SectionName, dict[int, int]]


def with_liveness(draft: DraftPlan) -> LiveSections:
    sections, waiting = {}, {}
    for name, code in draft.sections.items():
        sections[name] = with_loads_and_frees(without_needless_zeros(code, draft.values), draft.values)
        waiting[name] = checkpoints(sections[name], draft.values)
    return LiveSections(sections, waiting)


def compile_plan(
    draft: DraftPlan,
    live: LiveSections,
    costs: Costs,
    *,
    method: str,
    sequence_length: int,
    batch_size: int,
    choices: Mapping[str, int | str | bool],
    spilled: Collection[int] = (),
    workspaces: Mapping[str, Workspace] | None = None,
) -> Plan:
    """The plan with the checkpoints `spilled` in the scratch file. `workspaces`: measured ones, by graph key."""
    places: dict[int, Arena | Scratch] = {}
    arena_bytes = scratch_bytes = 0
    for name, code in live.sections.items():
        lifetimes = intervals(code, draft.values)
        placed, arena, scratch = place(lifetimes, draft.values, live.waiting[name].keys(), spilled)
        places |= placed
        arena_bytes, scratch_bytes = max(arena_bytes, arena), max(scratch_bytes, scratch)
    graphs = graph_refs(draft, costs, workspaces or {})
    step = [code for name, code in live.sections.items() if name in STEP_SECTIONS]
    session = _bytes_of(draft.values, "session")
    taken = largest_workspace(live, graphs, draft, costs)
    records = len(draft.values) + sum(len(code) for code in live.sections.values())
    copies = copied_weights(live, draft.values) if costs.copies_weights else 0
    constant = costs.constant_bytes + costs.record_bytes * records + copies
    estimate = Estimate(
        arena_bytes=arena_bytes,
        workspace_bytes=taken.workspace_bytes,
        engine_bytes=taken.engine_bytes,
        constant_bytes=constant,
        step_bytes=_bytes_of(draft.values, "step"),
        state_bytes=_bytes_of(draft.values, "state"),
        session_bytes=session,
        scratch_bytes=scratch_bytes,
        peak_bytes=arena_bytes + sum(taken) + constant + session,
        work_flops=sum(draft.graphs[i.graph].flops for code in step for i in code if isinstance(i, Call)),
    )
    return Plan(
        version=[PLAN_VERSION[0], max((SECTION_SINCE.get(name, 0) for name in live.sections), default=0)],
        method=method,
        sequence_length=sequence_length,
        batch_size=batch_size,
        replayable=is_replayable(live.sections.get("train_step", []), [value.role for value in draft.values]),
        choices=dict(choices),
        estimate=estimate,
        graphs=graphs,
        values=[_record(value, places.get(number)) for number, value in enumerate(draft.values)],
        sections=live.sections,
    )


def graph_refs(draft: DraftPlan, costs: Costs, measured: Mapping[str, Workspace]) -> list[GraphRef]:
    """Graphs with their workspaces: measured, else estimated."""
    refs = []
    for graph in draft.graphs:
        estimated = Workspace(costs.workspace_bytes(graph))
        refs.append(GraphRef(key=graph.key, name=graph.name, **measured.get(graph.key, estimated)._asdict()))
    return refs


def largest_workspace(live: LiveSections, graphs: Sequence[GraphRef], draft: DraftPlan, costs: Costs) -> Workspace:
    """The largest workspace of a call, without its operands, for each region."""
    workspace = engine = temporaries = 0
    for code in live.sections.values():
        for call in code:
            if isinstance(call, Call):
                workspace = max(workspace, graphs[call.graph].workspace_bytes)
                engine = max(engine, graphs[call.graph].engine_bytes)
                if costs.results_in_place:
                    temporaries = max(temporaries, _added_bytes(call, draft))
    return Workspace(workspace + temporaries, engine)


def copied_weights(live: LiveSections, values: Sequence[DraftValue]) -> int:
    """The most bytes of loaded groups and the group that is loaded next: its copy begins when they are there."""
    sizes: dict[str, int] = {}
    for value in values:
        if value.group is not None:
            sizes[value.group] = sizes.get(value.group, WEIGHT_HEADER_BYTES) + value.nbytes
    most = 0
    for code in live.sections.values():
        loads = [instruction.group for instruction in code if isinstance(instruction, Load)]
        following = iter([*loads[1:], *loads[:1]])  # after the last one comes the next step's first
        held = 0
        for instruction in code:
            if isinstance(instruction, Load):
                held += sizes[instruction.group]
                most = max(most, held + sizes[next(following)])
            elif isinstance(instruction, Free) and instruction.group is not None:
                held -= sizes[instruction.group]
    return most


def _added_bytes(call: Call, draft: DraftPlan) -> int:
    """Bytes of the results of a call that are added to values."""
    outputs = draft.graphs[call.graph].outputs
    added = (number for number, result in enumerate(call.results) if result.how == "add_to")
    return sum(aligned(tensor_bytes(*outputs[number])) for number in added)


def step_seconds(draft: DraftPlan, speed: Speed, spilled: Collection[int] = ()) -> float:
    """Time of a training step by the formula of `speed`; for answers, of a chunk of the prompt and a token."""
    graphs = [
        graph.flops / speed.flops_per_second + graph.traffic_bytes / speed.bytes_per_second + speed.call_seconds
        for graph in draft.graphs
    ]
    total = 0.0
    for name in STEP_SECTIONS:
        for call in draft.sections.get(name, ()):
            if isinstance(call, Call):
                total += graphs[call.graph]
    return total + sum(draft.values[value].nbytes for value in spilled) / speed.scratch_bytes_per_second


def _bytes_of(values: Sequence[DraftValue], lifetime: str) -> int:
    return sum(aligned(value.nbytes) for value in values if value.lifetime == lifetime)


def _record(value: DraftValue, placed: Arena | Scratch | None) -> ValueRecord:
    where: Place
    if value.number is not None:
        where = Number(kind="number", number=value.number)
    elif placed is not None:
        where = placed
    else:
        where = Named(kind="named", name=value.name)
    return ValueRecord(
        shape=list(value.shape), dtype=value.dtype, role=value.role, lifetime=value.lifetime, place=where
    )
