# SPDX-License-Identifier: Apache-2.0
"""Folders and hub ids. No test reaches the hub: the address is one that refuses connections."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bespoke.errors import ModelError
from bespoke.model.hub import resolve_model


def test_a_folder_is_itself(tmp_path: Path) -> None:
    assert resolve_model(tmp_path) == tmp_path
    assert resolve_model(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("model", ["./nothing/here/at-all", "nothing", "a/b/c", "/no/such/folder", "owner/na me"])
def test_what_is_neither_folder_nor_hub_id_is_refused_without_asking_the_hub(model: str) -> None:
    with pytest.raises(ModelError) as caught:
        resolve_model(model)
    assert model in caught.value.subject
    assert "no such folder" in caught.value.got


def test_a_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    with pytest.raises(ModelError, match="a file"):
        resolve_model(tmp_path / "model.gguf")


def test_an_unreachable_hub_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    # A process of its own, since the hub's client reads its address when it is imported.
    code = "import sys; from bespoke.model.hub import resolve_model; resolve_model('owner/model', sys.argv[1])"
    process = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        env={"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_DISABLE_TELEMETRY": "1", "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 1
    assert "ModelError: model owner/model: got no answer from the hub" in process.stderr
    assert "give its folder" in process.stderr
