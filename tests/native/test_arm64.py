# SPDX-License-Identifier: Apache-2.0
"""The core from the same sources for arm64, on ExecuTorch's own wheel for it, under qemu: its tests, the example in C, and runs
with each of its instruction sets beside those of this processor's core.

It is glibc's arm64, not Android's: what the NDK makes of the sources is not checked here. Needs the network once.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from bespoke import Training
from bespoke.core import finding
from tests.native.arm64 import SYSTEM_ROOT, executorch_for_arm64
from tests.native.c_example import check_what_it_said, example_bundle
from tests.native.conftest import ROOT, compile_core
from tests.native.core_lab import Core, States
from tests.native.parity import bundle_of
from tests.support import federation as f
from tests.support.models import tiny_model
from tests.support.reading import read_state

pytestmark = pytest.mark.slow
HOST_HEADERS = Path("/usr/include")


@pytest.fixture(scope="module")
def build() -> Path:
    place = ROOT / "build" / "arm64_packages"
    (place / "include" / "doctest").mkdir(parents=True, exist_ok=True)
    # The only header from the host. All others come from the cross compiler.
    shutil.copy(HOST_HEADERS / "doctest" / "doctest.h", place / "include" / "doctest")
    return compile_core(
        "arm64",
        "-DCMAKE_SYSTEM_NAME=Linux",
        "-DCMAKE_SYSTEM_PROCESSOR=aarch64",
        "-DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc",
        "-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++",
        f"-Dexecutorch_DIR={executorch_for_arm64(place) / 'share' / 'cmake'}",
        f"-DDOCTEST_INCLUDE={place / 'include'}",
        targets=["native_tests", "example_personalize", "bespoke-core", "federation_lab"],
    )


def under_qemu(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["qemu-aarch64-static", "-L", SYSTEM_ROOT, *map(str, command)], capture_output=True, text=True
    )


def test_its_own_tests_pass(build: Path) -> None:
    done = under_qemu(build / "tests" / "native_tests")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "0 failed" in done.stdout


def test_the_example_trains_and_forgets(build: Path, tmp_path: Path) -> None:
    bundle = example_bundle(tmp_path)
    state, adapter = tmp_path / "alice", tmp_path / "adapter"
    done = under_qemu(build / "example_personalize", bundle, state, adapter)
    assert done.returncode == 0, done.stderr
    check_what_it_said(done.stdout, adapter)
    assert read_state(state, bundle, ["because it was tired of sitting there"])["broken"] == []


STEPS = 20


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> dict[str, States]:
    """Of a model that has whole panels of weights, and the edges of others: a run of each method, before its first step."""
    place = tmp_path_factory.mktemp("traces")
    sizes = {"hidden_size": 72, "intermediate_size": 136, "num_hidden_layers": 2, "head_dim": 18}
    model = tiny_model("llama", place / "model", num_attention_heads=4, **sizes)
    training = Training(learning_rate=5e-3, sequence_lengths=(24,), batch_size=2, steps=STEPS, seed=1)
    methods = {"mesp": {"update": "sgd"}, "mezo": {"learning_rate": 1e-3}}
    bundle = bundle_of(model, place / "traces.bundle", methods, training)
    return {method: States(bundle, place, method) for method in methods}


def losses(program: Path, states: States, folder: Path) -> np.ndarray:
    ended = Core(program, states.bundle).train(states.fresh(folder), run_steps=STEPS)
    assert ended.code == 0, ended
    return np.array([event["loss"] for event in ended.events if event.get("phase") == "step"])


def verify(program: Path, bundle: Path, folder: Path) -> int:
    request = json.dumps({"verb": "verify", "bundle": str(bundle), "state": str(folder)})
    return subprocess.run([program], input=request, text=True, stdout=subprocess.DEVNULL).returncode


@pytest.mark.skipif(finding.find().path is None, reason="the device core is not installed")
@pytest.mark.parametrize("masked", ["", "i8mm", "i8mm,dotprod"])
def test_each_instruction_set_proves_a_bundle_and_trains_alike(
    build: Path, states: dict[str, States], masked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "emulated-core"
    program.write_text(f'#!/bin/sh\nexec qemu-aarch64-static -cpu max -L {SYSTEM_ROOT} {build / "bespoke-core"} "$@"\n')
    program.chmod(0o755)
    here = finding.find().required()
    monkeypatch.setenv("BESPOKE_MASKED_FEATURES", masked)
    assert (
        verify(program, next(iter(states.values())).bundle, tmp_path / "verified") == 0
    )  # its vectors are of all methods
    for method, started in states.items():
        monkeypatch.delenv("BESPOKE_MASKED_FEATURES")
        expected = losses(here, started, tmp_path / f"{method}-here")
        monkeypatch.setenv("BESPOKE_MASKED_FEATURES", masked)
        found = losses(program, started, tmp_path / f"{method}-there")
        assert len(found) == len(expected) == STEPS
        np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.skipif(finding.find().path is None, reason="the device core is not installed")
def test_rounds_of_federated_learning_come_to_the_bits_of_the_reference(build: Path, tmp_path: Path) -> None:
    """arm64 has fused multiply-add, which this processor's core does without."""
    lab = ["qemu-aarch64-static", "-cpu", "max", "-L", str(SYSTEM_ROOT), str(build / "tests" / "federation_lab")]
    bundle = f.federated_bundle(tmp_path)
    files = f.guidance(bundle)
    folder = f.written(files, tmp_path / "guidance")
    found = f.answers(lab, bundle, "zgr", tmp_path / "scratch", f.replays(f.ROUNDS, f.DIRECTIONS, folder))
    assert found[-1] == f.replay(f.reference(bundle, "zgr"), f.ROUNDS, f.DIRECTIONS, files)
