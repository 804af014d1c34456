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
def read(tmp_path: Path) -> Read:
    """Writes a file and reads it: its examples, and what was not used."""

    def from_bytes(name: str, content: bytes, **settings: Any) -> tuple[list[dict[str, Any]], ReadReport]:
        (tmp_path / name).write_bytes(content)
        report = ReadReport()
        return [example for _, example in read_examples(tmp_path / name, report=report, **settings)], report

    return from_bytes
