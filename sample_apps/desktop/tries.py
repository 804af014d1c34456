# SPDX-License-Identifier: Apache-2.0
"""Ten things that a user tries after a night of learning. The demo shows four of them, docs/explanation/rehearsal.md all."""

from __future__ import annotations

from pathlib import Path

__all__ = ["tries"]


def tries() -> list[tuple[str, str]]:
    """(what is tried, prompt), in the order of the file."""
    lines = Path(__file__).with_name("tries.txt").read_text(encoding="utf-8").splitlines()
    return [(what, prompt) for what, prompt in (line.split("\t") for line in lines)]
