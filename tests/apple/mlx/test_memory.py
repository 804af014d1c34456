# SPDX-License-Identifier: Apache-2.0
"""Memory at the dimensions of Qwen2.5-0.5B: what the target declares of each graph, and a process that trains within its budget."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bespoke import Budget, Lora, Personalizer, PersonalModel, Training
from bespoke.bundle.reader import read_bundle
from bespoke.core import find
from bespoke_plugins.targets.mlx.vendor import load_mlx
from tests.apple.mlx.bundles import add_examples
from tests.apple.mlx.engine import NOT_BUILT, engine_library
from tests.apple.mlx.watching import Watch
from tests.support.bundles import made_once
from tests.support.checks import record_check
from tests.support.models import tiny_model

load_mlx()

from bespoke_plugins.targets.mlx.memory import ALONE_BYTES  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.skipif(engine_library() is None, reason=NOT_BUILT)]
BUDGET_MB, LENGTH, STEPS = 60, 128, 2
SIZES: dict[str, Any] = {
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 2048,
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two blocks; read it, do not change it."""

    def make(folder: Path) -> None:
        model = tiny_model("qwen2", folder / "model", **SIZES)
        training = Training(sequence_lengths=(LENGTH,), batch_size=1, steps=STEPS, seed=1)
        budget = Budget(memory_mb=BUDGET_MB)
        Personalizer(model, "mesp", "mlx", lora=Lora(rank=8), training=training, budget=budget, data=None).build(
            folder / "bundle"
        )

    return made_once(tmp_path_factory, "mlx-half-billion", make) / "bundle"


def test_every_graph_takes_what_it_declares(bundle: Path) -> None:
    with read_bundle(bundle) as opened:
        (target,) = opened.manifest.targets
        names = {graph.key: graph.name for graph in opened.manifest.graphs}
    large = 0
    widest = 1.0
    for artifact in target.artifacts:
        command = [sys.executable, "-m", "tests.apple.mlx.engine", str(bundle / artifact.file)]
        measured = int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        print(f"{names[artifact.graph]}: declared {artifact.engine_bytes / 1e6:.2f} MB, measured {measured / 1e6:.2f}")
        assert measured <= artifact.engine_bytes, names[artifact.graph]
        if artifact.engine_bytes > 5 * ALONE_BYTES:  # where the portion of small steps is less than a fifth
            large += 1
            widest = max(widest, artifact.engine_bytes / measured)
            assert artifact.engine_bytes <= 1.25 * measured, names[artifact.graph]
    assert large >= 3
    counts = {"graphs": len(target.artifacts), "of them large": large, "declared of measured, at most": widest}
    record_check("memory of graphs in the engine mlx", counts)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_process_trains_within_its_budget(bundle: Path, threads: int, tmp_path: Path) -> None:
    state = tmp_path / "state"
    with PersonalModel.open(bundle, state, engine="mlx") as model:
        add_examples(model)
        planned = model.planned_training()
    peak, report = watched(bundle, state, threads)
    reported = report["memory"]["peak_bytes"]
    print(f"{threads} threads: planned {planned}, anonymous peak {peak / 1e6:.1f} MB, reported {reported / 1e6:.1f}")
    assert report["steps"] == STEPS
    assert peak <= BUDGET_MB * 1e6
    assert reported <= BUDGET_MB * 1e6
    record_check(
        f"memory of training on the engine mlx, {threads} threads", {"steps": STEPS, "anonymous peak, MB": peak / 1e6}
    )


def watched(bundle: Path, state: Path, threads: int) -> tuple[int, dict[str, Any]]:
    """Highest anonymous memory of a process of the core, and its report."""
    core = find().path
    assert core is not None
    request = {
        "verb": "train",
        "bundle": str(bundle),
        "state": str(state),
        "threads": threads,
        "memory_mb": -1,
        "steps": STEPS,
        "engine": "mlx",
    }
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    child = subprocess.Popen([core], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment)
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write(json.dumps(request).encode() + b"\n")
    child.stdin.close()
    with Watch(child.pid) as watch:
        last = json.loads(child.stdout.read().splitlines()[-1])
        child.wait()
    child.stdout.close()
    assert last["event"] == "report", last
    report: dict[str, Any] = last["report"]
    return watch.peak_bytes, report
