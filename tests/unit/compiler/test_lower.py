# SPDX-License-Identifier: Apache-2.0
"""A target that cannot compile a graph ends a build with the names of those that can. A graph is compiled once in a process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bespoke.compiler.lower import lower
from bespoke.contracts import TORCH_COSTS, Artifact, Baked, Settings, Target
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


class Options(Settings):
    level: int = 0


class Counting(Target):
    """Counts what it compiles. Only the level of its options is in the artifact."""

    name = "counting"
    costs = TORCH_COSTS
    Options = Options

    def __init__(self) -> None:
        self.compiled = 0

    def lower(self, graph: Graph, folder: Path, options: Any, baked: Baked | None = None) -> Artifact:
        self.compiled += 1
        path = folder / f"{graph.name}.bin"
        path.write_bytes(bytes([options.level]))
        return Artifact(path, workspace_bytes=7)

    def open(self, path: Path, options: Any) -> None:
        return None


def sine(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x)


def cosine(x: torch.Tensor) -> torch.Tensor:
    return torch.cos(x)


def traced(function: Callable[[torch.Tensor], torch.Tensor]) -> Graph:
    leaves, form = flatten((PlanValue(0, (2, 3), "float32", "temporary", "x"),))
    graph, _ = Tracer().trace(function, leaves, form, {})
    return graph


def test_a_later_build_takes_the_artifact_of_an_earlier_one(tmp_path: Path) -> None:
    target, folders = Counting(), [tmp_path / name for name in ("first", "second", "other options", "other graph")]
    for folder in folders:
        folder.mkdir()
    first = lower(target, Options(level=1), traced(cosine), folders[0])
    first.path.write_bytes(b"changed")  # the first bundle may be edited
    second = lower(target, Options(level=1), traced(cosine), folders[1])
    assert (target.compiled, second) == (1, replace(first, path=folders[1] / "cosine.bin"))
    assert second.path.read_bytes() == bytes([1])
    assert lower(target, Options(level=2), traced(cosine), folders[2]).path.read_bytes() == bytes([2])
    lower(target, Options(level=1), traced(sine), folders[3])
    assert target.compiled == 3


def test_the_error_names_the_installed_targets_that_can(tmp_path: Path) -> None:
    with pytest.raises(Unsupported) as caught:
        lower(WithoutSine(), Settings(), traced(sine), tmp_path)
    assert caught.value.subject == "graph 'sine', operator aten.sin"
    assert "Write it otherwise. Targets that can compile this graph: executorch" in caught.value.next_step
