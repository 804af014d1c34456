# SPDX-License-Identifier: Apache-2.0
"""One call of `train` as the page draws it: its progress and its report."""

from __future__ import annotations

import math
import threading
from typing import Any

from bespoke.rules.report import Progress, TrainReport

__all__ = ["TrainingView"]

_SHOWN = ("accepted", "why_refused", "judged_on", "judged_examples", "gain", "adapter_scale")


class TrainingView:
    """The progress of a training. Its lists only grow, so a browser asks for what it lacks. `number` identifies the training."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        self.thread: threading.Thread | None = None
        self.stop = threading.Event()
        self.error: str | None = None
        self.ended_with: int | None = None  # the version that answered when it ended
        self.ended = False
        self._report: dict[str, Any] | None = None
        self._phase, self._step, self._steps = "open", 0, 0
        self._losses: list[tuple[int, float | None]] = []
        self._footprints: list[int] = []

    def tell(self, progress: Progress) -> None:
        self._phase, self._step, self._steps = progress.phase, progress.step, progress.steps
        self._footprints.append(progress.footprint_bytes)
        if progress.loss is not None:
            self._losses.append((progress.step, _finite(progress.loss)))

    def end(self, version: int, report: TrainReport | None, error: str | None) -> None:
        """Ends the training. `version` is the one that answers now. With neither report nor error, nothing may be shown."""
        self.ended_with, self.error = version, error
        if report is not None:
            self._report = {name: _plain(getattr(report, name)) for name in _SHOWN} | {"table": str(report)}
        self.ended = True

    def runs(self) -> bool:
        return self.thread is not None and self.thread.is_alive()

    def state(self, has: dict[str, Any]) -> dict[str, Any]:
        """What a browser needs to draw. `has` says what it already has.

        That is the lists of training `has["number"]` up to `has["losses"]` and `has["footprints"]`, and the report if
        `has["report"]` is true.
        """
        same = has.get("number") == self.number
        losses, footprints = (_count(has.get(name)) if same else 0 for name in ("losses", "footprints"))
        drawn = {
            "number": self.number,
            "runs": self.runs(),
            "phase": self._phase,
            "step": self._step,
            "steps": self._steps,
            "losses": self._losses[losses:],
            "footprints": self._footprints[footprints:],
            "error": self.error,
        }
        if self._report is not None and not (same and has.get("report") is True):
            drawn["report"] = self._report
        return drawn


def _count(given: Any) -> int:
    return max(given, 0) if type(given) is int else 0


def _plain(value: Any) -> Any:
    return _finite(value) if isinstance(value, float) else value


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON has finite numbers only
