# SPDX-License-Identifier: Apache-2.0
"""How a session answers, and what it can be asked, wherever it runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from bespoke.rules.records import AnswerPiece, Classification, Score

__all__ = ["Generation", "OpenSession", "classification_of", "scores_of"]


@dataclass(frozen=True)
class Generation:
    """How a session answers; None or 0: no such limit."""

    max_tokens: int | None = None
    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int | None = None
    seed: int = 0
    stop_texts: tuple[str, ...] = ()

    def fields(self) -> dict[str, Any]:
        """As bespoke_generation has them."""
        return {
            **asdict(self),
            "max_tokens": self.max_tokens or 0,
            "top_k": self.top_k or 0,
            "stop_texts": list(self.stop_texts),
        }


class OpenSession(Protocol):
    """A session of bespoke.h."""

    def feed(self, prompt: str) -> None:
        """`prompt`: JSON."""

    def next(self) -> AnswerPiece: ...

    def close(self) -> None: ...


def scores_of(found: Sequence[Mapping[str, Any]]) -> list[Score]:
    return [Score(_log(one["log_probability"]), one["tokens"]) for one in found]


def classification_of(found: Mapping[str, Any]) -> Classification:
    return Classification(found["label"], _log(found["log_probability"]))


def _log(value: float | None) -> float:
    return -math.inf if value is None else value  # JSON has no word for it
