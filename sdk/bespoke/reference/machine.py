# SPDX-License-Identifier: Apache-2.0
"""Machines that run the plans of a bundle: graphs as functions, mapped weights, buffers, and one interpreter for each plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

import bespoke.ops  # noqa: F401  (registers the int4 operators)
from bespoke.bundle.plan_records import MethodRecord, PlanRecord
from bespoke.bundle.reader import Bundle
from bespoke.errors import GenerationError
from bespoke.plan.instructions import SectionName
from bespoke.plan.kinds import ARRAY_PREFIX
from bespoke.reference.buffers import Buffers, as_tensor
from bespoke.reference.code import EmitCode, PlanCode, read_code
from bespoke.reference.device import device_for
from bespoke.reference.fits import check_generation, check_method
from bespoke.reference.graph_function import GraphFunction
from bespoke.reference.interpreter import Bindings, Interpreter, Outcome
from bespoke.reference.threads import threads_for
from bespoke.reference.weights import Weights
from bespoke.rules.batches import PAIRS, TokenBatch
from bespoke.rules.federation import Direction


def threads_of(bundle: Bundle) -> int | None:
    """The number of threads to compute the bundle's model with, None for torch's own choice."""
    config = bundle.manifest.model.config
    return threads_for(config.hidden_size * config.intermediate_size)


class _Plans:
    """Interpreters over shared buffers, by sequence length. The plans may be compiled for another target."""

    def __init__(self, bundle: Bundle, codes: Mapping[int, PlanCode], device: torch.device | None) -> None:
        self.bundle = bundle
        self.device = device or device_for([target.name for target in bundle.manifest.targets])
        graphs = {graph.key: graph for graph in bundle.manifest.graphs}
        self.buffers = Buffers(codes.values(), self.device)
        self.adapter_names = frozenset(
            str(value.where) for code in codes.values() for value in code.values if value.role == "adapter"
        )

        called = {graph.key for code in codes.values() for graph in code.graphs}
        functions = {
            key: GraphFunction(bundle.read(record.file), record, self.device.type)
            for key, record in graphs.items()
            if key in called
        }
        weight_files = {record.group: record.file for record in bundle.manifest.weights}
        weights = Weights(lambda group: bundle.mapped(weight_files[group]), self.device)

        self.interpreters = {
            length: Interpreter(
                code, [functions[graph.key] for graph in code.graphs], weights, self.buffers, self.device
            )
            for length, code in codes.items()
        }


class Machine(_Plans):
    """Runs the sections of a method. Its state is what `buffers.fill` set and steps have changed since."""

    def __init__(self, bundle: Bundle, method: MethodRecord, *, device: torch.device | None = None) -> None:
        self.method = method
        files = _codes(bundle, method.plans)
        check_method(method, files, bundle.manifest)
        super().__init__(bundle, {record.sequence_length: files[record.file] for record in method.plans}, device)
        self.sequence_lengths: Sequence[int] = sorted(self.interpreters)
        self.learns_pairs = any(
            value.where == f"{ARRAY_PREFIX}{PAIRS}" for code in files.values() for value in code.values
        )

    @property
    def accumulates(self) -> bool:
        return self.method.training.accumulates

    @property
    def replayable(self) -> bool:
        return self.method.replayable

    def train_step(self, batches: Sequence[TokenBatch], *, learning_rate: float, step: int, seed: int) -> Outcome:
        """Runs one step over its micro-batches. `step` counts from 1.

        The new state is in `buffers.following` until `buffers.flip` makes it current.
        """
        scalars = self.scalars(learning_rate, step, sum(batch.tokens_trained for batch in batches))
        if not self.accumulates:
            (batch,) = batches
            return self._run("train_step", batch.sequence_length, Bindings(tensors(batch), scalars, seed, step))

        self.buffers.begin_step()
        whole = Outcome()
        for batch in batches:
            part = self._run("micro_step", batch.sequence_length, Bindings(tensors(batch), scalars, seed, step))
            for name, value in part.metrics.items():
                whole.metrics[name] = whole.metrics.get(name, 0.0) + value
        last = batches[-1].sequence_length
        applied = self._run("apply_step", last, Bindings({}, scalars, seed, step))
        whole.metrics.update(applied.metrics)
        return whole

    @property
    def projects(self) -> bool:
        """Whether a round measures once and then projects on each direction."""
        return "federated_project" in self.interpreters[self.sequence_lengths[0]].plan.sections

    def measure(self, batches: Sequence[TokenBatch], along: Direction) -> list[float]:
        """The numbers that these batches tell of a direction; none if the method projects (`project`)."""
        tokens = sum(batch.tokens_trained for batch in batches)
        if self.projects:
            self.buffers.begin_step()
        sent: list[list[float]] = []
        for batch in batches:
            scalars = {**self.scalars(0.0, along.round, tokens), **along.scalars}
            bindings = Bindings(tensors(batch), scalars, along.seed, along.round, received=along.received)
            sent.append(self._run("federated_measure", batch.sequence_length, bindings).sent)
        return [sum(numbers) for numbers in zip(*sent, strict=True)]  # losses divide by the tokens of all batches

    def project(self, along: Direction) -> list[float]:
        """The projection on a direction of the gradient that was measured last."""
        bindings = Bindings({}, along.scalars, along.seed, along.round)
        return self._run("federated_project", self.sequence_lengths[0], bindings).sent

    def step_along(self, along: Direction) -> None:
        """Takes the step along a direction: theta - c z - c' G."""
        bindings = Bindings({}, along.scalars, along.seed, along.round, received=along.received)
        self._run("federated_apply", self.sequence_lengths[0], bindings)
        self.buffers.flip()

    def replay_step(self, recorded: Sequence[float], *, learning_rate: float, step: int, seed: int) -> None:
        """Repeats a step's stores from its journal."""
        bindings = Bindings({}, self.scalars(learning_rate, step, 1), seed, step)
        self.interpreters[self.sequence_lengths[0]].replay(bindings, recorded)
        self.buffers.flip()

    def scalars(self, learning_rate: float, step: int, batch_tokens: int) -> dict[str, float]:
        """The scalars of a step by name."""
        return {
            **self.method.scalars,
            "learning_rate": learning_rate,
            "step": float(step),
            "batch_tokens": float(batch_tokens),
        }

    def evaluate_batch(
        self, batch: TokenBatch, adapter: Mapping[str, torch.Tensor] | None = None
    ) -> tuple[float, float]:
        """The sum of losses and the number of correct predictions over the unmasked tokens, with `adapter` or the current one."""
        adapter = self._finished() if adapter is None else adapter
        bindings = Bindings(tensors(batch), {}, adapter=adapter)
        metrics = self._run("evaluate_step", batch.sequence_length, bindings).metrics
        return metrics["loss_sum"], metrics["correct"]

    def _run(self, section: SectionName, length: int, bindings: Bindings) -> Outcome:
        return self.interpreters[length].run(section, bindings)

    def state(self) -> dict[str, np.ndarray]:
        """The current adapter and optimizer state, without a copy."""
        return {name: value.numpy() for name, value in self.buffers.current.items()}

    def adapter(self) -> dict[str, np.ndarray]:
        """The adapter: that of `state`, or the one that section `finish` computes from it."""
        finished = self._finished()
        if finished is not None:
            return {name: value.numpy() for name, value in finished.items()}
        return {name: value for name, value in self.state().items() if name in self.adapter_names}

    def _finished(self) -> Mapping[str, torch.Tensor] | None:
        """The adapter after the steps so far, if the method keeps it in another form until then. Else None."""
        return self.interpreters[self.sequence_lengths[0]].finished(self.method.scalars)


