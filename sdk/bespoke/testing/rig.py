# SPDX-License-Identifier: Apache-2.0
"""Plans a method for a tiny model and runs it in the interpreter of bespoke.reference, without a bundle.

Everything between the plugin and the interpreter runs as in a build: tracing, builder, passes, verification, arena.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch

from bespoke.compiler.generation import generation_request
from bespoke.compiler.plan_request import PlanRequest, record_sections, training_request
from bespoke.compiler.request import Method
from bespoke.config import Settings, Training
from bespoke.contracts import Optimizer
from bespoke.errors import BespokeError, ConfigError, PluginError
from bespoke.graph.trace import Tracer
from bespoke.model.spec import ModelSpec
from bespoke.plan.compile import compile_plan, with_liveness
from bespoke.plan.costs import TORCH_COSTS
from bespoke.plan.instructions import Named, Plan
from bespoke.plan.values import arrays_of
from bespoke.plan.verify import verify
from bespoke.reference.buffers import Buffers
from bespoke.reference.code import plan_code
from bespoke.reference.interpreter import Bindings, Interpreter, Outcome
from bespoke.reference.weights import Weights
from bespoke.testing.tiny import (
    CONTEXT,
    TinyWeights,
    TokenBatch,
    as_pairs,
    shared_tracer,
    tiny_adapter,
    tiny_batch,
    tiny_models,
)

SEED = 11
DRAFT_TOKENS = 1
Function = Callable[..., tuple[torch.Tensor, ...]]
FunctionsOf = Callable[[Plan], Sequence[Function]]
"""Gives a function for each graph of a plan, in their order."""


@dataclass(frozen=True)
class Case:
    """A tiny model by name, and the batch that a plan is made for: `rows` sequences of `length` tokens."""

    model_name: str
    length: int
    rows: int
    training: Training

    @classmethod
    def of(cls, model_name: str, length: int, rows: int, **training: Any) -> Case:
        return cls(model_name, length, rows, Training(batch_size=rows, sequence_lengths=(length,), **training))

    @property
    def model(self) -> ModelSpec:
        return tiny_models()[self.model_name]

    def __str__(self) -> str:
        asked = f", accumulation {self.training.accumulation}" if self.training.accumulates else ""
        return f"the tiny model '{self.model_name}', {self.rows} x {self.length} tokens{asked}"


def planned(
    optimizer: Optimizer, options: Settings, case: Case, *, fastest: bool = False, tracer: Tracer | None = None
) -> Plan:
    """Returns the verified plan of least memory or the fastest one that `b.choose` allows.

    An error of the plugin's own becomes a PluginError, unless it is one of the SDK's errors.
    """
    tracer = tracer or shared_tracer()
    method = Method(optimizer.name, optimizer, options, case.training)
    request = training_request(method, case.length, CONTEXT, TORCH_COSTS)
    try:
        return _verified(request, case.model, tracer, fastest, f"method '{optimizer.name}' on {case}")
    except BespokeError:
        raise
    except Exception as error:
        raise PluginError(
            f"optimizer '{optimizer.name}'",
            got=f"{type(error).__name__} in train_step for {case}: {str(error)[:300]}",
            expected="a step written with the builder's methods alone",
            next_step="See the traceback; shapes follow from b.batch() and the model, never from constants",
        ) from error


def planned_answers(model_name: str, chunk: int) -> Plan:
    """The verified plan for answers of the least memory, with drafts."""
    request = generation_request(chunk, CONTEXT, TORCH_COSTS, draft_tokens=DRAFT_TOKENS)
    return _verified(
        request, tiny_models()[model_name], shared_tracer(), False, f"answers of the tiny model '{model_name}'"
    )


def _verified(request: PlanRequest, model: ModelSpec, tracer: Tracer, fastest: bool, subject: str) -> Plan:
    builder = record_sections(request, model, tracer, {})
    if fastest:
        choices = {name: candidates[-1] for name, candidates in builder.candidates.items()}
        builder = record_sections(request, model, tracer, choices)
    plan = compile_plan(
        builder.draft,
        with_liveness(builder.draft),
        TORCH_COSTS,
        method=request.method,
        sequence_length=request.sequence_length,
        batch_size=request.training.batch_size,
        choices=builder.choices,
    )
    verify(plan, subject, tracer.graphs)
    return plan


class Running:
    """A plan with its own buffers. `functions` are its graphs, by default as traced."""

    def __init__(self, model_name: str, plan: Plan, functions: Sequence[Function] | None) -> None:
        self.plan = plan
        code, device = plan_code(plan), torch.device("cpu")
        self.buffers = Buffers([code], device)
        graphs = shared_tracer().graphs
        self._interpreter = Interpreter(
            code,
            functions or [graphs[graph.key].module for graph in plan.graphs],
            cast(Weights, TinyWeights(model_name)),
            self.buffers,
            device,
        )


class AnswerRig(Running):
    """The plan for answers, ready to run."""

    def generate(self, tokens: torch.Tensor) -> None:
        """Runs `prefill` over a chunk [1, T] of tokens, `decode` for one token more, and `decode_rows` for some."""
        length, rows = tokens.shape[1], 1 + DRAFT_TOKENS
        self._interpreter.run("prefill", Bindings({f"prompt_{length}": tokens}, {"position": 0}))
        self._interpreter.run("decode", Bindings({"prompt_1": tokens[:, :1]}, {"position": length}))
        drafted = {f"prompt_{rows}": tokens[:, :rows].contiguous()}
        self._interpreter.run("decode_rows", Bindings(drafted, {"position": length + 1}))
        self.buffers.end_session()


class Rig(Running):
    """A method's plan ready to run."""

    def __init__(
        self,
        case: Case,
        plan: Plan,
        optimizer: Optimizer,
        options: Settings,
        functions: Sequence[Function] | None = None,
    ) -> None:
        super().__init__(case.model_name, plan, functions)
        self.case = case
        self.promises = getattr(optimizer, "promises", None)
        self.scalars = Method(optimizer.name, optimizer, options, case.training).scalars

    def batch(self, seed: int = 0) -> TokenBatch:
        """Random rows with all arrays that the plan reads. They are 0 for a method that promises something."""
        case = self.case
        batch = tiny_batch(case.model, case.rows, case.length, seed=seed, arrays=arrays_of(self.plan))
        if self.promises is None:
            return batch
        return replace(batch, arrays={name: torch.zeros_like(array) for name, array in batch.arrays.items()})

    def step(self, batches: Sequence[TokenBatch], *, step: int, learning_rate: float) -> Outcome:
        """One training step over its micro-batches, as `bespoke.reference.machine` takes it. The new state is then current."""
        tokens = sum(batch.trained for batch in batches)
        scalars = {**self.scalars, "learning_rate": learning_rate, "step": float(step), "batch_tokens": tokens}
        if not self.case.training.accumulates:
            outcome = self._interpreter.run("train_step", Bindings(batches[0].bindings(), scalars, SEED, step))
        else:
            self.buffers.begin_step()
            losses = [
                self._interpreter.run("micro_step", Bindings(batch.bindings(), scalars, SEED, step)).metrics["loss"]
                for batch in batches
            ]
            outcome = self._interpreter.run("apply_step", Bindings({}, scalars, SEED, step))
            outcome.metrics["loss"] = sum(losses)
        self.buffers.flip()
        return outcome

    def replay(self, recorded: Sequence[float], *, step: int, learning_rate: float) -> None:
        """Repeats the stores of a step from its journal."""
        scalars = {**self.scalars, "learning_rate": learning_rate, "step": float(step), "batch_tokens": 1.0}
        self._interpreter.replay(Bindings({}, scalars, SEED, step), recorded)
        self.buffers.flip()

    def evaluate(self, batch: TokenBatch) -> float:
        """Mean loss over the unmasked tokens."""
        bindings = Bindings(batch.bindings(), {}, adapter=self._finished())
        return float(self._interpreter.run("evaluate_step", bindings).metrics["loss_sum"]) / batch.trained

    def state(self) -> dict[str, np.ndarray]:
        """A copy of adapter and optimizer state."""
        return {name: value.numpy().copy() for name, value in self.buffers.current.items()}

    def adapter(self) -> dict[str, np.ndarray]:
        """A copy of the state after the steps so far."""
        names = {
            value.place.name for value in self.plan.values if value.role == "adapter" and isinstance(value.place, Named)
        }
        pieces = self._finished() or {name: value for name, value in self.buffers.current.items() if name in names}
        return {name: value.numpy().copy() for name, value in pieces.items()}

    def _finished(self) -> Mapping[str, torch.Tensor] | None:
        return self._interpreter.finished(self.scalars)

    def gradients(self) -> Mapping[str, np.ndarray]:
        """Sums over the micro-batches of the last step, by name of the piece."""
        suffix = ".gradient"
        sums = self.buffers.step_values
        return {name.removesuffix(suffix): value.numpy() for name, value in sums.items() if name.endswith(suffix)}


def run_method(optimizer: Optimizer, options: Settings, case: Case, functions_of: FunctionsOf) -> None:
    """Runs a step and an evaluation of a method's plan by these functions, on pairs of answers if the method reads them."""
    try:
        plan = planned(optimizer, options, case)
    except ConfigError:  # a method that does not accumulate
        case = Case.of(case.model_name, case.length, case.rows)
        plan = planned(optimizer, options, case)
    rig = Rig(case, plan, optimizer, options, functions_of(plan))
    rig.buffers.fill(tiny_adapter(case.model_name))
    batches = [as_pairs(rig.batch(seed)) for seed in (0, 1)]
    rig.step(batches if case.training.accumulates else batches[:1], step=1, learning_rate=1e-3)
    rig.evaluate(batches[0])


def run_answers(model_name: str, chunk: int, functions_of: FunctionsOf) -> None:
    """Runs the plan for answers by these functions, on a prompt of `chunk` tokens."""
    plan = planned_answers(model_name, chunk)
    rig = AnswerRig(model_name, plan, functions_of(plan))
    rig.buffers.fill(tiny_adapter(model_name))
    rig.generate(tiny_batch(tiny_models()[model_name], 1, chunk).tokens)
