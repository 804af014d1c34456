# SPDX-License-Identifier: Apache-2.0
"""Sessions in a process of the core's own, which answers one after the other (bindings/native/src/tool/answering.h)."""

from __future__ import annotations

import itertools
import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from bespoke.core.answers import Generation
from bespoke.core.child import POLL_SECONDS
from bespoke.core.library import error_of, record
from bespoke.core.process import Child
from bespoke.errors import BespokeError, Busy, StateError
from bespoke.rules.records import AnswerPiece

__all__ = ["AnsweringChild", "ChildSession"]


class AnsweringChild:
    """A process of the core for the sessions of one model. It starts with the first of them and stays until `close`."""

    def __init__(self, start: Callable[[], Child]) -> None:
        """`start`: gives the process, with its request."""
        self._start = start
        self._alone = threading.Lock()
        self._numbers = itertools.count(1)
        self._core: Child | None = None
        self._closed: deque[int] = deque()  # sessions of it that are to be closed

    def open(self, generation: Generation) -> ChildSession:
        with self._held(wait=True):
            core = self._running()
            number = next(self._numbers)
            self._ask({"do": "open", "session": number, **generation.fields()})
            return ChildSession(self, core, number)

    def judge(self, what: str, prompt: str, answers: str) -> Any:
        """`what`: "score" or "classify". Busy while another one is answered."""
        with self._held(wait=False):
            self._running()
            return self._ask({"do": what, "prompt": json.loads(prompt), "answers": json.loads(answers)})["found"]

    def close(self) -> None:
        """Ends its sessions."""
        with self._held(wait=True):
            self._end()

    def forget(self, core: Child, session: int) -> None:
        """Closes a session, before the next order: the last reference to one may go in the middle of another call."""
        if core is self._core:
            self._closed.append(session)

    def tell(self, change: Mapping[str, Any]) -> None:
        """A limit or a pace, from any thread, also while it answers."""
        if (core := self._core) is not None:
            core.tell(change)

    def ask(self, core: Child, order: Mapping[str, Any], *, wait: bool = True) -> dict[str, Any]:
        """The answer to an order for a session of this process. While another one is answered it waits, or is Busy."""
        with self._held(wait=wait):
            if core is not self._core:
                raise StateError(
                    "the session",
                    got="a session whose process has ended",
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
            self._core.tell({"do": "close", "session": self._closed.popleft(), "order": 0})  # whose answer nobody hears
        number = next(self._numbers)
        self._core.tell({**order, "order": number})
        try:
            return self._hear(number)
        except BespokeError:
            raise
        except BaseException:  # an interrupt: who asks next passes over what it answers meanwhile
            self._core.tell({"do": "cancel"})
            raise

    def _hear(self, order: int | None) -> dict[str, Any]:
        """The answer to an order, or the first event; raises the error that the core reports.

        A process that has ended takes its sessions with it.
        """
        core = self._core
        assert core is not None
        last: dict[str, Any] = {}
        try:
            while True:
                event = core.hear(POLL_SECONDS)
                if event is None:
                    continue
                kind, of = event["event"], event.get("order")
                if kind == "error" and order is not None and of == order:
                    raise error_of(event)
                if kind == "refused" and "order" in event:  # a line that it cannot read: the order is lost
                    raise error_of({**event, "kind": "BespokeError"})
                if kind in ("ready", "done", "found") and of == order:
                    return event
                last[kind] = event
        except EOFError:
            pass
        try:
            return core.ended(last)  # which is an error, without a report
        finally:
            self._end()

    def _end(self) -> None:
        core, self._core = self._core, None
        self._closed.clear()
        if core is not None:
            core.close()


class ChildSession:
    """One session of an AnsweringChild."""

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
