# SPDX-License-Identifier: Apache-2.0
"""The core compiled with AddressSanitizer and UndefinedBehaviorSanitizer: its tests, golden vectors, training, a stop, a resume."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from bespoke import Lora, Personalizer, PersonalModel, Training
from tests.native.conftest import sanitized_core
from tests.support.bundles import shakespeare
from tests.support.statuses import STATUS

pytestmark = pytest.mark.slow
# ExecuTorch and XNNPACK keep memory for the life of the process: it is no leak of the core.
ENVIRONMENT = {
    **os.environ,
    "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0:exitcode=99",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


@pytest.fixture(scope="module")
def build() -> Path:
    return sanitized_core()


@pytest.fixture(scope="module")
def bundle(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sanitized") / "stories.bundle"
    training = Training(learning_rate=3e-3, sequence_lengths=(16, 32), batch_size=2, steps=12, seed=1)
    methods: dict[str, dict[str, Any]] = {
        "mesp": {"update": "adamw", "accumulation": 2, "clip_norm": 1.0},
        "mebp": {},
        "mezo": {},
    }
    Personalizer(stories, methods, "executorch", lora=Lora(rank=4), training=training, data=None).build(folder)
    return folder


def ask(build: Path, request: dict[str, Any], *, stop_after: float | None = None) -> dict[str, Any]:
    """The last event of a request; nothing that a sanitizer has to say."""
    child = subprocess.Popen(
        [build / "bespoke-core"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    assert child.stdin is not None
    child.stdin.write(json.dumps(request))
    child.stdin.close()
    child.stdin = None
    if stop_after is not None:
        time.sleep(stop_after)
        child.send_signal(signal.SIGTERM)
    out, complaints = child.communicate(timeout=600)
    assert "Sanitizer" not in complaints, complaints[-4000:]
    assert "runtime error" not in complaints, complaints[-4000:]
    last: dict[str, Any] = json.loads(out.splitlines()[-1])
    assert child.returncode == (STATUS[last["kind"]] if last["event"] == "error" else 0)
    return last


def test_its_own_tests_pass(build: Path) -> None:
    done = subprocess.run(
        [build / "tests" / "native_tests"], capture_output=True, text=True, env=ENVIRONMENT, timeout=900
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


def test_a_bundle_is_verified_trained_stopped_and_resumed(
    build: Path, bundle: Path, data_folder: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    with PersonalModel.open(bundle, state) as model:
        for number, example in enumerate(shakespeare(data_folder, 12)):
            model.examples.add(example, id=str(number))
    where = {"bundle": str(bundle), "state": str(state), "memory_mb": -1}
    assert ask(build, {"verb": "verify", **where})["report"]["golden"]
    for method in ("mesp", "mebp", "mezo"):
        first = ask(build, {"verb": "train", **where, "method": method}, stop_after=1.5)
        assert first["event"] == "report"
        report = first["report"]
        while report["stopped_because"] not in ("finished", "diverged"):
            report = ask(build, {"verb": "train", **where, "method": method, "most_steps": 5})["report"]
        assert report["total_steps"] == 12
    assert ask(build, {"verb": "evaluate", **where, "split": "train"})["report"]["loss"] > 0


def test_refusals_are_errors(build: Path, bundle: Path, tmp_path: Path) -> None:
    where = {"bundle": str(bundle), "state": str(tmp_path / "state"), "memory_mb": -1}
    for request, kind in (
        ({"verb": "train", **where}, "DataError"),
        ({"verb": "train", **where, "method": "none"}, "ConfigError"),
        ({"verb": "train", **where, "settings": {"learning_rate": -1}}, "ConfigError"),
        ({"verb": "train", **where, "bundle": str(tmp_path / "nothing")}, "BundleError"),
        ({"verb": "evaluate", **where, "pin_sha256": "0" * 64}, "SignatureError"),
        ({"verb": "dance", **where}, "ConfigError"),
    ):
        found = ask(build, request)
        assert (found["event"], found.get("kind")) == ("error", kind), request
