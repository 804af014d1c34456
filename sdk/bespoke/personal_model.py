# SPDX-License-Identifier: Apache-2.0
"""PersonalModel: a bundle and one user's state. It takes examples, trains, accepts or refuses, answers, exports, forgets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from bespoke.adapter.peft import adapter_shapes, export_peft, import_peft
from bespoke.bundle.manifest import MethodRecord
from bespoke.bundle.reader import Bundle, open_bundle
from bespoke.config import Training, settings_from
from bespoke.data.encode import ExampleEncoder
from bespoke.data.rows import TokenRows
from bespoke.data.text import Tokenizer
from bespoke.data.turns import Turns
from bespoke.errors import ConfigError, DataError, GenerationError
from bespoke.runtime.batches import BatchCursor, Row, RowLike
from bespoke.runtime.evaluate import GateData, Judgement, evaluate, judge, loss_of
from bespoke.runtime.generate import generate
from bespoke.runtime.machine import Machine, adapter_tensors, method_of
from bespoke.runtime.memory import (
    MemoryGuard,
    MemoryMeter,
    bytes_written,
    dirty_mapped_bytes,
    read_footprint,
    steady_malloc,
)
from bespoke.runtime.report import Evaluation, MemoryReport, StoppedBecause, TrainReport
from bespoke.runtime.trainer import Trainer, rows_of
from bespoke.state.records import AddedExample, ExampleInfo, Forgotten, Run, Version
from bespoke.state.store import StateStore

Judged = Literal["validation", "train"]


class Examples:
    """The user's examples. Tokenized when added, never while training."""

    def __init__(self, store: StateStore, encoder: ExampleEncoder) -> None:
        self._store = store
        self._encoder = encoder

    def add(self, example: dict[str, Any], id: str | None = None) -> AddedExample:
        """Keeps an example: {"messages": ...}, {"prompt": ..., "completion": ...}, {"text": ...} or {"tokens": ..., "mask": ...}.

        The same id with the same content changes nothing. Raises DataError for what cannot be used or would train nothing.
        """
        rows = self._encoder.encode(example).rows
        return self._store.add_example(example, rows, id)

    def list(self) -> list[ExampleInfo]:
        """All examples, in the order in which they were added."""
        return self._store.examples()

    def forget(self, id: str) -> Forgotten:
        """Deletes an example at once, with every adapter that saw it; stops a run that uses it."""
        return self._store.forget(id)

    def __len__(self) -> int:
        return len(self._store.example_ids())


