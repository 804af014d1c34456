# SPDX-License-Identifier: Apache-2.0
"""Run as a program: has imported what the processes of the stress need, and forks one of them at each request, within milliseconds.

    python -m tests.stress.zygote BUNDLES STATE EXPORTS JOURNALS SEED

Reads a JSON object a line. {"role", "name"} is answered with the number of a new process; {} with those that have ended
meanwhile, as a list of [number, status]. Processes that lose their parent become children of this one, so none is left unseen.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
import tempfile
import traceback
from pathlib import Path

from bespoke import PersonalModel
from tests.stress.acting import Acting, Places
from tests.stress.roles import live

PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, SIGKILL = 36, 1, 9


def main(places: Places, seed: int) -> None:
    prctl = ctypes.CDLL(None).prctl
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    import_all(places)
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        if asked:
            pid = os.fork()
            if pid == 0:
                prctl(PR_SET_PDEATHSIG, SIGKILL)
                act(places, asked["role"], asked["name"], seed)
            print(json.dumps(pid), flush=True)
        else:
            print(json.dumps(reaped()), flush=True)


def import_all(places: Places) -> None:
    """By doing it once: torch and the compiled programs take seconds. The model is closed before anything is forked."""
    place = Path(tempfile.mkdtemp())
    with PersonalModel.open(places.bundles / "one", place / "state", engine="torch") as model:
        for number in range(2):
            model.examples.add({"text": f"the cat sat on {number}"})
        model.train(run_steps=1, method="mesp")
        list(model.generate("the cat ", max_tokens=1))
    shutil.rmtree(place)


def act(places: Places, role: str, name: str, seed: int) -> None:
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        said = os.open(places.journals / f"{name}.said", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(said, 1)
        os.dup2(said, 2)
        live(Acting(places, name, seed), role)
        status = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def reaped() -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if not pid:
            return found
        found.append((pid, os.waitstatus_to_exitcode(status)))


if __name__ == "__main__":
    main(Places(*map(Path, sys.argv[1:5])), int(sys.argv[5]))
