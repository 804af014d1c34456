# SPDX-License-Identifier: Apache-2.0
"""Progress that the thread of a call reports, for the thread that waits for the call."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from typing import get_args

from bespoke.core.library import CProgress
from bespoke.core.process import POLL_SECONDS
from bespoke.rules.report import Phase, Progress

__all__ = ["progress_of", "until_none"]

_PHASES: tuple[Phase, ...] = get_args(Phase)  # by their numbers in C


def progress_of(given: CProgress) -> Progress:
    """Returns a progress of the core."""
    phase = _PHASES[given.phase]
    return Progress(phase, given.step, given.steps, given.loss if phase == "step" else None, given.footprint_bytes)


def until_none(reported: queue.SimpleQueue[Progress | None]) -> Iterator[Progress | None]:
    """Yields each progress, and None after every POLL_SECONDS without progress, until the call has ended."""
    while True:
        try:
            progress = reported.get(timeout=POLL_SECONDS)
        except queue.Empty:
            yield None
            continue
        if progress is None:
            return
        yield progress
