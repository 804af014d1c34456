# SPDX-License-Identifier: Apache-2.0
"""Answers and training on torch with one thread, with all and with the SDK's own choice, on an idle machine and on a busy one.

Idle: with real-time priority where the system allows it, so that nothing else takes the cores meanwhile. Busy: with three
processes a core that do nothing but count. A run that takes longer than LONGEST is ended, and its cells say so. The table is
printed, and stands on no page.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.benchmarks.figures import Cell, markdown
from tests.conftest import REPOSITORY
from tests.support.models import tiny_model

LONGEST = 300  # seconds of one cell
TOKENS, STEPS = 16, 3
SPINNERS = 3  # a core
SHAPES = {  # without stories260K; the last one has two of the blocks of Qwen2.5-0.5B, and less of a vocabulary
    "hidden 256, 4 blocks": {
        "hidden_size": 256,
        "intermediate_size": 768,
        "num_attention_heads": 8,
        "num_hidden_layers": 4,
        "vocab_size": 4096,
    },
    "Qwen2.5-0.5B's shape, 2 of 24 blocks": {
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_attention_heads": 14,
        "num_hidden_layers": 2,
        "vocab_size": 8192,
    },
}

BUILD = """
import sys
from bespoke import Personalizer, Training
training = Training(sequence_lengths=(64,), steps=50)
Personalizer(sys.argv[1], "mesp", "torch", training=training, rehearsal=False, licence="none").build(sys.argv[2])
"""
MEASURE = f"""
import os, statistics, sys, time
if sys.argv[3] == "idle":
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(10))
    except PermissionError:
        pass
from bespoke import PersonalModel
with PersonalModel.open(sys.argv[1], sys.argv[2], engine="torch") as model:
    model.examples.add({{"tokens": [1 + place % 100 for place in range(60)]}})
    list(model.generate_ids([1, 40, 50], max_tokens=2))
    began = time.perf_counter()
    made = len(list(model.generate_ids([1, 40, 50], max_tokens={TOKENS})))
    token = (time.perf_counter() - began) / made
    print(token, statistics.median(model.train(run_steps={STEPS}).step_seconds))
"""


@contextmanager
def spinning(count: int) -> Iterator[None]:
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def measured(bundle: Path, state: Path, load: str, threads: str) -> list[Cell]:
    """Milliseconds of a token, seconds of a step."""
    environment = {
        name: value for name, value in os.environ.items() if name not in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")
    }
    if threads.isdigit():
        environment["OMP_NUM_THREADS"] = threads
    command = [sys.executable, "-c", MEASURE, str(bundle), str(state), load]
    with spinning(SPINNERS * (os.cpu_count() or 1) if load == "busy" else 0):
        try:
            done = subprocess.run(
                command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=LONGEST
            )
        except subprocess.TimeoutExpired:
            return [f"ended after {LONGEST} s", f"ended after {LONGEST} s"]
    assert done.returncode == 0, done.stderr[-3000:]
    token, step = map(float, done.stdout.split())
    return [token * 1000, step]


@pytest.mark.benchmark
def test_a_busy_machine_does_not_make_torch_wait_for_itself(stories: Path, tmp_path: Path) -> None:
    models = {"stories260K": stories}
    for number, (name, shape) in enumerate(SHAPES.items()):
        models[name] = tiny_model("qwen2", tmp_path / f"model_{number}", **shape)
    rows: list[list[Cell]] = []
    every = str(os.cpu_count())
    for number, (name, folder) in enumerate(models.items()):
        bundle = tmp_path / f"bundle_{number}"
        subprocess.run([sys.executable, "-c", BUILD, folder, bundle], cwd=REPOSITORY, check=True)
        for threads in ("1", every, "default"):
            cells = [
                measured(bundle, tmp_path / f"{number}_{threads}_{load}", load, threads) for load in ("idle", "busy")
            ]
            shown = "the SDK's" if threads == "default" else threads
            rows.append(
                [name, shown, *(cell for token, step in [cells] for cell in (token[0], step[0], token[1], step[1]))]
            )
            print(rows[-1], flush=True)
    header = ("model", "threads", "ms a token, idle", "busy", "seconds a step, idle", "busy")
    print(markdown(header, rows))
