# SPDX-License-Identifier: Apache-2.0
"""The settings of a conversation and the results of an engine that answers, in the same form for every engine."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol

from bespoke.rules.records import AnswerPiece, Classification, Score

__all__ = ["Generation", "Judged", "OpenConversation", "classification_of", "scores_of"]

Judged = Literal["score", "classify"]


@dataclass(frozen=True)
class Generation:
    """The settings of a conversation. None: no limit."""

    max_tokens: int | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int | None = None
    seed: int = 0
    stop_texts: tuple[str, ...] = ()
    notes: bool = False

    def fields(self) -> dict[str, Any]:
        """Returns the fields of bespoke_generation."""
        return {
            **asdict(self),
            "max_tokens": self.max_tokens or 0,
            "top_k": self.top_k or 0,
            "stop_texts": list(self.stop_texts),
        }


class OpenConversation(Protocol):
    """A conversation with an engine: a session of bespoke.h."""

    def feed(self, prompt: str) -> None:
        """Adds a prompt, given as JSON."""

    def next(self) -> AnswerPiece: ...

    def close(self) -> None: ...


def scores_of(scores: Sequence[Mapping[str, Any]]) -> list[Score]:
    """Returns the core's scores as records."""
    return [Score(_log(score["log_probability"]), score["tokens"]) for score in scores]


def classification_of(result: Mapping[str, Any]) -> Classification:
    """Returns the core's classification as a record."""
    return Classification(result["label"], _log(result["log_probability"]))


def _log(value: float | None) -> float:
    return -math.inf if value is None else value  # JSON has no infinity
