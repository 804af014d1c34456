# SPDX-License-Identifier: Apache-2.0
"""Run as a program with faults.c preloaded: does one verb of PersonalModel in a forked process, killed at a call that it is told.

    python -m tests.kill.verbs_lab BUNDLE

Reads a JSON object a line, {"verb", "state", "beside", "engine", "hit", "mode"}, and answers with {"killed", "error", "log"}:
whether the process died of its kill, an error that it ended with, and the calls that changed a file. Knows the verbs of
PersonalModel and nothing of how a state is kept.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bespoke import PersonalModel
from tests.unit.personal_model.tiny import add_numbers, numbers

STEPS = 5  # steps of the run that is killed
PR_SET_CHILD_SUBREAPER = 36

Verb = Callable[[PersonalModel, Path], object]


def fill(model: PersonalModel, beside: Path) -> None:
    """Examples and an accepted adapter, exported too."""
    add_numbers(model)
    assert model.train(run_steps=6, method="mesp", seed=5).accepted
    model.export_adapter(beside / "adapter")


def go_on(model: PersonalModel, beside: Path) -> None:
    """An unfinished run, behind more adapters that were accepted than are kept."""
    for _ in range(3):
        model.import_adapter(beside / "adapter")
    model.train(run_steps=30, method="mesp", stop=lambda: True)
    model.train(most_steps=3)


VERBS: dict[str, Verb] = {
    "fill": fill,
    "go on": go_on,
    "open": lambda model, beside: None,
    "train": lambda model, beside: model.train(run_steps=STEPS, method="mesp"),
    "train with a journal": lambda model, beside: model.train(run_steps=STEPS, method="mezo", learning_rate=0.01),
    "add two": lambda model, beside: [model.examples.add(numbers(40 + n), id=f"new {n}") for n in (1, 2)],
    "export": lambda model, beside: model.export_adapter(beside / "exported"),
}


def faults() -> Any:
    library = ctypes.CDLL(None)
    library.faults_arm.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_int]
    library.faults_log.restype = ctypes.c_char_p
    return library


def do(bundle: Path, asked: dict[str, Any]) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            faults().faults_arm(asked["hit"], asked["mode"], 0)
            with PersonalModel.open(bundle, asked["state"], engine=asked["engine"]) as model:
                VERBS[asked["verb"]](model, Path(asked["beside"]))
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode()[:2000])
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        error = pipe.read()
    _, status = os.waitpid(child, 0)
    try:
        while True:  # what it had started, which is this process's now, and which dies with it
            os.wait()
    except ChildProcessError:
        pass
    log = faults().faults_log().decode(errors="replace").splitlines()
    faults().faults_arm(-1, 0, 0)
    return {"killed": os.WIFSIGNALED(status), "error": error, "log": log}


def main(bundle: Path) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    place = tempfile.mkdtemp()
    with PersonalModel.open(bundle, Path(place) / "state", engine="torch") as model:
        add_numbers(model, 4)
        model.train(run_steps=1, method="mesp")  # imports what a verb needs, once for all of them
    shutil.rmtree(place)
    for line in sys.stdin:
        print(json.dumps(do(bundle, json.loads(line))), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
