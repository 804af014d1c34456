# SPDX-License-Identifier: Apache-2.0
"""An example that was reported as kept is there: several handles in a process, several processes on a state, some of them killed.

The judge is plain SQLite in yet another process, which knows nothing of our store.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from bespoke import PersonalModel
from tests.sharing import outside
from tests.sharing.c_api import CModel
from tests.sharing.lab import Adder, processes
from tests.support.checks import count, new_seed, record_check
from tests.unit.personal_model.tiny import add_numbers

MANY = [f"kept-{number}" for number in range(40)]


def test_examples_added_after_another_process_closed_are_kept(tiny_bundle: Path, tmp_path: Path) -> None:
    """With the locks of the first dropped, the second takes itself for the last one and deletes the log that is written to."""
    state, context = tmp_path / "alice", processes()
    twice = Adder(context, tiny_bundle, state, handles=2)
    twice.opened()
    once = Adder(context, tiny_bundle, state, handles=1)
    once.opened()
    once.close()
    assert twice.add(MANY) == MANY
    assert outside.example_ids(state) >= set(MANY)
    twice.close()
    assert outside.example_ids(state) >= set(MANY)


def test_examples_added_after_the_core_closed_are_kept(core: Path, tiny_core_bundle: Path, tmp_path: Path) -> None:
    state, context = tmp_path / "alice", processes()
    twice = Adder(context, tiny_core_bundle, state, handles=2)
    twice.opened()
    twice.add(["first"])
    with CModel(core, tiny_core_bundle, state) as trainer:
        trainer.train()
        trainer.good("close")
    assert twice.add(MANY) == MANY
    assert outside.example_ids(state) >= {"first", *MANY}  # not only when it closes, and writes what its log still held
    twice.kill()
    assert outside.example_ids(state) >= {"first", *MANY}


def test_steps_that_the_core_commits_after_another_process_closed_are_kept(
    core: Path, tiny_core_bundle: Path, tmp_path: Path
) -> None:
    state = tmp_path / "alice"
    with PersonalModel.open(tiny_core_bundle, state) as model:
        add_numbers(model)
    with CModel(core, tiny_core_bundle, state) as trainer:
        trainer.open_again()
        other = Adder(processes(), tiny_core_bundle, state, handles=1)
        other.opened()
        other.close()
        report = trainer.train()
        assert outside.read(state, "SELECT step FROM runs") == [[report["total_steps"]]]
    assert outside.read(state, "SELECT step, ended_because FROM runs") == [[report["total_steps"], "finished"]]


@pytest.mark.parametrize(
    "kills", [pytest.param(False, id="all end by themselves"), pytest.param(True, id="they are killed")]
)
def test_nothing_is_lost_in_rounds_of_three_processes(
    core: Path, tiny_core_bundle: Path, tmp_path: Path, kills: bool
) -> None:
    """In each round a process with two handles, one with one and the core with two open the state, add and leave, in any order."""
    seed, rounds, context = new_seed(), count(200), processes()
    chance, kept, killed = random.Random(seed), set[str](), 0
    state = tmp_path / "alice"
    for number in range(rounds):
        adders = [Adder(context, tiny_core_bundle, state, handles) for handles in (2, 1)]
        third = CModel(core, tiny_core_bundle, state)
        victims = [adder.kill for adder in adders] + [third.process.kill]
        last = number == rounds - 1  # which kills nobody early: something is kept however slow the machine is
        doomed = chance.sample(victims, chance.randrange(4)) if kills and not last else []
        timers = [threading.Timer(chance.uniform(0, 0.4), victim) for victim in doomed]
        for which, adder in enumerate(adders):
            adder.ask([f"round-{number}-{which}-{index}" for index in range(chance.randrange(1, 10))])
        for timer in timers:
            timer.start()
        try:
            with third:
                third.open_again()
                if chance.random() < 0.5:
                    third.close_again()
                third.good("close", 0)
        except EOFError:
            assert kills
        for which, adder in reversed(
            list(enumerate(adders))
        ):  # the one with two handles goes on when the others have left
            adder.ask([f"late-{number}-{which}-{index}" for index in range(chance.randrange(1, 10))])
            adder.finish()
            kept.update(adder.kept)
            assert not kept or outside.example_ids(state) >= kept, (
                f"round {number} of seed {seed}"
            )  # no table if all died early
            adder.kill() if kills else adder.close()
        for timer in timers:
            timer.join()
        killed += len(doomed) + 2 * kills
        assert not kept or outside.example_ids(state) >= kept, f"round {number} of seed {seed}"
    assert len(kept) > rounds
    name = "examples added by three processes, all killed" if kills else "examples added by three processes"
    record_check(name, {"rounds": rounds, "kills": killed, "examples reported as kept": len(kept), "lost": 0}, seed)
