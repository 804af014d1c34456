# SPDX-License-Identifier: Apache-2.0
"""kill -9 inside an install, at calls drawn over all that change a file: the old bundle or the new one, whole, and the next install
removes what was left.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from bespoke import pack
from bespoke.bundle.reader import read_bundle
from tests.kill.conftest import faults, place
from tests.kill.inside import AFTER, BEFORE, NEVER, TORN
from tests.native.conftest import native_build
from tests.support.checks import count, new_seed, record_check
from tests.unit.bundle.example import write_example
from tests.unit.bundle.replaced import contents, rebuilt

__all__ = ["faults", "native_build", "place"]

KILLS = 150
FEW = 6


class Installs:
    """A bundle in its place, and archives of another one to go over it."""

    def __init__(self, program: Path, faults: Path, place: Path) -> None:
        self.program, self.faults, self.place = program, faults, place
        self.old, self.new = write_example(place / "old.bundle"), write_example(place / "new.bundle")
        rebuilt(self.new)
        self.whole = list(pack(self.new, place / "zips"))
        self.delta = list(pack(self.new, place / "zips", since=self.old))
        self.target = place / "app" / "chat.bundle"

    def fresh(self) -> None:
        shutil.rmtree(self.target.parent, ignore_errors=True)
        shutil.copytree(self.old, self.target)

    def install(self, archives: list[Path], hit: int = NEVER, mode: int = BEFORE) -> tuple[int, list[str]]:
        """Exit status, and the calls that changed a file."""
        log = self.place / "log"
        environment = {
            **os.environ,
            "LD_PRELOAD": str(self.faults),
            "FAULTS_ARM": f"{hit}:{mode}:0",
            "FAULTS_LOG": str(log),
            "FAULTS_UNDER": str(self.target.parent),
        }
        request = {"verb": "install", "archives": [str(path) for path in archives], "folder": str(self.target)}
        done = subprocess.run(
            [self.program], input=json.dumps(request) + "\n", text=True, capture_output=True, env=environment
        )
        return done.returncode, log.read_text().splitlines() if done.returncode == 0 else []


@pytest.mark.parametrize("kind", ["whole", "delta"])
def test_an_install_killed_inside_leaves_the_old_or_the_new_bundle(
    native_build: Path, faults: Path, place: Path, kind: str
) -> None:
    installs = Installs(native_build / "bespoke-core", faults, place)
    archives = installs.whole if kind == "whole" else installs.delta
    seed = new_seed()
    chance = random.Random(seed)
    installs.fresh()
    status, log = installs.install(archives)
    assert status == 0
    assert contents(installs.target) == contents(installs.new)
    assert any(call.startswith("rename") for call in log)
    assert any(call.startswith("link") for call in log) == (kind == "delta")
    done: Counter[str] = Counter()
    for _ in range(max(FEW, count(KILLS))):
        hit = chance.randrange(len(log))
        mode = chance.choice((BEFORE, AFTER, TORN) if log[hit].startswith("write") else (BEFORE, AFTER))
        where = f"call {hit} of {len(log)} ({log[hit]}), mode {mode}, seed {seed}"
        installs.fresh()
        assert installs.install(archives, hit, mode)[0] == -9, where
        found = contents(installs.target)
        assert found in (contents(installs.old), contents(installs.new)), where
        with read_bundle(installs.target) as bundle:
            bundle.verify_files()
        done["old" if found == contents(installs.old) else "new"] += 1
        assert installs.install(archives)[0] == 0, where
        assert contents(installs.target) == contents(installs.new), where
        assert [path.name for path in installs.target.parent.iterdir()] == [installs.target.name], where
    record_check(f"kill -9 inside an install, {kind}", {"kills": sum(done.values()), **done}, seed)
