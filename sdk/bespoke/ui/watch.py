# SPDX-License-Identifier: Apache-2.0
"""What the state holds, read again only after something was written to it, by this process or by another one.

Files are only asked for their times: to open and close one of SQLite's files here would drop the locks that this process holds on
it.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bespoke.personal_model import PersonalModel
from bespoke.rules.records import Version
from bespoke.ui.notes import Notes

__all__ = ["Seen", "Watch"]

_FILES = ("state.sqlite", "state.sqlite-wal")
# Files keep their times in steps, on some systems of 2 seconds: of two writes within one the second cannot be seen.
SETTLED_SECONDS = 3.0
REST = 20  # after a list that was read in vain, this many times as long nothing is read again


@dataclass(frozen=True)
class Seen:
    """Versions oldest first; `run`: the number of the unfinished one."""

    versions: tuple[Version, ...] = ()
    run: int | None = None

    @property
    def version(self) -> int:
        """The one that answers; 0: the base model."""
        return self.versions[-1].id if self.versions else 0


class Watch:
    """For one thread at a time. `notes` are those of the last look."""

    def __init__(self, model: PersonalModel, state: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self.notes = Notes()
        self._model = model
        self._paths = tuple(state / name for name in _FILES)
        self._clock = clock
        self._seen = Seen()
        self._written: object = None  # the times of the files when they were read; None: to be read again
        self._rest_until = 0.0

    def look(self, *, thorough: bool = False) -> Seen:
        """Reads what may have changed.

        Examples and the run are long to read where there are many examples. They are read when their count or the versions have
        changed, and when `thorough`. Of other writes, such as the commits of a training, most change neither: after these they are
        read at most a twentieth of the time.
        """
        written = self._times()
        if written is not None and written == self._written and not thorough:
            return self._seen
        versions = tuple(self._model.versions())
        changed = thorough or versions != self._seen.versions or len(self._model.examples) != len(self.notes)
        if changed or self._clock() >= self._rest_until:
            began = self._clock()
            self.notes.update(self._model.examples.list())
            run = self._model.current_run()
            self._seen = Seen(versions, None if run is None else run.id)
            ended = self._clock()
            self._rest_until = ended + REST * (ended - began)
            self._written = written
        return self._seen

    def _times(self) -> object:
        """None where they are too young to tell the next write by."""
        found = []
        for path in self._paths:
            try:
                status = os.stat(path)
            except FileNotFoundError:
                found.append((0, 0, 0))
            else:
                found.append((status.st_ino, status.st_size, status.st_mtime_ns))
        newest = max(time_ns for _, _, time_ns in found)
        return tuple(found) if time.time_ns() - newest > SETTLED_SECONDS * 1e9 else None
