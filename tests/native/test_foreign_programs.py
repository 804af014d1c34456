# SPDX-License-Identifier: Apache-2.0
"""A compiled program that takes or gives other tensors than the manifest says is refused when it is opened.

The programs are real: the target `executorch` compiled them from the graphs of a tiny Llama. The engine runs them over operands and
results that lie between inaccessible pages. The manifest as the build wrote it decides which signature is right: one that differs
from it in any way is foreign.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bespoke import PersonalModel
from bespoke.bundle.manifest import Manifest
from bespoke.bundle.reader import read_bundle
from tests.malformed_bundles.hostile import edit
from tests.native.core_lab import Core, tiny_core_bundle
from tests.native.lab_process import end
from tests.support.checks import count, new_seed, record_check
from tests.support.foreign import DTYPES, Signature, Tensors, foreign
from tests.unit.personal_model.tiny import add_numbers

__all__ = ["tiny_core_bundle"]

OTHER_SIGNATURE = 3  # BESPOKE_ENGINE_OTHER_SIGNATURE


def signatures(manifest: Manifest) -> dict[str, tuple[Signature, int]]:
    """Each artifact's file -> its operands and results in its own order, and the memory that it plans."""
    graphs = {graph.key: graph for graph in manifest.graphs}
    found = {}
    for artifact in manifest.targets[0].artifacts:
        graph = graphs[artifact.graph]
        inputs = {spec.name: (tuple(spec.shape), spec.dtype) for spec in graph.inputs}
        outputs = tuple((tuple(spec.shape), spec.dtype) for spec in graph.outputs)
        operands = tuple(inputs[name] for name in artifact.operands)
        found[artifact.file] = Signature(operands, outputs), artifact.workspace_bytes
    return found


def trained_with(bundle: Path, manifest: Manifest) -> set[str]:
    """Keys of the graphs that a step of the first method calls."""
    plan = json.loads((bundle / manifest.methods[0].plans[0].file).read_bytes())
    return {plan["graphs"][i["graph"]]["key"] for i in plan["sections"]["train_step"] if i["op"] == "call"}


def test_what_executorch_says_of_a_program_goes_to_the_log_of_the_app(native_build: Path, tmp_path: Path) -> None:
    no_program = tmp_path / "program.pte"
    no_program.write_bytes(bytes(range(256)) * 4)
    asked = {"do": "open", "path": str(no_program), "workspace": 64, "operands": [], "results": []}
    done = subprocess.run(
        [native_build / "tests" / "engine_lab"], input=json.dumps(asked) + "\n", capture_output=True, text=True
    )
    answer = json.loads(done.stdout)
    assert answer["code"] != 0
    error = 3  # BESPOKE_LOG_ERROR
    assert any(
        level == error and re.match(r"ExecuTorch, \S+:\d+: .*identifier", line) for level, line in answer["log"]
    ), answer["log"]
    assert done.stderr == ""


# ---- the engine ----------------------------------------------------------------------------------------------------------------


class Engine:
    """bindings/native/tests/engine_lab.cpp."""

    def __init__(self, program: Path) -> None:
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the engine ended with {self.process.wait()} at {request}"
        answer: dict[str, Any] = json.loads(line)
        return answer

    def open(self, path: Path, workspace: int, signature: Signature) -> dict[str, Any]:
        return self.ask(do="open", path=str(path), workspace=workspace, **specs(signature))

    def run(self, program: int, signature: Signature) -> dict[str, Any]:
        return self.ask(do="run", program=program, **specs(signature))

    def end(self) -> int:
        return end(self.process)


def specs(signature: Signature) -> dict[str, list[Any]]:
    def listed(tensors: Tensors) -> list[Any]:
        return [[shape, DTYPES.index(dtype)] for shape, dtype in tensors]

    return {"operands": listed(signature.operands), "results": listed(signature.results)}


