# SPDX-License-Identifier: Apache-2.0
"""The torch runtime: what train, evaluate and answers do with torch, from a bundle and a state to a report.

The reference for the device core, whose counterpart is bindings/native/src/train/training.cpp, and what runs where there is none.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import numpy as np

from bespoke.bundle.manifest import MethodRecord
from bespoke.bundle.reader import Bundle
from bespoke.data.rows import TokenRows
from bespoke.errors import BundleError, DataError
from bespoke.rules.batches import BatchCursor, Row, RowLike
from bespoke.rules.judged import judged_rows
from bespoke.rules.report import Evaluation, JudgedOn, MemoryReport, StoppedBecause, TrainReport
from bespoke.runtime.evaluate import GateData, Judgement, evaluate, judge, loss_of, predicted
from bespoke.runtime.generate import generate
from bespoke.runtime.machine import Machine, adapter_tensors
from bespoke.runtime.run_settings import method_of, settings_of_run, stored_training
from bespoke.runtime.threads import each_limited, limited, threads_for
from bespoke.runtime.trainer import Trainer, rows_of
from bespoke.state.records import Run
from bespoke.state.store import StateStore
from bespoke.system.footprint import bytes_read, bytes_written, dirty_mapped_bytes, read_footprint
from bespoke.system.guard import MemoryGuard, MemoryMeter


class TorchRuntime:
    """One bundle and one user's state. The process as it is when this is made, with torch imported, is the idle one."""

    def __init__(self, bundle: Bundle, store: StateStore, memory_bytes: int | None) -> None:
        self._bundle = bundle
        self._store = store
        self._memory_bytes = memory_bytes
        self._meter = MemoryMeter()
        self._answering: Machine | None = None

    # ---- training ----------------------------------------------------------------------------------------------------

    def train(
        self, steps: int | None, seconds: float | None, method: str | None, seed: int | None, stop: Callable[[], bool] | None,
        on_step: Callable[[int, float], None] | None, overrides: Mapping[str, Any],
    ) -> TrainReport:  # fmt: skip
        began, written, read = time.monotonic(), bytes_written(), bytes_read()
        self._answering = None
        with self._threads(), self._store.trainer_lock():
            run = self._run(steps, method, seed, overrides)
            record = method_of(self._bundle, run.method)
            record = record.model_copy(update={"training": stored_training(run, record)})
            guard = MemoryGuard(self._memory_bytes, self._meter.idle)
            before_machine = guard.observe()
            machine = Machine(self._bundle, record, guard, scratch=self._store.scratch_path)
            estimate = machine.estimate_bytes
            guard.ask(estimate, f"Training with '{record.name}' (estimated peak {estimate / 1e6:.1f} MB)", now=before_machine)
            gate = self._gate(run, record)
            answering = self.adapter_arrays()
            before = (
                loss_of(machine, gate.user, adapter_tensors(answering)),
                loss_of(machine, gate.general, adapter_tensors(answering)),
            )
            gate_seconds = machine.seconds_by_stage()
            trainer = Trainer(machine, self._store, run, self._cursor(run, record), self._start_of(run), on_step)
            deadline = math.inf if seconds is None else began + seconds
            asked = stop or (lambda: False)
            reason = trainer.train(steps if steps is not None else run.steps, lambda: time.monotonic() >= deadline or asked())
            if reason == "stop_requested" and time.monotonic() >= deadline:
                reason = "deadline"
            stages = {stage: spent - gate_seconds[stage] for stage, spent in machine.seconds_by_stage().items()}
            judgement = self._judge(machine, gate, before, run, trainer, reason)
            footprint = read_footprint()
            progress = trainer.progress
            memory = MemoryReport(
                idle_bytes=self._meter.idle,
                estimate_bytes=estimate,
                peak_bytes=max(progress.peak_added, guard.peak_added),
                limit_bytes=self._memory_bytes,
                mapped_dirty_bytes=dirty_mapped_bytes(),
                file_bytes=footprint.file,
            )
        return TrainReport(
            method=run.method, run=run.id, steps=progress.steps, total_steps=trainer.step, tokens=progress.tokens,
            losses=tuple(progress.losses), rejected_steps=progress.rejected,
            validation_loss_before=judgement.before, validation_loss=judgement.after,
            general_loss_before=judgement.general_before, general_loss=judgement.general_after,
            judged_on=judgement.judged_on, accepted=judgement.accepted, stopped_because=reason, memory=memory,
            step_peak_bytes=tuple(progress.step_peaks), bytes_written=bytes_written() - written, seconds=time.monotonic() - began,
            judged_tokens=predicted(gate.user), judged_of_tokens=gate.of_tokens,
            runtime="torch", bytes_read=bytes_read() - read, step_seconds=tuple(progress.step_seconds), seconds_by_stage=stages,
        )  # fmt: skip

    def _run(self, steps: int | None, method: str | None, seed: int | None, overrides: Mapping[str, Any]) -> Run:
        """The unfinished run, or a new one."""
        current = self._store.current_run()
        record, training = settings_of_run(self._bundle, current, steps, method, seed, overrides)
        if current is not None and method in (None, current.method):
            return current
        if not self._store.example_ids("train") and not self._general("train"):  # a run keeps the examples that it starts with
            raise DataError(
                "training data", got="no example of the user to train on, and no general text in the bundle",
                expected="at least one", next_step="Add an example",
            )  # fmt: skip
        if current is not None:  # only now: what is refused must not end it
            self._store.end_run(current.id, "replaced")
        version = self._store.current_version()
        return self._store.start_run(
            record.name, training.seed if seed is None else seed, {"training": training.model_dump(mode="json")},
            self._store.example_ids(), training.steps, None if version is None else version.id,
        )  # fmt: skip

    def _cursor(self, run: Run, record: MethodRecord) -> BatchCursor:
        train = set(self._store.example_ids("train"))
        training = record.training
        return BatchCursor(
            rows_of(self._store, [id for id in run.example_ids if id in train]), self._general("train"), seed=run.seed,
            batch_size=training.batch_size, accumulation=training.accumulation,
            sequence_lengths=[plan.sequence_length for plan in record.plans], general_share=training.general_share,
            vocab_size=self._bundle.manifest.model.config.vocab_size,
        )  # fmt: skip

    def _start_of(self, run: Run) -> dict[str, np.ndarray]:
        return self._bundle.initial_adapter() if run.started_from is None else self._store.load_version(run.started_from)

    def _gate(self, run: Run, record: MethodRecord) -> GateData:
        validation = set(self._store.example_ids("validation"))
        held_out = [id for id in run.example_ids if id in validation]
        train = [id for id in run.example_ids if id not in validation]
        judged_on: JudgedOn | None = "validation" if held_out else "train" if train else None
        rows = rows_of(self._store, held_out or train)
        user = [rows[number] for number in judged_rows([len(row.tokens) for row in rows])]
        return GateData(judged_on, user, predicted(rows), self._general("valid"), record.training.general_tolerance)

    def _judge(
        self, machine: Machine, gate: GateData, before: tuple[float | None, float | None], run: Run, trainer: Trainer,
        reason: StoppedBecause,
    ) -> Judgement:  # fmt: skip
        if reason == "deadline":  # the gate takes time, too: a later call judges
            return Judgement(gate.judged_on, before[0], None, before[1], None, False)
        judgement = judge(machine, gate, before, changed=trainer.step > 0 and reason not in ("diverged", "example_forgotten"))
        accepted = judgement.accepted
        if accepted:
            metrics = {"validation_loss": judgement.after, "validation_loss_before": judgement.before}
            accepted = self._store.accept(run.id, machine.adapter(), metrics) is not None
        if reason in ("finished", "diverged"):
            self._store.end_run(run.id, reason)
        return judgement if accepted == judgement.accepted else Judgement(**{**vars(judgement), "accepted": accepted})

    # ---- answering ---------------------------------------------------------------------------------------------------

    def evaluate(self, rows: Sequence[RowLike], examples: int) -> Evaluation | None:
        """Of the adapter that answers; None where there is no token to look at."""
        with self._threads():
            return evaluate(self.machine(), rows, adapter_tensors(self.adapter_arrays()), examples=examples)

    def evaluate_split(self, split: str) -> Evaluation | None:
        """The same on the user's own examples."""
        ids = self._store.example_ids(split)  # type: ignore[arg-type]
        return self.evaluate(rows_of(self._store, ids), len(ids))

    def generate_ids(
        self, prompt: Sequence[int], *, max_tokens: int, temperature: float, top_p: float, top_k: int | None, seed: int
    ) -> Iterator[int]:
        stop = frozenset(self._bundle.manifest.text.stop_ids)
        tokens = generate(
            self.machine(), list(prompt), adapter_tensors(self.adapter_arrays()), stop, max_tokens=max_tokens,
            temperature=temperature, top_p=top_p, top_k=top_k, seed=seed,
        )  # fmt: skip
        return each_limited(tokens, self._thread_count())

    def _threads(self) -> AbstractContextManager[None]:
        return limited(self._thread_count())

    def _thread_count(self) -> int | None:
        config = self._bundle.manifest.model.config
        return threads_for(config.hidden_size * config.intermediate_size)

    def machine(self) -> Machine:
        """A machine for answers; it needs no scratch, and goes when training begins."""
        if self._answering is None:
            guard = MemoryGuard(None, self._meter.idle)
            self._answering = Machine(self._bundle, method_of(self._bundle, None), guard)
        return self._answering

    def adapter_arrays(self) -> dict[str, np.ndarray]:
        """The adapter that answers: the newest accepted one, else the bundle's initial one, which changes nothing."""
        found = self._store.answering()
        return self._bundle.initial_adapter() if found is None else found[1]

    def _general(self, split: Literal["train", "valid"]) -> list[Row]:
        name = getattr(self._bundle.manifest.data, split)
        if name is None:
            return []
        rows = TokenRows.from_arrays(self._bundle.mapped(name), name)
        vocab_size = self._bundle.manifest.model.config.vocab_size
        if len(rows.tokens) and int(rows.tokens.max()) >= vocab_size:
            raise BundleError(
                name, got=f"token {int(rows.tokens.max())}", expected=f"0 to {vocab_size - 1}, which the model knows",
                next_step="Build the bundle again, or copy it again",
            )  # fmt: skip
        return [Row(row.tokens, row.mask) for row in (rows.rows(i) for i in range(len(rows)))]
