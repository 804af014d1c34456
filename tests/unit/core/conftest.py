# SPDX-License-Identifier: Apache-2.0
"""A program in the place of the compiled core."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from bespoke.core import finding
from tests.unit.core import fake


@pytest.fixture
def fake_core(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "bespoke-core"
    path.write_text(f"#!/bin/sh\nexec '{sys.executable}' -S '{fake.__file__}'\n")
    path.chmod(0o755)
    monkeypatch.setenv(finding.OVERRIDE, str(path))
    return path
