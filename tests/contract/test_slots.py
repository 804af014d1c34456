# SPDX-License-Identifier: Apache-2.0
"""A run goes on from a slot that holds what its method's plan keeps, and from no other: the machine of the core asks the plan."""

from __future__ import annotations

import ctypes as c
import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bespoke import plugins
from bespoke.core.handle import Request
from bespoke.core.torch_engine import TorchEngine
from bespoke.errors import StateError
from bespoke.testing.engines import InPython, opened
from bespoke.testing.folder import build_tiny
from bespoke.testing.run import TRAINING
from tests.support.bundles import made_once
from tests.support.reading import broken_promises
from tests.unit.state_reader.damage import header, tensor_file

PIECE = "block_00.down_proj.lora_A"  # float32 [2, 72]
Entries = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a bundle and the state of a run whose newest slot is of step 9; read them, do not change them."""

    def make(folder: Path) -> None:
        optimizer = plugins.get("optimizer", "windowed")
        training = TRAINING.model_copy(update={"steps": 12, "learning_rate": 1e-2, "commit_seconds": 1e-6})
        bundle = build_tiny(folder, optimizer, optimizer.Options(), training)
        engine = TorchEngine()
        with closing(opened(bundle, folder / "state", engine=c.cast(c.pointer(engine.table), c.c_void_p))) as core:
            core.add_example(json.dumps({"tokens": [20, 21, 22, 23], "mask": [0, 1, 1, 1]}), "one", None)
            core.train(Request(), 1e-9, None, None)  # begins a run of all its steps
            assert core.train(Request(most_steps=9), None, None, None)["total_steps"] == 9

    return made_once(tmp_path_factory, "slots", make)


@pytest.fixture
def state(stopped: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stopped / "state", tmp_path / "state"))


def test_states_of_every_shape_are_in_it(stopped: Path, state: Path) -> None:
    assert broken_promises(state, stopped / "bundle") == set()
    assert len(InPython(None).train(stopped / "bundle", state)) == 3


def reshaped(name: str, shape: list[int]) -> Callable[[Entries], None]:
    return lambda entries: entries[name].update(shape=shape)


def renamed(old: str, new: str) -> Callable[[Entries], None]:
    """In the place where it was: the new name sorts as the old one did."""

    def change(entries: Entries) -> None:
        pairs = [(new if name == old else name, entry) for name, entry in entries.items()]
        entries.clear()
        entries.update(pairs)

    return change


@pytest.mark.parametrize(
    ("change", "tensor", "got", "expected"),
    [
        (reshaped(f"{PIECE}.rows", [1, 2]), "rows", "float32 [1, 2]", "float32 [2]"),
        (reshaped(f"{PIECE}.count", [1]), "count", "float32 [1]", "float32 []"),
        (reshaped(f"{PIECE}.window", [2, 216]), "window", "float32 [2, 216]", "float32 [6, 72]"),
        (renamed(f"{PIECE}.rows", f"{PIECE}.rowz"), "rowz", "float32 [2]", "no such tensor"),
    ],
)
def test_state_of_another_shape_or_name_is_refused_before_it_is_used(
    stopped: Path, state: Path, change: Callable[[Entries], None], tensor: str, got: str, expected: str
) -> None:
    tensor_file("slot", header(change))(state)
    before = {path.name: path.read_bytes() for path in state.glob("*.safetensors")}
    with pytest.raises(StateError) as caught:
        InPython(None).train(stopped / "bundle", state)
    assert f"tensor '{PIECE}.{tensor}'" in caught.value.subject
    assert caught.value.got == got
    assert caught.value.expected.startswith(expected)
    assert "abandon_run" in caught.value.next_step
    assert {path.name: path.read_bytes() for path in state.glob("*.safetensors")} == before
    with closing(opened(stopped / "bundle", state)) as core:
        assert core.abandon_run()
    assert len(InPython(None).train(stopped / "bundle", state)) == 12
