# SPDX-License-Identifier: Apache-2.0
"""A target that cannot compile a graph ends a build with the names of those that can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from bespoke.compiler.lower import lower
from bespoke.contracts import TORCH_COSTS, Baked, Settings, Target
from bespoke.errors import Unsupported
from bespoke.graph.trace import Graph, Tracer
from bespoke.graph.tree import flatten
from bespoke.graph.value import PlanValue


class WithoutSine(Target):
    name = "without_sine"
    costs = TORCH_COSTS
    Options = Settings

    def lower(self, graph: Graph, folder: Path, options: Any, baked: Baked | None = None) -> Any:
        raise Unsupported(
            f"graph '{graph.name}', operator aten.sin", got="sin", expected="no sin", next_step="Write it otherwise"
        )

    def open(self, path: Path, options: Any) -> None:
        return None


def sine(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x)


def test_the_error_names_the_installed_targets_that_can(tmp_path: Path) -> None:
    leaves, form = flatten((PlanValue(0, (2, 3), "float32", "temporary", "x"),))
    graph, _ = Tracer().trace(sine, leaves, form, {})
    with pytest.raises(Unsupported) as caught:
        lower(WithoutSine(), None, graph, tmp_path)
    assert caught.value.subject == "graph 'sine', operator aten.sin"
    assert "Write it otherwise. Targets that can compile this graph: executorch" in caught.value.next_step