@pytest.fixture
def engine(native_build: Path) -> Iterator[Engine]:
    made = Engine(native_build / "tests" / "engine_lab")
    yield made
    made.end()


@dataclass(frozen=True)
class Program:
    number: int
    path: Path
    workspace: int
    own: Signature


def opened(engine: Engine, bundle: Path) -> list[Program]:
    with read_bundle(bundle) as whole:
        programs = []
        for file, (own, workspace) in signatures(whole.manifest).items():
            answer = engine.open(whole.path(file), workspace, own)
            assert answer["code"] == 0, answer
            programs.append(Program(answer["program"], whole.path(file), workspace, own))
    return programs


def test_a_program_with_its_own_signature_writes_its_results_alone(engine: Engine, tiny_core_bundle: Path) -> None:
    for program in opened(engine, tiny_core_bundle):
        answer = engine.run(program.number, program.own)
        assert (answer["code"], answer["inside"]) == (0, True), (program.own, answer)
        assert not answer["untouched"]
    assert engine.end() == 0


def test_a_program_of_a_foreign_signature_is_not_opened(engine: Engine, tiny_core_bundle: Path) -> None:
    seed = new_seed()
    numbers = random.Random(seed)
    programs = opened(engine, tiny_core_bundle)
    all_of = [program.own for program in programs]
    done: Counter[str] = Counter()
    for _ in range(count(10_000)):
        program = numbers.choice(programs)
        what, other = foreign(program.own, all_of, numbers)
        answer = engine.open(program.path, program.workspace, other)
        assert answer["code"] == OTHER_SIGNATURE, (what, program.own, other, answer)
        assert answer["untouched"], (what, program.own, other)
        assert re.fullmatch(r"(\d+ (operands|results))|((operand|result) \d+ of \w+ \([\d, ]*\))", answer["message"]), (
            answer
        )
        done[what] += 1
    record_check(
        "compiled programs of a foreign signature, in the core",
        {"refused": done.total(), "ways of being foreign": len(done)},
        seed,
    )
    for program in programs:  # and it still runs
        assert engine.run(program.number, program.own)["code"] == 0
    assert engine.end() == 0


# ---- the whole core --------------------------------------------------------------------------------------------------------------


def test_a_bundle_whose_programs_were_exchanged_does_not_train(
    native_build: Path, tiny_core_bundle: Path, tmp_path: Path
) -> None:
    """Every hash is right: the author of the manifest exchanged two artifacts."""
    seed = new_seed()
    numbers = random.Random(seed)
    bundle = shutil.copytree(tiny_core_bundle, tmp_path / "a.bundle")
    state = tmp_path / "state"
    with PersonalModel.open(bundle, state) as model:
        add_numbers(model)
        owns = {file: own for file, (own, _) in signatures(model._bundle.manifest).items()}
        called = trained_with(bundle, model._bundle.manifest)
    document = json.loads((bundle / "manifest.json").read_bytes())
    files = [a["file"] for a in document["targets"][0]["artifacts"] if a["graph"] in called]
    bundles = count(600)
    for _ in range(bundles):
        while True:
            one, two = numbers.choice(files), numbers.choice(list(owns))
            if owns[one] != owns[two]:
                break

        def exchange(document: dict[str, Any], one: str = one, two: str = two) -> None:
            for artifact in document["targets"][0]["artifacts"]:
                artifact["file"] = {one: two, two: one}.get(artifact["file"], artifact["file"])

        edit(bundle, exchange)
        ended = Core(native_build / "bespoke-core", bundle).train(state, run_steps=1)
        assert ended.error is not None, (one, two)
        assert ended.error["kind"] == "BundleError", ended.error
        assert ended.error["subject"] in (one, two), ended.error
        edit(bundle, exchange)
    assert Core(native_build / "bespoke-core", bundle).train(state, run_steps=1).code == 0
    record_check("bundles whose compiled programs were exchanged, in the core", {"refused": bundles}, seed)
