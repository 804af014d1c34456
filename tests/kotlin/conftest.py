# SPDX-License-Identifier: Apache-2.0
"""What tests of the binding start from, made once."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.kotlin.maven import BINDING, mvn
from tests.kotlin.prepare import build_native, prepare_federation, what_c_takes, write_pages
from tests.native.federation_devices import exact
from tests.support import phone_fixture
from tests.support.federation_edge import PYTHON

__all__ = ["exact"]


@pytest.fixture(scope="session")
def prepared(stories: Path, exact: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """See tests/support/phone_fixture.py and tests/kotlin/prepare.py."""
    missing = [tool for tool in ("javac", "mvn", "cmake", "aapt2") if shutil.which(tool) is None]
    missing += [] if PYTHON.exists() else ["server/.venv"]
    if missing:
        reason = f"the Kotlin binding is not tested without {', '.join(missing)}"
        assert os.environ.get("BESPOKE_REQUIRE_KOTLIN") != "1", reason
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("kotlin")
    build_native(folder)
    phone_fixture.make(stories, folder)
    what_c_takes(folder / "chat.bundle", folder)
    prepare_federation(exact, folder)
    return folder


@pytest.fixture(scope="session")
def compiled() -> int:
    """All modules, the sample, their tests and the docs' Kotlin; in target/, classpath (what ships) and test-classpath.

    Returns how many blocks of Kotlin the docs have.
    """
    blocks = write_pages(BINDING)
    mvn("test-compile", "dependency:build-classpath@ships", "dependency:build-classpath@tests")
    return blocks
