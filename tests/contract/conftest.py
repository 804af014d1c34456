# SPDX-License-Identifier: Apache-2.0
"""All contract tests run in one process: they share a tracer, and tracing is most of their time."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.support.read_once import programs_read_once  # noqa: F401


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("contract"))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)
