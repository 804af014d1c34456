# SPDX-License-Identifier: Apache-2.0
"""The core's readers in one process (bindings/native/tests/format_lab.cpp), and a plan as both runtimes keep it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from bespoke.errors import BespokeError
from bespoke.reference.code import (
    CallCode,
    Code,
    EmitCode,
    GroupCode,
    NoiseCode,
    PlanCode,
    ReceiveCode,
    RecordCode,
    SendCode,
    StoreCode,
    ZeroCode,
)
from tests.native.conftest import sanitized_core
from tests.native.lab_process import answer_of, end, error_of

BUILDS = ["release", pytest.param("sanitized", marks=pytest.mark.slow)]


def build_of(request: pytest.FixtureRequest) -> Path:
    """The build that a parameter out of `BUILDS` names."""
    if request.param == "sanitized":
        return sanitized_core()
    build: Path = request.getfixturevalue("native_build")
    return build


class CoreReader:
    """What the core makes of documents. What it refuses is raised as the Python error of that name."""

    def __init__(self, program: Path) -> None:
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, what: str, document: bytes = b"", **values: Any) -> Any:
        """EOFError where the process dies of it."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": what, "size": len(document), **values}).encode() + b"\n" + document)
        self.process.stdin.flush()
        answer = answer_of(self.process)
        if "error" not in answer:
            return answer["value"]
        error = error_of(answer)
        assert str(error) == answer["text"]
        assert answer["got"], answer
        assert answer["expected"], answer
        assert answer["next_step"], answer
        raise error

    def manifest(self, document: bytes) -> Any:
        return self.ask("manifest", document)

    def plan(self, document: bytes, graphs: Sequence[Any]) -> Any:
        def specs(given: Sequence[Any]) -> list[Any]:
            return [[list(spec.shape), spec.dtype] for spec in given]

        listed = [
            {"key": graph.key, "inputs": specs(graph.inputs), "outputs": specs(graph.outputs)} for graph in graphs
        ]
        return self.ask("plan", document, subject="plan", graphs=listed)

    def tensors(self, document: bytes) -> Any:
        return self.ask("tensors", document, subject="file")

    def bundle(self, path: Path, **values: Any) -> Any:
        return self.ask("bundle", path=str(path), **values)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert end(self.process) == 0 or kind is not None


def refused(reader: CoreReader, what: str, *arguments: Any, **values: Any) -> BespokeError:
    try:
        getattr(reader, what)(*arguments, **values)
    except BespokeError as error:
        return error
    raise AssertionError("it was taken")


def code_document(code: PlanCode, plan: bytes) -> dict[str, Any]:
    """The reference's records in the lab's form; workspaces of graphs, which it does not ask for, as the plan has them."""
    workspaces = [graph["workspace_bytes"] for graph in json.loads(plan)["graphs"]]
    return {
        "method": code.method,
        "arena_bytes": code.arena_bytes,
        "scratch_bytes": code.scratch_bytes,
        "values": [[list(v.shape), v.dtype, v.role, v.lifetime, v.kind, v.where] for v in code.values],
        "graphs": [[graph.key, graph.name, taken] for graph, taken in zip(code.graphs, workspaces, strict=True)],
        "sections": {name: [_instruction(i) for i in section] for name, section in code.sections.items()},
        "replay": [_instruction(i) for i in code.replay],
        "recorded": list(code.recorded),
    }


def _instruction(i: Code) -> list[Any]:
    match i:
        case CallCode():
            return ["call", i.graph, [list(o) for o in i.operands], [list(r) for r in i.results], list(i.adds)]
        case GroupCode():
            return ["load" if i.load else "free", i.group]
        case NoiseCode():
            return ["noise", i.value[0], [i.query, i.query_scalar], i.block, i.tensor, i.distribution]
        case ZeroCode():
            return ["zero", i.value[0]]
        case RecordCode():
            return ["record", i.source[0], i.value[0]]
        case StoreCode():
            return ["store", i.name, list(i.source)]
        case EmitCode():
            return ["emit", i.name, i.source[0]]
        case ReceiveCode():
            return ["receive", i.name, i.value[0]]
        case SendCode():
            return ["send", i.source[0]]


def without(document: Mapping[str, Any], keep: Any) -> Any:
    """The fields of a manifest that the core keeps: those of `keep`, which has them in the same places."""
    if isinstance(keep, dict):
        return {key: without(document[key], keep[key]) for key in keep}
    if isinstance(keep, list) and keep and isinstance(keep[0], dict):
        return [without(ours, theirs) for ours, theirs in zip(document, keep, strict=True)]
    return document
