# SPDX-License-Identifier: Apache-2.0
"""The suite of targets finds what is broken: a target for each promise that it breaks."""

from __future__ import annotations

import os
import pickle
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

from bespoke.contracts import TORCH_COSTS, Artifact, Baked, Costs, Graph, Settings, Target, Unsupported
from bespoke.errors import PluginError
from bespoke.graph.trace import TensorSpec, Tracer
from bespoke.graph.tree import flatten
from bespoke.testing import check_target
from bespoke.testing.artifact_results import Comparison, unstable

METHOD = "mebp"


class Options(Settings):
    """None."""


class Whole(Target):
    """Keeps the graph in memory, and writes its name."""

    name = "whole"
    Options = Options
    costs: Any = TORCH_COSTS

    def __init__(self) -> None:
        self.modules: dict[str, Any] = {}

    def content(self, graph: Graph, folder: Path) -> bytes:
        return graph.key.encode()

    def file(self, graph: Graph, folder: Path) -> Path:
        return folder / f"{graph.key}.bin"

    def lower(self, graph: Graph, folder: Path, options: Any, baked: Baked | None = None) -> Artifact:
        path = self.file(graph, folder)
        path.write_bytes(self.content(graph, folder))
        self.modules[path.name] = graph.module
        return Artifact(path, 0)

    def open(self, path: Path, options: Any) -> Any:
        return self.modules[path.name]


class Free(Whole):
    costs = Costs(constant_bytes=-1)


class Uncounted(Whole):
    costs = 4_000_000


class Dated(Whole):
    def content(self, graph: Graph, folder: Path) -> bytes:
        return os.urandom(8)


class Pathed(Whole):
    def content(self, graph: Graph, folder: Path) -> bytes:
        return str(folder).encode() if folder.name == "a" else str(folder.parents[1] / "a").encode()


class Pickled(Whole):
    def content(self, graph: Graph, folder: Path) -> bytes:
        return pickle.dumps({"graph": graph.key})


class Elsewhere(Whole):
    def file(self, graph: Graph, folder: Path) -> Path:
        return folder.parent / f"{graph.key}.bin"


class OneName(Whole):
    def file(self, graph: Graph, folder: Path) -> Path:
        return folder / "graph.bin"


class Litters(Whole):
    def lower(self, graph: Graph, folder: Path, options: Any, baked: Baked | None = None) -> Artifact:
        (folder / f"{graph.key}.log").write_text("compiled")
        return super().lower(graph, folder, options)


class Wrong(Whole):
    def open(self, path: Path, options: Any) -> Any:
        return lambda *operands: tuple(result + 1 for result in self.modules[path.name](*operands))


class Overwrites(Whole):
    def open(self, path: Path, options: Any) -> Any:
        return lambda *operands: (operands[0].zero_(), self.modules[path.name](*operands))[1]


class Fails(Whole):
    def lower(self, graph: Graph, folder: Path, options: Any, baked: Baked | None = None) -> Artifact:
        raise RuntimeError("internal compiler error")


class Mutters(Whole):
    def lower(self, graph: Graph, folder: Path, options: Any, baked: Baked | None = None) -> Artifact:
        raise Unsupported("Target 'whole'", got="something", expected="something else", next_step="Try again")


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (Free, "costs = "),
        (Uncounted, "costs = 4000000"),
        (Dated, "that differ"),
        (Pathed, "path of the build folder"),
        (Pickled, "a pickle"),
        (Elsewhere, "a plain file in"),
        (OneName, "of another graph"),
        (Litters, "next to the artifact"),
        (Wrong, "off by"),
        (Overwrites, "written to"),
        (Fails, "RuntimeError while compiling graph"),
        (Mutters, "names graph 'rare_operator' and the operator"),
    ],
)
def test_the_error_says_what_is_wrong_with_a_target(broken: type[Whole], words: str) -> None:
    with pytest.raises(PluginError, match=words) as caught:
        check_target(broken(), optimizers=[METHOD])
    assert all((caught.value.subject, caught.value.got, caught.value.expected, caught.value.next_step))


@pytest.mark.parametrize("rounds", [0.0, 1e-3])
def test_an_index_of_a_value_that_is_not_the_largest_is_found_out(rounds: float) -> None:
    """One of them, also of a target that rounds."""

    class Rounds(Whole):
        def rounding(self, options: Any) -> float:
            return rounds

        def open(self, path: Path, options: Any) -> Any:
            return lambda *operands: tuple(map(self.other, self.modules[path.name](*operands)))

        def other(self, result: torch.Tensor) -> torch.Tensor:
            if result.is_floating_point():
                return result
            return result + (torch.arange(result.numel()).view_as(result) < 1)

    with pytest.raises(PluginError, match=r"1 other numbers of \d+ as .* of graph 'head"):
        check_target(Rounds(), optimizers=[METHOD])


@pytest.mark.parametrize(("rounds", "passes"), [(0.0, False), (1e-3, True)])
def test_of_two_nearly_equal_values_a_target_that_rounds_may_find_either_the_largest(
    rounds: float, passes: bool
) -> None:
    class Rounds(Whole):
        def rounding(self, options: Any) -> float:
            return rounds

        def open(self, path: Path, options: Any) -> Any:
            return lambda x: (torch.tensor([1, 1, 0]),)

    x = torch.tensor([[1.0, 1.0 - 1e-5], [0.5, 2.0], [0.0, -1.0]])  # the first row is nearly a tie
    leaves, form = flatten((TensorSpec("x", (3, 2), "float32"),))
    graph, _ = Tracer().trace(lambda x: (x.argmax(1),), leaves, form, {})
    assert unstable(graph.module, [x], 0, 1e-4).tolist() == [True, False, False]
    target = Rounds()
    comparison = Comparison(failed, 1e-4, rounds=rounds > 0)
    with nullcontext() if passes else pytest.raises(PluginError, match="1 other numbers of 3"):
        comparison.compare(graph, target.open(Path("x"), target.Options()), [x])


def failed(got: str, expected: str, next_step: str) -> PluginError:
    return PluginError("target 'whole'", got=got, expected=expected, next_step=next_step)
