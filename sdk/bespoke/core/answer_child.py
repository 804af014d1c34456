# SPDX-License-Identifier: Apache-2.0
"""Conversations in a single process of the core, which computes one answer at a time (bindings/native/src/tool/answering.h)."""

from __future__ import annotations

import itertools
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bespoke.core.answers import Generation, Judged
from bespoke.core.library import error_of, record
from bespoke.core.process import POLL_SECONDS, Child
from bespoke.errors import BespokeError, Busy, StateError
from bespoke.rules.records import AnswerPiece

__all__ = ["AnsweringChild", "ChildConversation"]


class AnsweringChild:
    """A process of the core for the conversations of a model. It starts with the first conversation and runs until `close`."""

    def __init__(self, start: Callable[[], Child]) -> None:
        """`start` starts the process with its request."""
        self._start = start
        self._alone = threading.Lock()
        self._numbers = itertools.count(1)
        self._core: Child | None = None
        self._closed: deque[int] = deque()  # numbers of conversations to close

    def open(self, generation: Generation) -> ChildConversation:
        with self._held(wait=True):
            core = self._running()
            number = next(self._numbers)
            self._ask({"do": "open", "session": number, **generation.fields()})
            return ChildConversation(self, core, number)

    def judge(self, what: Judged, prompt: str, answers: str) -> Any:
        """Returns the core's JSON result. Raises Busy while another call computes."""
        with self._held(wait=False):
            self._running()
            return self._ask({"do": what, "prompt": json.loads(prompt), "answers": json.loads(answers)})["found"]

    def trim(self) -> None:
        """Gives the memory back that the process keeps between calls. Raises Busy while a call computes."""
        with self._held(wait=False):
            if self._core is not None:
                self._ask({"do": "trim"})

    def close(self) -> None:
        """Ends the conversations."""
        with self._held(wait=True):
            self._end()

    def forget(self, core: Child, number: int) -> None:
        """Closes a conversation before the next order. Its last reference may disappear in the middle of another call."""
        if core is self._core:
            self._closed.append(number)

    def tell(self, change: Mapping[str, Any]) -> None:
        """Sends a limit or a pace, from any thread, also while the process answers."""
        if (core := self._core) is not None:
            core.tell(change)

    def ask(self, core: Child, order: Mapping[str, Any], *, wait: bool = True) -> dict[str, Any]:
        """Returns the answer to an order for a conversation of this process. While another computes it waits or raises Busy."""
        with self._held(wait=wait):
            if core is not self._core:
                raise StateError(
                    "the conversation",
                    got="a conversation whose process has ended",
                    expected="one that is open",
                    next_step="Open another one, and feed it the messages",
                )
            return self._ask(order)

    @contextmanager
    def _held(self, *, wait: bool) -> Iterator[None]:
        if not self._alone.acquire(blocking=wait):
            raise Busy(
                "the model",
                got="a call while another one computes",
                expected="one call that computes at a time",
                next_step="Wait until it has ended",
            )
        try:
            yield
        finally:
            self._alone.release()

    def _running(self) -> Child:
        if self._core is None:
            self._core = self._start()
            self._hear(None)
        return self._core

    def _ask(self, order: Mapping[str, Any]) -> dict[str, Any]:
        assert self._core is not None
        while self._closed:
            # Order 0: nobody reads the answer.
            self._core.tell({"do": "close", "session": self._closed.popleft(), "order": 0})

        number = next(self._numbers)
        self._core.tell({**order, "order": number})
        try:
            return self._hear(number)
        except BespokeError:
            raise
        except BaseException:  # an interrupt: the next call skips answers to this order
            self._core.tell({"do": "cancel"})
            raise

    def _hear(self, order: int | None) -> dict[str, Any]:
        """Returns the answer to an order, or for None the first event. Raises the error that the core reports.

        If the process ends, its conversations end too.
        """
        core = self._core
        assert core is not None
        last: dict[str, Any] = {}
        try:
            while True:
                event = core.hear(POLL_SECONDS)
                if event is None:
                    continue

                kind, answered = event["event"], event.get("order")
                if kind == "error" and order is not None and answered == order:
                    raise error_of(event)
                if kind == "refused" and "order" in event:  # the core could not read the line: the order is lost
                    raise error_of({**event, "kind": "BespokeError"})
                if kind in ("ready", "done", "found") and answered == order:
                    return event
                last[kind] = event
        except EOFError:
            pass

        try:
            return core.ended(last)  # raises: there is no report
        finally:
            self._end()

    def _end(self) -> None:
        core, self._core = self._core, None
        self._closed.clear()
        if core is not None:
            core.close()


class ChildConversation:
    """A conversation of an AnsweringChild: a session of bespoke.h."""

    def __init__(self, child: AnsweringChild, core: Child, number: int) -> None:
        self._child, self._core, self._number = child, core, number

    def feed(self, prompt: str) -> None:
        self._child.ask(self._core, {"do": "feed", "session": self._number, "prompt": json.loads(prompt)})

    def next(self) -> AnswerPiece:
        return record(
            AnswerPiece, self._child.ask(self._core, {"do": "next", "session": self._number}, wait=False)["found"]
        )

    def close(self) -> None:
        self._child.forget(self._core, self._number)
