# SPDX-License-Identifier: Apache-2.0
"""The engine table of bespoke.h, whole: an engine with memory of its own, whose runs are over when the core asks for it, gives the
bits of one over memory of the process; and the core is built without any engine."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bespoke import Lora, Personalizer, Training
from tests.native.conftest import compile_core
from tests.native.core_lab import METHODS, Core, States, tiny_core_bundle
from tests.support import c_header
from tests.support.bundles import made_once
from tests.support.models import tiny_model

__all__ = ["tiny_core_bundle"]

WIDE_STEPS = 6
ELSEWHERE = 1 << 40  # bytes that the engine of remote_lab.cpp says it holds


@pytest.mark.parametrize("method", METHODS)
def test_an_engine_with_its_own_memory_gives_the_same_bits(
    native_build: Path, tiny_core_bundle: Path, tmp_path: Path, method: str
) -> None:
    states = States(tiny_core_bundle, tmp_path, method)
    near, far = states.fresh(tmp_path / "near"), states.fresh(tmp_path / "far")
    expected = Core(native_build / "bespoke-core", tiny_core_bundle).train(near)
    report, _ = remote(native_build, tiny_core_bundle, far, method)
    assert report["losses"] == expected.report["losses"]
    assert states.at_end(far) == states.at_end(near)
    assert report["memory"]["peak_bytes"] > ELSEWHERE > expected.report["memory"]["peak_bytes"]
    assert min(report["step_peak_bytes"]) > ELSEWHERE


def remote(build: Path, bundle: Path, state: Path, method: str, *version: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The report of remote_lab.cpp, and what it says of its engine's threads."""
    command = [build / "tests" / "remote_lab", bundle, state, method, *version]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.returncode, done.stderr)
    report, counted = map(json.loads, done.stdout.splitlines()[-2:])
    return report, counted


def test_the_first_steps_try_numbers_of_threads_where_a_table_is_not_of_before(
    native_build: Path, tiny_core_bundle: Path, tmp_path: Path
) -> None:
    states = States(tiny_core_bundle, tmp_path, "mesp")
    newer, older = states.fresh(tmp_path / "newer"), states.fresh(tmp_path / "older")
    report, counted = remote(native_build, tiny_core_bundle, newer, "mesp")
    report_of_before, none = remote(native_build, tiny_core_bundle, older, "mesp", "1.0")
    assert counted["threads"][:6] == [8, 2, 4, 8, 2, 4]
    assert set(counted["threads"]) == {2, 4, 8}
    assert none["threads"] == [0]
    assert report["losses"] == report_of_before["losses"]


def test_the_bits_of_a_run_do_not_depend_on_the_number_of_threads(
    native_build: Path, tmp_path: Path, wide_bundle: Path
) -> None:
    """With four, the core changes the number from step to step."""
    states = States(wide_bundle, tmp_path, "mesp")
    core = Core(native_build / "bespoke-core", wide_bundle)
    ended = {threads: core.train(states.fresh(tmp_path / str(threads)), threads=threads) for threads in (1, 2, 4, 0)}
    for threads, one in ended.items():
        assert one.report["losses"] == ended[1].report["losses"], threads
        assert len(one.report["losses"]) == WIDE_STEPS
        assert states.at_end(tmp_path / str(threads)) == states.at_end(tmp_path / "1"), threads


@pytest.fixture(scope="module")
def wide_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With pieces of an adapter that are large enough for their noise to be shared out."""

    def make(folder: Path) -> None:
        sizes = {"num_hidden_layers": 1, "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 2}
        model = tiny_model("llama", folder / "model", **sizes)
        training = Training(sequence_lengths=(16,), batch_size=2, steps=WIDE_STEPS, seed=1)
        methods: dict[str, dict[str, Any]] = {"mezo": {"learning_rate": 1e-4, "epsilon": 1e-2}, "mesp": {}}
        lora = Lora(rank=128)
        Personalizer(model, methods, "executorch", context=40, lora=lora, training=training, data=None).build(
            folder / "bundle"
        )

    return made_once(tmp_path_factory, "wide_core", make) / "bundle"


def test_noise_is_made_on_the_engines_threads_or_on_the_callers_where_a_table_is_of_before(
    native_build: Path, wide_bundle: Path, tmp_path: Path
) -> None:
    """`parallel` came after version 1.0: a table that ends before it has none, whatever lies behind its end. The bits are the
    same."""
    states = States(wide_bundle, tmp_path, "mezo")
    newer, older = states.fresh(tmp_path / "newer"), states.fresh(tmp_path / "older")
    report, counted = remote(native_build, wide_bundle, newer, "mezo")
    report_of_before, none = remote(native_build, wide_bundle, older, "mezo", "1.0")
    assert counted["shared_out"] > len(report["losses"]) == WIDE_STEPS
    assert none["shared_out"] == 0
    assert report["losses"] == report_of_before["losses"]
    assert states.at_end(newer) == states.at_end(older)


@pytest.mark.slow
def test_the_core_is_built_without_executorch(tiny_core_bundle: Path, tmp_path: Path) -> None:
    build = compile_core("bare", "-DBESPOKE_EXECUTORCH=OFF")
    linked = subprocess.run(["ldd", build / "libbespoke_core.so"], capture_output=True, text=True, check=True).stdout
    assert "executorch" not in linked
    assert "xnnpack" not in linked
    tables = subprocess.run(["readelf", "-d", build / "libbespoke_core.so"], capture_output=True, text=True, check=True)
    major = re.search(r"define BESPOKE_API_MAJOR (\d+)", c_header.text())
    assert major
    assert (
        f"soname: [libbespoke_core.so.{major[1]}]" in tables.stdout
    )  # as an app's build makes it, not as a wheel has it
    subprocess.run([build / "tests" / "native_tests"], capture_output=True, check=True)
    ended = Core(build / "bespoke-core", tiny_core_bundle).train(tmp_path / "state", run_steps=1)
    assert ended.error is not None
    assert ended.error["kind"] == "MissingDependency"
