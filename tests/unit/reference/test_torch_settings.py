# SPDX-License-Identifier: Apache-2.0
"""What an app has set of torch reaches nothing that is computed here, and the app finds it as it was."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from bespoke.core import finding
from bespoke.reference.torch_settings import computing
from tests.conftest import REPOSITORY
from tests.support.bundles import made_once
from tests.support.torch_settings_lab import SET
from tests.unit.personal_model.tiny import tiny_folder

__all__ = ["tiny_folder"]

Found = dict[str, dict[str, Any]]


@pytest.fixture(scope="session")
def found(results: dict[str, Any]) -> Found:
    return dict(results["computed"])


@pytest.fixture(scope="session")
def results(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """By what was set: what was computed, and the settings before it, within it and after it."""

    def compute(folder: Path) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.support.torch_settings_lab",
            tiny_folder / "bundle",
            tiny_folder / "model",
            folder,
        ]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        (folder / "found.json").write_text(done.stdout.splitlines()[-1], encoding="utf-8")

    folder = made_once(tmp_path_factory, "torch_settings", compute)
    return dict(json.loads((folder / "found.json").read_text(encoding="utf-8")))


needs_core = pytest.mark.skipif(finding.find().library is None, reason="the device core is not installed")


@pytest.mark.slow
@needs_core
@pytest.mark.parametrize("name", SET)
def test_what_is_computed_has_the_same_bits_whatever_the_app_has_set(found: Found, name: str) -> None:
    plain = found["nothing"]["result"]
    assert not plain.startswith("failed")
    assert found[name]["result"] == plain


@pytest.mark.slow
@needs_core
def test_a_bundle_has_the_same_bytes_whatever_the_app_has_set(results: dict[str, Any]) -> None:
    assert len(results["built"]["nothing"]) == 64
    assert results["built"]["all of them"] == results["built"]["nothing"]


def _precise(seen: dict[str, str]) -> dict[str, str]:
    """Without the old flag of cuDNN, which may contradict the precisions that decide, and cannot be read then."""
    return {name: value for name, value in seen.items() if not name.startswith("cudnn.allow_tf32")}


@pytest.mark.slow
@needs_core
@pytest.mark.parametrize("name", SET)
def test_steps_see_the_settings_of_this_runtime_and_the_app_finds_its_own(found: Found, name: str) -> None:
    one = found[name]
    assert len(one["seen"]) == 3
    assert all(_precise(seen) == _precise(found["nothing"]["seen"][0]) for seen in one["seen"])
    assert one["after"] == one["before"]
    for precision in (
        "general",
        "cuda",
        "cuda.matmul",
        "cudnn.conv",
        "cudnn.rnn",
        "mkldnn",
        "mkldnn.matmul",
        "mkldnn.conv",
    ):
        assert one["seen"][0][precision] == "ieee"
    assert (one["seen"][0]["matmul"], one["seen"][0]["dtype"], one["seen"][0]["device"]) == (
        "highest",
        "torch.float32",
        "cpu",
    )


@pytest.mark.slow
@needs_core
def test_each_setting_is_one_that_an_app_can_see(found: Found) -> None:
    changed = {name for name, one in found.items() if one["before"] != found["nothing"]["before"]}
    assert changed == set(SET) - {"nothing"}


def test_calls_in_two_threads_leave_the_settings_of_the_app_when_the_last_one_ends() -> None:
    first_is_in, second_is_in = threading.Event(), threading.Event()
    inside: list[str] = []

    def second() -> None:
        first_is_in.wait(60)
        with computing(None):
            second_is_in.set()
            first.join(60)  # the call that kept the settings ends first
            inside.append(torch.get_float32_matmul_precision())

    def first_call() -> None:
        with computing(None):
            first_is_in.set()
            second_is_in.wait(60)

    torch.set_float32_matmul_precision("high")
    try:
        first, other = threading.Thread(target=first_call), threading.Thread(target=second)
        first.start(), other.start()
        first.join(60), other.join(60)
        assert inside == ["highest"]
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
