# SPDX-License-Identifier: Apache-2.0
"""The engine of an open model, which trains, evaluates and answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from bespoke.core.answers import Generation, Judged, OpenConversation
from bespoke.core.handle import Request
from bespoke.rules.records import FederationReport
from bespoke.rules.report import Evaluation, Listener, TrainReport

__all__ = ["Engine"]


class Engine(Protocol):
    """Computes for one bundle and one user's state. `bespoke.engines.engine_for` chooses the class."""

    name: str
    """"torch", or the target whose artifacts the core runs."""

    def train(
        self,
        request: Request,
        seconds: float | None,
        on_progress: Listener | None,
        stop: Callable[[], bool] | None,
    ) -> TrainReport:
        """Starts or continues a run.

        Args:
            request: Steps, method, seed and settings.
            seconds: Deadline. None: no deadline.
            on_progress: Called with each Progress.
            stop: Asked 20 times a second. Training ends in a committed state once it returns True.
        """

    def evaluate(self, split: str, examples: Sequence[str] | None) -> Evaluation:
        """Evaluates the adapter that answers on `examples`, each a JSON text. None: on the user's own of `split`."""

    def take_part(self, seconds: float | None, stop: Callable[[], bool] | None) -> FederationReport:
        """Works through what the server of a federation has sent, within a deadline."""

    def adopt(self) -> TrainReport:
        """Judges the shared adapter. It answers from then on if it is accepted."""

    def open_conversation(self, generation: Generation) -> OpenConversation:
        """Opens a conversation with these settings."""

    def judge(self, what: Judged, prompt: str, answers: str) -> Any:
        """Returns the core's JSON result for a prompt and answers, both given as JSON."""

    def set_limit(self, memory_bytes: int | None) -> None:
        """Sets the memory limit, also while a call runs. None: no limit."""

    def set_pace(self, share: float) -> None:
        """Sets the share of its time in which a call computes, also while it runs."""

    def trim(self) -> None:
        """Gives the memory back that is kept between calls. Raises Busy while a call computes."""

    def close(self) -> None:
        """Ends the conversations and frees what the engine holds."""
