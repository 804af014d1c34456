# SPDX-License-Identifier: Apache-2.0
"""The lock of a trainer at work on a state, as docs/reference/state_format.md has it, without any code of bespoke."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked_by_a_trainer(state: Path) -> Iterator[None]:
    """This process holds it and says so."""
    descriptor = os.open(state / "trainer.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        note = {"pid": os.getpid(), "since": "2026-01-01T00:00:00+00:00", "host_started_at": None, "purpose": "testing"}
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(note).encode(), 0)
        yield
        os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)
