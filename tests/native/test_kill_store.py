# SPDX-License-Identifier: Apache-2.0
"""kill -9 inside each verb of the core's store but those of training, at calls drawn over all that change a file.

What is found is judged by tests/state_reader alone, from the files: the state is the old one or the new one, never between, and no
byte of a forgotten example is left after the next open.
"""

from __future__ import annotations

import json
import random
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.kill.conftest import faults, new_place
from tests.native.core_store import CoreStore, JournalRow
from tests.native.state.states import BASE, SHAPES, adapter, add, digest, slot_tensors, token_row
from tests.support.checks import count, few_of, new_seed, record_check
from tests.support.faulty import KILL_AFTER, KILL_BEFORE, KILL_TORN, NEVER
from tests.support.reading import read_state

__all__ = ["faults"]

KILLS = 150  # inside each verb, in the full run
FEW = 2  # in the fast one
NEW_BASE = "e" * 64
SECRET = "the words that are to be forgotten, which fill more than one page " + "of the database " * 400
FORGOTTEN = (SECRET, json.dumps([1, *SECRET.encode()]))


def retokenize(example: dict[str, Any]) -> Sequence[Any]:
    return [token_row(2, *reversed(example["text"].encode()))]


VERBS: dict[str, Callable[[CoreStore], Any]] = {
    "add": lambda store: add(store, "one more thing to remember", id="new"),
    "forget": lambda store: store.forget("secret"),
    "rollback": lambda store: store.rollback(),
    "reset": lambda store: store.reset(),
    "import": lambda store: store.import_version(adapter(9), "elsewhere"),
    "reset for a new base": lambda store: store.reset_base(NEW_BASE, SHAPES, retokenize),
    "add two": lambda store: (add(store, "one more", id="new 1"), add(store, "and one more", id="new 2")),
}


def fill(store: CoreStore) -> None:
    """Adapters that have and have not seen the secret, one from elsewhere, and an unfinished run with slots and a journal."""
    sizes = [0, 5, 90, 700, 5000, 3000, 40, 1]
    for number, size in enumerate(sizes):
        add(store, f"the {number}. thing to remember " + "z" * size, id=f"note-{number}")
    train(store, 1, None)
    add(store, SECRET, id="secret")
    for number, size in enumerate(sizes, len(sizes)):
        add(store, f"the {number}. thing to remember " + "y" * size, id=f"note-{number}")
    train(store, 2, store.accepted()[-1].id)
    start = store.import_version(adapter(3), "elsewhere")
    run = store.start_run("mezo", 7, {"training": {}}, store.example_ids(), 100, start)
    for step in (2, 4):
        assert store.append_journal(run.id, [journal_row(step - 1), journal_row(step)])
        assert store.commit_step(run.id, step=step, cursor=cursor(step), tensors=slot_tensors(100 + step))
    assert store.append_journal(run.id, [journal_row(5)])


def train(store: CoreStore, seed: int, started_from: int | None) -> None:
    run = store.start_run("mesp", seed, {"training": {}}, store.example_ids(), 2, started_from)
    metrics = [{"step": 1}, {"step": 2}]
    assert store.commit_step(run.id, step=2, cursor=cursor(2), tensors=slot_tensors(seed), metrics=metrics)
    assert store.accept(run.id, adapter(seed), {}) is not None
    assert store.end_run(run.id, "finished")


def cursor(step: int) -> dict[str, int]:
    return {"step": step, "user_position": 2 * step, "general_position": 0}


def journal_row(step: int) -> JournalRow:
    return JournalRow(step, cursor(step), [0.5, float(step)], False, {"step": step})


