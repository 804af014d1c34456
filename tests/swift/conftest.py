# SPDX-License-Identifier: Apache-2.0
"""What tests of the binding start from, made once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.support import engine_fixture, phone_fixture
from tests.swift.package import REPOSITORY, swift


@pytest.fixture(scope="session")
def compiled() -> str:
    """What the compiler said about the package and its tests."""
    if not (REPOSITORY / ".cache" / "swift.ok").exists() and shutil.which("swift") is None:
        pytest.skip("the Swift binding is not tested without a toolchain: run make test-swift")
    return swift("build", "--build-tests")


@pytest.fixture(scope="session")
def prepared(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """See tests/support/phone_fixture.py and engine_fixture.py."""
    folder = tmp_path_factory.mktemp("swift")
    phone_fixture.make(stories, folder)
    engine_fixture.make(folder)
    return folder
