# SPDX-License-Identifier: Apache-2.0
"""What tests of the binding start from, made once."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.swift import fixture
from tests.swift.package import NOTES, NOTES_BUILT, NOTES_FLAGS, REPOSITORY, swift


@pytest.fixture(scope="session")
def has_toolchain() -> None:
    if not (REPOSITORY / ".cache" / "swift.ok").exists() and shutil.which("swift") is None:
        pytest.skip("Swift is not tested without a toolchain: run make test-swift")


@pytest.fixture(scope="session")
def compiled(has_toolchain: None) -> str:
    """What the compiler said about the package and its tests."""
    return swift("build", "--build-tests")


@pytest.fixture(scope="session")
def notes_compiled(has_toolchain: None) -> None:
    """Built with its tests and its screens. A warning ends it, also where only a part is compiled again."""
    swift("build", "--build-tests", *NOTES_FLAGS, package=NOTES, built=NOTES_BUILT)


@pytest.fixture(scope="session")
def prepared(stories: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """See fixture.py."""
    folder = tmp_path_factory.mktemp("swift")
    fixture.make(stories, folder)
    return folder
