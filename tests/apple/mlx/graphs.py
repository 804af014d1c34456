# SPDX-License-Identifier: Apache-2.0
"""Graphs to compile, by the target `mlx`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch

from bespoke import plugins
from bespoke.graph.trace import Graph
from bespoke.testing.options import option_sets
from bespoke.testing.rig import Case, planned, planned_answers
from bespoke.testing.tiny import shared_tracer
from bespoke_plugins.targets.mlx.vendor import load_mlx

MODELS = ("plain", "normed")  # Qwen-like with separate head; Gemma-like
METHODS = ("mesp", "mebp", "mezo")


@cache
def graphs_of(method: str, model: str) -> tuple[Graph, ...]:
    """Those of its plans, with pairs of answers and without."""
    optimizer = plugins.get("optimizer", method)
    plans = [planned(optimizer, options, Case.of(model, 7, 2)) for options in option_sets(optimizer)]
    keys = dict.fromkeys(reference.key for plan in plans for reference in plan.graphs)
    return tuple(shared_tracer().graphs[key] for key in keys)


@cache
def graphs_for_answers(model: str) -> tuple[Graph, ...]:
    return tuple(shared_tracer().graphs[reference.key] for reference in planned_answers(model, 7).graphs)


def compiled(graph: Graph, folder: Path, **options: Any) -> Path:
    target = plugins.get("target", "mlx")
    return Path(target.lower(graph, folder, target.Options(**options)).path)


def computed(graph: Graph, folder: Path, operands: list[torch.Tensor], **options: Any) -> tuple[torch.Tensor, ...]:
    """What the compiled graph gives."""
    load_mlx()
    target = plugins.get("target", "mlx")
    function = target.open(compiled(graph, folder, **options), target.Options(**options))
    assert function is not None
    return tuple(function(*operands))
