# SPDX-License-Identifier: Apache-2.0
"""Makes guidance for rounds of federated learning from public examples, in a cloud.

A server that waits for guidance (`serve --guidance`) looks for a file named by the sha256 of its adapter. `offer_guidance` reads
that adapter from the server's state, computes exact gradients of public examples and writes the file. It holds the basis of these
gradients in INT4 codes. It also says how much of other public gradients lies in its span: the server's guard compares with that.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from safetensors.numpy import save_file

from bespoke import arguments
from bespoke.bundle.plan_records import MethodRecord
from bespoke.bundle.reader import Bundle, read_bundle
from bespoke.compiler.encoding import core_encoder
from bespoke.data.prepare import prepare
from bespoke.errors import BundleError, ConfigError, DataError
from bespoke.format.tensors import map_tensors
from bespoke.plan.instructions import Named, Plan, Receive, Store
from bespoke.plan.read import read_plan
from bespoke.reference.machine import Machine
from bespoke.rules.batches import Row, evaluation_batches
from bespoke.rules.federation import Direction, adapter_hash
from bespoke.rules.guidance import CHECKPOINT, OFFERED, Squares, basis_of, files_of, squares_of

__all__ = ["Guidance", "GuidanceMaker", "offer_guidance"]

COMPARED = 8  # gradients that the guard compares with
COMPARED_ROWS = 4  # of each of them


class Guidance(NamedTuple):
    """Guidance of a round at one adapter: its files by name, and squares of public gradients that are not in it."""

    files: dict[str, np.ndarray]
    public: Squares


class GuidanceMaker:
    """Computes guidance from public examples.

    Args:
        bundle: Folder of the app's bundle. Beside the method that takes part it has one with `federated_directions`, whose exact
            gradients are taken.
        public: File of examples, as for `Personalizer(data=...)`. Nobody's private words: guidance is sent to all devices.
        rows: Examples for each gradient.
        seed: Of the choice of examples.
    """

    def __init__(self, bundle: Path | str, public: Path | str, *, rows: int = 16, seed: int = 0) -> None:
        self._rows_each = arguments.whole_number("GuidanceMaker.rows", rows, 1)
        self._random = np.random.default_rng(seed)
        self._bundle = read_bundle(bundle)
        federation = self._bundle.manifest.federation
        if federation is None:
            raise _unusable("no federation", "one", "Build it with Personalizer(federation=Federation(...))")
        record = self._bundle.method(federation.method).plans[0]
        plan = read_plan(self._bundle.read(record.file), record.file, self._bundle.manifest.graphs)
        self._shapes, self.columns = _shapes(plan), _columns(plan)
        if not self.columns:
            got, expected = f"method {federation.method} without guidance", "one with guidance_columns"
            raise _unusable(got, expected, "Build it with a method that has the option guidance_columns")
        self._machine = Machine(self._bundle, _projecting(self._bundle))
        self._rows = self._encoded(Path(bundle), Path(public))

    @property
    def initial_adapter(self) -> dict[str, np.ndarray]:
        """The trained pieces where devices start, by name."""
        pieces = self._bundle.initial_adapter()
        return {name: pieces[name] for name in self._shapes}

    def make(self, adapter: Mapping[str, np.ndarray]) -> Guidance:
        """Makes guidance at an adapter: trained pieces by name, float32."""
        self._machine.buffers.fill({**self._bundle.initial_adapter(), **adapter})
        basis = basis_of(np.stack([self._gradient(self._rows_each) for _ in range(self.columns)]), self.columns)
        others = np.stack([self._gradient(COMPARED_ROWS) for _ in range(COMPARED)])
        return Guidance(files_of(basis, self._shapes), squares_of(others, basis))

    def close(self) -> None:
        self._bundle.close()

    def _gradient(self, rows: int) -> np.ndarray:
        """The gradient of the mean loss of some public examples, float64 [d], pieces in the plan's order."""
        chosen = self._random.choice(len(self._rows), min(rows, len(self._rows)), replace=False)
        examples, batch_size = [self._rows[n] for n in chosen], self._machine.method.training.batch_size
        batches = list(evaluation_batches(examples, batch_size, self._machine.sequence_lengths))
        self._machine.measure(batches, Direction(seed=0, round=0, number=0))
        sums = self._machine.buffers.step_values
        return np.concatenate([sums[f"{name}.gradient"].numpy().reshape(-1) for name in self._shapes]).astype(
            np.float64
        )

    def _encoded(self, bundle: Path, public: Path) -> list[Row]:
        with core_encoder(bundle, self._bundle.manifest.text, self._machine.sequence_lengths[-1]) as encoder:
            prepared = prepare(public, encoder, valid_share=0.0)
        kept = prepared.train
        rows = [Row(np.asarray(row.tokens), np.asarray(row.mask)) for row in map(kept.rows, range(len(kept)))]
        if len(rows) < self.columns:
            raise DataError(
                str(public),
                got=f"{len(rows)} rows",
                expected=f"at least {self.columns}, the columns of guidance, and better many times as many",
                next_step="Give more public examples",
            )
        return rows


def offer_guidance(maker: GuidanceMaker, state: Path | str) -> str | None:
    """Writes guidance for a server's adapter into its state, unless it lies there. Returns the adapter's sha256, or None."""
    state = Path(state)
    if not state.is_dir():
        raise ConfigError(
            "the server's state", got=str(state), expected="its folder", next_step="Start the server first: it makes it"
        )
    checkpoint = state / CHECKPOINT
    adapter = maker.initial_adapter
    if checkpoint.exists():
        adapter = {name: np.array(piece) for name, piece in map_tensors(checkpoint, error=DataError).items()}
    sha256 = adapter_hash(adapter)
    folder = state / OFFERED
    place = folder / f"{sha256}.safetensors"
    if place.exists():
        return None
    made = maker.make(adapter)
    folder.mkdir(exist_ok=True)
    partial = place.with_suffix(".partial")
    save_file(made.files, partial, {"public": json.dumps(made.public._asdict())})
    os.replace(partial, place)
    return sha256


def _shapes(plan: Plan) -> dict[str, tuple[int, ...]]:
    """Shapes of the trained pieces by name, in the plan's order."""
    shapes = {}
    for instruction in plan.sections.get("federated_apply") or []:
        if isinstance(instruction, Store):
            record = plan.values[instruction.state]
            if isinstance(record.place, Named):
                shapes[record.place.name] = tuple(record.shape)
    return shapes


def _columns(plan: Plan) -> int:
    """m, the columns of guidance."""
    for instruction in plan.sections.get("federated_apply") or []:
        if isinstance(instruction, Receive):
            return plan.values[instruction.value].shape[-1]
    return 0


def _projecting(bundle: Bundle) -> MethodRecord:
    """The method whose exact gradients are taken."""
    for record in bundle.manifest.methods:
        plan = read_plan(bundle.read(record.plans[0].file), record.plans[0].file, bundle.manifest.graphs)
        if "federated_project" in plan.sections:
            return record
    raise _unusable(
        f"methods {', '.join(record.name for record in bundle.manifest.methods)}",
        "one with exact gradients as well",
        "Build it with a second method, with the option federated_directions",
    )


def _unusable(got: str, expected: str, next_step: str) -> BundleError:
    return BundleError("the bundle", got=got, expected=expected, next_step=next_step)
