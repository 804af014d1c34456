# SPDX-License-Identifier: Apache-2.0
"""One call of `train`: continue the unfinished run or start one, step, commit, and stop in a committed state whatever happens.

A run is decided by its seed, settings and list of examples alone. Commits are timed, but nothing that is committed depends on
when: a run killed at any instant and resumed ends with the same bits as one that was not.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

import numpy as np
from pydantic import ValidationError

from bespoke.config import Training
from bespoke.errors import StateError
from bespoke.rules.batches import BatchCursor, CursorState, Row
from bespoke.rules.report import StoppedBecause
from bespoke.rules.schedule import learning_rate_at
from bespoke.runtime.interpreter import Abandoned, Outcome
from bespoke.runtime.machine import Machine
from bespoke.state.errors import damaged
from bespoke.state.records import JournalRow, Run
from bespoke.state.store import StateStore
from bespoke.system.guard import KernelPeak

SLOT_EVERY = 200  # steps between slots of a replayable method: bounds how much of the journal a resume replays
DIVERGED_AFTER = 3  # steps in a row whose loss is NaN or infinite


@dataclass
class Progress:
    """What a call of `train` has done so far."""

    steps: int = 0
    tokens: int = 0
    losses: list[float] = field(default_factory=list)
    rejected: int = 0
    step_peaks: list[int] = field(default_factory=list)  # bytes over the idle process
    step_seconds: list[float] = field(default_factory=list)

    @property
    def peak_added(self) -> int:
        return max(self.step_peaks, default=0)


class Trainer:
    """Steps one run on one machine. The caller holds the trainer's lock."""

    def __init__(
        self, machine: Machine, store: StateStore, run: Run, cursor: BatchCursor, start: Mapping[str, np.ndarray],
        on_step: Callable[[int, float], None] | None = None,
    ) -> None:  # fmt: skip
        self._machine = machine
        self._store = store
        self._run = run
        self._cursor = cursor
        self._training = Training.model_validate(run.settings["training"])
        self._on_step = on_step
        self._bad_in_a_row = _rejected_last(store.metrics(run.id))
        self._between_steps = True
        self._pending: list[JournalRow] = []
        self._metrics: list[dict[str, Any]] = []
        self._slot_step = 0  # of the newest slot, which is behind `_committed` where a journal follows it
        self._position = self._restore(start)
        self._committed = self._position.step
        self._last_commit = time.monotonic()
        self.progress = Progress()

    @property
    def step(self) -> int:
        """Steps of the run that are done."""
        return self._position.step

    def train(self, steps: int, stop: Callable[[], bool]) -> StoppedBecause:
        """At most `steps` more steps. What was done is committed when this returns or raises."""
        if self._bad_in_a_row >= DIVERGED_AFTER:  # killed between that commit and the end of the run
            return self._leave("diverged")
        peak = KernelPeak()
        try:
            for _ in range(min(steps, self._run.steps - self.step)):
                if stop():
                    return self._leave("stop_requested")
                if self._store.ended_because(self._run.id) is not None:
                    return "example_forgotten"
                peak.start()
                try:
                    self._step(stop)
                except Abandoned:
                    return self._leave("stop_requested")
                finally:
                    seen = self._machine.guard.observe(peak.stop()[0])
                    self.progress.step_peaks.append(seen - self._machine.guard.idle)
                if self._bad_in_a_row >= DIVERGED_AFTER:
                    return self._leave("diverged")
                if self._commit_is_due() and not self.commit():
                    return "example_forgotten"
            return self._leave("finished" if self.step >= self._run.steps else "steps_done")
        except StateError:
            raise  # a commit that could not be made; the one before it is intact
        except BaseException:  # the budget, a callback, an interrupt: the steps before it are not lost
            if self._between_steps:
                self.commit()
            raise
        finally:
            peak.close()

    def _leave(self, reason: StoppedBecause) -> StoppedBecause:
        return reason if self.commit() else "example_forgotten"

    def _step(self, stop: Callable[[], bool]) -> None:
        began = time.monotonic()
        batches, following = self._cursor.step(self._position)
        number = following.step
        outcome = self._machine.train_step(
            batches, learning_rate=self._learning_rate(number), step=number, seed=self._run.seed, stop=stop
        )
        loss = float(outcome.metrics.get("loss", float("nan")))
        accepted = outcome.finite
        self._between_steps = False
        if accepted:
            self._machine.buffers.flip()
        self._position = following
        self._bad_in_a_row = 0 if accepted else self._bad_in_a_row + 1
        self._note(following, outcome, loss, rejected=not accepted)
        self._between_steps = True
        self.progress.steps += 1
        self.progress.tokens += sum(batch.tokens_trained for batch in batches)
        self.progress.losses.append(loss)
        self.progress.rejected += not accepted
        self.progress.step_seconds.append(time.monotonic() - began)
        if self._on_step is not None:
            self._on_step(number, loss)

    def _note(self, cursor: CursorState, outcome: Outcome, loss: float, *, rejected: bool) -> None:
        metrics = {"step": cursor.step, "loss": repr(loss), "rejected": rejected}
        if self._machine.replayable:
            recorded = [] if rejected else outcome.recorded
            self._pending.append(JournalRow(cursor.step, cursor.model_dump(), recorded, rejected, metrics))
        else:
            self._metrics.append(metrics)

    def _learning_rate(self, step: int) -> float:
        return learning_rate_at(
            step, peak=self._training.learning_rate, schedule=self._training.schedule,
            warmup_steps=self._training.warmup_steps, total_steps=self._run.steps,
        )  # fmt: skip

    # ---- commits -------------------------------------------------------------------------------------------------------

    def _commit_is_due(self) -> bool:
        elapsed = time.monotonic() - self._last_commit
        if self._machine.replayable:
            return elapsed >= self._training.commit_seconds or self.step - self._slot_step >= SLOT_EVERY
        state = sum(value.nbytes for value in self._machine.state().values())
        return elapsed >= max(self._training.commit_seconds, state / (self._training.write_mb_per_second * 1e6))

    def commit(self) -> bool:
        """Makes all steps so far survive anything; False where the run has been ended meanwhile."""
        self._last_commit = time.monotonic()
        if self.step == self._committed:
            return self._store.ended_because(self._run.id) is None
        if self._machine.replayable:
            done = self._store.append_journal(self._run.id, self._pending)
            self._pending = []  # in the journal, even where the slot below finds the disk full
            if done and self.step - self._slot_step >= SLOT_EVERY:
                done = self._write_slot([])
        else:
            done = self._write_slot(self._metrics)
        if done:
            self._metrics = []
            self._committed = self.step
        return done

    def _write_slot(self, metrics: list[dict[str, Any]]) -> bool:
        done = self._store.commit_step(
            self._run.id, step=self.step, cursor=self._position.model_dump(), tensors=self._machine.state(), metrics=metrics
        )
        self._slot_step = self.step
        return done

    # ---- resuming --------------------------------------------------------------------------------------------------------

    def _restore(self, start: Mapping[str, np.ndarray]) -> CursorState:
        """State and position of the last commit: a slot, then the journal after it."""
        slot = self._store.latest_slot(self._run.id)
        self._machine.buffers.fill(slot.tensors if slot is not None else start)
        position = _stored(slot.cursor, self._run) if slot is not None else CursorState()
        self._slot_step = position.step
        if not self._machine.replayable:
            return position
        for row in self._store.journal(self._run.id, after_step=position.step):
            if not row.rejected:
                self._machine.replay_step(
                    row.values, learning_rate=self._learning_rate(row.step), step=row.step, seed=self._run.seed
                )
            position = _stored(row.cursor, self._run)
        return position


def _stored(cursor: dict[str, Any], run: Run) -> CursorState:
    try:
        return CursorState.model_validate(cursor)
    except ValidationError:
        expected = "step, user_position and general_position, integers from 0 to 2^62"
        raise damaged(f"cursor of run {run.id}", json.dumps(cursor)[:100], expected) from None


def _rejected_last(metrics: list[dict[str, Any]]) -> int:
    """How many of the committed steps were rejected since the last one that was not."""
    return sum(1 for _ in takewhile(lambda step: step["rejected"], reversed(metrics)))


def rows_of(store: StateStore, ids: list[str]) -> list[Row]:
    """Token rows of these examples, in order."""
    return [Row(row.tokens, row.mask) for row in store.example_rows(ids)]


__all__ = ["Progress", "Trainer", "rows_of"]
