# SPDX-License-Identifier: Apache-2.0
"""Files of examples read whole, and inputs of the kinds that people report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bespoke.data.files import ReadReport, read_examples

Read = Callable[..., tuple[list[dict[str, Any]], ReadReport]]


@pytest.fixture
def cases(data_folder: Path) -> Path:
    """Small inputs of kinds that people report, next to the folder of test data."""
    folder = data_folder.parent / "cases"
    if not folder.is_dir():
        pytest.skip(f"no inputs at {folder}")
    return folder


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Writes a file and reads it: its examples, and what was not used."""

    def from_bytes(name: str, content: bytes, **settings: Any) -> tuple[list[dict[str, Any]], ReadReport]:
        (tmp_path / name).write_bytes(content)
        report = ReadReport()
        return [example for _, example in read_examples(tmp_path / name, report=report, **settings)], report

    return from_bytes
