# SPDX-License-Identifier: Apache-2.0
"""A stress: keeps the processes alive, kills them, and stops all of them from time to time to look at the files."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.stress.acting import HANG_SECONDS, Places
from tests.stress.files import (
    broken_exports,
    broken_tokens,
    bundle_of,
    learned,
    promises,
    stored_examples,
)
from tests.stress.journal import Operation, operations_of
from tests.stress.legal import faults
from tests.stress.oracle import Known, Oracle, broken_bases, broken_versions, forgotten_words, words_of
from tests.stress.residue import residue
from tests.stress.roles import CAST

REPOSITORY = Path(__file__).resolve().parents[2]
CORE = b"bespoke-core"
SHOWN = 40  # problems
FAVOURED = {"forgetter": 4, "resetter": 2}  # to be killed: what they do has the most parts
MOMENTS = (0.006, 0.03, 0.2)  # seconds
WITHIN_FORGETTING = (0.004, 0.012, 0.03)
OPERATION_SECONDS = 1.5  # the longest that is waited for one to begin
ENDS = HANG_SECONDS + 20.0  # seconds within which everyone has ended, once told to stop


class Stress:
    """In a place of its own. A context manager."""

    def __init__(self, bundles: Path, place: Path, journals: Path, seed: int, broken_off: int = 8) -> None:
        """`broken_off`: how many forgettings are broken off one after the other whenever the files are looked at."""
        self.places = Places(bundles, place / "state", place / "exports", journals)
        self.places.exports.mkdir()
        self.places.journals.mkdir()
        self.seed, self._broken_off = seed, broken_off
        self.kills: Counter[str] = Counter()  # by role, and of the core's processes
        self._chance = random.Random(seed)
        self._oracle = Oracle()
        self._alive: dict[int, str] = {}  # process -> its name
        self._role: dict[str, str] = {}
        self._doomed: set[int] = set()
        self._core_kills: Counter[int] = Counter()  # by the parent's number
        self._ended: dict[str, float] = {}
        self._told: dict[Path, list[Operation]] = {}  # by journal
        self._serial = 0
        self._begun = time.monotonic()
        command = [sys.executable, "-m", f"{__package__}.zygote", *map(str, vars(self.places).values()), str(seed)]
        self._zygote = subprocess.Popen(
            command,
            cwd=REPOSITORY,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == "ready"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill_all()
        assert self._zygote.stdin is not None
        self._zygote.stdin.close()
        self._zygote.wait()
        if error is not None and self.places.state.exists():  # to be looked at, with the journals
            shutil.copytree(self.places.state, self.places.journals / "state")
            shutil.copytree(self.places.exports, self.places.journals / "exports")

    def run(self, seconds: float, kill_seconds: float, check_seconds: float) -> list[Operation]:
        """All operations. AssertionError where a promise is broken."""
        end = time.monotonic() + seconds
        for role in CAST:
            self._start(role)
        while (now := time.monotonic()) < end:
            check = min(now + check_seconds, end)
            next_kill = now + self._chance.expovariate(1 / kill_seconds)
            while (now := time.monotonic()) < check:
                if now >= next_kill:
                    self._kill_one()
                    next_kill = now + self._chance.expovariate(1 / kill_seconds)
                self._replace_the_dead()
                time.sleep(0.02)
            found = self.check(kill=now >= end or self._chance.random() < 0.6)
            if now < end:
                for role in CAST:
                    self._start(role)
        return found

    # ---- processes -------------------------------------------------------------------------------------------------------

    def _ask(self, order: dict[str, str]) -> Any:
        assert self._zygote.stdin is not None
        self._zygote.stdin.write(json.dumps(order) + "\n")
        self._zygote.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._zygote.stdout is not None
        return json.loads(self._zygote.stdout.readline())

    def _start(self, role: str) -> int:
        self._serial += 1
        name = f"{role}-{self._serial:05}"
        pid: int = self._ask({"role": role, "name": name})
        self._alive[pid] = name
        self._role[name] = role
        return pid

    def _replace_the_dead(self) -> None:
        for role in self._reap():
            self._start(role)

    def _reap(self) -> list[str]:
        """Roles of those that have ended."""
        roles = []
        for pid, status in self._ask({}):
            name = self._alive.pop(pid, None)
            doomed = pid in self._doomed
            self._doomed.discard(pid)
            if name is None:
                if status < 0 and status not in (-signal.SIGKILL, -signal.SIGTERM):
                    self.fail([f"a process that had lost its parent ended with {status}"])
                continue
            self._ended[name] = time.monotonic()
            roles.append(self._role[name])
            right = (
                status == -signal.SIGKILL
                if doomed
                else status == 0 and (self.places.stopped() or self._role[name] == "opener")
            )
            if not right and not (doomed and status == 0):
                said = (self.places.journals / f"{name}.said").read_text()
                stacks = (self.places.journals / f"{name}.stacks").read_text()
                self.fail(
                    [f"{name} ended with {status}{', it hung' if stacks else ''}:\n{said[-3000:]}\n{stacks[-6000:]}"]
                )
        return roles

    def _kill_one(self) -> None:
        """A process of the stress, or of the core that one of them has started."""
        cores = [] if self._chance.random() < 0.7 else self._children(set(self._alive), CORE)
        if cores:
            pid, parent = self._chance.choice(cores)
            with contextlib.suppress(ProcessLookupError):
                held = os.pidfd_open(pid)
                try:
                    if parent_of(pid) == parent:  # it is still the same
                        signal.pidfd_send_signal(held, signal.SIGKILL)
                        self._core_kills[parent] += 1
                        self.kills["core"] += 1
                finally:
                    os.close(held)
            return
        alive = sorted(self._alive)
        pid = self._chance.choices(alive, [FAVOURED.get(self._role[self._alive[pid]], 1) for pid in alive])[0]
        if self._chance.random() < 0.7:
            self._wait_for_an_operation(self._alive[pid])
        self._kill(pid)

    def _wait_for_an_operation(self, name: str, op: str = "", moments: Sequence[float] = MOMENTS) -> None:
        """Until one begins, and a part of one of `moments` longer: most of the time a process waits for the next."""
        journal, deadline = self.places.journals / f"{name}.jsonl", time.monotonic() + OPERATION_SECONDS
        size, begun = journal.stat().st_size if journal.exists() else 0, False
        while not begun and time.monotonic() < deadline:
            time.sleep(0.001)
            if journal.exists():
                with journal.open("rb") as file:
                    file.seek(size)
                    begun = f'"op": "{op}'.encode() in file.read()
        time.sleep(self._chance.choice(moments) * self._chance.random())

    def _kill(self, pid: int) -> None:
        if pid not in self._doomed:
            self._doomed.add(pid)
            os.kill(pid, signal.SIGKILL)  # not reaped yet, so the number is still its own
            self.kills[self._role[self._alive[pid]]] += 1

    def _kill_all(self) -> None:
        """In the middle of forgetting, where that can be: the next one to forget would finish what was broken off."""
        first = [pid for pid, name in self._alive.items() if self._role[name] == "forgetter"]
        for pid in first:
            self._wait_for_an_operation(self._alive[pid], "forget")
        for pid in [*first, *self._alive]:
            self._kill(pid)
        self._wait_for_all(kill=True)

    def _wait_for_all(self, *, kill: bool) -> None:
        """Until the zygote has no child left, those that have lost their parent included."""
        deadline = time.monotonic() + ENDS
        while True:
            self._reap()
            children = self._children({self._zygote.pid})
            if not children and not self._alive:
                return
            if time.monotonic() > deadline:
                self.fail([f"not ended within {ENDS} s: {children}, {self._alive}"])
            for pid, _ in children if kill else []:
                if pid not in self._alive:
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)

    def _children(self, parents: set[int], named: bytes = b"") -> list[tuple[int, int]]:
        """(process, parent)."""
        found = []
        for path in Path("/proc").iterdir():
            if path.name.isdigit() and (parent := parent_of(int(path.name))) in parents:
                with contextlib.suppress(OSError):
                    if named in (path / "cmdline").read_bytes():
                        found.append((int(path.name), parent))
        return found

    # ---- looking ---------------------------------------------------------------------------------------------------------

    def check(self, *, kill: bool) -> list[Operation]:
        """Ends everyone, with a kill or politely, and looks at the files before and after the next open."""
        if kill:
            self._kill_all()
        else:
            self.places.stop.touch()
            self._wait_for_all(kill=False)
            self.places.stop.unlink()
        at = time.monotonic()
        done = self._operations(at)
        told = faults(done, self._core_kills)
        made = self.places.state / "files.lock"  # which says so once there is a database
        if not made.is_file() or not made.stat().st_size:
            self.fail(told)
            return done
        state, bundles = self.places.state, self.places.bundles
        shutil.rmtree(self.places.found, ignore_errors=True)
        shutil.copytree(state, self.places.found)
        bundle = bundle_of(state, bundles)
        problems, _, before = promises(state, bundles / bundle)
        known = self._oracle.examples(done)
        stored = stored_examples(state)
        problems += self._oracle.look(at, stored, known) + broken_tokens(state)
        problems += broken_versions(done, learned(state)) + broken_bases(done) + broken_exports(self.places.exports)
        problems += [f"residue: {one}" for one in residue(state, forgotten_words(known, stored, finished=False))]
        self._start("opener")
        self._wait_for_all(kill=False)
        broken, left, after = promises(state, bundles / bundle)
        problems += [f"after the next open, {one}" for one in broken]
        problems += [f"after the next open, {one} is left" for one in left if one != "scratch"]
        problems += ["the next open changed what the state says"] if before != after else []
        words = forgotten_words(known, stored, finished=True)
        problems += [f"residue after the next open: {one}" for one in residue(state, words)]
        for _ in range(self._broken_off):
            problems += self._break_off_forgetting(known)
        self.fail(problems + told)
        return done

    def _operations(self, at: float) -> list[Operation]:
        """All so far, in the order in which they began, while nobody runs: a journal that was read once has not changed."""
        for path in self.places.journals.glob("*.jsonl"):
            if path not in self._told:
                self._told[path] = operations_of(path, self._ended.get(path.stem, at))
        return sorted((one for told in self._told.values() for one in told), key=lambda one: one.start)

    def _break_off_forgetting(self, known: dict[str, Known]) -> list[str]:
        """A process that forgets is alone, and killed: among others, the next to forget would finish what was broken off. What the
        next open leaves of an example that has gone."""
        pid = self._start("forgetter")
        name = self._alive[pid]
        self._wait_for_an_operation(name, "forget", WITHIN_FORGETTING)
        self._kill(pid)
        self._wait_for_all(kill=True)
        self._start("opener")
        self._wait_for_all(kill=False)
        told = operations_of(self.places.journals / f"{name}.jsonl", time.monotonic())
        stored = stored_examples(self.places.state)
        gone = [one.intent["id"] for one in told if one.op == "forget" and one.intent["id"] not in stored]
        left = residue(self.places.state, [word for id in gone for word in words_of(id, known[id])])
        return [f"residue of a forgetting by {name} that was broken off, after the next open: {one}" for one in left]

    def fail(self, problems: list[str]) -> None:
        """AssertionError, unless there are none."""
        if problems:
            shown = "\n".join(problems[:SHOWN])
            after = time.monotonic() - self._begun
            raise AssertionError(
                f"seed {self.seed}, after {after:.0f} s, {len(problems)} broken promises; journals and state lie in "
                f"{self.places.journals}:\n{shown}"
            )


def parent_of(pid: int) -> int:
    """0 where it is gone."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0
