# SPDX-License-Identifier: Apache-2.0
"""A process that is forked while a model is open: on Linux, what Python's multiprocessing does by default up to 3.13."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bespoke import PersonalModel
from bespoke.errors import BespokeError, StateError
from tests.unit.personal_model.tiny import add_numbers, numbers

REPOSITORY = Path(__file__).resolve().parents[3]
FORK = multiprocessing.get_context("fork")


def in_fork(work: Callable[[], Any]) -> Any:
    """What `work` gives in a forked process; the message of an error of ours."""
    theirs, ours = FORK.Pipe()

    def run() -> None:
        try:
            ours.send(work())
        except BespokeError as error:
            ours.send(f"{type(error).__name__}: {error}")

    process = FORK.Process(target=run)
    process.start()
    assert theirs.poll(60), "the fork does not answer"
    found = theirs.recv()
    process.join()
    return found


@pytest.fixture
def model(tiny_bundle: Path, tmp_path: Path) -> Any:
    model = PersonalModel.open(tiny_bundle, tmp_path / "state", engine="torch")
    add_numbers(model)
    yield model
    model.close()


def ids(bundle: Path, state: Path) -> set[str]:
    with PersonalModel.open(bundle, state) as opened:
        return {one.id for one in opened.examples.list()}


def test_what_a_fork_adds_through_the_handle_of_its_parent_is_refused_and_nothing_that_was_acknowledged_is_lost(
    model: PersonalModel, tiny_bundle: Path, tmp_path: Path
) -> None:
    theirs, ours = FORK.Pipe()

    def add() -> None:
        theirs.recv()  # until the parent has closed
        added = []
        for number in range(30):
            with suppress(StateError):
                added.append(model.examples.add(numbers(number), id=f"fork-{number}").id)
        theirs.send(added)

    process = FORK.Process(target=add)
    process.start()
    model.examples.add(numbers(1), id="of the parent")
    model.close()
    ours.send("closed")
    added = ours.recv()
    process.join()
    assert added == []
    assert "of the parent" in ids(tiny_bundle, tmp_path / "state")


def test_every_verb_of_an_inherited_model_names_the_process_that_opened_it(
    model: PersonalModel, tmp_path: Path
) -> None:
    conversation = model.conversation()
    verbs: list[Callable[[], Any]] = [
        lambda: model.examples.add(numbers(1)),
        model.examples.list,
        lambda: len(model.examples),
        lambda: model.examples.forget("x"),
        model.train,
        model.evaluate,
        model.versions,
        model.rollback,
        model.reset,
        model.current_run,
        model.abandon_run,
        model.planned_training,
        lambda: model.set_limit(10),
        lambda: model.set_pace(0.5),
        model.conversation,
        lambda: model.generate_ids([40]),
        lambda: model.score([40], [[41]]),
        lambda: conversation.feed([40]),
        lambda: model.export_adapter(tmp_path / "adapter", base=True),
        lambda: model.import_adapter(tmp_path),
    ]
    for verb in verbs:
        message = in_fork(verb)
        assert isinstance(message, str)
        assert message.startswith("StateError: ")
        assert f"a handle of process {os.getpid()} in its fork" in message
    conversation.close()


def test_a_fork_may_not_open_a_state_that_its_parent_has_open_and_may_open_others(
    model: PersonalModel, tiny_bundle: Path, tmp_path: Path
) -> None:
    message = in_fork(lambda: len(ids(tiny_bundle, tmp_path / "state")))
    assert message.startswith("StateError")
    assert f"process {os.getpid()} had open when it forked this one" in message
    assert in_fork(lambda: len(ids(tiny_bundle, tmp_path / "other"))) == 0
    count = len(model.examples)
    model.close()
    assert in_fork(lambda: len(ids(tiny_bundle, tmp_path / "state"))) == count


def test_a_fork_that_closes_drops_or_is_ended_leaves_the_parents_model_alone(model: PersonalModel) -> None:
    conversation = model.conversation(max_tokens=4).feed([40, 41])
    next(conversation)

    def leave() -> str:
        nonlocal model, conversation
        conversation.close()
        model.close()
        del conversation, model
        gc.collect()
        return "left"

    assert in_fork(leave) == "left"
    assert next(conversation).token is not None
    assert model.examples.add(numbers(3), id="after the fork").created


def test_locks_that_another_thread_held_at_the_fork_keep_nobody_waiting(model: PersonalModel) -> None:
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            model.examples.add(numbers(1))
            model.rollback()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(20):
            assert in_fork(model.versions).startswith("StateError")
    finally:
        ended.set()
        thread.join()


TRAINER = """
import os, sys, time
from bespoke import PersonalModel
from tests.unit.personal_model.tiny import add_numbers

def step(number, loss):
    if not os.fork():  # a worker that outlives the trainer
        time.sleep(60)
        os._exit(0)
    print("forked", flush=True)
    time.sleep(60)

with PersonalModel.open(sys.argv[1], sys.argv[2], engine="torch") as model:
    add_numbers(model)
    model.train(on_step=step)
"""


def test_a_fork_does_not_keep_the_lock_of_a_trainer_that_was_killed(tiny_bundle: Path, tmp_path: Path) -> None:
    trainer = subprocess.Popen(
        [sys.executable, "-c", TRAINER, tiny_bundle, tmp_path / "state"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        process_group=0,
    )
    assert trainer.stdout is not None
    assert trainer.stdout.readline() == b"forked\n"
    trainer.kill()
    trainer.wait()
    try:
        with PersonalModel.open(tiny_bundle, tmp_path / "state", engine="torch") as model:
            assert model.train().stopped_because == "finished"
    finally:
        os.killpg(trainer.pid, signal.SIGKILL)
        trainer.stdout.close()
