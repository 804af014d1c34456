# SPDX-License-Identifier: Apache-2.0
"""What the tests in Swift start from: tests/support/phone_fixture.py and engine_fixture.py.

    python -m tests.swift.fixture STORIES260K FOLDER

writes it for a Mac (.github/workflows/apple.yml).
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support import engine_fixture, phone_fixture


def make(model: Path, out: Path) -> None:
    """`model` is the folder of stories260K."""
    out.mkdir(parents=True, exist_ok=True)
    phone_fixture.make(model, out)
    engine_fixture.make(out)


if __name__ == "__main__":
    make(Path(sys.argv[1]), Path(sys.argv[2]))
