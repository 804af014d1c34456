# SPDX-License-Identifier: Apache-2.0
"""How many threads torch computes with: one for a small model, but what the user has said, and never for longer than a call."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bundles import stories_bundle
from tests.conftest import REPOSITORY

__all__ = ["stories_bundle"]

# Prints how many threads torch has inside a call (seen from a callback, and by how many threads the process has), and outside.
PROGRAM = """
import os, sys, torch
if sys.argv[3] != "none":
    torch.set_num_threads(int(sys.argv[3]))
from bespoke import PersonalModel
before = torch.get_num_threads()
inside = []
with PersonalModel.open(sys.argv[1], sys.argv[2], runtime="torch") as model:
    model.examples.add({"text": "Once upon a time there was a cat."})
    model.train(1, on_step=lambda step, loss: inside.append(torch.get_num_threads()))
    model.evaluate(split="train")
    between = [torch.get_num_threads() for _ in model.generate("Once upon", max_tokens=3)]
    stopped = model.generate("Once upon", max_tokens=9)
    next(stopped)
    stopped.close()
    try:
        model.train(1, stop=lambda: 1 / 0)
    except ZeroDivisionError:
        pass
print(before, inside[0], set(between) == {before}, torch.get_num_threads() == before, len(os.listdir("/proc/self/task")))
"""


def seen(bundle: Path, state: Path, asked: str = "none", **variables: str) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, bundle, state, asked],
        cwd=REPOSITORY,
        env={**environment, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one processor: nothing to choose")
def test_a_small_model_takes_one_thread_and_the_process_has_its_own_again(stories_bundle: Path, tmp_path: Path) -> None:
    before, inside, between, after, threads = seen(stories_bundle, tmp_path / "state")
    assert int(before) > 1  # what torch takes of itself
    assert (inside, between, after) == ("1", "True", "True")
    assert int(threads) < int(before) + 3  # none was started to compute with, and few for anything else


@pytest.mark.parametrize("variable", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
def test_a_number_in_the_environment_stands(stories_bundle: Path, tmp_path: Path, variable: str) -> None:
    before, inside, *same, _ = seen(stories_bundle, tmp_path / "state", **{variable: "2"})
    assert (before, inside, *same) == ("2", "2", "True", "True")


def test_a_number_that_the_host_gave_torch_stands(stories_bundle: Path, tmp_path: Path) -> None:
    asked = str(2 * (os.cpu_count() or 1) + 1)
    before, inside, *same, _ = seen(stories_bundle, tmp_path / "state", asked)
    assert (before, inside, *same) == (asked, asked, "True", "True")
