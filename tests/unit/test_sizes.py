# SPDX-License-Identifier: Apache-2.0
"""A Python file holds one thing, and has at most 400 lines."""

from __future__ import annotations

import pytest

from tests.conftest import REPOSITORY

MOST_LINES = 400


@pytest.mark.parametrize("folder", ["plugins", "sample_apps", "sdk", "tests", "tools"])
def test_no_file_is_longer(folder: str) -> None:
    lines = {
        str(path.relative_to(REPOSITORY)): len(path.read_text(encoding="utf-8").splitlines())
        for path in (REPOSITORY / folder).rglob("*.py")
    }
    assert lines
    assert {name: count for name, count in lines.items() if count > MOST_LINES} == {}
