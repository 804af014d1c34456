# SPDX-License-Identifier: Apache-2.0
"""Chooses among plans: runs the method once per combination of what it leaves open, and keeps the fastest plan that fits.

Fast is judged by a model, not by a clock, so that two builds choose alike: floating-point operations, a fixed price for each call
and for each byte that goes to the scratch file.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bespoke.config import Training
from bespoke.errors import ConfigError, PlanDoesNotFit, PlanError
from bespoke.graph.builder import PlanBuilder
from bespoke.graph.sections import decode, evaluate_step, prefill
from bespoke.graph.trace import Tracer
from bespoke.model.spec import ModelSpec
from bespoke.plan.compile import TRAINING_SECTIONS, Costs, Scheduled, compile_plan, schedule
from bespoke.plan.draft import DraftPlan
from bespoke.plan.instructions import Call, Plan, Record

MAX_COMBINATIONS = 256
CALL_FLOPS = 2_000_000  # what a call costs beside its work: about 20 us at 100 GFLOP/s
SCRATCH_FLOPS_PER_BYTE = 100.0  # a byte written to and read back from a mapped file, at about 1 GB/s


@dataclass(frozen=True)
class Planned:
    """A plan with what is needed to make it again once workspaces are measured."""

    plan: Plan
    draft: DraftPlan
    scheduled: Scheduled
    spilled: frozenset[int]


@dataclass(frozen=True)
class Request:
    """What to plan for."""

    method: str
    optimizer: Any
    options: Any
    training: Training
    sequence_length: int
    context_length: int
    budget_bytes: int | None
    costs: Costs


def plan_method(request: Request, model: ModelSpec, tracer: Tracer) -> Planned:
    """The fastest plan of a method at one sequence length within the budget.

    Raises PlanDoesNotFit naming the smallest peak found, ConfigError for settings the method refuses.
    """
    smallest: Planned | None = None
    for choices in _ranked(request, model, tracer):
        for planned in _with_and_without_scratch(request, record_sections(request, model, tracer, choices)):
            if request.budget_bytes is None or planned.plan.estimate.peak_bytes <= request.budget_bytes:
                return planned
            if smallest is None or planned.plan.estimate.peak_bytes < smallest.plan.estimate.peak_bytes:
                smallest = planned
    assert smallest is not None
    assert request.budget_bytes is not None
    peak = smallest.plan.estimate.peak_bytes
    raise PlanDoesNotFit(
        f"Method '{request.method}' at sequence length {request.sequence_length}",
        got=f"a budget of {request.budget_bytes / 1e6:.1f} MB",
        expected=f"at least {peak / 1e6:.1f} MB, the smallest plan that it has ({smallest.plan.choices})",
        next_step=f"Set Budget(memory_mb={-(-peak // 100_000) / 10}), shorten the sequences or lower the batch size",
    )


@dataclass(frozen=True)
class _Prospect:
    """What a combination of choices should cost, told from models of two and of three blocks."""

    choices: dict[str, int | str | bool]
    price: float
    peak: float


def _ranked(request: Request, model: ModelSpec, tracer: Tracer) -> list[dict[str, int | str | bool]]:
    """Combinations to try, the fastest that should fit first, the smallest last.

    Plans grow linearly with the number of blocks, so small models rank them; whether one fits is then seen on the whole model.
    """
    shallow = [_first_blocks(model, count) for count in (2, 3)]
    first = record_sections(request, shallow[0], tracer, {})
    names = list(first.candidates)
    combinations = [dict(zip(names, c, strict=True)) for c in itertools.product(*first.candidates.values())]
    if len(combinations) > MAX_COMBINATIONS:
        raise PlanError(
            f"Method '{request.method}'",
            got=f"{len(combinations)} combinations of {', '.join(names)}",
            expected=f"at most {MAX_COMBINATIONS}",
            next_step="Leave fewer candidates to b.choose",
        )
    prospects: list[_Prospect] = []
    for choices in combinations:
        plans = [list(_with_and_without_scratch(request, record_sections(request, m, tracer, choices))) for m in shallow]
        for two, three in zip(*plans, strict=True):
            price, peak = _price(two), float(two.plan.estimate.peak_bytes)
            more = len(model.blocks) - len(shallow[0].blocks)
            peak += more * max(0.0, three.plan.estimate.peak_bytes - peak)
            prospects.append(_Prospect(choices, price + more * (_price(three) - price), peak))
    limit = float("inf") if request.budget_bytes is None else float(request.budget_bytes)
    fitting = sorted((p for p in prospects if p.peak <= limit), key=lambda p: (p.price, p.peak))
    tried = [prospect.choices for prospect in [*fitting[:8], min(prospects, key=lambda p: p.peak)]]
    return [choices for place, choices in enumerate(tried) if choices not in tried[:place]]


def _first_blocks(model: ModelSpec, count: int) -> ModelSpec:
    layers = min(count, model.config.num_layers)
    return ModelSpec(model.config.model_copy(update={"num_layers": layers}), model.lora)


def record_sections(request: Request, model: ModelSpec, tracer: Tracer, choices: Mapping[str, Any]) -> PlanBuilder:
    """The builder after the method and the SDK's own sections have written to it."""
    b = PlanBuilder(
        model, request.training, request.sequence_length, request.context_length, tracer, dict(choices)
    )
    request.optimizer.train_step(b, model, request.options)
    if request.training.accumulates:
        if any(isinstance(i, Record) for code in b.draft.sections.values() for i in code):
            raise ConfigError(
                f"training of method '{request.method}'",
                got=f"accumulation={request.training.accumulation}, clip_norm={request.training.clip_norm}",
                expected="accumulation=1 and clip_norm=None: the method keeps a journal of single steps",
                next_step=f"Override them in optimizers={{'{request.method}': {{...}}}}",
            )
        if "apply_step" not in b.draft.sections:
            raise PlanError(
                f"Method '{request.method}'",
                got="a step without section apply_step",
                expected="gradients handed to bespoke.graph.update, which accumulates and clips",
                next_step="Yield (adapter, gradients) to update, or set accumulation=1 and clip_norm=None",
            )
    evaluate_step(b, model)
    prefill(b, model)
    decode(b, model)
    return b


def _with_and_without_scratch(request: Request, builder: PlanBuilder) -> Iterator[Planned]:
    scheduled = schedule(builder.draft)
    choices = builder.choices
    waiting = frozenset(value for waits in scheduled.waiting.values() for value in waits)
    for spilled in (frozenset[int](), waiting):
        plan = compile_plan(
            builder.draft, scheduled, request.costs, method=request.method, sequence_length=request.sequence_length,
            batch_size=request.training.batch_size, choices=choices, spilled=spilled,
        )  # fmt: skip
        yield Planned(plan, builder.draft, scheduled, spilled)


def remeasured(planned: Planned, costs: Costs, workspaces: Mapping[str, int]) -> Plan:
    """The same plan with workspaces that a target measured, by graph key."""
    plan = planned.plan
    return compile_plan(
        planned.draft, planned.scheduled, costs, method=plan.method, sequence_length=plan.sequence_length,
        batch_size=plan.batch_size, choices=plan.choices, spilled=planned.spilled, workspaces=workspaces,
    )  # fmt: skip


def _price(planned: Planned) -> float:
    plan = planned.plan
    calls = sum(isinstance(i, Call) for name in TRAINING_SECTIONS for i in plan.sections.get(name, []))
    spilled = sum(planned.draft.values[value].nbytes for value in planned.spilled)
    return plan.estimate.work_flops + calls * CALL_FLOPS + spilled * SCRATCH_FLOPS_PER_BYTE
