# SPDX-License-Identifier: Apache-2.0
"""Misuse of a state and of an adapter, seen by the core's own code."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import numpy as np

from bespoke import errors
from tests.native.state.states import BASE, fill, open_state, slot_tensors
from tests.support.misuse import Misuse, Monkey


def _another_base(folder: Path, monkeypatch: Monkey) -> None:
    fill(folder / "state")
    open_state(folder / "state", base="0" * 64).close()


def _two_trainers(folder: Path, monkeypatch: Monkey) -> None:
    fill(folder / "state")
    one, other = open_state(folder / "state"), open_state(folder / "state")
    with one, other, one.trainer_lock(), other.trainer_lock():
        pass


def _disk_that_fills_up(folder: Path, monkeypatch: Monkey) -> None:
    """The kernel refuses to let any file grow: what a quota does."""
    fill(folder / "state")
    with open_state(folder / "state") as store:
        run = store.current_run()
        assert run is not None
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.prlimit(store.process, resource.RLIMIT_FSIZE, (256, hard))
        store.commit_step(run.id, step=run.step + 1, cursor={}, tensors=slot_tensors(1), metrics=[])


def _adapter_of_a_higher_rank(folder: Path, monkeypatch: Monkey) -> None:
    from bespoke.config import Lora
    from bespoke.model.architecture import ModelConfig
    from tests.native.adapter_codes import Code
    from tests.native.conftest import compile_core
    from tests.native.format_lab import CoreReader
    from tests.unit.bundle.example import manifest_document

    config = ModelConfig.model_validate(manifest_document()["model"]["config"])
    lora = Lora(rank=4, alpha=8.0)
    tensors = {name: np.zeros(shape, np.float32) for name, shape in config.adapter_shapes(lora).items()}
    with CoreReader(compile_core("core") / "tests" / "format_lab") as reader:
        code = Code(reader)
        code.write(folder / "adapter", tensors, config, lora, BASE)
        code.read(folder / "adapter", config, Lora(rank=2, alpha=4.0), BASE)


MISUSES = [
    Misuse(errors.StateError, _another_base, "state", BASE[:12], "000000000000", "reset_for_new_base", 9),
    Misuse(
        errors.StateLocked, _two_trainers, "trainer.lock", "a lock held by process", "no other trainer", "Wait until", 9
    ),
    Misuse(
        errors.DiskFull, _disk_that_fills_up, "slot", os.strerror(errno.EFBIG), "room on the disk", "Free some space", 9
    ),
    Misuse(
        errors.AdapterError, _adapter_of_a_higher_rank, "adapter_config.json", "r 4", "at most 2", "lora.rank=4", 12
    ),
]
