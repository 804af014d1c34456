# SPDX-License-Identifier: Apache-2.0
"""Kill -9 inside a verb, at calls drawn over all that change a file: the state is the old one or the new one, never between.

`Kills(...).draw(verb, kills, seed)` does it. What was found is judged by tests/state_reader alone, from the files.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.kill.verbs_lab import STEPS
from tests.support.checks import count, new_seed, record_check
from tests.support.reading import read_state

REPOSITORY = Path(__file__).resolve().parents[2]
NEVER = 10**9
BEFORE, AFTER, TORN = 0, 1, 2  # values in faults.c
COMMITTED = "fsync state.sqlite-wal"


@dataclass(frozen=True)
class Look:
    """What the files say: of the state, and of an exported adapter beside it."""

    state: str
    versions: str
    exported: str


class Kills:
    """A lab of one bundle and one engine, in a folder of its own. A context manager."""

    def __init__(self, bundle: Path, engine: str, faults: Path, place: Path) -> None:
        self.bundle, self.engine, self.place = bundle, engine, place
        shared = place / "faults"
        shared.touch()
        os.truncate(shared, 2 << 20)
        self._work = place / "work"  # what is counted lies below it
        environment = {
            **os.environ,
            "LD_PRELOAD": str(faults),
            "FAULTS_SHARED": str(shared),
            "FAULTS_UNDER": str(self._work),
            "OMP_NUM_THREADS": "1",
        }
        self._lab = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.verbs_lab", bundle],
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._known: dict[str, tuple[list[str], list[Look]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._lab.stdin is not None
        self._lab.stdin.close()
        self._lab.wait()

    # ---- what is done ------------------------------------------------------------------------------------------------------

    def do(self, verb: str, hit: int = NEVER, mode: int = BEFORE) -> dict[str, Any]:
        """A verb in a process of its own, killed at call `hit`."""
        assert self._lab.stdin is not None
        assert self._lab.stdout is not None
        asked = {"verb": verb, "state": str(self._work / "state"), "beside": str(self._work), "engine": self.engine}
        self._lab.stdin.write(json.dumps({**asked, "hit": hit, "mode": mode}) + "\n")
        self._lab.stdin.flush()
        done: dict[str, Any] = json.loads(self._lab.stdout.readline())
        assert done["error"] == "", f"{verb}: {done['error']}"
        return done

    def look(self, left: Iterable[str] | None = ()) -> Look:
        """What lies there now; every promise holds, and nothing is left over but perhaps what is in `left`. None: anything."""
        found = read_state(self._work / "state", self.bundle)
        assert found["broken"] == [], found["broken"]
        assert left is None or set(found["left"]) <= set(left), found["left"]
        return Look(found["digest"], found["digests"]["versions"], _digest(self._work / "exported"))

    def fresh(self, verb: str) -> None:
        """The state that the verb begins with."""
        begin_with = self.place / "filled"
        if not begin_with.exists():
            for name, step in (("filled", "fill"), ("gone on", "go on")):
                self._work.mkdir(exist_ok=True)
                self.do(step)
                if step == "fill":
                    shutil.copytree(self._work / "adapter", self._work / "exported")
                    config = self._work / "exported" / "adapter_config.json"
                    config.write_text(config.read_text() + "\n")  # an earlier export, to be replaced
                shutil.copytree(self._work, self.place / name)
        shutil.rmtree(self._work)
        shutil.copytree(begin_with if verb.startswith("train") else self.place / "gone on", self._work)

    # ---- what is judged ----------------------------------------------------------------------------------------------------

    def draw(self, verb: str, kills: int, seed: int, *, gate: bool = False) -> Counter[str]:
        """So many kills inside a verb; `gate`: only behind the last step of a run. What came of them."""
        chance = random.Random(seed)
        if verb not in self._known:
            self._known[verb] = self._undisturbed(verb)
        log, committed = self._known[verb]
        old, new = committed[0], committed[-1]
        allowed = set(committed[-3:]) if gate else set(committed)
        first = 0
        if gate:
            first = next(number for number, call in enumerate(log) if call.startswith("write accepted_"))
        done: Counter[str] = Counter()
        while done["kills"] < kills:
            hit = chance.randrange(first, len(log))
            mode = chance.choice((BEFORE, AFTER, TORN) if "write" in log[hit] else (BEFORE, AFTER))
            where = f"{verb}, call {hit} of {len(log)} ({log[hit]}), mode {mode}, seed {seed}"
            found = self.kill_inside(verb, hit, mode, where)
            if found is None:  # fewer calls than when nobody killed it
                done["over before"] += 1
                assert done["over before"] <= 10 + kills // 10, where
                continue
            assert found in allowed, f"{where}: between old and new"
            done["kills"] += 1
            done["old" if found == old else "new" if found == new else "a commit of the run"] += 1
            self._after(verb, found, new, where)
        return done

    def kill_inside(self, verb: str, hit: int, mode: int, where: str) -> Look | None:
        """What is found after a kill at that call; None where the verb was over before."""
        self.fresh(verb)
        if not self.do(verb, hit, mode)["killed"]:
            return None
        try:
            return self.look(left=None)
        except AssertionError as error:
            raise AssertionError(f"{where}: {error}") from error

    def _undisturbed(self, verb: str) -> tuple[list[str], list[Look]]:
        """The calls of a verb that nobody kills, and the states that it commits: old, what a run commits on its way, new."""
        self.fresh(verb)
        old = self.look()
        log = self.do(verb)["log"]
        new = self.look()
        assert old != new, f"{verb} changes nothing"
        if not verb.startswith("train"):
            return log, [old, new]
        committed = [old]
        for hit in (number for number, call in enumerate(log) if call == COMMITTED):
            found = self.kill_inside(verb, hit, AFTER, f"{verb}, commit at call {hit}")
            if found is not None and found != committed[-1]:
                committed.append(found)
        # A run commits its start, each step, the adapter if it is accepted, and its end.
        assert len(committed) == 1 + 1 + STEPS + (old.versions != new.versions) + 1, f"{len(committed)} states"
        assert committed[-1] == new
        return log, committed

    def _after(self, verb: str, found: Look, new: Look, where: str) -> None:
        """The next open changes nothing that counts and removes what was left; done again, the verb gives the new state."""
        self.do("open")
        try:
            # The scratch file has a name for a moment; the next one who trains or forgets removes it.
            assert self.look(left=["scratch"]) == found, "the next open changed the state"
            if found != new or verb == "export":
                self.do(verb)
                assert self.look() == new, "done again, it is not the new state"
                if verb == "export":  # an unfinished one lies beside its target, and is removed by the next
                    assert {path.name for path in self._work.iterdir()} == {"state", "adapter", "exported"}
        except AssertionError as error:
            raise AssertionError(f"{where}: {error}") from error


def _digest(folder: Path) -> str:
    total = hashlib.sha256()
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        total.update(path.name.encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


KILLS = 150  # inside each verb, in the full run
FEW = 2  # in the fast one


def drawn(kills: Kills, verb: str, runtime: str, *, gate: bool = False) -> None:
    seed = new_seed()
    done = kills.draw(verb, max(FEW, count(KILLS)), seed, gate=gate)
    record_check(f"kill -9 inside {'the gate' if gate else verb}, on {runtime}", dict(done), seed)
