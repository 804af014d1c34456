# SPDX-License-Identifier: Apache-2.0
"""A method of a bundle brought to life: graphs as functions, weights mapped, buffers, one interpreter a sequence length."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

import bespoke.ops  # noqa: F401  (registers the int4 operators)
from bespoke.bundle.manifest import MethodRecord
from bespoke.bundle.reader import Bundle
from bespoke.plan.costs import TORCH_COSTS
from bespoke.plan.instructions import SectionName
from bespoke.plan.kinds import ARRAY_PREFIX
from bespoke.rules.batches import Batch
from bespoke.rules.report import STAGES
from bespoke.runtime.buffers import Buffers, as_tensor
from bespoke.runtime.code import read_code
from bespoke.runtime.device import device_for
from bespoke.runtime.fits import check_method
from bespoke.runtime.graph_function import GraphFunction
from bespoke.runtime.interpreter import Bindings, Interpreter, Outcome
from bespoke.runtime.weights import Weights
from bespoke.system.guard import MemoryGuard


class Machine:
    """Runs sections of one method. State is what `fill` put there and steps have changed since.

    `estimate_bytes` is what training adds to the idle process in this runtime. The plan may be made for another target.
    """

    def __init__(
        self, bundle: Bundle, method: MethodRecord, guard: MemoryGuard, *, scratch: Path | None = None,
        device: torch.device | None = None,
    ) -> None:  # fmt: skip
        self.bundle = bundle
        self.method = method
        self.guard = guard
        self.device = device or device_for([target.name for target in bundle.manifest.targets])
        graphs = {graph.key: graph for graph in bundle.manifest.graphs}
        files = {
            record.file: read_code(bundle.read(record.file), record.file, list(graphs.values())) for record in method.plans
        }
        check_method(method, files, bundle.manifest)
        codes = {record.sequence_length: files[record.file] for record in method.plans}
        self.buffers = Buffers(codes.values(), scratch, self.device)
        self.adapter_names = frozenset(
            str(value.where) for code in codes.values() for value in code.values if value.role == "adapter"
        )
        called = {graph.key for code in codes.values() for graph in code.graphs}
        functions = {
            key: GraphFunction(bundle.read(record.file), record, self.device.type)
            for key, record in graphs.items()
            if key in called
        }
        workspaces = {key: function.workspace_bytes for key, function in functions.items()}
        codes = {length: code.with_workspaces(workspaces) for length, code in codes.items()}
        self.estimate_bytes = max(
            code.arena_bytes + code.workspace_bytes + TORCH_COSTS.constant_bytes + TORCH_COSTS.record_bytes * code.records
            for code in codes.values()
        )
        weight_files = {record.group: record.file for record in bundle.manifest.weights}
        weights = Weights(lambda group: bundle.mapped(weight_files[group]), self.device)
        self.interpreters = {
            length: Interpreter(
                code, [functions[graph.key] for graph in code.graphs], weights, self.buffers, guard, self.device
            )
            for length, code in codes.items()
        }
        self.sequence_lengths: Sequence[int] = sorted(codes)

    @property
    def accumulates(self) -> bool:
        return self.method.training.accumulates

    @property
    def replayable(self) -> bool:
        return self.method.replayable

    def train_step(
        self, batches: Sequence[Batch], *, learning_rate: float, step: int, seed: int, stop: Callable[[], bool] | None = None
    ) -> Outcome:
        """One step over its micro-batches; the new state is in `buffers.following` until `buffers.flip`.

        `step` counts from 1. Raises Abandoned when `stop` says so, BudgetExceeded before a call that would not fit.
        """
        scalars = self.scalars(learning_rate, step, sum(batch.tokens_trained for batch in batches))
        if not self.accumulates:
            (batch,) = batches
            return self._run("train_step", batch.sequence_length, Bindings(tensors(batch), scalars, seed, step), stop)
        self.buffers.begin_step()
        whole = Outcome()
        for batch in batches:
            part = self._run("micro_step", batch.sequence_length, Bindings(tensors(batch), scalars, seed, step), stop)
            for name, value in part.metrics.items():
                whole.metrics[name] = whole.metrics.get(name, 0.0) + value
        last = batches[-1].sequence_length
        applied = self._run("apply_step", last, Bindings({}, scalars, seed, step), stop)
        whole.metrics.update(applied.metrics)
        return whole

    def replay_step(self, recorded: Sequence[float], *, learning_rate: float, step: int, seed: int) -> None:
        """A step's stores again, from its journal."""
        bindings = Bindings({}, self.scalars(learning_rate, step, 1), seed, step)
        self.interpreters[self.sequence_lengths[0]].replay(bindings, recorded)
        self.buffers.flip()

    def scalars(self, learning_rate: float, step: int, batch_tokens: int) -> dict[str, float]:
        return {
            **self.method.scalars, "learning_rate": learning_rate, "step": float(step),
            "batch_tokens": float(batch_tokens),
        }  # fmt: skip

    def evaluate_batch(self, batch: Batch, adapter: Mapping[str, torch.Tensor] | None = None) -> tuple[float, float]:
        """Sum of losses and count of right guesses over the unmasked tokens, with `adapter` or the current one."""
        bindings = Bindings(tensors(batch), {}, adapter=adapter)
        metrics = self._run("evaluate_step", batch.sequence_length, bindings, None).metrics
        return metrics["loss_sum"], metrics["correct"]

    def _run(self, section: SectionName, length: int, bindings: Bindings, stop: Callable[[], bool] | None) -> Outcome:
        return self.interpreters[length].run(section, bindings, stop)

    def seconds_by_stage(self) -> dict[str, float]:
        """What calls have taken since this was made."""
        spent = [interpreter.spent for interpreter in self.interpreters.values()]
        return {stage: sum(one[stage] for one in spent) for stage in STAGES}

    def state(self) -> dict[str, np.ndarray]:
        """Adapter and optimizer state as they are now, without a copy."""
        return {name: value.numpy() for name, value in self.buffers.current.items()}

    def adapter(self) -> dict[str, np.ndarray]:
        """The adapter's part of `state`."""
        return {name: value for name, value in self.state().items() if name in self.adapter_names}


def tensors(batch: Batch) -> dict[str, torch.Tensor]:
    return {f"{ARRAY_PREFIX}{name}": torch.from_numpy(array) for name, array in batch.arrays.items()} | {
        "tokens": torch.from_numpy(batch.tokens),
        "targets": torch.from_numpy(batch.targets),
        "mask": torch.from_numpy(batch.mask),
    }


def adapter_tensors(arrays: Mapping[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Arrays of an adapter file as tensors over the same memory."""
    return {name: as_tensor(array) for name, array in arrays.items()}
