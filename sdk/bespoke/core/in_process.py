# SPDX-License-Identifier: Apache-2.0
"""The core's calls that compute, in this process, with torch as the engine: for a graphics card, and for bundles that were compiled
for nothing else.

Most of this process is Python and torch, so the limit counts from the process as it is when a call begins, and reports say what
came on top.
"""

from __future__ import annotations

import ctypes as c
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeVar

from bespoke.core.answers import Generation
from bespoke.core.handle import Handle, HandleSession, Place, Request
from bespoke.core.library import Library
from bespoke.core.runtime import evaluation, limit_megabytes, train_report
from bespoke.core.torch_engine import TorchEngine
from bespoke.errors import BespokeError
from bespoke.rules.records import AnswerPiece
from bespoke.rules.report import Evaluation, Listener, TrainReport

__all__ = ["InProcess"]

SINCE_THE_CALL = 2  # bespoke_options.limit_is_added
Found = TypeVar("Found")


class InProcess:
    """A model of its own for the calls that compute."""

    def __init__(
        self,
        library: Library,
        place: Place,
        engine: TorchEngine,
        memory_bytes: int | None,
        computing: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """`computing`: within it, torch has the settings and the number of threads to compute with."""
        self._memory_bytes = memory_bytes
        self._computing = computing
        self._alone = threading.Lock()
        self._engine = engine
        table = c.cast(c.pointer(self._engine.table), c.c_void_p)
        self._core = Handle(
            library, place, engine=table, memory_mb=limit_megabytes(memory_bytes), limit_is_added=SINCE_THE_CALL
        )

    def close(self) -> None:
        self._core.close()

    def set_limit(self, memory_bytes: int | None) -> None:
        self._core.set_limit(limit_megabytes(memory_bytes))
        self._memory_bytes = memory_bytes

    def set_pace(self, share: float) -> None:
        self._core.set_pace(share)

    def train(
        self, asked: Request, seconds: float | None, on_progress: Listener | None, stop: Callable[[], bool] | None
    ) -> TrainReport:
        found = self.computed(lambda: self._core.train(asked, seconds, on_progress, stop))
        report = train_report({**found, "enforced_by": "none"})
        idle = report.memory.idle_bytes
        memory = replace(
            report.memory, peak_bytes=max(0, report.memory.peak_bytes - idle), limit_bytes=self._memory_bytes
        )
        peaks = tuple(max(0, peak - idle) for peak in report.step_peak_bytes)
        return replace(report, runtime=self._engine.runtime, memory=memory, step_peak_bytes=peaks)

    def evaluate(self, split: str, examples: Sequence[str] | None) -> Evaluation:
        found = self.computed(lambda: self._core.evaluate(split, examples))
        return replace(evaluation(found), runtime=self._engine.runtime)

    def open_session(self, generation: Generation) -> InProcessSession:
        return InProcessSession(self, self._core.open_session(generation))

    def judge(self, what: str, prompt: str, answers: str) -> Any:
        return self.computed(lambda: self._core.judge(what, prompt, answers))

    def computed(self, work: Callable[[], Found]) -> Found:
        if not self._alone.acquire(blocking=False):
            return work()  # the core refuses it
        try:
            self._engine.failure = None
            with self._computing():
                return work()
        except BespokeError as error:
            raise error from self._engine.failure
        finally:
            self._alone.release()


class InProcessSession:
    """A session of it."""

    def __init__(self, owner: InProcess, opened: HandleSession) -> None:
        self._owner, self._opened = owner, opened
        self.feed, self.close = opened.feed, opened.close

    def next(self) -> AnswerPiece:
        return self._owner.computed(self._opened.next)
