# SPDX-License-Identifier: Apache-2.0
"""Methods that learn from pairs of answers, on pairs and other examples: proven, as the reference, killed, with less memory.

`mesp` has room for pairs and rows that are alone in one batch, `mebp` adds two micro-batches of an odd number of rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bespoke import Budget, Lora, Personalizer, PersonalModel, Training
from bespoke.bundle.reader import read_bundle
from bespoke.core import finding
from bespoke.core.torch_engine import TorchEngine
from bespoke.testing.engines import AsCore
from tests.native import torch_lab
from tests.support.bundles import made_once
from tests.support.oracle import trained_alike
from tests.support.reading import newest_run
from tests.unit.cli.commands import bespoke

STEPS, KILLED_AFTER = 12, 7
SIMPO = {"preferences": "simpo", "learning_rate": 1e-3}
METHODS: dict[str, dict[str, Any]] = {
    "mesp": {**SIMPO, "batch_size": 4},
    "mebp": {**SIMPO, "batch_size": 3, "accumulation": 2},
}
PLACES = ("the old mill", "a tall tree", "the red barn", "my bed", "a big box", "the sea", "our shed")

pytestmark = [
    pytest.mark.slow,  # the bundle takes most of a minute
    pytest.mark.skipif(finding.find().library is None, reason="the device core is not installed"),
]
methods = pytest.mark.parametrize("method", METHODS)


@pytest.fixture(scope="module")
def bundle(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """stories260K, for all that the methods could use and for the least that they can do with."""

    def personalizer(**more: Any) -> Personalizer:
        training = Training(
            sequence_lengths=(32, 64), steps=STEPS, seed=1, commit_seconds=1e-6, write_mb_per_second=1e9
        )
        return Personalizer(
            stories, METHODS, "executorch", context=96, lora=Lora(rank=4), training=training, data=None, **more
        )

    def make(folder: Path) -> None:
        plans = personalizer().estimate().plans
        budgets = [max(plan.least.peak_bytes for plan in plans), max(plan.fastest.peak_bytes for plan in plans)]
        personalizer(budget=Budget(memory_mb=tuple(size / 1e6 for size in budgets))).build(folder / "bundle")

    return made_once(tmp_path_factory, "pairs", make) / "bundle"


def begun(bundle: Path, state: Path, method: str) -> Path:
    """A state with six pairs, six other examples and a run that has made no step."""
    with PersonalModel.open(bundle, state) as model:
        for number, place in enumerate(PLACES[1:]):
            asked = f"{number} cats sleep in"
            pair = {"prompt": asked, "chosen": f" {place}.", "rejected": f" {PLACES[0]}, as they always did before."}
            model.examples.add(pair, id=f"pair {number}", use="train")
            model.examples.add({"text": f"{number} dogs run to {place}."}, id=f"alone {number}", use="train")
        assert model.train(method=method, stop=lambda: True).total_steps == 0
    return state


def accepted(state: Path) -> bytes:
    (file,) = state.glob("accepted_*.safetensors")
    return file.read_bytes()


@pytest.mark.parametrize("engine", ["torch", "executorch"])
def test_golden_vectors_hold(bundle: Path, engine: str) -> None:
    checks = bespoke("verify", bundle, "--engine", engine, "--format", "json").ok().json["golden"]
    done = {(check["method"], check["what"]) for check in checks}
    for method in METHODS:
        assert {(method, what) for what in ("gradients", "loss of step 3", "updates after step 2")} <= done


@methods
def test_the_core_trains_as_the_reference(bundle: Path, method: str, tmp_path: Path) -> None:
    state = begun(bundle, tmp_path / "state", method)
    with PersonalModel.open(bundle, state) as model:
        report = model.train()
    expected = trained_alike(bundle, state)
    assert report.steps == STEPS
    np.testing.assert_allclose(report.losses, expected.losses, rtol=1e-4)
    assert report.tokens == expected.tokens
    assert report.accepted


def test_torch_takes_the_same_steps(bundle: Path, tmp_path: Path) -> None:
    state = begun(bundle, tmp_path / "state", "mesp")
    losses = torch_lab.train(bundle, state, TorchEngine(), "mesp", 2)["losses"]
    np.testing.assert_allclose(losses, trained_alike(bundle, state).losses[:2], rtol=1e-4)


@methods
def test_a_killed_run_ends_with_the_bits_of_an_undisturbed_one(bundle: Path, method: str, tmp_path: Path) -> None:
    whole, killed = (begun(bundle, tmp_path / name, method) for name in ("whole", "killed"))
    core = AsCore("executorch")
    losses = core.train(bundle, whole)
    assert core.kill(bundle, killed, KILLED_AFTER) == ""
    assert 0 < newest_run(killed)["step"] < STEPS
    later = core.train(bundle, killed)
    assert later == losses[STEPS - len(later) :]
    assert accepted(killed) == accepted(whole)


def test_a_run_by_the_plans_for_less_memory_has_the_same_losses(bundle: Path, tmp_path: Path) -> None:
    """By `mesp`: the plans of `mebp` hardly differ in memory."""
    with read_bundle(bundle) as opened:
        manifest = opened.manifest
    (smaller,) = next(record for record in manifest.methods if record.name == "mesp").smaller_plans
    losses = []
    for budget in (manifest.budget.memory_bytes, smaller.memory_bytes):
        assert budget is not None
        state = begun(bundle, tmp_path / str(budget), "mesp")
        with PersonalModel.open(bundle, state, memory_mb=budget / 1e6) as model:
            report = model.train()
        assert report.memory.planned_for_bytes == budget
        assert report.peak_bytes <= budget
        losses.append(report.losses)
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
