# SPDX-License-Identifier: Apache-2.0
"""The device core in processes of its own. It computes with ExecuTorch, MLX or an app's engine, under the system's limit."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bespoke.core.answer_child import AnsweringChild, ChildConversation
from bespoke.core.answers import Generation, Judged
from bespoke.core.child import Orders, run
from bespoke.core.handle import Place, Request
from bespoke.core.library import record
from bespoke.core.limit import limit_megabytes
from bespoke.core.process import Child
from bespoke.core.reports import evaluation, train_report
from bespoke.rules.records import FederationReport
from bespoke.rules.report import Evaluation, Listener, TrainReport

__all__ = ["BUILT_IN", "OwnProcess"]

BUILT_IN = "executorch"  # the engine that is compiled into the core; any other comes as a library of its name


class OwnProcess:
    """An `Engine` with a process of the core for each request, and a single process for all conversations."""

    def __init__(self, place: Place, memory_bytes: int | None, engine: str = BUILT_IN) -> None:
        """Starts no process yet.

        Args:
            place: The bundle and the user's state.
            memory_bytes: Limit of each process, in bytes. None: no limit.
            engine: The target whose artifacts the core runs.
        """
        self.name = engine
        self._memory_bytes = memory_bytes
        self._share = 1.0
        self._running: Orders | None = None
        self._request = {
            "bundle": str(place.bundle.absolute()),
            "state": str(place.state.absolute()),
            "pin_sha256": place.pin_sha256,
            "public_key": None if place.public_key is None else place.public_key.hex(),
            "threads": _threads(),
            "busy_seconds": place.c_busy_seconds,
            "engine": None if engine == BUILT_IN else engine,
        }
        self._answering = AnsweringChild(self._started)

    def close(self) -> None:
        """Ends the conversations."""
        self._answering.close()

    def train(
        self,
        request: Request,
        seconds: float | None,
        on_progress: Listener | None,
        stop: Callable[[], bool] | None,
    ) -> TrainReport:
        return train_report(self._ask(_training(request, seconds), on_progress, stop))

    def training(self, request: Request, seconds: float | None) -> dict[str, Any]:
        """Returns the whole request of `train`, for a caller that starts the process and listens to it."""
        return self._whole(_training(request, seconds), self._memory_bytes)

    def evaluate(self, split: str, examples: Sequence[str] | None = None) -> Evaluation:
        given = {} if examples is None else {"examples": [json.loads(example) for example in examples]}
        return evaluation(self._ask({"verb": "evaluate", "split": split, **given}))

    def take_part(self, seconds: float | None, stop: Callable[[], bool] | None) -> FederationReport:
        asked = {"verb": "take_part", "deadline_seconds": seconds or 0.0}
        return record(FederationReport, self._ask(asked, None, stop))

    def adopt(self) -> TrainReport:
        return train_report(self._ask({"verb": "adopt"}))

    def verify(self) -> dict[str, Any]:
        """Returns the core's report, the fields of `VerifyReport`."""
        return self._ask({"verb": "verify"})

    def open_conversation(self, generation: Generation) -> ChildConversation:
        conversation = self._answering.open(generation)
        self._answering.tell(_pace(self._share))
        return conversation

    def judge(self, what: Judged, prompt: str, answers: str) -> Any:
        return self._answering.judge(what, prompt, answers)

    def set_limit(self, memory_bytes: int | None) -> None:
        """Sets the limit. A running call also stays below the limit that the system enforces on its process."""
        self._memory_bytes = memory_bytes
        self._tell({"do": "limit", "memory_mb": limit_megabytes(memory_bytes)})

    def set_pace(self, share: float) -> None:
        self._share = share
        self._tell(_pace(share))

    def trim(self) -> None:
        self._answering.trim()

    def _tell(self, change: Mapping[str, Any]) -> None:
        if (running := self._running) is not None:
            running.put(change)
        self._answering.tell(change)

    def _started(self) -> Child:
        """Starts a process that answers, under the current limit."""
        limit = self._memory_bytes
        return Child(self._whole({"verb": "answer"}, limit), limit)

    def _whole(self, more: Mapping[str, Any], limit: int | None) -> dict[str, Any]:
        return {**self._request, "memory_mb": limit_megabytes(limit), **more}

    def _ask(
        self, more: dict[str, Any], on_progress: Listener | None = None, stop: Callable[[], bool] | None = None
    ) -> dict[str, Any]:
        orders = Orders()
        if self._share < 1:
            orders.put(_pace(self._share))
        self._running, limit = orders, self._memory_bytes
        try:
            return run(self._whole(more, limit), limit, on_progress, stop, orders)
        finally:
            self._running = None


def _training(request: Request, seconds: float | None) -> dict[str, Any]:
    return {
        "verb": "train",
        "method": request.method,
        "run_steps": request.run_steps or 0,
        "most_steps": request.most_steps or 0,
        "seed": request.seed,
        "deadline_seconds": seconds or 0.0,
        "settings": dict(request.settings or {}),
    }


def _pace(share: float) -> dict[str, Any]:
    return {"do": "pace", "share": share}


def _threads() -> int:
    """Returns the number of threads that OMP_NUM_THREADS sets, as for torch. 0: as many as suit the processor."""
    text = os.environ.get("OMP_NUM_THREADS", "")
    return int(text) if text.isdigit() else 0
