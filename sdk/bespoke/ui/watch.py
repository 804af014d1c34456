# SPDX-License-Identifier: Apache-2.0
"""The contents of the state, read again only after this process or another one wrote to it.

Writes are noticed by the files' times. To open and close one of SQLite's files here would drop this process's locks on it.
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
# The times of files have a resolution, on some systems of 2 seconds. The second of two writes within it cannot be noticed.
SETTLED_SECONDS = 3.0
# A list that took t seconds to read is not read again for this many t, unless something shows that it changed.
REST = 20


@dataclass(frozen=True)
class Seen:
    """What was read from the state. Versions are oldest first. `run` is the number of the unfinished run."""

    versions: tuple[Version, ...] = ()
    run: int | None = None

    @property
    def version(self) -> int:
        """The version that answers, 0 for the base model."""
        return self.versions[-1].id if self.versions else 0


class Watch:
    """Reads the state when it changed, for one thread at a time. `notes` are those of the last look."""

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

        Examples and the run take long to read if there are many examples. They are read if their count or the versions changed, and
        if `thorough`. Most other writes, such as the commits of a training, change neither. After those, reading takes at most a
        twentieth of the time.
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
        """The times of the files, None if they are so recent that another write might not change them."""
        times = []
        for path in self._paths:
            try:
                status = os.stat(path)
            except FileNotFoundError:
                times.append((0, 0, 0))
            else:
                times.append((status.st_ino, status.st_size, status.st_mtime_ns))
        newest = max(time_ns for _, _, time_ns in times)
        return tuple(times) if time.time_ns() - newest > SETTLED_SECONDS * 1e9 else None
