# SPDX-License-Identifier: Apache-2.0
"""StateStore: everything that a device keeps for one user, behind one object.

    state.sqlite             examples, runs, progress, journal, metrics, versions
    slot_*.safetensors       adapter and optimizer state of a committed step
    accepted_*.safetensors   adapters that passed the gate
    scratch                  the trainer's mapped working copies; unlinked once mapped, never trusted after a restart
    trainer.lock files.lock  locks between processes

A store may be shared by the threads of a process, and the folder by processes: any of them may add, list and forget
while one trains. All methods may raise StateError (damaged, busy, unwritable) and, where they write, DiskFull.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from bespoke.errors import DataError
from bespoke.state import examples, folder, forgetting, lock, runs, schema, tensor_files, versions
from bespoke.state.database import Database
from bespoke.state.records import (
    AddedExample,
    ExampleInfo,
    ExampleRow,
    Forgotten,
    JournalRow,
    Run,
    Slot,
    Split,
    TokenRows,
    Version,
)

AdapterShapes = Mapping[str, tuple[int, ...]]


class StateStore:
    """The state of one user and one base model. Made by `open`; a context manager."""

    def __init__(self, path: Path, database: Database, adapter_shapes: AdapterShapes) -> None:
        self.folder = path
        self._database = database
        self._shapes = {name: tuple(shape) for name, shape in adapter_shapes.items()}

    @classmethod
    def open(cls, path: Path, *, base_sha256: str, adapter_shapes: AdapterShapes) -> StateStore:
        """Open the state in folder `path`, creating it where there is none, and remove what a killed process left.

        `adapter_shapes`: name -> shape of every adapter piece of the bundle. StateError where the state is damaged, of
        another version, or of another base or adapter (then see `reset_for_new_base`).
        """
        return cls._open(path, base_sha256, adapter_shapes, any_base=False)

    @classmethod
    def _open(cls, path: Path, base_sha256: str, adapter_shapes: AdapterShapes, *, any_base: bool) -> StateStore:
        path = folder.prepare(Path(path))
        with lock.files_lock(path):
            made_before = folder.made_before(path)
            database = Database(path)
            try:
                database.prepare(base_sha256, adapter_shapes, may_be_new=not made_before, any_base=any_base)
                folder.mark_created(path)
                store = cls(path, database, adapter_shapes)
                store._sweep(overwrite=True)
                database.empty_log()
            except BaseException:
                database.close()
                raise
        return store

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> StateStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def trainer_lock(self, purpose: str = "training") -> Iterator[None]:
        """The right to train, for this block. StateLocked, naming who holds it, where somebody does.

        Released when the process dies. The scratch file is removed on both ends: it holds what examples led to.
        """
        with lock.trainer_lock(self.folder, purpose):
            forgetting.remove_scratch(self.folder, overwrite=False)
            try:
                yield
            finally:
                forgetting.remove_scratch(self.folder, overwrite=False)

    @property
    def scratch_path(self) -> Path:
        """Where the holder of the trainer's lock may map its scratch file."""
        return self.folder / forgetting.SCRATCH

    # Examples

    def add_example(self, example: dict[str, Any], rows: Sequence[TokenRows], id: str | None = None) -> AddedExample:
        """Keep an example with its token rows. `id` defaults to the sha256 of its canonical JSON.

        Same id and same content: nothing happens. DataError for same id and other content, for what is no JSON, for
        rows without a trained token.
        """
        return examples.add(self._database, example, rows, id)

    def check_example(self, example: dict[str, Any], id: str | None = None) -> None:
        """DataError for an example or id that `add_example` would refuse for itself, with any rows: before it is tokenized."""
        examples.identified(example, id)

    def examples(self) -> list[ExampleInfo]:
        """All examples, in the order in which they were added."""
        return examples.infos(self._database)

    def example_ids(self, split: Split | None = None) -> list[str]:
        """Ids, in the order in which they were added, of one split or of both."""
        return examples.ids(self._database, split)

    def example_rows(self, ids: Sequence[str]) -> list[ExampleRow]:
        """(id, window, tokens, mask) in the order of `ids`, then of windows. DataError for an unknown id."""
        return examples.rows_of(self._database, ids)

    def forget(self, id: str) -> Forgotten:
        """Delete an example and everything learned from it; no file of the folder holds a byte of it afterwards.

        Every accepted adapter, slot and journal whose run saw it goes; an unfinished one ends ("example_forgotten").
        May be called again after an interruption, and for an id that is not there. A trainer at work in another process
        learns of it from `ended_because` or at its next commit, and gives up its scratch file when it leaves its lock.
        """
        with lock.files_lock(self.folder):
            forgotten = forgetting.forget(self._database, id)
            self._sweep(overwrite=True)
            self._database.scrub()
        forgetting.erase_scratch(self.folder)
        return forgotten

    # Runs

    def start_run(
        self,
        method: str,
        seed: int,
        settings: dict[str, Any],
        example_ids: Sequence[str],
        steps: int,
        started_from: int | None = None,
    ) -> Run:
        """A new run over `example_ids` (all that it will look at, validation included), from a version or the base."""
        return runs.start(self._database, method, seed, settings, example_ids, steps, started_from)

    def current_run(self) -> Run | None:
        """The unfinished run, if there is one."""
        return runs.current(self._database)

    def run(self, run_id: int) -> Run:
        return runs.get(self._database, run_id)

    def ended_because(self, run_id: int) -> str | None:
        """Why a run has ended, None while it has not: one cheap look, for a trainer to take between steps."""
        return runs.ended_because(self._database, run_id)

    def end_run(self, run_id: int, reason: str) -> bool:
        """End a run and delete its slots; False where it had ended before. Its journal and metrics stay."""
        with lock.files_lock(self.folder):
            ended = runs.end(self._database, run_id, reason)
            self._sweep()
        return ended

    def commit_step(
        self,
        run_id: int,
        *,
        step: int,
        cursor: dict[str, Any],
        tensors: Mapping[str, np.ndarray],
        metrics: Sequence[dict[str, Any]] = (),
    ) -> bool:
        """Commit adapter and optimizer state (float32) of `step`. True: it survives whatever happens now.

        False, and nothing is written: the run has ended meanwhile (see `ended_because`). On an error the state before
        is intact. AdapterError where `tensors` are not the adapter and `<piece>.<state>` of the same shapes.
        """
        with lock.files_lock(self.folder):
            committed = runs.commit_step(
                self._database, self.folder, self._shapes, run_id, step, cursor, tensors, metrics
            )
            self._sweep()
        return committed

    def append_journal(self, run_id: int, rows: Sequence[JournalRow]) -> bool:
        """Commit steps of a replayable plan in one transaction. False, and nothing written, where the run has ended."""
        return runs.append_journal(self._database, run_id, rows)

    def journal(self, run_id: int, after_step: int = -1) -> list[JournalRow]:
        """Journaled steps after `after_step`, in order; `values` have the bits that were recorded."""
        return runs.journal(self._database, run_id, after_step)

    def latest_slot(self, run_id: int) -> Slot | None:
        """The slot committed last, its file verified; None before the first. StateError where it is damaged."""
        with lock.files_lock(self.folder):
            return runs.latest_slot(self._database, self.folder, self._shapes, run_id)

    def metrics(self, run_id: int) -> list[dict[str, Any]]:
        """Metrics of all committed steps of a run, in order."""
        return runs.metrics(self._database, run_id)

    # Accepted adapters

    def accept(self, run_id: int, tensors: Mapping[str, np.ndarray], metrics: dict[str, Any]) -> int | None:
        """Keep an adapter of a run as the one that answers: its version id.

        None, and nothing kept, where the run was undone meanwhile (forgotten, rolled back, reset).
        """
        return self._accept(run_id, tensors, metrics, None)

    def import_version(self, tensors: Mapping[str, np.ndarray], source: str) -> int:
        """Keep an adapter that was trained elsewhere as the one that answers. `source` says where it came from."""
        version = self._accept(None, tensors, {}, source)
        assert version is not None  # only a run can be undone
        return version

    def _accept(
        self, run_id: int | None, tensors: Mapping[str, np.ndarray], metrics: dict[str, Any], source: str | None
    ) -> int | None:
        with lock.files_lock(self.folder):
            version = versions.accept(self._database, self.folder, self._shapes, run_id, tensors, metrics, source)
            self._sweep()
        return version

    def accepted(self) -> list[Version]:
        """Accepted adapters, oldest first."""
        return versions.listed(self._database)

    def current_version(self) -> Version | None:
        """The adapter that answers; None: the base does."""
        return versions.current(self._database)

    def load_version(self, version_id: int) -> dict[str, np.ndarray]:
        """Tensors of an accepted adapter, float32, verified, read-only, mapped from its file."""
        with lock.files_lock(self.folder):
            return versions.load(self._database, self.folder, self._shapes, version_id)

    def answering(self) -> tuple[Version, dict[str, np.ndarray]] | None:
        """The adapter that answers and its tensors, as `load_version` gives them, of one moment; None: the base answers.

        Asked for one after the other, another process may have taken the version away in between.
        """
        with lock.files_lock(self.folder):
            return versions.answering(self._database, self.folder, self._shapes)

    def rollback(self) -> Version | None:
        """Drop the adapter that answers; the one before it does then, or the base (None).

        An unfinished run ends ("rolled_back"): it would bring back what its user did not want.
        """
        with lock.files_lock(self.folder):
            versions.rollback(self._database)
            self._sweep()
        return self.current_version()

    # Starting over

    def reset(self) -> None:
        """Delete all runs and adapters; examples stay, the base answers."""
        with lock.files_lock(self.folder):
            forgetting.forget_all_runs(self._database)
            self._sweep(overwrite=True)
            self._database.scrub()
        forgetting.erase_scratch(self.folder)

    @classmethod
    def reset_for_new_base(
        cls,
        path: Path,
        *,
        base_sha256: str,
        adapter_shapes: AdapterShapes,
        retokenize: Callable[[dict[str, Any]], Sequence[TokenRows]],
    ) -> StateStore:
        """Open a state of another base: all or nothing, its examples are tokenized anew, runs and adapters deleted.

        `retokenize` gives the rows of an example; none drops it. A DataError of it is passed on, naming the example,
        and nothing is changed. StateLocked while somebody trains.
        """
        store = cls._open(path, base_sha256, adapter_shapes, any_base=True)
        try:
            with store.trainer_lock("reset for a new base"), lock.files_lock(store.folder):
                store._replace_base(base_sha256, adapter_shapes, retokenize)
                store._sweep(overwrite=True)
                store._database.scrub()
        except BaseException:
            store.close()
            raise
        return store

    def _replace_base(
        self,
        base_sha256: str,
        adapter_shapes: AdapterShapes,
        retokenize: Callable[[dict[str, Any]], Sequence[TokenRows]],
    ) -> None:
        with self._database.transaction() as connection:
            forgetting.forget_all_runs(self._database)
            for info in examples.infos(self._database):
                try:
                    rows = retokenize(info.json)
                except DataError as error:
                    raise DataError(
                        f"example '{info.id}', {error.subject}",
                        got=error.got,
                        expected=error.expected,
                        next_step=f"{error.next_step}; or return no rows for it, which drops it",
                    ) from error
                examples.replace_rows(self._database, info.id, rows)
            shapes = schema.shapes_json(adapter_shapes)
            connection.execute("UPDATE state SET base_sha256 = ?, adapter = ?", (base_sha256, shapes))

    def _sweep(self, *, overwrite: bool = False) -> None:
        """Remove tensor files that no row names. Under the lock on files."""
        named = {row[0] for row in self._database.read("SELECT file FROM slots UNION SELECT file FROM versions")}
        tensor_files.sweep(self.folder, named, overwrite=overwrite)
