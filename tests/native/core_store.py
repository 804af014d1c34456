# SPDX-License-Identifier: Apache-2.0
"""The core's store as a Python object: each one is a process of its own (bindings/native/tests/state_lab.cpp)."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import numpy as np

from bespoke.errors import DataError
from bespoke.rules.records import AddedExample, ExampleInfo, Forgotten, Run, Version
from tests.native.lab_process import end
from tests.native.state_lab import CoreState, as_text, bits_of, given


class TokenRows(Protocol):
    """One row of a tokenized example: `tokens` int32 (n,) and `mask` uint8 (n,), 1 where the token is trained on."""

    @property
    def tokens(self) -> np.ndarray: ...

    @property
    def mask(self) -> np.ndarray: ...


class ExampleRow(NamedTuple):
    """Row `window` of example `id`: tokens int32 (n,), mask uint8 (n,)."""

    id: str
    window: int
    tokens: np.ndarray
    mask: np.ndarray


@dataclass(frozen=True)
class Slot:
    """Adapter and optimizer state of a committed step."""

    step: int
    cursor: dict[str, Any]
    tensors: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class JournalRow:
    """A step of a replayable plan. `values` are 32-bit floats and come back bit for bit."""

    step: int
    cursor: dict[str, Any]
    values: Sequence[float]
    rejected: bool = False
    metrics: dict[str, Any] = field(default_factory=dict)


Retokenize = Callable[[dict[str, Any]], Sequence[TokenRows]]


@cache
def state_lab() -> Path:
    """The program, compiled where it is not yet."""
    from tests.native.conftest import compile_core

    return compile_core("core") / "tests" / "state_lab"


class CoreStore:
    """Made by `open` or `reset_for_new_base`; a context manager."""

    def __init__(self, core: CoreState, folder: Path) -> None:
        self._core = core
        self.folder = folder

    @classmethod
    def open(
        cls, program: Path, folder: Path, base: str, shapes: Mapping[str, tuple[int, ...]], preload: Path | None = None
    ) -> CoreStore:
        core = CoreState(program, preload)
        try:
            return cls(core.open(folder, base, shapes), folder)
        except BaseException:
            end(core.process)
            raise

    @classmethod
    def reset_for_new_base(
        cls, program: Path, folder: Path, base: str, shapes: Mapping[str, tuple[int, ...]], retokenize: Retokenize
    ) -> CoreStore:
        store = cls(CoreState(program), folder)
        try:
            store.reset_base(base, shapes, retokenize)
        except BaseException:
            store.close()
            raise
        return store

    def reset_base(self, base: str, shapes: Mapping[str, tuple[int, ...]], retokenize: Retokenize) -> None:
        """In the place of the store that this one had open."""
        self._core.retokenize = lambda text: retokenized(retokenize, text)
        self.act("reset for a new base", folder=str(self.folder), base=base, adapter=as_lists(shapes))

    def use_text_rules(self, sha256: str, retokenize: Retokenize) -> None:
        self._core.retokenize = lambda text: retokenized(retokenize, text)
        self.act("use text rules", sha256=sha256)

    def act(self, what: str, **values: Any) -> Any:
        return self._core.act(what, **values)

    def close(self) -> None:
        with suppress(BrokenPipeError):  # the core may have been killed
            end(self._core.process)

    def kill(self) -> None:
        self._core.process.kill()
        self._core.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def trainer_lock(self, purpose: str = "training") -> Iterator[None]:
        self.act("lock", purpose=purpose)
        try:
            yield
        finally:
            self.act("unlock")

    @property
    def process(self) -> int:
        return self._core.process.pid

    @property
    def scratch_path(self) -> Path:
        return self.folder / "scratch"

    # Examples

    def add_example(self, example: dict[str, Any], rows: Sequence[TokenRows], id: str | None = None) -> AddedExample:
        given_id = {} if id is None else {"id": id}
        return AddedExample(*self.act("add", json=json.dumps(example), rows=lists_of(rows), **given_id))

    def examples(self) -> list[ExampleInfo]:
        return [ExampleInfo(id, split, json.loads(text), *rest) for id, split, text, *rest in self.act("examples")]

    def example_ids(self, split: str | None = None) -> list[str]:
        return [info.id for info in self.examples() if split in (None, info.split)]

    def example_rows(self, ids: Sequence[str]) -> list[ExampleRow]:
        found: dict[str, list[ExampleRow]] = {}
        infos = self.examples()
        for split in ("train", "validation"):
            rows = iter(self.act("rows", split=split))
            for info in infos:
                if info.split == split:
                    found[info.id] = [row_of(info.id, *next(rows)) for _ in range(info.rows)]
            assert next(rows, None) is None
        return [row for id in ids for row in found[id]]

    def nearest_notes(self, question: str, most: int = 3) -> list[str]:
        notes: list[str] = self.act("nearest notes", question=question, most=most)
        return notes

    def forget(self, id: str) -> Forgotten:
        return Forgotten(*self.act("forget", id=id))

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
        """The core's runs are over all examples; a test that wants fewer has the list changed before the run's first step."""
        from_version = {} if started_from is None else {"from": started_from}
        run = self.act("start", method=method, seed=seed, settings=as_text(settings), steps=steps, **from_version)
        if list(example_ids) != self.example_ids():
            with self.database() as database:
                database.execute("DELETE FROM run_examples WHERE run = ?", (run,))
                database.executemany(
                    "INSERT INTO run_examples SELECT ?, ?, key FROM examples WHERE id = ?",
                    [(run, position, id) for position, id in enumerate(example_ids)],
                )
        return self.run(run)

    @contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self.folder / "state.sqlite")
        try:
            with connection:
                yield connection
        finally:
            connection.close()

    def current_run(self) -> Run | None:
        record = self.act("current run")
        return record and run_of(record)

    def run(self, run_id: int) -> Run:
        return run_of(self.act("run record", run=run_id))

    def ended_because(self, run_id: int) -> str | None:
        reason: str | None = self.act("ended", run=run_id)
        return reason

    def end_run(self, run_id: int, reason: str) -> bool:
        return bool(self.act("end", run=run_id, reason=reason))

    def commit_step(
        self,
        run_id: int,
        *,
        step: int,
        cursor: dict[str, Any],
        tensors: Mapping[str, np.ndarray],
        metrics: Sequence[dict[str, Any]] = (),
    ) -> bool:
        texts = [as_text(entry) for entry in metrics]
        with passed(tensors) as files:
            return bool(self.act("commit", run=run_id, step=step, cursor=as_text(cursor), metrics=texts, **files))

    def append_journal(self, run_id: int, rows: Sequence[JournalRow]) -> bool:
        given_rows = [
            {
                "step": row.step,
                "cursor": as_text(row.cursor),
                "bits": bits_of(row.values),
                "rejected": row.rejected,
                "metrics": as_text(row.metrics),
            }
            for row in rows
        ]
        return bool(self.act("journal", run=run_id, rows=given_rows))

    def journal(self, run_id: int, after_step: int = -1) -> list[JournalRow]:
        return [
            JournalRow(step, json.loads(cursor), floats(bits).tolist(), rejected, json.loads(metrics))
            for step, cursor, bits, rejected, metrics in self.act("journaled", run=run_id, after=after_step)
        ]

    def latest_slot(self, run_id: int, kept: Mapping[str, tuple[int, ...]] | None = None) -> Slot | None:
        """`kept`: all that the run's method keeps; by default the adapter with AdamW's two moments."""
        slot = self.act("slot", run=run_id, **({} if kept is None else {"kept": as_lists(kept)}))
        return slot and Slot(slot[0], json.loads(slot[1]), tensors_of(slot[2]))

    def metrics(self, run_id: int) -> list[dict[str, Any]]:
        return [json.loads(text) for text in self.act("metrics", run=run_id)]

    # Accepted adapters

    def accept(self, run_id: int, tensors: Mapping[str, np.ndarray], metrics: dict[str, Any]) -> int | None:
        with passed(tensors) as files:
            version: int | None = self.act("accept", run=run_id, metrics=as_text(metrics), **files)
            return version

    def import_version(self, tensors: Mapping[str, np.ndarray], source: str) -> int:
        with passed(tensors) as files:
            return int(self.act("import", source=source, **files))

    def accepted(self) -> list[Version]:
        return [version_of(record) for record in self.act("accepted")]

    def current_version(self) -> Version | None:
        record = self.act("current version")
        return record and version_of(record)

    def load_version(self, version_id: int) -> dict[str, np.ndarray]:
        return tensors_of(self.act("version", version=version_id))

    def rollback(self) -> Version | None:
        record = self.act("rollback")
        return record and version_of(record)

    def reset(self) -> None:
        self.act("reset")


def as_lists(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, list[int]]:
    return {name: list(shape) for name, shape in shapes.items()}


def lists_of(rows: Sequence[TokenRows]) -> list[Any]:
    return [[row.tokens.tolist(), row.mask.tolist()] for row in rows]


def retokenized(retokenize: Retokenize, text: str) -> Any:
    try:
        return lists_of(retokenize(json.loads(text)))
    except DataError as error:
        return {"subject": error.subject, "got": error.got, "expected": error.expected, "next_step": error.next_step}


@contextmanager
def passed(tensors: Mapping[str, np.ndarray]) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as place:
        yield given(tensors, Path(place))


def floats(bits: list[int]) -> np.ndarray:
    return np.array(bits, np.uint32).view(np.float32)


def tensors_of(content: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: floats(bits).reshape(shape) for name, (shape, bits) in content.items()}


def row_of(id: str, window: int, tokens: list[int], mask: list[int]) -> ExampleRow:
    return ExampleRow(id, window, np.array(tokens, np.int32), np.array(mask, np.uint8))


def run_of(record: list[Any]) -> Run:
    id, method, seed, settings, steps, started_from, examples, step, cursor, *ended = record
    return Run(
        id, method, seed, json.loads(settings), steps, started_from, tuple(examples), step, json.loads(cursor), *ended
    )


def version_of(record: list[Any]) -> Version:
    id, run, step, metrics, accepted_at, source, other_text = record
    return Version(id, run, step, json.loads(metrics), accepted_at, source, other_text)
