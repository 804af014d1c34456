# SPDX-License-Identifier: Apache-2.0
"""The tiny bundles, and the device core as the program that PersonalModel runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bespoke.core import finding
from tests.native.conftest import native_build  # noqa: F401
from tests.native.core_lab import tiny_core_bundle  # noqa: F401
from tests.unit.personal_model.tiny import tiny_bundle, tiny_folder  # noqa: F401


@pytest.fixture
def core(native_build: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: F811
    """The folder of the core that was compiled here, which is then also the one that PersonalModel runs."""
    monkeypatch.setenv(finding.OVERRIDE, str(native_build / "bespoke-core"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    return native_build


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/sharing" in item.nodeid:  # one process builds the bundles and keeps them
            item.add_marker(pytest.mark.xdist_group("tiny"))
