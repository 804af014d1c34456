# SPDX-License-Identifier: Apache-2.0
"""What became of a file's rows while it was read, so that nothing is left out without a word."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from bespoke.data.shapes import Format

__all__ = ["ReadReport"]


@dataclass
class ReadReport:
    """Filled while a file is read.

    rows:          read so far, those that were dropped too
    unknown_keys:  in how many rows a key, or a column, stands that is not used
    dropped:       how many rows were dropped, by the reason
    repeated_rows: rows that are the same as an earlier one
    left_out:      of an export of chats, how many messages were left out, by what they are
    """

    format: Format | None = None
    rows: int = 0
    unknown_keys: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    repeated_rows: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
