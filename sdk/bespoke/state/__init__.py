# SPDX-License-Identifier: Apache-2.0
"""What a user's device keeps: examples, runs, committed steps and accepted adapters, in one private folder.

SQLite carries every promise about what is committed; tensors lie in files that the database names with their sha256.
"""

from __future__ import annotations

from bespoke.state.records import (
    AddedExample,
    ExampleInfo,
    ExampleRow,
    Forgotten,
    JournalRow,
    Run,
    Slot,
    TokenRows,
    Version,
)
from bespoke.state.store import StateStore

__all__ = [
    "AddedExample",
    "ExampleInfo",
    "ExampleRow",
    "Forgotten",
    "JournalRow",
    "Run",
    "Slot",
    "StateStore",
    "TokenRows",
    "Version",
]
