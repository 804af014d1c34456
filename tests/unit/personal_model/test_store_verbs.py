# SPDX-License-Identifier: Apache-2.0
"""Examples by the list, what a bundle says of itself, idle memory, and other processes that keep a state busy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bespoke import PersonalModel
from bespoke.errors import ConfigError, DataError, Unavailable
from tests.unit.personal_model.conftest import Open
from tests.unit.personal_model.tiny import numbers

# Holds the lock on a state's files, as a process in the middle of a commit does.
HOLDS = """
import fcntl, sys, time
held = open(sys.argv[1], "r+")
fcntl.flock(held, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
time.sleep(float(sys.argv[2]))
"""


def holder(state: Path, seconds: float = 0) -> subprocess.Popen[bytes]:
    """Holds the lock until its input ends, and for some seconds after it."""
    command = [sys.executable, "-c", HOLDS, str(state / "files.lock"), str(seconds)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def test_a_list_of_examples_is_added_whole_or_not_at_all(opened: Open) -> None:
    model = opened(count=0)
    with pytest.raises(DataError, match="example 2 of the list"):
        model.examples.add_all([numbers(0), numbers(1), {"tokens": []}])
    assert len(model.examples) == 0
    added = model.examples.add_all((numbers(index) for index in range(12)), use="train")
    assert [one.id for one in added] == [info.id for info in model.examples.list()]
    assert {one.split for one in added} == {"train"}
    assert not any(again.created for again in model.examples.add_all([numbers(3), numbers(3)]))
    assert model.examples.add_all([]) == []


def test_the_split_of_a_list_is_that_of_its_examples_one_by_one(opened: Open) -> None:
    examples = [numbers(index) for index in range(40)]
    alone = [opened("alone", count=0).examples.add(example) for example in examples]
    assert opened("together", count=0).examples.add_all(examples) == alone


def test_examples_are_listed_page_by_page(alice: PersonalModel) -> None:
    every = alice.examples.list()
    pages, last = [], ""
    while page := alice.examples.list(after=last, most=5):
        pages.append(page)
        last = page[-1].id
    assert [len(page) for page in pages] == [5, 5, 2]
    assert [info for page in pages for info in page] == every
    with pytest.raises(DataError, match="nobody"):
        alice.examples.list(after="nobody")
    with pytest.raises(ConfigError):
        alice.examples.list(most=-1)


def test_a_bundle_says_what_it_is(alice: PersonalModel) -> None:
    said = alice.describe()
    manifest = alice._bundle.manifest
    assert (said.model, said.licence) == (manifest.model.name, manifest.model.licence)
    assert said.context_length == manifest.context_length
    assert said.methods == tuple(method.name for method in manifest.methods)
    assert said.targets == alice.targets
    assert not said.takes_text
    assert alice.count_tokens([1, 2, 3]) == 3


def test_idle_memory_is_given_back_and_the_conversation_goes_on(opened: Open) -> None:
    model = opened(engine="torch")  # type: ignore[arg-type]
    model.trim()  # nothing is there yet
    straight = model.conversation(max_tokens=8)
    expected = [piece.token for piece in straight.feed([1, 2, 3])]
    conversation = model.conversation(max_tokens=8)
    conversation.feed([1, 2, 3])
    tokens = []
    for piece in conversation:
        tokens.append(piece.token)
        model.trim()
    assert tokens == expected


def test_a_call_waits_for_another_process_as_long_as_it_was_told(tiny_bundle: Path, tmp_path: Path) -> None:
    state = tmp_path / "alice"
    PersonalModel.open(tiny_bundle, state).close()
    held = holder(state)
    try:
        with pytest.raises(Unavailable, match=r"0\.05 s"):
            PersonalModel.open(tiny_bundle, state, busy_seconds=0.05)
    finally:
        held.communicate()
    PersonalModel.open(tiny_bundle, state, busy_seconds=None).close()
    with pytest.raises(ConfigError, match="busy_seconds"):
        PersonalModel.open(tiny_bundle, state, busy_seconds=-1)


def test_a_training_that_is_stopped_waits_for_another_process_and_commits(opened: Open, tmp_path: Path) -> None:
    model = opened(engine="torch")  # type: ignore[arg-type]
    held: list[subprocess.Popen[bytes]] = []

    def hold(step: int, _: float) -> None:
        held.append(holder(tmp_path / "alice", seconds=0.3))
        assert held[-1].stdin is not None
        held[-1].stdin.close()

    report = model.train(run_steps=9, on_step=hold, stop=lambda: bool(held))
    assert report.stopped_because == "stop_requested"
    run = model.current_run()
    assert run is not None
    assert run.step == report.total_steps == len(held) > 0
    assert [process.wait() for process in held] == [0] * len(held)
