# SPDX-License-Identifier: Apache-2.0
"""The core with the engine `mlx` held against the reference: traces, journals, golden vectors, stops, answers."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke import PersonalModel
from bespoke.bundle.reader import read_bundle
from bespoke.conversation import Conversation
from bespoke.core import find
from bespoke.errors import ConfigError, MissingDependency
from bespoke.reference.train import RunState, replay, train
from tests.apple.mlx.bundles import CONTEXT, FAMILIES, STEPS, add_examples, bundle_of
from tests.apple.mlx.engine import NOT_BUILT, engine_library
from tests.apple.mlx.watching import Watch
from tests.native.core_lab import Core
from tests.native.parity import farthest
from tests.support.checks import record_check
from tests.support.oracle import run_of, trained_alike
from tests.support.reading import accepted, journal, rows_of_run

pytestmark = [
    pytest.mark.skipif(engine_library() is None, reason=NOT_BUILT),
    pytest.mark.xdist_group("mlx"),
]
LOSSES = {"decode": 1e-6, "fused": 1e-5}  # relative
LOWERED = 0.95  # what twenty steps leave of the loss, at most
FREELY = 1e-4


@pytest.fixture
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    family, form = request.param
    return bundle_of(tmp_path_factory, family, form)


EVERY = pytest.mark.parametrize(
    ("bundle", "form"),
    [
        pytest.param((family, form), form, id=f"{family}-{form}", marks=[pytest.mark.slow] * (number > 0))
        for number, (family, form) in enumerate(itertools.product(FAMILIES, LOSSES))
    ],
    indirect=["bundle"],
)


def trained(bundle: Path, state: Path, method: str, **open_with: Any) -> np.ndarray:
    """Losses of a whole run."""
    with PersonalModel.open(bundle, state, **(open_with or {"engine": "mlx"})) as model:
        add_examples(model)
        report = model.train(run_steps=STEPS, method=method, seed=3)
    assert report.steps == STEPS
    assert report.runtime == ("torch" if open_with.get("engine") == "torch" else "core")
    return np.array(report.losses)


def apart(losses: np.ndarray, expected: Any) -> float:
    """Largest relative difference."""
    return float(np.max(np.abs(losses - np.array(expected)) / np.abs(np.array(expected))))


@EVERY
def test_traces_are_those_of_the_reference(bundle: Path, form: str, tmp_path: Path) -> None:
    for method in ("mesp", "mebp"):
        state = tmp_path / method
        losses = trained(bundle, state, method)
        expected = trained_alike(bundle, state).losses
        worst = apart(losses, expected)
        print(f"{bundle.parent.name}, {method}: loss {losses[0]:.4f} to {losses[-1]:.4f}, apart by {worst:.1e}")
        assert losses[-1] <= LOWERED * losses[0]
        assert worst <= LOSSES[form]
        record_check(
            f"trace, {bundle.parent.name}, {method}", {"steps": STEPS, "largest relative difference of a loss": worst}
        )


@EVERY
def test_a_journal_of_mezo_is_what_the_reference_finds_and_makes(bundle: Path, form: str, tmp_path: Path) -> None:
    """Each difference from the adapter that the journal has made so far, and the adapter that all of it makes."""
    state = tmp_path / "state"
    losses = trained(bundle, state, "mezo")
    written = journal(state)
    run, settings = run_of(state)
    with read_bundle(bundle) as opened:
        record = opened.method("mezo")
        epsilon = record.options["epsilon"]
        at = RunState(opened.initial_adapter())
        worst = 0.0
        for step, recorded in written:
            one = train(opened, "mezo", at, user_rows=rows_of_run(state), seed=run["seed"], settings=settings, steps=1)
            ((number, found),) = one.journal
            assert number == step
            worst = max(worst, float(np.max(np.abs(np.array(recorded) - np.array(found)))))
            adapter = replay(opened, "mezo", at.adapter, [(step, recorded)], seed=run["seed"], settings=settings)
            at = RunState(adapter, one.state.optimizer, one.state.cursor)
    largest = max(1.0, *map(float, losses))  # a difference of losses knows no more than they do
    print(
        f"{bundle.parent.name}, mezo: differences apart by {worst * epsilon:.1e} / epsilon, of a loss of {largest:.2f}"
    )
    assert worst <= LOSSES[form] * largest / epsilon
    with sqlite3.connect(
        state / "state.sqlite"
    ) as database:  # as if it had been killed before the gate: the journal is replayed
        database.execute("UPDATE runs SET ended_because = NULL, ended_at = NULL")
        database.execute("DELETE FROM versions")
    database.close()
    with PersonalModel.open(bundle, state, engine="mlx") as model:
        assert model.train(method="mezo").stopped_because == "finished"
        accepted_now = bool(model.versions())
    if accepted_now:
        assert farthest(accepted(state), at.adapter) <= 1e-6
    counts = {"steps": len(written), "largest difference of g times epsilon": worst * epsilon}
    record_check(f"journal of mezo, {bundle.parent.name}", counts)


YARDSTICK = """
import sys; sys.path.insert(0, sys.argv[1])
from pathlib import Path
from tests.support.oracle import trained_alike
print(*map(repr, trained_alike(Path(sys.argv[2]), Path(sys.argv[3])).losses))
"""


@EVERY
def test_mezo_runs_freely_as_the_reference_does(bundle: Path, form: str, tmp_path: Path) -> None:
    """With the yardstick beside it: torch with sums in another order (no vector instructions), against torch."""
    state = tmp_path / "state"
    losses = trained(bundle, state, "mezo")
    expected = trained_alike(bundle, state).losses
    plain = {**os.environ, "ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}
    root = str(Path(__file__).parents[3])
    command = [sys.executable, "-c", YARDSTICK, root, str(bundle), str(state)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=plain).stdout
    yardstick = apart(np.array([float(loss) for loss in said.split()]), expected)
    print(f"{bundle.parent.name}, mezo freely: {apart(losses, expected):.1e}; torch in another order: {yardstick:.1e}")
    assert apart(losses, expected) <= FREELY


@EVERY
def test_golden_vectors_hold(bundle: Path, form: str, tmp_path: Path) -> None:
    with PersonalModel.open(bundle, tmp_path / "state", engine="mlx") as model:
        found = model._engine.verify()  # type: ignore[attr-defined]
    assert found["golden"]
    assert len(found["checks"]) > 3


@EVERY
def test_a_run_stopped_on_mlx_goes_on_in_torch_and_back(bundle: Path, form: str, tmp_path: Path) -> None:
    whole, state = tmp_path / "whole", tmp_path / "state"
    expected = trained(bundle, whole, "mesp")
    losses: list[float] = []
    for most, where in ((3, {"engine": "mlx"}), (8, {"engine": "torch"}), (STEPS + 1, {"engine": "mlx"})):
        with PersonalModel.open(bundle, state, **where) as model:
            add_examples(model)
            stopped = len(losses)
            report = model.train(
                run_steps=STEPS if not losses else None,
                method="mesp",
                seed=3 if not losses else None,
                stop=lambda most=most: len(losses) >= most,
                on_step=lambda step, loss: losses.append(loss),
            )
            assert len(losses) - stopped == report.steps > 0
            assert report.stopped_because == ("finished" if len(losses) == STEPS else "stop_requested")
    assert len(losses) == STEPS
    assert apart(np.array(losses), expected) <= LOSSES[form]


@EVERY
def test_a_run_killed_on_mlx_goes_on_from_its_last_commit(bundle: Path, form: str, tmp_path: Path) -> None:
    """And ends as one that nobody killed, to the bit: it is the same engine."""
    whole, state = tmp_path / "whole", tmp_path / "state"
    trained(bundle, whole, "mesp")
    with PersonalModel.open(bundle, state, engine="mlx") as model:
        add_examples(model)
        assert model.train(seconds=1e-9, method="mesp", seed=3).total_steps == 0
    program = find().path
    assert program is not None
    core = Core(program, bundle)
    assert core.train(state, kill_after=0.0, after_step=5, engine="mlx").code == -signal.SIGKILL
    with PersonalModel.open(bundle, state, engine="mlx") as model:
        assert model.train().stopped_because == "finished"
    one, other = accepted(whole), accepted(state)
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)


def answered(conversation: Conversation) -> list[list[int]]:
    """The tokens of two turns."""
    return [
        [piece.token for piece in conversation.feed(turn) if piece.token is not None]
        for turn in ([5, 17, 99, 4], [8, 3])
    ]


@EVERY
def test_two_turns_are_answered_with_the_same_tokens_as_in_torch(bundle: Path, form: str, tmp_path: Path) -> None:
    """What it takes is written down beside ExecuTorch's of the same run: each in a process of the core."""
    with (
        PersonalModel.open(bundle, tmp_path / "torch", engine="torch") as model,
        model.conversation(max_tokens=50) as conversation,
    ):
        expected = answered(conversation)
    assert sum(map(len, expected)) == 100 <= CONTEXT
    counts: dict[str, object] = {"tokens": 100}
    for name in ("mlx", "executorch"):
        with (
            PersonalModel.open(bundle, tmp_path / name, engine=name) as model,
            model.conversation(max_tokens=50) as conversation,
            Watch(conversation._opened._core.process.pid) as watch,  # type: ignore[attr-defined]
        ):
            assert answered(conversation) == expected
        counts |= {
            f"processor seconds by {name}": watch.processor_seconds,
            f"MB at most by {name}": watch.peak_bytes / 1e6,
        }
    record_check(f"answers over two turns, {bundle.parent.name}", counts)


