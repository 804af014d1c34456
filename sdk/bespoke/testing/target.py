# SPDX-License-Identifier: Apache-2.0
"""What every target plugin promises, checked on the graphs of small plans: call `check_target` from the plugin's own tests."""

from __future__ import annotations

import hashlib
import io
import tempfile
import zipfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bespoke import plugins
from bespoke.bundle.file_names import file_name_problem
from bespoke.compiler.baking import quantized_operands
from bespoke.config import Settings
from bespoke.contracts import Artifact, Baked, CompilingTarget, Optimizer, Target, bakes, rounding
from bespoke.core.finding import find
from bespoke.errors import ConfigError, PluginError, Unsupported
from bespoke.graph.trace import Graph, TensorSpec
from bespoke.graph.tree import flatten
from bespoke.plan.instructions import Plan
from bespoke.testing.options import checked_options
from bespoke.testing.rig import AnswerRig, Case, Function, Rig, planned, planned_answers
from bespoke.testing.run import check_run
from bespoke.testing.tiny import shared_tracer, tiny_adapter, tiny_batch, tiny_models

CASES = (Case.of("plain", 7, 2), Case.of("normed", 9, 2, accumulation=2, clip_norm=0.5))
CHUNK = 7  # tokens of a prompt
RARE_OPERATOR = "special_bessel_j0"
MOVES = 16  # of operands, to find indices that hang on rounding: one of two nearly equal values is missed once in 2^16
KEYS_OF_A_GRAPH = 2  # with weights baked into them


@dataclass(frozen=True)
class TargetReport:
    """What was found: artifacts compiled, graphs refused, how many could be opened here, the largest relative error, and the steps
    of the run by the device core, 0 where nothing here computes for the target."""

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
    """Holds a target to its contract and says what was found.

    Graphs come from the plans of `optimizers` (names; by default all that are installed and import) for tiny models. Each artifact
    that opens here is run with the operands that a real step gives it; results may be off by `tolerance` of their largest value.
    Whole numbers must be the same. Where the target says that it rounds, an index of a largest value may be another one if the
    traced graph itself gives another one there, when its operands are moved by `tolerance` of their size.
    Where all artifacts open here and one of the methods promises exact gradients, it takes the 250 steps of a run, too, by the
    device core as a process or by `open`: killed behind a slot, it must end as a run that nobody killed.
    `partial`: graphs may be refused with Unsupported. Of a target without artifacts (neither `lower` nor `open`), name, costs and
    options are all there is to check. Raises PluginError, or the target's own Unsupported.
    """
    check = _Check(target, options, tolerance)
    check.settings()
    if not isinstance(target, CompilingTarget):
        return TargetReport(target.name, 0, (), 0, 0.0, check.whole_run(optimizers))
    with tempfile.TemporaryDirectory() as folder:
        check.folders = [Path(folder) / "a", Path(folder) / "another folder" / "b"]
        for place in check.folders:
            place.mkdir(parents=True)
        check.rare()
        for name in _installed_optimizers() if optimizers is None else optimizers:
            optimizer = plugins.get("optimizer", name)
            for case in CASES:
                check.run(optimizer, case)
        for model_name in dict.fromkeys(case.model_name for case in CASES):
            check.answer(model_name)
    refused = tuple(check.refused.values())
    if refused and not partial:
        raise refused[0]
    ran = 0 if refused else check.whole_run(optimizers)
    return TargetReport(target.name, len(check.artifacts), refused, check.opened, check.error, ran)


def _installed_optimizers() -> list[str]:
    return [
        name.removeprefix("optimizer ")
        for entry in plugins.installed()
        for name in entry.provides
        if name.startswith("optimizer ")
    ]