class PersonalModel:
    """Made by `open`; a context manager. Everything may raise BespokeError, and loses nothing then."""

    def __init__(self, bundle: Bundle, store: StateStore, encoder: ExampleEncoder, memory_bytes: int | None) -> None:
        self._bundle = bundle
        self._store = store
        self._encoder = encoder
        self._meter = MemoryMeter()
        self._memory_bytes = memory_bytes
        self._answering: Machine | None = None
        self.examples = Examples(store, encoder)

    @classmethod
    def open(
        cls, bundle: str | Path, state: str | Path, *, memory_mb: float | None = None, pin_sha256: str | None = None,
        public_key: bytes | None = None,
    ) -> Self:  # fmt: skip
        """A bundle and the user's state folder, which is made where there is none.

        `memory_mb` is what training may add to the process, in MB of 10**6 bytes; by default the bundle's budget.
        """
        steady_malloc()
        opened = open_bundle(Path(bundle), pin_sha256=pin_sha256, public_key=public_key)
        try:
            manifest = opened.manifest
            shapes = adapter_shapes(manifest.model.config, manifest.lora.rank)
            store = StateStore.open(Path(state), base_sha256=manifest.model.base_sha256, adapter_shapes=shapes)
            limit = manifest.budget.memory_bytes if memory_mb is None else int(memory_mb * 1e6)
            return cls(opened, store, _encoder(opened), limit)
        except BaseException:
            opened.close()
            raise

    @classmethod
    def reset_for_new_base(cls, bundle: str | Path, state: str | Path) -> Self:
        """Moves a state to a bundle with another base model: adapters go, examples are kept and tokenized anew."""
        with open_bundle(Path(bundle)) as opened:
            manifest, encoder = opened.manifest, _encoder(opened)
            StateStore.reset_for_new_base(
                Path(state), base_sha256=manifest.model.base_sha256,
                adapter_shapes=adapter_shapes(manifest.model.config, manifest.lora.rank),
                retokenize=lambda example: encoder.encode(example).rows,
            ).close()  # fmt: skip
        return cls.open(bundle, state)

    def close(self) -> None:
        self._answering = None
        self._store.close()
        self._bundle.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- training ----------------------------------------------------------------------------------------------------

    def train(
        self, steps: int | None = None, *, method: str | None = None, seed: int | None = None,
        stop: Callable[[], bool] | None = None, on_step: Callable[[int, float], None] | None = None,
        **overrides: Any,
    ) -> TrainReport:  # fmt: skip
        """Starts a run, or continues the unfinished one by at most `steps`; at the end the gate accepts or refuses.

        method:     by default that of the unfinished run, else the first of the bundle; another one starts a new run
        stop:       asked before every instruction; training then ends in a committed state
        on_step:    told (step, loss) after each step
        overrides:  fields of Training, for a run that starts here
        Raises BudgetExceeded where going on would pass the limit (what was done is committed), StateLocked where
        another process trains.
        """
        began, written = time.monotonic(), bytes_written()
        self._answering = None
        with self._store.trainer_lock():
            run = self._run(steps, method, seed, overrides)
            record = method_of(self._bundle, run.method)
            record = record.model_copy(update={"training": Training.model_validate(run.settings["training"])})
            guard = MemoryGuard(self._memory_bytes, self._meter.idle)
            self._refuse_what_cannot_fit(record, guard)
            machine = Machine(self._bundle, record, guard, scratch=self._store.scratch_path)
            gate = self._gate(run, record)
            answering = self._adapter_arrays()
            before = (
                loss_of(machine, gate.user, adapter_tensors(answering)),
                loss_of(machine, gate.general, adapter_tensors(answering)),
            )
            trainer = Trainer(machine, self._store, run, self._cursor(run, record), self._start_of(run), on_step)
            reason = trainer.train(steps if steps is not None else run.steps, stop or (lambda: False))
            judgement = self._judge(machine, gate, before, run, trainer, reason)
            footprint = read_footprint()
            progress = trainer.progress
            memory = MemoryReport(
                idle_bytes=self._meter.idle,
                estimate_bytes=max(plan.estimate.peak_bytes for plan in record.plans),
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
        )  # fmt: skip

    def _run(self, steps: int | None, method: str | None, seed: int | None, overrides: Mapping[str, Any]) -> Run:
        """The unfinished run, or a new one."""
        current = self._store.current_run()
        if current is not None and method in (None, current.method):
            kept = current.settings["training"]
            if settings_from(Training, "train", {**kept, **overrides}) != Training(**kept) or seed not in (None, current.seed):
                other = [*overrides, *(["seed"] if seed is not None else [])]
                raise ConfigError(
                    f"run {current.id}",
                    got=f"other settings ({', '.join(other)}) for an unfinished run",
                    expected="the settings it was started with",
                    next_step="Continue it without them, or call abandon_run() and train again",
                )
            return current
        record = method_of(self._bundle, method)
        values = {**record.training.model_dump(), **overrides, **({} if steps is None else {"steps": steps})}
        training = settings_from(Training, "train", values)
        assert isinstance(training, Training)
        _refuse_what_is_compiled(record.training, training)
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

    def abandon_run(self) -> bool:
        """Ends the unfinished run, if there is one; what it learned is dropped unless it was accepted."""
        with self._store.trainer_lock("abandoning a run"):
            run = self._store.current_run()
            return run is not None and self._store.end_run(run.id, "abandoned")

    def _refuse_what_cannot_fit(self, record: MethodRecord, guard: MemoryGuard) -> None:
        peak = max(plan.estimate.peak_bytes for plan in record.plans)
        guard.ask(peak, f"Training with '{record.name}' (estimated peak {peak / 1e6:.1f} MB)")

    def _cursor(self, run: Run, record: MethodRecord) -> BatchCursor:
        train = set(self._store.example_ids("train"))
        training = record.training
        return BatchCursor(
            rows_of(self._store, [id for id in run.example_ids if id in train]), self._general("train"), seed=run.seed,
            batch_size=training.batch_size, accumulation=training.accumulation,
            sequence_lengths=[plan.sequence_length for plan in record.plans], general_share=training.general_share,
        )  # fmt: skip

    def _start_of(self, run: Run) -> dict[str, np.ndarray]:
        return self._initial() if run.started_from is None else self._store.load_version(run.started_from)

    def _gate(self, run: Run, record: MethodRecord) -> GateData:
        validation = set(self._store.example_ids("validation"))
        held_out = [id for id in run.example_ids if id in validation]
        train = [id for id in run.example_ids if id not in validation]
        judged_on: Judged | None = "validation" if held_out else "train" if train else None
        user = rows_of(self._store, held_out or train)
        return GateData(judged_on, user, self._general("valid"), record.training.general_tolerance)

    def _judge(
        self, machine: Machine, gate: GateData, before: tuple[float | None, float | None], run: Run, trainer: Trainer,
        reason: StoppedBecause,
    ) -> Judgement:  # fmt: skip
        judgement = judge(machine, gate, before, changed=trainer.step > 0 and reason not in ("diverged", "example_forgotten"))
        accepted = judgement.accepted
        if accepted:
            metrics = {"validation_loss": judgement.after, "validation_loss_before": judgement.before}
            accepted = self._store.accept(run.id, machine.adapter(), metrics) is not None
        if reason in ("finished", "diverged"):
            self._store.end_run(run.id, reason)
        return judgement if accepted == judgement.accepted else Judgement(**{**vars(judgement), "accepted": accepted})

    # ---- answering ---------------------------------------------------------------------------------------------------

    def evaluate(self, examples: Sequence[Mapping[str, Any]] | None = None, *, split: str = "validation") -> Evaluation:
        """Loss, perplexity and next-token accuracy of the adapter that answers, on `examples` or on the user's own of a split."""
        if examples is not None:
            encoded = [self._encoder.encode(example, f"example {number}") for number, example in enumerate(examples, 1)]
            rows: Sequence[RowLike] = [row for one in encoded for row in one.rows]
            count = len(encoded)
        else:
            ids = self._store.example_ids(split)  # type: ignore[arg-type]
            rows, count = rows_of(self._store, ids), len(ids)
        found = evaluate(self._machine(), rows, adapter_tensors(self._adapter_arrays()), examples=count)
        if found is None:
            raise DataError(
                f"examples of split '{split}'" if examples is None else "examples", got="none", expected="at least one",
                next_step="Add examples; from the fifth on, one in ten is kept for validation",
            )  # fmt: skip
        return found

    def generate(
        self, prompt: str | Sequence[Any], *, max_tokens: int = 128, temperature: float = 0.0, top_p: float = 1.0,
        top_k: int | None = None, seed: int = 0,
    ) -> Iterator[str]:  # fmt: skip
        """Pieces of the answer to messages, a text or token ids, as they come. Temperature 0 is greedy."""
        tokenizer = self._encoder.tokenizer
        if tokenizer is None:
            raise GenerationError(
                "prompt", got="a bundle that takes token ids only", expected="a bundle with a tokenizer",
                next_step="Use generate_ids",
            )  # fmt: skip
        ids = self._encoder.prompt_ids(prompt)
        text = tokenizer.stream(ids)
        tokens = self.generate_ids(
            ids, max_tokens=max_tokens, temperature=temperature, top_p=top_p, top_k=top_k, seed=seed
        )
        return (piece for token in tokens if (piece := text(token)))

    def generate_ids(
        self, prompt: Sequence[int], *, max_tokens: int = 128, temperature: float = 0.0, top_p: float = 1.0,
        top_k: int | None = None, seed: int = 0,
    ) -> Iterator[int]:  # fmt: skip
        """Token ids of the answer to token ids."""
        adapter = adapter_tensors(self._adapter_arrays())
        stop = frozenset(self._bundle.manifest.text.stop_ids)
        return generate(
            self._machine(), list(prompt), adapter, stop, max_tokens=max_tokens, temperature=temperature, top_p=top_p,
            top_k=top_k, seed=seed,
        )  # fmt: skip

    # ---- versions ------------------------------------------------------------------------------------------------------

    def versions(self) -> list[Version]:
        """Accepted adapters, oldest first; the last one answers."""
        return self._store.accepted()

    def rollback(self) -> Version | None:
        """Back to the adapter accepted before this one; None: the base answers."""
        with self._store.trainer_lock("rolling back"):
            return self._store.rollback()

    def reset(self) -> None:
        """Forgets everything that was learned; examples stay."""
        with self._store.trainer_lock("resetting"):
            self._store.reset()

    def export_adapter(self, folder: str | Path, format: Literal["peft"] = "peft") -> Path:
        """The adapter that answers, as a folder that `peft.PeftModel.from_pretrained` loads onto the original model."""
        _check_format(format)
        manifest = self._bundle.manifest
        return export_peft(
            folder, self._adapter_arrays(), rank=manifest.lora.rank, alpha=manifest.lora.alpha,
            base_name=manifest.model.name, base_sha256=manifest.model.base_sha256, config=manifest.model.config,
        )  # fmt: skip

    def import_adapter(self, folder: str | Path, *, trust_base: bool = False) -> int:
        """Takes a PEFT folder as the adapter that answers, and returns its version.

        Refused where it was trained on another base; `trust_base` takes one that does not say.
        """
        manifest = self._bundle.manifest
        with self._store.trainer_lock("importing an adapter"):
            tensors = import_peft(
                folder, manifest.model.config, manifest.lora.rank, manifest.lora.alpha, manifest.model.base_sha256,
                trust_base=trust_base,
            )  # fmt: skip
            return self._store.import_version(tensors, source=Path(folder).name)

    # ---- pieces ----------------------------------------------------------------------------------------------------------

    def _machine(self) -> Machine:
        """A machine for answers; it needs no scratch, and goes when training begins."""
        if self._answering is None:
            guard = MemoryGuard(None, self._meter.idle)
            self._answering = Machine(self._bundle, method_of(self._bundle, None), guard)
        return self._answering

    def _initial(self) -> dict[str, np.ndarray]:
        return dict(self._bundle.mapped(self._bundle.manifest.adapter))

    def _adapter_arrays(self) -> dict[str, np.ndarray]:
        """The adapter that answers: the newest accepted one, else the bundle's initial one, which changes nothing."""
        version = self._store.current_version()
        return self._initial() if version is None else self._store.load_version(version.id)

    def _general(self, split: Literal["train", "valid"]) -> list[Row]:
        name = getattr(self._bundle.manifest.data, split)
        if name is None:
            return []
        rows = TokenRows.from_arrays(self._bundle.mapped(name), name)
        return [Row(row.tokens, row.mask) for row in (rows.rows(i) for i in range(len(rows)))]