class AnsweringMachine(_Plans):
    """Runs the plan for answers. `prefill`, `decode` and `decode_rows` put tokens into a KV cache, which `end_session` frees."""

    def __init__(self, bundle: Bundle, plan: PlanRecord | None = None, *, device: torch.device | None = None) -> None:
        """Opens the plan for answers, by default the one for the largest budget."""
        record = plan or bundle.manifest.generation
        if record is None:
            raise GenerationError(
                "the bundle",
                got="no plan for answers: it was built before there were any, or by another program",
                expected="a bundle of format 1.2 or later",
                next_step="Build it again",
            )
        files = _codes(bundle, [record])
        check_generation(record, files[record.file], bundle.manifest)
        super().__init__(bundle, {record.sequence_length: files[record.file]}, device)
        self.chunk = record.sequence_length
        self.rows = _rows_of(files[record.file])
        """How many tokens `decode_rows` takes at once; 1 where the plan has no such section."""

    def prefill(self, tokens: Sequence[int], position: int, adapter: Mapping[str, torch.Tensor]) -> None:
        """Puts tokens into the cache in chunks, from `position` on.

        The last chunk is padded if the cache has room for that. Else its tokens go in one by one.
        """
        done, context = 0, self.bundle.manifest.context_length
        while done < len(tokens):
            if position + done + self.chunk > context:
                self.decode(tokens[done], position + done, adapter)
                done += 1
                continue
            chunk = list(tokens[done : done + self.chunk])
            self._run("prefill", chunk + [0] * (self.chunk - len(chunk)), position + done, adapter)
            done += len(chunk)

    def decode(self, token: int, position: int, adapter: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Puts one token into the cache and returns the logits [V, 1] of the next."""
        logits: torch.Tensor = self._run("decode", [token], position, adapter).metrics["logits"]
        return logits

    def decode_rows(self, tokens: Sequence[int], position: int, adapter: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Puts up to `rows` tokens into the cache and returns logits [V, rows]: column r is of what follows token r."""
        padded = [*tokens, *[0] * (self.rows - len(tokens))]
        logits: torch.Tensor = self._run("decode_rows", padded, position, adapter).metrics["logits"]
        return logits

    def end_session(self) -> None:
        self.buffers.end_session()

    def _run(
        self, section: SectionName, tokens: Sequence[int], position: int, adapter: Mapping[str, torch.Tensor]
    ) -> Outcome:
        prompt = {f"prompt_{len(tokens)}": torch.tensor([tokens])}
        return self.interpreters[self.chunk].run(section, Bindings(prompt, {"position": position}, adapter=adapter))


def _rows_of(plan: PlanCode) -> int:
    """The number of columns of the logits of section `decode_rows`."""
    for code in plan.sections.get("decode_rows", ()):
        if isinstance(code, EmitCode) and code.name == "logits":
            return plan.values[code.source[0]].shape[1]
    return 1


def _codes(bundle: Bundle, records: Sequence[PlanRecord]) -> dict[str, PlanCode]:
    """The plans of these records by file."""
    return {record.file: read_code(bundle.read(record.file), record.file, bundle.manifest.graphs) for record in records}


def tensors(batch: TokenBatch) -> dict[str, torch.Tensor]:
    """The tensors of a batch, by the names that plans have for them."""
    return {f"{ARRAY_PREFIX}{name}": torch.from_numpy(array) for name, array in batch.arrays.items()} | {
        "tokens": torch.from_numpy(batch.tokens),
        "targets": torch.from_numpy(batch.targets),
        "mask": torch.from_numpy(batch.mask),
    }


def adapter_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """The arrays of an adapter file as tensors over the same memory."""
    return {name: as_tensor(array) for name, array in arrays.items()}
