# SPDX-License-Identifier: Apache-2.0
"""Graphs of plans for tiny models, with the operands that a real step gives them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from bespoke import plugins
from bespoke.config import Settings
from bespoke.contracts import Optimizer
from bespoke.errors import ConfigError
from bespoke.graph.trace import Graph
from bespoke.plan.instructions import Plan
from bespoke.testing.options import option_sets
from bespoke.testing.rig import AnswerRig, Case, Function, Rig, planned, planned_answers
from bespoke.testing.target import CASES, CHUNK
from bespoke.testing.tiny import as_pairs, shared_tracer, tiny_adapter, tiny_batch, tiny_models

Recorded = dict[str, tuple[Graph, tuple[torch.Tensor, ...]]]
"""By key: the graph, and the operands of its first call."""


def recorded(methods: Iterable[str], cases: Sequence[Case] = CASES, answers: bool = True) -> Recorded:
    """Graphs of the plans of these methods and of the plan for answers."""
    found: Recorded = {}
    for method in methods:
        optimizer = plugins.get("optimizer", method)
        for options in option_sets(optimizer):
            for case in cases:
                _train(optimizer, options, case, found)
    for name in dict.fromkeys(case.model_name for case in cases) if answers else ():
        plan = planned_answers(name, CHUNK)
        rig = AnswerRig(name, plan, functions(plan, found))
        rig.buffers.fill(tiny_adapter(name))
        rig.generate(tiny_batch(tiny_models()[name], 1, CHUNK).tokens)
    return found


def _train(optimizer: Optimizer, options: Settings, case: Case, found: Recorded) -> None:
    try:
        plan = planned(optimizer, options, case)
    except ConfigError:  # a method that does not accumulate
        case = Case.of(case.model_name, case.length, case.rows)
        plan = planned(optimizer, options, case)
    rig = Rig(case, plan, optimizer, options, functions(plan, found))
    rig.buffers.fill(tiny_adapter(case.model_name))
    batches = [as_pairs(rig.batch(seed)) for seed in (0, 1)]
    rig.step(batches if case.training.accumulates else batches[:1], step=1, learning_rate=1e-3)
    rig.evaluate(batches[0])


def functions(plan: Plan, found: Recorded) -> list[Function]:
    """The plan's graphs as traced; what their first calls are given goes into `found`."""
    return [_recording(shared_tracer().graphs[reference.key], found) for reference in plan.graphs]


def _recording(graph: Graph, found: Recorded) -> Function:
    def function(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found.setdefault(graph.key, (graph, tuple(operand.clone() for operand in operands)))
        results: tuple[torch.Tensor, ...] = graph.module(*operands)
        return results

    return function


def distance(results: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    """The largest difference between results, each in terms of its largest value."""
    worst = 0.0
    for one, other in zip(results, expected, strict=True):
        if other.numel():
            a, b = (value.double().numpy() for value in (one, other))
            worst = max(worst, float(np.abs(a - b).max() / (np.abs(b).max() or 1.0)))
    return worst
