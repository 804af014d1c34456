# SPDX-License-Identifier: Apache-2.0
"""The questions asked on the page and the answers of each version. Answers of a version that is gone are dropped at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

from bespoke.errors import StateError

__all__ = ["Answers"]

ASKED_KEPT = 20  # questions


@dataclass(eq=False)
class _PartialAnswer:
    """An answer that is still being generated."""

    question: str
    version: int
    text: str = ""
    gone: bool = False


class Answers:
    """The newest questions with their answers. Any thread may call it."""

    def __init__(self) -> None:
        self.revision = 0
        self._lock = threading.Lock()
        self._given: dict[str, dict[int, str]] = {}  # question -> version -> answer; version 0 is the base model
        self._growing: WeakSet[_PartialAnswer] = WeakSet()  # a browser may leave before the first piece is taken

    def keep(self, versions: Collection[int]) -> None:
        """Drops the answers of all other versions, and questions that have no answer then."""
        with self._lock:
            self._drop(lambda version: version not in versions)

    def clear(self) -> None:
        """Drops everything, since a question may contain words of an example that was forgotten."""
        with self._lock:
            self._drop(lambda _: True)

    def _drop(self, is_gone: Callable[[int], bool]) -> None:
        """Drops the answers of the versions that are gone. The caller holds the lock."""
        for answer in self._growing:
            if is_gone(answer.version):
                answer.gone, answer.text, answer.question = True, "", ""

        kept = {
            question: {version: text for version, text in answers.items() if not is_gone(version)}
            for question, answers in self._given.items()
        }
        kept = {question: answers for question, answers in kept.items() if answers}
        if kept != self._given:
            self._given = kept
            self.revision += 1

    def growing(self, question: str, version: int, pieces: Generator[str]) -> Generator[str]:
        """Yields the pieces of an answer and keeps it when it ends. StateError as soon as its version is gone.

        Closes `pieces` before it raises: an error refers to what raised it, and may live until the garbage collector runs.
        """
        answer = _PartialAnswer(question, version)
        with self._lock:
            self._growing.add(answer)
        return self._follow(answer, pieces)

    def _follow(self, answer: _PartialAnswer, pieces: Generator[str]) -> Generator[str]:
        try:
            with closing(pieces):
                for piece in pieces:
                    with self._lock:
                        self._check(answer)
                        answer.text += piece
                    yield piece

            with self._lock:
                self._check(answer)
                others = self._given.pop(answer.question, {})  # the newest question is the last
                self._given[answer.question] = {**others, answer.version: answer.text}
                while len(self._given) > ASKED_KEPT:
                    del self._given[next(iter(self._given))]
                self.revision += 1
        finally:
            with self._lock:
                self._growing.discard(answer)

    @staticmethod
    def _check(answer: _PartialAnswer) -> None:
        if answer.gone:
            raise StateError(
                "the answer",
                got="a version or a note that was deleted while it was given",
                expected="those that were there",
                next_step="Ask again",
            )

    def compared(self, version: int) -> list[dict[str, Any]]:
        """Each question with the base model's answer and that of `version`. None: not asked, or `version` is the base model."""
        with self._lock:
            return [
                {"question": question, "base": answers.get(0) if version else None, "now": answers.get(version)}
                for question, answers in self._given.items()
            ]

    def of(self, version: int, question: str) -> str | None:
        """The answer of a version, None if it was not asked."""
        with self._lock:
            return self._given.get(question, {}).get(version)