# ---- what is said where it cannot be --------------------------------------------------------------------------------------------


def test_the_command_line_takes_an_engine(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    from bespoke.cli import run

    bundle = bundle_of(tmp_path_factory, "llama", "decode")
    examples = tmp_path / "examples.jsonl"
    examples.write_text('{"tokens": [5, 9, 12, 7, 30, 31, 5, 9]}\n' * 2, encoding="utf-8")
    where = ["--state", str(tmp_path / "state"), "--engine", "mlx"]
    assert run(["train", str(bundle), *where, "--examples", str(examples), "--run-steps", "1", "--method", "mesp"]) == 0
    assert run(["evaluate", str(bundle), *where, "--split", "train"]) == 0


def test_an_engine_that_was_not_built_is_named(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> None:
    bundle = bundle_of(tmp_path_factory, "llama", "decode")
    with pytest.raises(ConfigError, match=r"engine='coreml'.*a bundle for mlx, executorch.*targets='coreml'"):
        PersonalModel.open(bundle, tmp_path / "state", engine="coreml")
    with PersonalModel.open(bundle, tmp_path / "state", engine="mlx") as model:
        model._engine._request["engine"] = "no_such_engine"  # as of a core that was built without it
        with pytest.raises(
            MissingDependency, match=r"engine 'no_such_engine'.*libbespoke_engine_no_such_engine\.so.*pip install"
        ):
            model.evaluate([{"tokens": [5, 9, 12, 7]}])
