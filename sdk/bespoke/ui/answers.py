# SPDX-License-Identifier: Apache-2.0
"""Questions, and what each version answered. Nothing of a version that has gone stays, an answer that is being given included."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakSet

from bespoke.errors import StateError

__all__ = ["Answers"]

ASKED_KEPT = 20  # questions


@dataclass(eq=False)
class _Growing:
    """An answer as it comes."""

    question: str
    version: int
    text: str = ""
    gone: bool = False


class Answers:
    """From any thread."""

    def __init__(self) -> None:
        self.revision = 0
        self._lock = threading.Lock()
        self._given: dict[str, dict[int, str]] = {}  # question -> version -> answer; version 0 is the base model
        self._growing: WeakSet[_Growing] = WeakSet()  # a browser may leave before the first piece is taken

    def keep(self, versions: Collection[int]) -> None:
        """Drops the answers of all other versions, and questions that have no answer then."""
        with self._lock:
            self._drop(lambda version: version not in versions)

    def clear(self) -> None:
        """Drops everything: a question may have the words of the example that was forgotten."""
        with self._lock:
            self._drop(lambda _: True)

    def _drop(self, goes: Callable[[int], bool]) -> None:
        """Those of the versions that go. The caller holds the lock."""
        for one in self._growing:
            if goes(one.version):
                one.gone, one.text, one.question = True, "", ""
        kept = {
            question: {of: text for of, text in given.items() if not goes(of)}
            for question, given in self._given.items()
        }
        kept = {question: given for question, given in kept.items() if given}
        if kept != self._given:
            self._given = kept
            self.revision += 1

    def growing(self, question: str, version: int, pieces: Iterator[str]) -> Iterator[str]:
        """The pieces of an answer, which is kept when it has ended. StateError as soon as its version has gone."""
        one = _Growing(question, version)
        with self._lock:
            self._growing.add(one)
        return self._follow(one, pieces)

    def _follow(self, one: _Growing, pieces: Iterator[str]) -> Iterator[str]:
        try:
            for piece in pieces:
                with self._lock:
                    self._check(one)
                    one.text += piece
                yield piece
            with self._lock:
                self._check(one)
                given = self._given.pop(one.question, {})  # the newest question is the last
                self._given[one.question] = {**given, one.version: one.text}
                while len(self._given) > ASKED_KEPT:
                    del self._given[next(iter(self._given))]
                self.revision += 1
        finally:
            with self._lock:
                self._growing.discard(one)

    @staticmethod
    def _check(one: _Growing) -> None:
        if one.gone:
            raise StateError(
                "the answer",
                got="a version or a note that was deleted while it was given",
                expected="those that were there",
                next_step="Ask again",
            )

    def compared(self, version: int) -> list[dict[str, Any]]:
        """Each question with the answer of `version` and the newest one of a version before; None: not asked."""
        with self._lock:
            return [_compared(question, given, version) for question, given in self._given.items()]


def _compared(question: str, given: dict[int, str], version: int) -> dict[str, Any]:
    before = max((one for one in given if one < version), default=None)
    return {
        "question": question,
        "before": None if before is None else {"version": before, "text": given[before]},
        "now": given.get(version),
    }
