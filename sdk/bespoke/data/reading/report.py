# SPDX-License-Identifier: Apache-2.0
"""Counts of what reading a file used, dropped and left out, so that nothing is left out silently."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from bespoke.data.shapes import Format

__all__ = ["ReadReport"]


@dataclass
class ReadReport:
    """Counts that grow while a file is read.

    rows:          rows read so far, including dropped ones
    unknown_keys:  keys or columns that are not used, with the number of rows that have them
    dropped:       reasons to drop a row, with the number of rows dropped
    repeated_rows: rows that equal an earlier one
    left_out:      kinds of messages that an export of chats has and no example uses, with their number
    """

    format: Format | None = None
    rows: int = 0
    unknown_keys: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    repeated_rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
