# SPDX-License-Identifier: Apache-2.0
"""A small state with something of everything in it, and a summary of a state that two can be compared by."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.native.core_store import CoreStore, JournalRow, state_lab
from tests.native.state_lab import BASE, SHAPES


def open_state(folder: Path, base: str = BASE, shapes: dict[str, tuple[int, ...]] | None = None) -> CoreStore:
    return CoreStore.open(state_lab(), folder, base, SHAPES if shapes is None else shapes)


def token_row(*tokens: int, trained: int = 1) -> SimpleNamespace:
    """A row whose last `trained` tokens are trained on."""
    mask = np.zeros(len(tokens), np.uint8)
    mask[len(tokens) - trained :] = 1
    return SimpleNamespace(tokens=np.array(tokens, np.int32), mask=mask)


def adapter(seed: int) -> dict[str, np.ndarray]:
    """Tensors that belong to `seed` and to no other."""
    generator = np.random.default_rng(seed)
    return {name: generator.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}


def slot_tensors(seed: int) -> dict[str, np.ndarray]:
    """Adapter and AdamW's two moments."""
    tensors = adapter(seed)
    for name, tensor in list(tensors.items()):
        tensors[f"{name}.m"], tensors[f"{name}.v"] = tensor * np.float32(0.5), tensor * tensor
    return tensors


def add(store: CoreStore, text: str, id: str | None = None) -> str:
    tokens = [1, *text.encode()]
    return store.add_example({"text": text}, [token_row(*tokens, trained=len(tokens) - 1)], id).id


def fill(folder: Path, open_state: Callable[[Path], Any] = open_state) -> None:
    """A state with examples, an accepted adapter, an unfinished run with slots, journal and metrics; closed."""
    with open_state(folder) as store:
        for number in range(7):
            add(store, f"the {number}. thing to remember", id=f"note-{number}")
        first = store.start_run("mesp", 3, {"learning_rate": 1e-3}, store.example_ids(), 4)
        store.commit_step(first.id, step=4, cursor={"row": 9}, tensors=slot_tensors(4), metrics=[{"loss": 2.5}])
        version = store.accept(first.id, adapter(4), {"validation_loss": 2.25})
        store.end_run(first.id, "finished")
        run = store.start_run("mezo", 7, {"epsilon": 1e-3}, store.example_ids(), 100, version)
        for step in (1, 2):
            store.append_journal(
                run.id, [JournalRow(step, {"row": step}, [float(np.float32(0.1)), float(step)], False, {"g": 1})]
            )
        for step in (4, 5):
            tensors = slot_tensors(100 + step)
            store.commit_step(run.id, step=step, cursor={"row": step}, tensors=tensors, metrics=[{"step": step}])


def summary(store: CoreStore) -> dict[str, Any]:
    """All that a state holds, times aside, as plain values."""
    run = store.current_run()
    slot = None if run is None else store.latest_slot(run.id)
    ids = [info.id for info in store.examples()]
    return {
        "examples": [
            (info.id, info.split, info.json, info.tokens, info.trained_tokens, info.rows) for info in store.examples()
        ],
        "rows": [(row.id, row.window, row.tokens.tolist(), row.mask.tolist()) for row in store.example_rows(ids)],
        "run": run and (run.id, run.method, run.seed, run.settings, run.steps, run.started_from, run.step, run.cursor),
        "run_examples": run and list(run.example_ids),
        "slot": slot and (slot.step, slot.cursor, digest(slot.tensors)),
        "journal": run and [(row.step, row.cursor, row.values, row.metrics) for row in store.journal(run.id)],
        "metrics": run and store.metrics(run.id),
        "accepted": [
            (version.id, version.run_id, version.step, version.metrics, digest(store.load_version(version.id)))
            for version in store.accepted()
        ],
    }


def digest(tensors: Any) -> str:
    total = hashlib.sha256()
    for name in sorted(tensors):
        total.update(name.encode() + tensors[name].tobytes())
    return total.hexdigest()


def all_bytes(folder: Path) -> bytes:
    """Every byte of every file in a state folder."""
    return b"\0\n".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


OLD = {version: Path(__file__).with_name(f"state_of_version_{version}.zip") for version in (1, 2, 3, 4, 5)}
