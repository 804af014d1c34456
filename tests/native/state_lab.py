# SPDX-License-Identifier: Apache-2.0
"""The core's store in a process of its own (bindings/native/tests/state_lab.cpp), and what both stores must say of one state."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

import bespoke.errors
from bespoke.errors import BespokeError
from bespoke.state import Run, StateStore
from bespoke.state.database import internal_json
from tests.native.lab_process import end
from tests.unit.state.states import BASE, SHAPES, digest


class CoreState:
    """Actions of one process on one state. What the core refuses is raised as the Python error of that name."""

    def __init__(self, program: Path, preload: Path | None = None) -> None:
        environment = dict(os.environ, **({} if preload is None else {"LD_PRELOAD": str(preload)}))
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def act(self, what: str, **values: Any) -> Any:
        """EOFError where the process dies of it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"do": what, **values}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(f"the lab ended with {self.process.wait()}")
        answer = json.loads(line)
        if "error" not in answer:
            return answer["value"]
        kind = getattr(bespoke.errors, answer["error"], None)
        assert kind is not None, answer
        error: BespokeError = kind(answer["subject"], got=answer["got"], expected=answer["expected"], next_step=answer["next_step"])
        assert str(error) == answer["text"]
        raise error

    def open(self, folder: Path, base: str = BASE, shapes: Mapping[str, tuple[int, ...]] = SHAPES) -> Self:
        self.act("open", folder=str(folder), base=base, adapter={name: list(shape) for name, shape in shapes.items()})
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        end(self.process)


def given(tensors: Mapping[str, np.ndarray], place: Path) -> dict[str, Any]:
    """Tensors as an action takes them: their numbers in a file."""
    path = place / "given.bin"
    path.write_bytes(b"".join(tensors[name].tobytes() for name in sorted(tensors)))
    return {"tensors": {name: list(tensor.shape) for name, tensor in tensors.items()}, "data": str(path)}


def as_text(value: dict[str, Any]) -> str:
    return internal_json(value, "value")


def summary_of(store: StateStore) -> dict[str, Any]:
    """What the core's lab says of a state, said by the Python store."""
    run = store.current_run()
    slot = None if run is None else store.latest_slot(run.id)
    ids = {split: store.example_ids(split) for split in ("train", "validation")}
    metrics = [] if run is None else [as_text(entry) for entry in store.metrics(run.id)]
    version = store.current_version()
    return {
        "count": {split: len(of_split) for split, of_split in ids.items()},
        "rows": {split: rows_of(store, of_split) for split, of_split in ids.items()},
        "examples": len(store.example_ids()),
        "run": run and run_list(run),
        "run_rows": run and [rows_of(store, [id for id in run.example_ids if id in set(of_split)]) for of_split in ids.values()],
        "slot": slot and [slot.step, as_text(slot.cursor), digest(slot.tensors)],
        "journal": run and [
            [row.step, as_text(row.cursor), bits_of(row.values), row.rejected, as_text(row.metrics)]
            for row in store.journal(run.id)
        ],
        "metrics": run and metrics,
        **({} if run is None else {"same_backwards": True}),
        "accepted": [
            [v.id, v.run_id, v.step, as_text(v.metrics), v.source, digest(store.load_version(v.id))] for v in store.accepted()
        ],
        "answering": version and version.id,
    }  # fmt: skip


def rows_of(store: StateStore, ids: Sequence[str]) -> list[Any]:
    return [[row.window, row.tokens.tolist(), row.mask.tolist()] for row in store.example_rows(ids)]


def bits_of(values: Sequence[float]) -> list[int]:
    bits: list[int] = np.array(values, np.float32).view(np.uint32).tolist()
    return bits


def run_list(run: Run) -> list[Any]:
    texts = as_text(run.settings), as_text(run.cursor)
    return [run.id, run.method, run.seed, texts[0], run.steps, run.started_from, run.step, texts[1], run.ended_because]
