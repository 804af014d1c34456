# SPDX-License-Identifier: Apache-2.0
"""Graphs of plans for tiny models, with the operands that a real step gives them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import torch

from bespoke import plugins
from bespoke.graph.trace import Graph
from bespoke.plan.instructions import Plan
from bespoke.testing.options import option_sets
from bespoke.testing.rig import Case, Function, run_answers, run_method
from bespoke.testing.target import CASES, CHUNK
from bespoke.testing.tiny import shared_tracer

Recorded = dict[str, tuple[Graph, tuple[torch.Tensor, ...]]]
"""By key: the graph, and the operands of its first call."""


def recorded(methods: Iterable[str], cases: Sequence[Case] = CASES, answers: bool = True) -> Recorded:
    """Graphs of the plans of these methods and of the plan for answers."""
    found: Recorded = {}
    recording = partial(functions, found=found)
    for method in methods:
        optimizer = plugins.get("optimizer", method)
        for options in option_sets(optimizer):
            for case in cases:
                run_method(optimizer, options, case, recording)
    for name in dict.fromkeys(case.model_name for case in cases) if answers else ():
        run_answers(name, CHUNK, recording)
    return found


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
