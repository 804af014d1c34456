# SPDX-License-Identifier: Apache-2.0
"""Functions compiled for ExecuTorch and run in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from bespoke import plugins
from bespoke.graph.trace import DTYPE_NAMES, Graph, TensorSpec, Tracer
from bespoke.graph.tree import flatten
from bespoke.testing.options import option_sets
from bespoke.testing.rig import Case, planned
from bespoke.testing.tiny import shared_tracer


def graphs_of(method: str, model: str) -> list[Graph]:
    """Graphs of a method's plans for a tiny model, with pairs of answers and without."""
    optimizer = plugins.get("optimizer", method)
    plans = [planned(optimizer, options, Case.of(model, 7, 2)) for options in option_sets(optimizer)]
    keys = dict.fromkeys(reference.key for plan in plans for reference in plan.graphs)
    return [shared_tracer().graphs[key] for key in keys]


def traced(function: Callable[..., Any], operands: Sequence[torch.Tensor], name: str = "function") -> Graph:
    function.__name__ = name
    specs = [TensorSpec(f"operand_{n}", tuple(t.shape), DTYPE_NAMES[t.dtype]) for n, t in enumerate(operands)]
    leaves, form = flatten(tuple(specs))
    return Tracer().trace(function, leaves, form, {})[0]


def run(data: bytes, *calls: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """What a program gives for each of the calls, one after the other."""
    from executorch.extension.pybindings import portable_lib

    module = portable_lib._load_for_executorch_from_buffer(data)
    return [list(module.run_method("forward", tuple(operands))) for operands in calls]


def read(data: bytes) -> Any:
    """What `forward` of a program is, by ExecuTorch's own reader."""
    from executorch.exir._serialize._program import deserialize_pte_binary

    plans = {plan.name: plan for plan in deserialize_pte_binary(data).program.execution_plan}
    return plans["forward"]


def kernels_of(data: bytes) -> set[str]:
    return {f"{operator.name}.{operator.overload}" for operator in read(data).operators}
