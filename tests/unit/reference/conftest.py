# SPDX-License-Identifier: Apache-2.0
"""The tiny bundle, open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bespoke.bundle.reader import Bundle, read_bundle
from tests.support.read_once import programs_read_once  # noqa: F401
from tests.unit.personal_model.tiny import tiny_bundle, tiny_folder

__all__ = ["tiny_bundle", "tiny_folder"]


@pytest.fixture(scope="module")
def bundle(tiny_bundle: Path) -> Iterator[Bundle]:
    with read_bundle(tiny_bundle) as opened:
        yield opened


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "unit/reference" in item.nodeid and not {"test_cost", "test_threads"} & {
            item.path.stem
        }:  # one process keeps the bundle
            item.add_marker(pytest.mark.xdist_group("tiny"))
