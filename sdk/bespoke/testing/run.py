# SPDX-License-Identifier: Apache-2.0
"""Checks a run as on a device: a bundle, 250 steps by the device core, a slot, kill -9 after it, an accepted adapter.

The suites check a step's results on plans alone. A run must also keep the plan's state. The state goes to a file, the process ends,
and another process continues. The killed run must end with the bits of an uninterrupted run. Its adapter is accepted and then
rolled back.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from bespoke.config import Settings, Training
from bespoke.contracts import Optimizer, Target
from bespoke.errors import PluginError
from bespoke.format.tensors import map_tensors
from bespoke.testing.engines import Runs, opened, runs_of
from bespoke.testing.folder import build_tiny

__all__ = ["STEPS", "check_run"]

# A replayable method writes a slot after 200 steps, any other one after moments.
STEPS, KILLED_AFTER = 250, 225
TRAINING = Training(
    sequence_lengths=(7,),
    batch_size=2,
    steps=STEPS,
    seed=3,
    general_share=0,
    commit_seconds=0.05,
    write_mb_per_second=1e3,
)
EXAMPLES = 4  # too few to hold one out, so the gate judges on the training examples
Fail = Callable[[str, str, str], PluginError]


def check_run(
    optimizer: Optimizer,
    options: Settings,
    fail: Fail,
    *,
    learning_rate: float = 1e-2,
    target: tuple[Target, Settings] | None = None,
) -> int:
    """Returns the steps of the checked run, or 0 where nothing here computes for `target`. The default target is torch."""
    runs = runs_of(target)
    if runs is None:
        return 0
    with tempfile.TemporaryDirectory() as folder:
        training = TRAINING.model_copy(update={"learning_rate": learning_rate})
        bundle = build_tiny(Path(folder), optimizer, options, training, target)
        _Run(Path(folder), bundle, runs, fail).check()
    return STEPS


class _Run:
    def __init__(self, folder: Path, bundle: Path, runs: Runs, fail: Fail) -> None:
        self.folder, self.bundle, self.runs, self.fail = folder, bundle, runs, fail

    def check(self) -> None:
        whole, parted = self._state("whole"), self._state("parted")
        losses = self.runs.train(self.bundle, whole)
        if len(losses) != STEPS:
            raise self.fail(
                f"a run that ended after {len(losses)} of {STEPS} steps",
                "all of them",
                "Look for losses that are NaN or infinite; give the suite a learning_rate that suits the method",
            )
        ended = self.runs.kill(self.bundle, parted, KILLED_AFTER)
        if ended:
            raise self.fail(
                f"a process that ended before it was killed, with {ended}",
                f"one that takes {KILLED_AFTER} steps",
                "Train in a process of its own, and see what it says",
            )
        self._slot(parted)
        later = self.runs.train(self.bundle, parted)
        adapters = [self._accepted(state) for state in (whole, parted)]
        if not np.array_equal(later, losses[STEPS - len(later) :]) or adapters[0] != adapters[1]:
            raise self.fail(
                f"other bits after a kill behind step {KILLED_AFTER}, from {len(later)} steps before the end",
                "those of a run that nobody killed",
                "Keep all that a step needs of those before it in b.state",
            )
        for state in (whole, parted):
            self._roll_back(state)

    def _state(self, name: str) -> Path:
        state = self.folder / name
        with closing(opened(self.bundle, state)) as core:
            for number in range(EXAMPLES):
                tokens = [20 + (number + place) % 5 for place in range(8)]
                core.add_example(json.dumps({"tokens": tokens, "mask": [0] + [1] * 7}), str(number), None)
        return state

    def _slot(self, state: Path) -> None:
        """The newest slot holds what the plan calls state, in the same shapes."""
        slots = sorted(state.glob("slot_*.safetensors"))
        if not slots:
            raise self.fail(
                f"no slot after {KILLED_AFTER} steps", "one at least", "Look at why the core did not write it"
            )
        kept = {name: array.shape for name, array in map_tensors(slots[-1]).items()}
        expected = self._planned()
        other = sorted(name for name in kept.keys() | expected.keys() if kept.get(name) != expected.get(name))
        if other:
            got, wanted = (shapes.get(other[0], "nothing") for shapes in (kept, expected))
            raise self.fail(
                f"'{other[0]}' of shape {got} in a slot", f"{wanted}, as in the plan", "Look at what the core wrote"
            )

    def _planned(self) -> dict[str, tuple[int, ...]]:
        (method,) = json.loads((self.bundle / "manifest.json").read_bytes())["methods"]
        values: list[dict[str, Any]] = json.loads((self.bundle / method["plans"][0]["file"]).read_bytes())["values"]
        return {value["place"]["name"]: tuple(value["shape"]) for value in values if value["lifetime"] == "state"}

    def _accepted(self, state: Path) -> bytes:
        with closing(opened(self.bundle, state)) as core:
            versions, run = core.versions(), core.current_run()
        files = list(state.glob("accepted_*.safetensors"))
        if len(versions) != 1 or versions[0].step != STEPS or len(files) != 1 or run is not None:
            raise self.fail(
                f"{len(versions)} accepted adapters after {STEPS} steps",
                "one: training makes the loss of its examples smaller",
                "Give the suite a learning_rate that suits the method",
            )
        return files[0].read_bytes()

    def _roll_back(self, state: Path) -> None:
        with closing(opened(self.bundle, state)) as core:
            version, left = core.rollback(), core.versions()
        if version is not None or left or any(state.glob("*.safetensors")):
            raise self.fail("an adapter that answers after a rollback", "the base model", "Look at what the core left")
