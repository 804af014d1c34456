# SPDX-License-Identifier: Apache-2.0
"""Processes that open a state with PersonalModel, add to it, and may be killed at any moment.

They are forked from a server that has imported what they need and opened nothing: a start takes milliseconds.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Self

from bespoke import PersonalModel
from tests.unit.personal_model.tiny import numbers

_OPEN, _ADDED, _CLOSED = "open", "all added", "closed"


def processes() -> ForkServerContext:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def add_from(bundle: Path, state: Path, handles: int, pipe: Connection) -> None:
    """Adds what it is sent, by one handle after the other, and tells each id when `add` has returned."""
    with suppress(EOFError):  # a test that failed
        models = [PersonalModel.open(bundle, state, engine="torch") for _ in range(handles)]
        pipe.send(_OPEN)
        count = 0
        while (id := pipe.recv()) != _CLOSED:
            if id != _ADDED:
                id = models[count % handles].examples.add(numbers(count), id=id).id
                count += 1
            pipe.send(id)
        for model in models:
            model.close()
        pipe.send(_CLOSED)


def change_from(bundle: Path, state: Path, adapter: Path, pipe: Connection) -> None:
    with PersonalModel.open(bundle, state, engine="torch") as model:
        pipe.send(_OPEN)
        while not pipe.poll():
            model.import_adapter(adapter)
            model.rollback()
    pipe.send(_CLOSED)


class Changer:
    """A process that takes an exported adapter as the one that answers and takes it back, again and again, while this lives."""

    def __init__(self, context: ForkServerContext, bundle: Path, state: Path, adapter: Path) -> None:
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=change_from, args=(bundle, state, adapter, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def __enter__(self) -> Self:
        assert self.pipe.recv() == _OPEN
        return self

    def __exit__(self, *_: object) -> None:
        self.pipe.send(_CLOSED)
        with suppress(EOFError):
            self.pipe.recv()
        self.process.join()
        assert self.process.exitcode == 0


class Adder:
    """A process with `handles` handles on one state. `kept`: the ids whose `add` was seen to return."""

    def __init__(self, context: ForkServerContext, bundle: Path, state: Path, handles: int) -> None:
        self.kept: list[str] = []
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=add_from, args=(bundle, state, handles, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def opened(self) -> None:
        self._until(_OPEN)

    def ask(self, ids: Sequence[str]) -> None:
        with suppress(BrokenPipeError):  # it may have been killed
            for id in ids:
                self.pipe.send(id)

    def finish(self) -> None:
        """Waits until it has added all that it was asked to, or has been killed."""
        self.ask([_ADDED])
        self._until(_ADDED)

    def add(self, ids: list[str]) -> list[str]:
        before = len(self.kept)
        self.ask(ids)
        self.finish()
        return self.kept[before:]

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def close(self) -> None:
        self.ask([_CLOSED])
        self._until(_CLOSED)
        self.process.join()

    def _until(self, last: str) -> None:
        with suppress(EOFError, ConnectionResetError):
            while (word := self.pipe.recv()) != last:
                self.kept += [] if word == _OPEN else [word]
