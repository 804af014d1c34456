# SPDX-License-Identifier: Apache-2.0
"""The C API from C (bindings/native/tests/c_border.c): nulls, who owns an engine, late stops, threads, no memory, trust."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from bespoke import PersonalModel
from bespoke.core import finding
from tests.conftest import REPOSITORY
from tests.native.c_border import CHECKS, CODE, signed
from tests.native.conftest import SOURCE
from tests.native.core_lab import tiny_core_bundle
from tests.support import c_header
from tests.unit.personal_model.tiny import add_numbers

__all__ = ["signed", "tiny_core_bundle"]


@pytest.fixture
def state(tiny_core_bundle: Path, tmp_path: Path) -> Path:
    with PersonalModel.open(tiny_core_bundle, tmp_path / "state") as model:
        add_numbers(model)
    return tmp_path / "state"


@pytest.mark.parametrize("check", CHECKS)
def test_the_border_holds(native_build: Path, signed: tuple[Path, dict[str, str]], state: Path, check: str) -> None:
    bundle, known_by = signed
    done = subprocess.run(
        [native_build / "tests" / "c_border", check, bundle, state],
        capture_output=True,
        text=True,
        env={**os.environ, **known_by},
    )
    assert done.returncode == 0, done.stderr


def test_every_entry_point_is_called(native_build: Path) -> None:
    entries = c_header.functions()
    assert len(entries) > 8
    assert {entry for entry in entries if not re.search(rf"\b{entry}\(NULL|{entry}\(\)", CODE)} == set()


def test_the_page_of_the_c_api_has_a_row_for_each_check_of_closing() -> None:
    page = (REPOSITORY / "docs" / "reference" / "c_api.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)
    closing = re.findall(r"^ +CHECK\((\w+)\),$", (SOURCE / "tests" / "c_border_closing.c").read_text(), re.MULTILINE)
    assert set(closing) <= set(rows) <= set(CHECKS)


def test_the_core_checks_the_signature_by_a_key_in_pem(
    native_build: Path, signed: tuple[Path, dict[str, str]], state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, known_by = signed
    monkeypatch.setenv(finding.OVERRIDE, str(native_build / "bespoke-core"))
    key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(known_by["KEY"]))
    pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    with PersonalModel.open(bundle, state, public_key=pem, require_authenticated=True, engine="executorch") as model:
        assert model.authenticated == "signature"
        assert model.evaluate(split="train").runtime == "core"


def listens(pid: int) -> bool:
    caught = re.search(r"^SigCgt:\t(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return caught is not None and int(caught[1], 16) >> (signal.SIGTERM - 1) & 1 == 1


def test_a_signal_before_training_begins_ends_it(native_build: Path, tiny_core_bundle: Path, state: Path) -> None:
    """The process has read its request and opened the bundle by then, or nothing of it yet."""
    core = subprocess.Popen([native_build / "bespoke-core"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    while not listens(core.pid):
        time.sleep(0.001)
    core.send_signal(signal.SIGTERM)
    request = {
        "verb": "train",
        "bundle": str(tiny_core_bundle),
        "state": str(state),
        "threads": 1,
        "run_steps": 5000,
    }
    said, _ = core.communicate(json.dumps(request))
    report = json.loads(said.splitlines()[-1])["report"]
    assert report["stopped_because"] == "stop_requested"
    assert report["steps"] < 100
