# SPDX-License-Identifier: Apache-2.0
"""The device core in this process, with torch as its engine: for a GPU, and for bundles that were not compiled for a device.

Most memory of this process belongs to Python and torch. So the limit applies to what a call adds to the process, and reports state
what it added.
"""

from __future__ import annotations

import ctypes as c
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from bespoke.core import library
from bespoke.core.answers import Generation, Judged
from bespoke.core.federation_calls import FederationCalls
from bespoke.core.handle import Handle, HandleConversation, Place, Request
from bespoke.core.limit import limit_megabytes
from bespoke.core.reports import evaluation, train_report
from bespoke.errors import BespokeError, MissingDependency
from bespoke.rules.records import AnswerPiece, FederationReport
from bespoke.rules.report import Evaluation, Listener, TrainReport

if TYPE_CHECKING:
    from bespoke.core.torch_engine import TorchEngine

__all__ = ["InProcess", "Torch"]

SINCE_THE_CALL = 2  # bespoke_options.limit_counts
Result = TypeVar("Result")


class Torch(NamedTuple):
    """torch for one bundle."""

    engine: TorchEngine
    computing: Callable[[], AbstractContextManager[None]]  # sets torch's settings and threads for the computation


class InProcess:
    """An `Engine` with a handle of its own for the calls that compute.

    The first of these calls opens the handle, because importing torch takes 3 seconds and 280 MB.
    """

    name = "torch"

    def __init__(self, place: Place, memory_bytes: int | None, import_torch: Callable[[], Torch]) -> None:
        self._place = place
        self._memory_bytes = memory_bytes
        self._share = 1.0
        self._import_torch = import_torch
        self._alone = threading.Lock()
        self._opening = threading.Lock()
        self._torch: Torch | None = None
        self._core: Handle | None = None

    def close(self) -> None:
        if self._core is not None:
            self._core.close()

    def set_limit(self, memory_bytes: int | None) -> None:
        self._memory_bytes = memory_bytes
        if self._core is not None:
            self._core.set_limit(limit_megabytes(memory_bytes))

    def set_pace(self, share: float) -> None:
        self._share = share
        if self._core is not None:
            self._core.set_pace(share)

    def trim(self) -> None:
        if self._core is not None:
            self._core.trim()

    def train(
        self,
        request: Request,
        seconds: float | None,
        on_progress: Listener | None,
        stop: Callable[[], bool] | None,
    ) -> TrainReport:
        core, torch = self._opened("Training")
        return self._report(self.computed(lambda: core.train(request, seconds, on_progress, stop)), torch)

    def adopt(self) -> TrainReport:
        core, torch = self._opened("Judging")
        return self._report(self.computed(FederationCalls(core).adopt), torch)

    def take_part(self, seconds: float | None, stop: Callable[[], bool] | None) -> FederationReport:
        core, _ = self._opened("Taking part")
        return library.record(FederationReport, self.computed(lambda: FederationCalls(core).take_part(seconds, stop)))

    def _report(self, answer: dict[str, Any], torch: Torch) -> TrainReport:
        report = train_report({**answer, "enforced_by": "none"})
        idle = report.memory.idle_bytes
        memory = replace(
            report.memory, peak_bytes=max(0, report.memory.peak_bytes - idle), limit_bytes=self._memory_bytes
        )
        peaks = tuple(max(0, peak - idle) for peak in report.step_peak_bytes)
        return replace(report, runtime=torch.engine.runtime, memory=memory, step_peak_bytes=peaks)

    def evaluate(self, split: str, examples: Sequence[str] | None) -> Evaluation:
        core, torch = self._opened("Evaluating")
        answer = self.computed(lambda: core.evaluate(split, examples))
        return replace(evaluation(answer), runtime=torch.engine.runtime)

    def open_conversation(self, generation: Generation) -> InProcessConversation:
        core, _ = self._opened("Answering")
        return InProcessConversation(self, core.open_conversation(generation))

    def judge(self, what: Judged, prompt: str, answers: str) -> Any:
        core, _ = self._opened("Answering")
        return self.computed(lambda: core.judge(what, prompt, answers))

    def computed(self, work: Callable[[], Result]) -> Result:
        """Runs a call that computes and returns its result. An error of the core has the engine's exception as its cause."""
        assert self._torch is not None
        if not self._alone.acquire(blocking=False):
            return work()  # another call computes: the core refuses this one

        engine = self._torch.engine
        try:
            engine.failure = None
            with self._torch.computing():
                return work()
        except BespokeError as error:
            raise error from engine.failure
        finally:
            self._alone.release()

    def _opened(self, what: str) -> tuple[Handle, Torch]:
        """Returns the handle and torch. The first call imports torch and opens the handle, and a second one waits for it."""
        with self._opening:
            if self._core is None or self._torch is None:
                with MissingDependency.unless_there(f"{what} with the engine 'torch'", "torch", "torch"):
                    torch = self._import_torch()
                limit = self._memory_bytes
                core = Handle(
                    library.load(),
                    self._place,
                    engine=c.cast(c.pointer(torch.engine.table), c.c_void_p),
                    memory_mb=limit_megabytes(limit),
                    limit_counts=SINCE_THE_CALL,
                )
                self._torch, self._core = torch, core  # the handle calls the engine, which must live as long

                # Both may have changed meanwhile.
                core.set_pace(self._share)
                if self._memory_bytes != limit:
                    core.set_limit(limit_megabytes(self._memory_bytes))
            return self._core, self._torch


class InProcessConversation:
    """A conversation with a model of this process."""

    def __init__(self, owner: InProcess, opened: HandleConversation) -> None:
        self._owner, self._opened = owner, opened
        self.feed, self.close = opened.feed, opened.close

    def next(self) -> AnswerPiece:
        return self._owner.computed(self._opened.next)