class Kills:
    """One verb, again and again on a fresh copy of one state."""

    def __init__(self, program: Path, library: Path, place: Path) -> None:
        self.program, self.library, self.filled, self.work = program, library, place / "filled", place / "work"
        with CoreStore.open(program, self.filled, BASE, SHAPES) as store:
            fill(store)
        self._known: dict[str, tuple[list[str], str, str]] = {}

    def draw(self, verb: str, kills: int, seed: int) -> Counter[str]:
        chance = random.Random(seed)
        if verb not in self._known:
            self._known[verb] = self._undisturbed(verb)
        log, old, new = self._known[verb]
        done: Counter[str] = Counter()
        while done["kills"] < kills:
            call = chance.randrange(len(log))
            mode = chance.choice(
                (KILL_BEFORE, KILL_AFTER, KILL_TORN) if "write" in log[call] else (KILL_BEFORE, KILL_AFTER)
            )
            where = f"{verb}, call {call} of {len(log)} ({log[call]}), mode {mode}, seed {seed}"
            self._fresh()
            assert self._do(verb, call, mode) is None, where
            found = self._look(None, where)
            assert found in (old, new), f"{where}: between old and new"
            done["kills"] += 1
            done["new" if found == new else "old"] += 1
            self._after(verb, found, new, where)
        return done

    def _undisturbed(self, verb: str) -> tuple[list[str], str, str]:
        """The calls of a verb that nobody kills, and the states before and after it."""
        self._fresh()
        old = self._look((), verb)
        log = self._do(verb, NEVER, KILL_BEFORE)
        assert log is not None
        new = self._look((), verb)
        assert old != new
        return log, old, new

    def _fresh(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.filled, self.work)

    def _do(self, verb: str, call: int, mode: int) -> list[str] | None:
        """The calls that it made; None where it was killed."""
        with CoreStore.open(self.program, self.work, BASE, SHAPES, self.library) as store:
            store.act("arm", call=call, mode=mode, error=0)
            try:
                VERBS[verb](store)
                calls: list[str] = store.act("log").splitlines()
            except EOFError:
                return None
            store.act("arm", call=-1, mode=0, error=0)
            return calls

    def _look(self, left: Sequence[str] | None, where: str, forgotten: Sequence[str] = ()) -> str:
        """What lies there now; every promise holds, and nothing is left over. `left` None: anything may be."""
        found = read_state(self.work, forgotten=forgotten)
        assert found["broken"] == [], f"{where}: {found['broken']}"
        assert left is None or found["left"] == list(left), f"{where}: {found['left']}"
        return str(found["digest"])

    def _after(self, verb: str, found: str, new: str, where: str) -> None:
        """The next open changes nothing that counts and removes what was left; done again, the verb gives the new state."""
        base = NEW_BASE if verb == "reset for a new base" and found == new else BASE
        with CoreStore.open(self.program, self.work, base, SHAPES):
            pass
        forgotten = FORGOTTEN if verb == "forget" and found == new else ()
        assert self._look((), f"{where}, after the next open", forgotten) == found, (
            f"{where}: the next open changed the state"
        )
        if found != new:
            assert self._do(verb, NEVER, KILL_BEFORE) is not None
            assert self._look((), f"{where}, done again", FORGOTTEN if verb == "forget" else ()) == new, where


@pytest.fixture(scope="module")
def kills(native_build: Path, faults: Path) -> Iterator[Kills]:
    with new_place() as place:
        yield Kills(native_build / "tests" / "state_lab", faults, place)


@pytest.mark.parametrize("verb", few_of([verb for verb in VERBS if verb != "add two"], ("add", "forget")))
def test_a_verb_killed_inside_leaves_the_old_or_the_new_state(kills: Kills, verb: str) -> None:
    seed = new_seed()
    done = kills.draw(verb, max(FEW, count(KILLS)), seed)
    record_check(f"kill -9 inside {verb}, on the core's store", dict(done), seed)


def test_a_verb_that_commits_in_two_parts_is_caught(kills: Kills) -> None:
    with pytest.raises(AssertionError, match="between old and new"):
        kills.draw("add two", 100, seed=1)


def test_killed_at_random_instants_no_acknowledged_commit_is_lost(native_build: Path) -> None:
    program, trials, seed = native_build / "tests" / "state_lab", max(10, count(200)), new_seed()
    chance = random.Random(seed)
    later = 0
    with new_place() as place:
        state = place / "alice"
        with CoreStore.open(program, state, BASE, SHAPES) as store:
            add(store, "a thing to remember", id="note")
            run = store.start_run("mesp", 1, {"training": {}}, store.example_ids(), 10**6)
            commit(store, run.id, 1)
        for _ in range(trials):
            acknowledged = commits_until_killed(program, state, run.id, chance)
            found = read_state(state)
            assert found["broken"] == [], found["broken"]
            assert found["newest_run"]["step"] in (acknowledged, acknowledged + 1)
            later += found["newest_run"]["step"] != acknowledged
    record_check("kill -9 of the core's store at random instants", {"kills": trials, "after the commit": later}, seed)


def commits_until_killed(program: Path, state: Path, run: int, chance: random.Random) -> int:
    """The last step of which the caller heard."""
    with CoreStore.open(program, state, BASE, SHAPES) as store:
        slot = store.latest_slot(run)
        assert slot is not None
        assert digest(slot.tensors) == digest(slot_tensors(slot.step))
        acknowledged = slot.step
        started = time.monotonic()
        for _ in range(chance.randrange(1, 4)):
            commit(store, run, acknowledged + 1)
            acknowledged += 1
        commit_seconds = (time.monotonic() - started) / (acknowledged - slot.step)
        killer = threading.Timer(chance.uniform(0, 1.5 * commit_seconds), store.kill)
        killer.start()
        try:
            while True:
                commit(store, run, acknowledged + 1)
                acknowledged += 1
        except (EOFError, BrokenPipeError):
            killer.join()
            return acknowledged


def commit(store: CoreStore, run: int, step: int) -> None:
    assert store.commit_step(run, step=step, cursor=cursor(step), tensors=slot_tensors(step), metrics=[{"step": step}])
