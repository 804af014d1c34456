# SPDX-License-Identifier: Apache-2.0
"""The vendor's libraries are in the environment while tests of a module run."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.qnn import emulator


@pytest.fixture(scope="module", autouse=True)
def _emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = dict(os.environ)
    emulator.use(tmp_path_factory.mktemp("qnn") / "sdk")
    yield
    os.environ.clear()
    os.environ.update(before)
