# SPDX-License-Identifier: Apache-2.0
"""The contract suite of targets, on the graphs of small plans: call `check_target` from the plugin's own tests."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bespoke import plugins
from bespoke.compiler.baking import quantized_operands
from bespoke.config import Settings
from bespoke.contracts import Artifact, Baked, Target
from bespoke.core.finding import find
from bespoke.errors import PluginError, Unsupported
from bespoke.graph.trace import Graph, TensorSpec
from bespoke.graph.tree import flatten
from bespoke.plan.instructions import Plan
from bespoke.testing.artifact_files import Lowering
from bespoke.testing.artifact_results import Comparison
from bespoke.testing.options import Fail, checked_options, option_sets
from bespoke.testing.rig import Case, Function, run_answers, run_method
from bespoke.testing.run import check_run
from bespoke.testing.tiny import shared_tracer

CASES = (Case.of("plain", 7, 2), Case.of("normed", 9, 2, accumulation=2, clip_norm=0.5))
CHUNK = 7  # tokens of a prompt
RARE_OPERATOR = "special_bessel_j0"
KEYS_OF_A_GRAPH = 2  # with weights baked into them


@dataclass(frozen=True)
class TargetReport:
    """The result of `check_target`.

    Args:
        name: the target's name.
        lowered: how many artifacts it compiled.
        unsupported: refusals of graphs.
        opened: how many artifacts opened on this machine.
        error: the largest relative error of a result.
        run_steps: steps of the run by the device core, 0 where nothing here computes for the target.
    """

    name: str
    lowered: int
    unsupported: tuple[Unsupported, ...]
    opened: int
    error: float
    run_steps: int


def check_target(
    target: Target,
    options: Settings | None = None,
    *,
    optimizers: Sequence[str] | None = None,
    partial: bool = False,
    tolerance: float = 1e-4,
) -> TargetReport:
    """Checks a target against its contract and returns a report. Raises PluginError, or the target's own Unsupported.

    Runs each artifact that opens here with the operands of a real step. Whole numbers must be equal. If the target rounds, the
    index of a largest value may differ if the traced graph's index also changes when its operands move by `tolerance` of their
    size. If all artifacts open here and a method promises exact gradients, the suite also takes the 250 steps of a run, by the
    device core as a process or by `open`. The run is killed after a slot and must end like an uninterrupted run. For a target
    without artifacts, the suite checks name, costs, options and such a run.

    Args:
        target: the target to check.
        options: its options; by default those of `Options()`.
        optimizers: names of the methods whose plans give the graphs, for tiny models. By default all that are installed and import.
        partial: whether graphs may be refused with Unsupported. Set it for a target that cannot compile every method.
        tolerance: largest error of a result, relative to the result's largest value. Raise it for a target that rounds.
    """
    subject = f"target '{getattr(target, 'name', type(target).__name__)}'"

    def fail(got: str, expected: str, next_step: str) -> PluginError:
        return PluginError(subject, got=got, expected=expected, next_step=next_step)

    options = checked_options(target, "target", options, fail)
    if not target.compiles:
        return TargetReport(target.name, 0, (), 0, 0.0, _run_steps(target, options, optimizers, fail))
    with tempfile.TemporaryDirectory() as folder:
        folders = [Path(folder) / "a", Path(folder) / "another folder" / "b"]
        for place in folders:
            place.mkdir(parents=True)
        graphs = _Graphs(target, options, fail, tolerance, folders)
        graphs.check_rare()
        for name in _installed_optimizers() if optimizers is None else optimizers:
            optimizer = plugins.get("optimizer", name)
            for method_options in option_sets(optimizer):
                for case in CASES:
                    run_method(optimizer, method_options, case, graphs.functions_of)
        for model_name in dict.fromkeys(case.model_name for case in CASES):
            run_answers(model_name, CHUNK, graphs.functions_of)
    refused = tuple(graphs.refused.values())
    if refused and not partial:
        raise refused[0]
    whole = not refused and graphs.opened == graphs.lowered
    steps = _run_steps(target, options, optimizers, fail) if whole else 0
    return TargetReport(target.name, graphs.lowered, refused, graphs.opened, graphs.comparison.error, steps)


def _installed_optimizers() -> list[str]:
    return [
        name.removeprefix("optimizer ")
        for entry in plugins.installed()
        for name in entry.provides
        if name.startswith("optimizer ")
    ]


def _run_steps(target: Target, options: Settings, names: Sequence[str] | None, fail: Fail) -> int:
    """Steps of a run by the first method with exact gradients: such a run always makes its examples likelier."""
    optimizers = (plugins.get("optimizer", name) for name in (_installed_optimizers() if names is None else names))
    optimizer = next((each for each in optimizers if each.promises == "exact_gradients"), None)
    if optimizer is None or find().library is None:
        return 0
    return check_run(optimizer, optimizer.Options(), fail, target=(target, options))


class _Graphs:
    """Runs plans. Compiles each graph that they call for the first time, and compares its first call with the artifact."""

    def __init__(
        self, target: Target, options: Settings, fail: Fail, tolerance: float, folders: Sequence[Path]
    ) -> None:
        self.refused: dict[str, Unsupported] = {}
        self.opened = self.lowered = 0
        self.comparison = Comparison(fail, tolerance, rounds=target.rounding(options) > 0)
        self._target, self._options, self._fail = target, options, fail
        self._lowering = Lowering(target, options, fail, folders)
        self._functions: dict[str, Function] = {}

    def check_rare(self) -> None:
        """Compiles a graph with a rare operator. The target must compile it correctly or refuse it correctly."""

        def rare_operator(x: torch.Tensor) -> tuple[torch.Tensor]:
            return (getattr(torch.ops.aten, RARE_OPERATOR).default(x),)

        operand = TensorSpec("x", (3,), "float32")
        leaves, form = flatten((operand,))
        graph, _ = shared_tracer().trace(rare_operator, leaves, form, {})
        artifact = self._lowering.lower(graph)
        if isinstance(artifact, Artifact) and (program := self._open(artifact)) is not None:
            self.comparison.compare(graph, program, (torch.tensor([0.0, 0.5, 2.0]),))

    def _open(self, artifact: Artifact) -> Callable[..., Any] | None:
        program = self._target.open(artifact.path, self._options)
        if program is not None and not callable(program):
            raise self._fail(
                f"{program!r} from open", "a function of the graph's operands, or None", "Return a callable"
            )
        return program

    def functions_of(self, plan: Plan) -> list[Function]:
        graphs = shared_tracer().graphs
        return [self._function(graphs[reference.key]) for reference in plan.graphs]

    def _function(self, graph: Graph) -> Function:
        """The traced graph. Its first call is compared with the artifact."""
        if self._target.bakes(self._options, graph) and quantized_operands(graph):
            return self._baking(graph)
        if graph.key in self._functions or graph.key in self.refused:
            return graph.module
        artifact = self._lowering.lower(graph)
        if isinstance(artifact, Unsupported):
            self.refused[graph.key] = artifact
            return graph.module
        self.lowered += 1
        self._functions[graph.key] = graph.module
        program = self._open(artifact)
        if program is None:
            return graph.module
        self.opened += 1
        compared = False

        def function(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
            nonlocal compared
            if not compared:
                compared = True
                self.comparison.compare(graph, program, operands)
            return graph.module(*operands)

        return function

    def _baking(self, graph: Graph) -> Function:
        """The traced graph. Calls with the first few sets of weights are compared with artifacts of these weights."""
        positions = {operand.weight for operand in quantized_operands(graph)}
        positions |= {op.column_start for op in quantized_operands(graph) if op.column_start is not None}
        keys: set[str] = set()

        def function(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
            arrays = {graph.inputs[at].name: operands[at].numpy() for at in sorted(positions)}
            key = hashlib.sha256(
                graph.key.encode() + b"".join(array.tobytes() for array in arrays.values())
            ).hexdigest()
            new = key not in self._lowering.artifacts and graph.key not in self.refused
            if new and len(keys) < KEYS_OF_A_GRAPH:
                keys.add(key)
                artifact = self._lowering.lower(graph, Baked(key, arrays))
                if isinstance(artifact, Unsupported):
                    self.refused[graph.key] = artifact
                else:
                    self.lowered += 1
                    program = self._open(artifact)
                    self.opened += program is not None
                    if program is not None:
                        self.comparison.compare(graph, program, operands, positions)
            return graph.module(*operands)

        return function
