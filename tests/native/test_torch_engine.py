# SPDX-License-Identifier: Apache-2.0
"""torch as an engine of the core: the numbers of the reference interpreter, and failures of Python that arrive as errors.

The bundle was built for another engine. `own_memory` keeps values and weights where the core sees them by copies alone, as on a
graphics card; a card itself is not needed for that.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import torch

from bespoke.bundle.reader import read_bundle
from bespoke.core import engine_table, finding
from bespoke.core.torch_engine import TorchEngine
from bespoke.errors import BespokeError, BudgetExceeded, BundleError, PlanError
from bespoke.reference import train as reference
from tests.conftest import REPOSITORY
from tests.malformed_bundles.hostile import edit
from tests.native.core_lab import METHODS, STEPS, States, tiny_core_bundle
from tests.native.torch_lab import train
from tests.support.checks import few_of, few_rows_of
from tests.support.reading import rows_of_split

__all__ = ["tiny_core_bundle"]

Program = Callable[..., Sequence[torch.Tensor]]


pytestmark = pytest.mark.skipif(finding.find().library is None, reason="the device core is not installed")


@pytest.fixture(autouse=True)
def every_engine_is_destroyed() -> Iterator[None]:
    yield
    assert not engine_table._engines


@pytest.mark.parametrize("method", few_of(METHODS, ("mesp",)))
def test_the_core_with_torch_gives_the_bits_of_the_reference(
    tiny_core_bundle: Path, tmp_path: Path, method: str
) -> None:
    states = States(tiny_core_bundle, tmp_path, method)
    near, far = states.fresh(tmp_path / "near"), states.fresh(tmp_path / "far")
    with read_bundle(tiny_core_bundle) as bundle:
        expected = reference.train(bundle, user_rows=rows_of_split(near, "train"), method=method, seed=1)
    assert len(expected.losses) == STEPS
    for state, own_memory in ((near, False), (far, True)):
        assert train(tiny_core_bundle, state, TorchEngine(own_memory=own_memory), method)["losses"] == list(
            expected.losses
        )
    assert states.at_end(far) == states.at_end(near)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_was_killed_resumes_to_the_same_bits(tiny_core_bundle: Path, tmp_path: Path, method: str) -> None:
    states = States(tiny_core_bundle, tmp_path, method)
    whole, parts = states.fresh(tmp_path / "whole"), states.fresh(tmp_path / "parts")
    train(tiny_core_bundle, whole, TorchEngine(), method)
    command = [sys.executable, "-m", "tests.native.torch_lab", tiny_core_bundle, parts, method, "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=REPOSITORY)
    assert process.stdout is not None
    while int(process.stdout.readline() or STEPS) < STEPS // 2:
        pass
    process.kill()
    assert process.wait() == -9
    process.stdout.close()
    assert 0 < states.step(parts) < STEPS
    train(tiny_core_bundle, parts, TorchEngine(), method)
    assert states.at_end(parts) == states.at_end(whole)


class Changed(TorchEngine):
    """torch, with a program exchanged for what `change` makes of it."""

    def __init__(self, change: Callable[[Program], Program]) -> None:
        super().__init__()
        self._change = change

    def open(self, artifact: engine_table.Artifact) -> int:
        handle = super().open(artifact)
        module, takes, gives = self._programs[handle]
        self._programs[handle] = self._change(module), takes, gives  # type: ignore[assignment]
        return handle


def failing(failure: BaseException, at: int) -> TorchEngine:
    """Its call of this number raises."""
    calls = itertools.count(1)

    def change(program: Program) -> Program:
        def called(*operands: torch.Tensor) -> Sequence[torch.Tensor]:
            if next(calls) == at:
                raise failure
            return program(*operands)

        return called

    return Changed(change)


@pytest.mark.parametrize(
    ("failure", "error", "says"),
    few_rows_of(
        [
            (ValueError("a defect in line 7\nand more"), PlanError, "a defect in line 7"),
            (torch.OutOfMemoryError("CUDA out of memory"), BudgetExceeded, "CUDA out of memory"),
            (MemoryError(), BudgetExceeded, "MemoryError"),
            (KeyboardInterrupt(), PlanError, "KeyboardInterrupt"),
            (
                engine_table.OtherSignature("result 0 of float32 (7)"),
                BundleError,
                "a program with result 0 of float32 (7)",
            ),
        ],
        (0, 1),
    ),
)
def test_what_python_raises_is_an_error_of_the_core_and_is_kept(
    tiny_core_bundle: Path, tmp_path: Path, failure: BaseException, error: type[BespokeError], says: str
) -> None:
    states = States(tiny_core_bundle, tmp_path, "mesp")
    state, whole = states.fresh(tmp_path / "state"), states.fresh(tmp_path / "whole")
    engine = failing(failure, 200)
    with pytest.raises(error) as refused:
        train(tiny_core_bundle, state, engine, "mesp")
    assert refused.value.got == says
    assert failure in (engine.failure, engine.failure.__cause__ if engine.failure else None)
    train(tiny_core_bundle, state, TorchEngine(), "mesp")  # nothing of the failed step is left
    train(tiny_core_bundle, whole, TorchEngine(), "mesp")
    assert states.at_end(state) == states.at_end(whole)


def test_a_bundle_with_the_program_of_another_graph_is_refused_before_a_step(
    tiny_core_bundle: Path, tmp_path: Path
) -> None:
    bundle = shutil.copytree(tiny_core_bundle, tmp_path / "a.bundle")
    states = States(bundle, tmp_path, "mesp")
    plan = json.loads((bundle / "manifest.json").read_bytes())["methods"][0]["plans"][0]["file"]
    content = json.loads((bundle / plan).read_bytes())
    called = [content["graphs"][i["graph"]]["key"] for i in content["sections"]["train_step"] if i["op"] == "call"]

    def exchange(document: dict[str, list[dict[str, str]]]) -> None:
        first, last = (
            next(graph for graph in document["graphs"] if graph["key"] == key) for key in (called[0], called[-1])
        )
        first["file"], last["file"] = last["file"], first["file"]

    edit(bundle, exchange)
    state = states.fresh(tmp_path / "state")
    steps: list[int] = []
    with pytest.raises(BundleError, match="a program with") as refused:
        train(bundle, state, TorchEngine(), "mesp", on_step=steps.append)
    assert refused.value.subject.startswith("graphs/")
    assert not steps
    assert states.step(state) == 0


def test_a_program_that_gives_what_it_does_not_say_is_refused_when_it_runs(
    tiny_core_bundle: Path, tmp_path: Path
) -> None:
    lying = Changed(lambda program: lambda *operands: [value.half() for value in program(*operands)])
    states = States(tiny_core_bundle, tmp_path, "mesp")
    with pytest.raises(BundleError, match="a program with result 0 of float16"):
        train(tiny_core_bundle, states.fresh(tmp_path / "state"), lying, "mesp")
