# SPDX-License-Identifier: Apache-2.0
"""How many threads torch computes with: one for a small model, but what the user has said, and never for longer than a call."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.support.bundles import stories_bundle

__all__ = ["stories_bundle"]

# Prints how many threads torch has inside a call (seen from a step, and by how many threads the process has), and outside.
PROGRAM = """
import os, sys, torch
import numpy as np
if sys.argv[2] != "none":
    torch.set_num_threads(int(sys.argv[2]))
from bespoke.bundle.reader import read_bundle
from bespoke.reference.evaluate import evaluate
from bespoke.reference.generate import generate
from bespoke.reference.machine import Machine
from bespoke.reference.train import train
from bespoke.rules.batches import Row
before = torch.get_num_threads()
inside = []
step = Machine.train_step
def watched(self, *given, **named):
    inside.append(torch.get_num_threads())
    return step(self, *given, **named)
Machine.train_step = watched
rows = [Row(np.arange(3, 20, dtype=np.int32), np.ones(17, np.uint8))]
with read_bundle(sys.argv[1]) as bundle:
    train(bundle, user_rows=rows, seed=1, steps=1)
    evaluate(bundle, rows)
    between = [torch.get_num_threads() for _ in generate(bundle, [5, 6], max_tokens=3)]
    stopped = generate(bundle, [5, 6], max_tokens=9)
    next(stopped)
    stopped.close()
    Machine.train_step = lambda self, *given, **named: 1 / 0
    try:
        train(bundle, user_rows=rows, seed=1, steps=1)
    except ZeroDivisionError:
        pass
print(before, inside[0], set(between) == {before}, torch.get_num_threads() == before, len(os.listdir("/proc/self/task")))
"""


def seen(bundle: Path, asked: str = "none", **variables: str) -> list[str]:
    environment = {
        name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, bundle, asked],
        cwd=REPOSITORY,
        env={**environment, **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()


@pytest.mark.slow
@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one processor: nothing to choose")
def test_a_small_model_takes_one_thread_and_the_process_has_its_own_again(stories_bundle: Path) -> None:
    before, inside, between, after, threads = seen(stories_bundle)
    assert int(before) > 1  # what torch takes of itself
    assert (inside, between, after) == ("1", "True", "True")
    assert int(threads) < int(before) + 3  # none was started to compute with, and few for anything else


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["OMP_NUM_THREADS", "MKL_NUM_THREADS"])
def test_a_number_in_the_environment_stands(stories_bundle: Path, variable: str) -> None:
    before, inside, *same, _ = seen(stories_bundle, **{variable: "2"})
    assert (before, inside, *same) == ("2", "2", "True", "True")


@pytest.mark.slow
def test_a_number_that_the_host_gave_torch_stands(stories_bundle: Path) -> None:
    asked = str(2 * (os.cpu_count() or 1) + 1)
    before, inside, *same, _ = seen(stories_bundle, asked)
    assert (before, inside, *same) == (asked, asked, "True", "True")