def _encoder(bundle: Bundle) -> ExampleEncoder:
    text, lengths = bundle.manifest.text, bundle.manifest.sequence_lengths
    tokenizer = None
    if text.tokenizer is not None:
        config = None if text.tokenizer_config is None else bundle.read(text.tokenizer_config)
        tokenizer = Tokenizer.from_bytes(bundle.read(text.tokenizer), config, text.tokenizer)
    turns = None if text.turns is None else Turns.from_bytes(bundle.read(text.turns), text.turns)
    return ExampleEncoder(tokenizer, turns, text.train_on, max(lengths), vocab_size=text.vocab_size)


def _refuse_what_is_compiled(built: Training, asked: Training) -> None:
    """Batch size, lengths and accumulation or not are in the plans."""
    for name in ("batch_size", "sequence_lengths", "clip_norm", "packing"):
        if getattr(built, name) != getattr(asked, name):
            raise ConfigError(
                f"train.{name}", got=repr(getattr(asked, name)),
                expected=f"{getattr(built, name)!r}, which the bundle was built for",
                next_step="Build a bundle with the other value",
            )  # fmt: skip
    if built.accumulates != asked.accumulates:
        raise ConfigError(
            "train.accumulation", got=str(asked.accumulation),
            expected=f"{built.accumulation}, or another number above 1 if that is",
            next_step="Build the bundle with accumulation",
        )  # fmt: skip


def _check_format(format: str) -> None:
    if format != "peft":
        raise ConfigError("format", got=repr(format), expected="'peft'", next_step="Export as peft and convert from there")
