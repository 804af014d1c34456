# SPDX-License-Identifier: Apache-2.0
"""Training as a function: the same arguments give the same losses and the same tensors, to the bit.

A step, from the outside in:

1. `BatchCursor` (rules/batches.py) takes the next rows. The seed and the number of the step alone decide which.
2. `learning_rate_at` (rules/schedule.py) gives the learning rate of the step.
3. `Machine.train_step` runs the method's plan: `train_step`, or `micro_step` for each micro-batch and then `apply_step`. Noise in
   the plan is keyed by seed and step (rules/noise.py). The plan stores to another place than it reads from.
4. If the loss and the recorded values are finite, the stored state becomes current. Else the step is rejected: adapter and
   optimizer state stay, and only the cursor moves. Three rejected steps in a row end the run.

There are no files, locks, clocks or memory limits here. Those are in the device core (bindings/native/src/train), whose numbers are
checked against these.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from bespoke.bundle.reader import Bundle
from bespoke.config import Training
from bespoke.reference.machine import Machine, threads_of
from bespoke.reference.torch_settings import computing
from bespoke.rules.batches import BatchCursor, CursorState, Row, RowLike
from bespoke.rules.run_length import run_length
from bespoke.rules.schedule import learning_rate_at

__all__ = ["Journal", "RunState", "Trained", "bundle_rows", "replay", "train"]

DIVERGED_AFTER = 3  # steps in a row whose loss is NaN or infinite

Arrays = Mapping[str, np.ndarray]
Journal = Sequence[tuple[int, Sequence[float]]]
"""For each kept step its number, from 1, and its recorded values."""


@dataclass(frozen=True)
class RunState:
    """Everything that a step changes. A run that continues from the state after any step is equal to one without a break."""

    adapter: Arrays
    optimizer: Arrays = field(default_factory=dict)  # missing tensors are zero
    cursor: CursorState = field(default_factory=CursorState)
    rejected_in_a_row: int = 0


@dataclass(frozen=True)
class Trained:
    """The result of `train`."""

    state: RunState
    losses: tuple[float, ...]  # of every step, including rejected ones
    rejected: tuple[int, ...]  # numbers of the rejected steps, from 1
    tokens: int  # trained tokens
    journal: Journal
    adapter: Arrays  # that of the state, or the one that section `finish` computes from it

    @property
    def diverged(self) -> bool:
        return self.state.rejected_in_a_row >= DIVERGED_AFTER


def train(
    bundle: Bundle,
    method: str | None = None,
    start: RunState | None = None,
    *,
    user_rows: Sequence[RowLike] = (),
    general_rows: Sequence[RowLike] = (),
    seed: int,
    settings: Training | None = None,
    steps: int | None = None,
) -> Trained:
    """Trains for at most `steps` steps of a run.

    Args:
        bundle: the bundle to train.
        method: the method, by default the bundle's first.
        start: the state to continue from, by default the bundle's initial adapter at the beginning of a run.
        user_rows: rows of the examples to train on.
        general_rows: rows of the bundle's own data (`bundle_rows`).
        seed: decides the rows of each step and the noise.
        settings: by default the method's. Batch size, lengths and whether it accumulates are compiled and must stay.
        steps: by default all that are left of the run (`settings.steps`, or by the number of rows).
    """
    with computing(threads_of(bundle)):
        return _train(bundle, method, start, user_rows, general_rows, seed, settings, steps)


def _train(
    bundle: Bundle,
    method: str | None,
    start: RunState | None,
    user_rows: Sequence[RowLike],
    general_rows: Sequence[RowLike],
    seed: int,
    settings: Training | None,
    steps: int | None,
) -> Trained:
    machine, settings = _machine(bundle, method, settings)
    total_steps = run_length(settings, len(user_rows), len(general_rows))
    cursor = BatchCursor(
        user_rows,
        general_rows,
        seed=seed,
        batch_size=settings.batch_size,
        accumulation=settings.accumulation,
        sequence_lengths=machine.sequence_lengths,
        general_share=settings.general_share,
        vocab_size=bundle.manifest.model.config.vocab_size,
        pairs=machine.learns_pairs,
    )

    start = start or RunState(bundle.initial_adapter())
    machine.buffers.fill({**start.adapter, **start.optimizer})
    position, in_a_row = start.cursor, start.rejected_in_a_row
    losses: list[float] = []
    rejected: list[int] = []
    journal: list[tuple[int, Sequence[float]]] = []
    tokens = 0

    left = total_steps - position.step
    for _ in range(left if steps is None else min(steps, left)):
        if in_a_row >= DIVERGED_AFTER:
            break

        batches, position = cursor.step(position)
        outcome = machine.train_step(
            batches, learning_rate=_rate(settings, total_steps, position.step), step=position.step, seed=seed
        )
        if outcome.finite:
            machine.buffers.flip()
            journal.append((position.step, outcome.recorded))
            in_a_row = 0
        else:
            rejected.append(position.step)
            in_a_row += 1
        losses.append(float(outcome.metrics.get("loss", math.nan)))
        tokens += sum(batch.tokens_trained for batch in batches)

    adapter = _copied(machine.adapter())
    return Trained(_state(machine, position, in_a_row), tuple(losses), tuple(rejected), tokens, journal, adapter)


def replay(
    bundle: Bundle, method: str, adapter: Arrays, journal: Journal, *, seed: int, settings: Training | None = None
) -> dict[str, np.ndarray]:
    """Repeats the steps of a journal from `adapter` and returns the resulting adapter. The method's plans must be replayable.

    `settings` are those of the run, by default the method's. They name the number of steps, which the learning rate may depend on.
    """
    with computing(threads_of(bundle)):
        machine, settings = _machine(bundle, method, settings)
        assert settings.steps is not None, "settings without a number of steps"
        machine.buffers.fill(adapter)
        for step, recorded in journal:
            machine.replay_step(recorded, learning_rate=_rate(settings, settings.steps, step), step=step, seed=seed)
        return _copied(machine.adapter())


def bundle_rows(bundle: Bundle, split: str) -> list[Row]:
    """The rows of the bundle's own data, "train" or "valid". Row i is tokens[offsets[i]:offsets[i + 1]]."""
    name = {"train": bundle.manifest.data.train, "valid": bundle.manifest.data.valid}[split]
    if name is None:
        return []
    arrays = bundle.mapped(name)
    return [
        Row(arrays["tokens"][begin:end], arrays["mask"][begin:end])
        for begin, end in pairwise(arrays["offsets"].tolist())
    ]


def _machine(bundle: Bundle, method: str | None, settings: Training | None) -> tuple[Machine, Training]:
    record = bundle.method(method)
    settings = settings or record.training
    return Machine(bundle, record.model_copy(update={"training": settings})), settings


def _rate(settings: Training, total_steps: int, step: int) -> float:
    return learning_rate_at(
        step,
        peak=settings.learning_rate,
        schedule=settings.schedule,
        warmup_steps=settings.warmup_steps,
        total_steps=total_steps,
    )


def _state(machine: Machine, cursor: CursorState, rejected_in_a_row: int) -> RunState:
    tensors = _copied(machine.state())
    adapter = {name: value for name, value in tensors.items() if name in machine.adapter_names}
    optimizer = {name: value for name, value in tensors.items() if name not in machine.adapter_names}
    return RunState(adapter, optimizer, cursor, rejected_in_a_row)


def _copied(tensors: Arrays) -> dict[str, np.ndarray]:
    """Copies of tensors, which outlive the machine's buffers."""
    return {name: value.copy() for name, value in tensors.items()}