class _Check:
    def __init__(self, target: Target, options: Settings | None, tolerance: float) -> None:
        self.target = target
        self.subject = f"target '{getattr(target, 'name', type(target).__name__)}'"
        self.tolerance = tolerance
        self.folders: list[Path] = []
        self.artifacts: dict[str, Artifact] = {}
        self.functions: dict[str, Function] = {}
        self.refused: dict[str, Unsupported] = {}
        self.opened = 0
        self.error = 0.0
        self._given = options

    @property
    def options(self) -> Settings:
        assert self._given is not None
        return self._given

    def fail(self, got: str, expected: str, next_step: str) -> PluginError:
        return PluginError(self.subject, got=got, expected=expected, next_step=next_step)

    def settings(self) -> None:
        """A name, costs, options whose defaults are complete, and an error for an option that there is none of."""
        self._given = checked_options(self.target, "target", self._given, self.fail)

    @property
    def compiling(self) -> CompilingTarget:
        """The target, which has artifacts."""
        assert isinstance(self.target, CompilingTarget)
        return self.target

    # ---- lower ---------------------------------------------------------------------------------------------------------------

    def lower(self, graph: Graph, baked: Baked | None = None) -> Artifact | Unsupported:
        """Compiles into two folders, which must come out alike; a refusal must say what it is about."""
        more = [] if baked is None else [baked]
        compiled: Callable[..., Any] = self.compiling.lower
        found = []
        for folder in self.folders:
            before = {path.name for path in folder.iterdir()}
            try:
                artifact = compiled(graph, folder, self.options, *more)
            except Unsupported as refusal:
                self._check_refusal(graph, refusal)
                return refusal
            except Exception as error:
                raise self.fail(
                    f"{type(error).__name__} while compiling graph '{graph.name}': {str(error)[:300]}",
                    "an artifact, or bespoke.contracts.Unsupported",
                    "Raise Unsupported naming graph, operator and reason",
                ) from error
            new = {path.name for path in folder.iterdir()} - before
            self._check_artifact((graph if baked is None else baked).key, graph, artifact, folder, new)
            found.append(artifact)
        one, other = (artifact.path for artifact in found)
        if one.name != other.name or one.read_bytes() != other.read_bytes():
            raise self.fail(
                f"two artifacts of graph '{graph.name}' that differ",
                "the same name and bytes in any folder",
                "Leave out times, paths and everything that follows the order of hashes",
            )
        self._check_content(graph, one)
        return found[0]

    def _check_refusal(self, graph: Graph, refusal: Unsupported) -> None:
        operators = {str(node.target) for node in graph.module.graph.nodes if node.op == "call_function"}
        names = {
            part
            for operator in operators
            for part in (operator, operator.split(".")[-2] if "." in operator else operator)
        }
        if graph.name not in str(refusal) or not any(name in str(refusal) for name in names):
            raise self.fail(
                f"'{refusal}'",
                f"an Unsupported that names graph '{graph.name}' and the operator it is about",
                "Write Unsupported(f\"Graph '{graph.name}', operator {operator}\", got=..., expected=..., next_step=...)",
            )

    def _check_artifact(self, key: str, graph: Graph, artifact: Any, folder: Path, new: set[str]) -> None:
        sizes = (artifact.workspace_bytes, artifact.engine_bytes) if isinstance(artifact, Artifact) else (None,)
        if not all(isinstance(size, int) and size >= 0 for size in sizes):
            raise self.fail(
                f"{artifact!r} from lower",
                "Artifact(path, workspace_bytes, engine_bytes=0)",
                "Give the bytes a call takes in addition to its operands; graph.workspace_bytes is the estimate",
            )
        path = artifact.path
        if path.parent != folder or path.is_symlink() or not path.is_file():
            raise self.fail(
                f"the artifact {path}", f"a plain file in {folder}", "Write into the folder that lower is given"
            )
        if file_name_problem(path.name):
            raise self.fail(
                f"the file name '{path.name}'", "letters, digits and _.@+=-", "Use graph.name and graph.key"
            )
        if new - {path.name} or (path.name not in new and key not in self.artifacts):
            others = ", ".join(sorted(new - {path.name})) or f"the file '{path.name}' of another graph"
            raise self.fail(
                f"{others} next to the artifact of graph '{graph.name}'",
                "one new file for each key",
                "Put graph.key, or baked.key, into the file's name, and intermediate files into a temporary folder",
            )

    def _check_content(self, graph: Graph, path: Path) -> None:
        data = path.read_bytes()
        parts = {path.name: data}
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                parts |= {name: archive.read(name) for name in archive.namelist()}
        for name, part in parts.items():
            pickled = (
                part[:1] == b"\x80" and part[1:2] in (b"\2", b"\3", b"\4", b"\5") and part.rstrip(b"\n").endswith(b".")
            )
            if pickled or name.endswith((".pkl", ".pickle")):
                raise self.fail(
                    f"a pickle ('{name}') in the artifact of graph '{graph.name}'",
                    "data that cannot run code when read",
                    "Leave it out, or write it as JSON or safetensors",
                )
            for folder in self.folders:
                if str(folder).encode() in part:
                    raise self.fail(
                        f"the path of the build folder in '{name}'",
                        "nothing of the machine that built it",
                        "Strip paths",
                    )

    def rare(self) -> None:
        """A graph that hardly any target knows: compiled rightly, or refused rightly."""

        def rare_operator(x: torch.Tensor) -> tuple[torch.Tensor]:
            return (getattr(torch.ops.aten, RARE_OPERATOR).default(x),)

        operand = TensorSpec("x", (3,), "float32")
        leaves, form = flatten((operand,))
        graph, _ = shared_tracer().trace(rare_operator, leaves, form, {})
        artifact = self.lower(graph)
        if isinstance(artifact, Artifact) and (function := self.open(graph, artifact)) is not None:
            self._compare(graph, function, (torch.tensor([0.0, 0.5, 2.0]),))

    # ---- open ----------------------------------------------------------------------------------------------------------------

    def open(self, graph: Graph, artifact: Artifact) -> Callable[..., Any] | None:
        function = self.compiling.open(artifact.path, self.options)
        if function is not None and not callable(function):
            raise self.fail(
                f"{function!r} from open", "a function of the graph's operands, or None", "Return a callable"
            )
        return function

    def run(self, optimizer: Optimizer, case: Case) -> None:
        """Runs the plan of a method; each graph that is met for the first time is compiled and compared."""
        options = optimizer.Options()
        try:
            plan = planned(optimizer, options, case)
        except ConfigError:  # a method that does not accumulate
            case = Case.of(case.model_name, case.length, case.rows)
            plan = planned(optimizer, options, case)
        rig = Rig(case, plan, optimizer, options, self._functions(plan))
        rig.buffers.fill(tiny_adapter(case.model_name))
        batches = [rig.batch(seed) for seed in (0, 1)]
        rig.step(batches if case.training.accumulates else batches[:1], step=1, learning_rate=1e-3)
        rig.evaluate(batches[0])

    def answer(self, model_name: str) -> None:
        """The same with the plan for answers."""
        plan = planned_answers(model_name, CHUNK)
        rig = AnswerRig(model_name, plan, self._functions(plan))
        rig.buffers.fill(tiny_adapter(model_name))
        rig.generate(tiny_batch(tiny_models()[model_name], 1, CHUNK).tokens)

    def whole_run(self, names: Sequence[str] | None) -> int:
        """Steps of a run by the first of the methods whose gradients are exact: such a run surely makes its examples likelier."""
        found = (plugins.get("optimizer", name) for name in (_installed_optimizers() if names is None else names))
        optimizer = next((one for one in found if one.promises == "exact_gradients"), None)
        if optimizer is None or self.opened < len(self.artifacts) or find().library is None:
            return 0
        return check_run(optimizer, optimizer.Options(), self.fail, target=(self.target, self.options))

    def _functions(self, plan: Plan) -> list[Function]:
        graphs = shared_tracer().graphs
        return [self._function(graphs[reference.key]) for reference in plan.graphs]

    def _function(self, graph: Graph) -> Function:
        """The traced graph; its first call is compared with the artifact."""
        if bakes(self.target, self.options, graph) and quantized_operands(graph):
            return self._baking(graph)
        if graph.key in self.functions or graph.key in self.refused:
            return graph.module
        artifact = self.lower(graph)
        if isinstance(artifact, Unsupported):
            self.refused[graph.key] = artifact
            return graph.module
        self.artifacts[graph.key] = artifact
        opened = self.open(graph, artifact)
        self.functions[graph.key] = graph.module
        if opened is None:
            return graph.module
        self.opened += 1
        compared = False

        def function(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
            nonlocal compared
            if not compared:
                compared = True
                self._compare(graph, opened, operands)
            return graph.module(*operands)

        return function

    def _baking(self, graph: Graph) -> Function:
        """The traced graph; calls with the first few weights are compared with artifacts made of these."""
        positions = {one.weight for one in quantized_operands(graph)}
        positions |= {one.column_start for one in quantized_operands(graph) if one.column_start is not None}
        seen: set[str] = set()

        def function(*operands: torch.Tensor) -> tuple[torch.Tensor, ...]:
            arrays = {graph.inputs[at].name: operands[at].numpy() for at in sorted(positions)}
            key = hashlib.sha256(
                graph.key.encode() + b"".join(array.tobytes() for array in arrays.values())
            ).hexdigest()
            if key not in self.artifacts and graph.key not in self.refused and len(seen) < KEYS_OF_A_GRAPH:
                seen.add(key)
                artifact = self.lower(graph, Baked(key, arrays))
                if isinstance(artifact, Unsupported):
                    self.refused[graph.key] = artifact
                else:
                    self.artifacts[key] = artifact
                    opened = self.open(graph, artifact)
                    self.opened += opened is not None
                    if opened is not None:
                        self._compare(graph, opened, operands, positions)
            return graph.module(*operands)

        return function

    def _compare(
        self, graph: Graph, opened: Callable[..., Any], operands: Sequence[torch.Tensor], baked: Collection[int] = ()
    ) -> None:
        before = [operand.clone() for operand in operands]
        expected = graph.module(*before)
        got = opened(*[operand for position, operand in enumerate(operands) if position not in baked])
        at = f"graph '{graph.name}'"
        for spec, operand, kept in zip(graph.inputs, operands, before, strict=True):
            if not torch.equal(operand, kept):
                raise self.fail(
                    f"operand '{spec.name}' of {at} written to", "operands left as they are", "Work on a copy"
                )
        if len(got) != len(expected):
            raise self.fail(
                f"{len(got)} results of {at}", f"{len(expected)}, flat", "Return a tuple in the order of graph.outputs"
            )
        for number, (spec, one, other) in enumerate(zip(graph.outputs, got, expected, strict=True)):
            if (one.shape, one.dtype) != (other.shape, other.dtype):
                raise self.fail(
                    f"{one.dtype} {list(one.shape)} as {spec.name} of {at}",
                    f"{other.dtype} {list(other.shape)}",
                    "See graph.outputs",
                )
            if other.is_floating_point():
                self._near(at, spec.name, one, other)
            else:
                self._same(at, spec.name, one, other, partial(unstable, graph.module, before, number, self.tolerance))

    def _near(self, at: str, name: str, one: torch.Tensor, other: torch.Tensor) -> None:
        if not other.numel():
            return
        largest = float(other.double().abs().max())
        error = float((one.double() - other.double()).abs().max()) / (largest or 1.0)
        if not error <= self.tolerance:
            raise self.fail(
                f"{name} of {at} off by {error:.2g} of its largest value",
                f"at most {self.tolerance:g}, against the traced graph",
                "Check the operators of this graph one by one; graph.module is what it should compute",
            )
        self.error = max(self.error, error)

    def _same(
        self, at: str, name: str, one: torch.Tensor, other: torch.Tensor, uncertain: Callable[[], torch.Tensor]
    ) -> None:
        """uncertain: where another number may stand, if the target rounds."""
        wrong = one != other
        if wrong.any() and rounding(self.target, self.options):
            wrong &= ~uncertain()
        if wrong.any():
            raise self.fail(
                f"{int(wrong.sum())} other numbers of {other.numel()} as {name} of {at}",
                "those of the traced graph",
                "Check what the numbers are the indices of; graph.module is what it should compute",
            )


def unstable(
    module: Callable[..., Sequence[torch.Tensor]], operands: Sequence[torch.Tensor], number: int, size: float
) -> torch.Tensor:
    """Where a module's result of this number is another one when its operands are a little different, by `size` of each element at
    most: there it hangs on how a target rounds."""
    expected, generator = module(*operands)[number], torch.Generator().manual_seed(0)
    found = torch.zeros_like(expected, dtype=torch.bool)
    for _ in range(MOVES):
        moved = [
            operand * (1 + size * (2 * torch.rand(operand.shape, generator=generator) - 1)).to(operand.dtype)
            if operand.is_floating_point()
            else operand
            for operand in operands
        ]
        found |= module(*moved)[number] != expected
    return found
