# SPDX-License-Identifier: Apache-2.0
"""What happens while a run trains: others add, forget, want to train too."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import bespoke.engines
from bespoke import PersonalModel
from bespoke.bundle.reader import Bundle
from bespoke.core.in_process import Torch
from bespoke.errors import Busy, StateError, StateLocked
from tests.support import reading
from tests.unit.personal_model.after_training import after, answers
from tests.unit.personal_model.conftest import Open
from tests.unit.personal_model.tiny import STEPS, numbers, state_bits

REPOSITORY = Path(__file__).resolve().parents[3]

CALLERS = 3

ADDER = """
import json, sys
from bespoke import PersonalModel
bundle, state, examples = sys.argv[1:]
with PersonalModel.open(bundle, state) as model:
    for number, example in enumerate(json.loads(examples)):
        model.examples.add(example, id=f"from-elsewhere-{number}")
"""
FORGETTER = """
import sys
from bespoke import PersonalModel
with PersonalModel.open(sys.argv[1], sys.argv[2]) as model:
    print(model.examples.forget(sys.argv[3]).run_stopped)
"""


def other_process(program: str, *arguments: object) -> str:
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        cwd=REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_examples_added_by_a_thread_and_by_a_process_do_not_disturb_a_run(
    opened: Open, tiny_bundle: Path, tmp_path: Path
) -> None:
    straight = opened("straight")
    whole = straight.train()
    model = opened("busy")
    ended = threading.Event()

    def add() -> None:
        for number in range(100, 10_000):
            if ended.is_set():
                return
            model.examples.add(numbers(number), id=f"from-a-thread-{number}")

    thread = threading.Thread(target=add)

    def meanwhile(step: int, loss: float) -> None:
        if step == 2:
            thread.start()
        if step == 4:
            examples = json.dumps([numbers(number) for number in range(60, 65)])
            other_process(ADDER, tiny_bundle, tmp_path / "busy", examples)

    report = model.train(on_step=meanwhile)
    ended.set()
    thread.join()
    assert len(model.examples) > 12 + 5
    assert report.losses == whole.losses
    assert report.validation_loss == whole.validation_loss
    assert answers(model) == answers(straight)
    assert len(reading.example_ids(tmp_path / "busy", 1)) == 12


@pytest.mark.parametrize("method", ["mesp", "mezo"])
def test_forgetting_an_example_that_a_run_uses_ends_it_and_leaves_no_adapter_that_saw_it(
    opened: Open, tmp_path: Path, method: str
) -> None:
    model = opened()
    base = answers(model)
    model.train(method=method, stop=after(0))
    model.train(most_steps=3)

    def forget(step: int, loss: float) -> None:
        if step == 6:
            model.examples.forget("number-5")

    report = model.train(on_step=forget)
    assert (report.stopped_because, report.accepted) == ("example_forgotten", None)
    assert report.total_steps == 6
    assert model.versions() == []
    assert answers(model) == base
    assert state_bits(tmp_path / "alice") == {}
    assert reading.metrics(tmp_path / "alice", 1) == []
    assert not (tmp_path / "alice" / "scratch").exists()
    assert model._core.current_run() is None
    again = model.train(run_steps=1)
    assert again.run == 2
    assert "number-5" not in reading.example_ids(tmp_path / "alice", 2)


def test_another_process_may_forget_what_a_run_uses(opened: Open, tiny_bundle: Path, tmp_path: Path) -> None:
    model = opened()
    answer: list[str] = []

    def forget(step: int, loss: float) -> None:
        if step == 3:
            answer.append(other_process(FORGETTER, tiny_bundle, tmp_path / "alice", "number-2"))

    report = model.train(on_step=forget)
    assert answer == ["True"]
    assert report.stopped_because == "example_forgotten"
    assert state_bits(tmp_path / "alice") == {}


def test_forgetting_what_a_run_does_not_use_does_not_disturb_it(opened: Open) -> None:
    straight = opened("straight")
    whole = straight.train()
    model = opened("busy")

    def forget_late(step: int, loss: float) -> None:
        if step == 3:
            model.examples.add(numbers(70), id="late")
            assert not model.examples.forget("late").run_stopped

    assert model.train(on_step=forget_late).losses == whole.losses
    assert answers(model) == answers(straight)


def test_the_error_of_a_second_trainer_names_who_holds_the_state(
    opened: Open, tiny_bundle: Path, tmp_path: Path
) -> None:
    model = opened()
    refusals: list[StateLocked] = []

    def try_too(step: int, loss: float) -> None:
        if step == 2:
            with PersonalModel.open(tiny_bundle, tmp_path / "alice") as second:
                for attempt in (second.train, second.rollback, second.reset, second.abandon_run):
                    with pytest.raises(StateLocked, match=f"process {os.getpid()} ") as refused:
                        attempt()
                    refusals.append(refused.value)
                assert len(second.examples) == 12  # reading is everybody's

    report = model.train(on_step=try_too)
    assert len(refusals) == 4
    assert all("training" in error.got for error in refusals)
    assert (report.steps, report.stopped_because) == (STEPS, "finished")


def test_a_callback_cannot_close_the_model_that_it_runs_for(opened: Open) -> None:
    model = opened()
    refused: list[Busy] = []

    def close(step: int, loss: float) -> None:
        with pytest.raises(Busy, match="from within one of its calls") as error:
            model.close()
        refused.append(error.value)

    assert model.train(on_step=close).stopped_because == "finished"
    assert len(refused) == STEPS
    model.close()
    with pytest.raises(StateError, match="closed"):
        model.train()


def test_first_calls_of_several_threads_open_one_engine(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The core calls back into the engine, which must live as long as the handle that has it."""
    import_torch, engines = bespoke.engines._import_torch, []
    together = threading.Barrier(CALLERS)

    def slowly(bundle: Bundle) -> Torch:
        time.sleep(0.2)
        engines.append(import_torch(bundle))
        return engines[-1]

    def evaluate() -> None:
        together.wait()
        with contextlib.suppress(Busy):
            losses.append(model.evaluate(split="train").loss)

    monkeypatch.setattr(bespoke.engines, "_import_torch", slowly)
    losses: list[float] = []
    model = opened("alice", 6, engine="torch")
    callers = [threading.Thread(target=evaluate) for _ in range(CALLERS)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(engines) == 1
    assert losses
