# SPDX-License-Identifier: Apache-2.0
"""A request for a plan: the function that writes its sections, the sizes, and the costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bespoke.config import Settings, Training
from bespoke.contracts import FederatedOptimizer
from bespoke.errors import ConfigError, PlanError
from bespoke.graph.builder import PlanBuilder
from bespoke.methods.federated import Guidance, federated_apply, federated_project
from bespoke.methods.sections import evaluate_step
from bespoke.plan.instructions import Record
from bespoke.remedies import Like, Words, setting

if TYPE_CHECKING:
    from bespoke.compiler.request import Method
    from bespoke.graph.trace import Tracer
    from bespoke.model.spec import ModelSpec
    from bespoke.plan.costs import Costs

__all__ = ["PlanRequest", "Write", "record_sections", "training_request"]

Write = Callable[[PlanBuilder, "ModelSpec"], None]
"""Writes all sections of a plan. What needs a `StepBuilder` alone may ask for that."""


@dataclass(frozen=True)
class PlanRequest:
    """A plan to make.

    method:          name of the plan's method
    write:           writes the sections
    training:        batch size, accumulation and clipping
    sequence_length: tokens of a row, or of a chunk of the prompt
    costs:           of the target that the plan is judged by
    subject:         what an error calls the plan
    way_out:         what may help a plan that does not fit, other than more memory
    bakes:           weights become part of artifacts: an ordinary choice takes its last candidate, which makes the fewest calls
    options:         the method's type of options; a step may read those that are declared as scalars
    """

    method: str
    write: Write
    training: Training
    sequence_length: int
    context_length: int
    costs: Costs
    subject: str
    way_out: str
    bakes: bool = False
    options: type[Settings] = Settings


def training_request(
    method: Method, sequence_length: int, context_length: int, costs: Costs, *, bakes: bool = False
) -> PlanRequest:
    """The training step of a method, `evaluate_step`, and the sections of federated learning where the method takes part in it."""

    def write(b: PlanBuilder, model: ModelSpec) -> None:
        b.begin_section(method.training.step_section)
        method.plugin.train_step(b, model, method.options)
        if method.training.accumulates:
            _check_accumulates(method, b)
        evaluate_step(b, model)
        _write_federated(method, b, model)

    return PlanRequest(
        method.name,
        write,
        method.training,
        sequence_length,
        context_length,
        costs,
        subject=f"Method '{method.name}' at sequence length {sequence_length}",
        way_out="shorten the sequences or lower the batch size",
        bakes=bakes,
        options=type(method.options),
    )


def record_sections(request: PlanRequest, model: ModelSpec, tracer: Tracer, choices: Mapping[str, Any]) -> PlanBuilder:
    """The builder after the sections have been written to it."""
    b = PlanBuilder(
        model,
        request.training,
        request.sequence_length,
        request.context_length,
        tracer,
        dict(choices),
        options=request.options,
    )
    request.write(b, model)
    return b


def _write_federated(method: Method, b: PlanBuilder, model: ModelSpec) -> None:
    """Writes what the method measures in a round: a number of its own, or projections of its gradients."""
    plugin = method.plugin
    if isinstance(plugin, FederatedOptimizer):
        b.begin_section("federated_measure")
        federated_apply(b, model, plugin.federated_measure(b, model, method.options))
    elif getattr(method.options, "federated_directions", 0):
        b.begin_section("federated_measure")
        plugin.train_step(b, model, method.options)
        federated_project(b, model)
        federated_apply(b, model, Guidance())


def _check_accumulates(method: Method, b: PlanBuilder) -> None:
    """Refuses a step that cannot be taken in micro-batches, though its training asks for that."""
    if any(isinstance(instruction, Record) for code in b.draft.sections.values() for instruction in code):
        raise ConfigError(
            f"training of method '{method.name}'",
            got=_micro_step_settings(method.training.accumulation, ", ", method.training.clip_norm),
            expected=_micro_step_settings(1, " and ", None) + ": the method keeps a journal of single steps",
            next_step="Override them in " + setting("optimizers", {method.name: Like("{...}", "")}),
        )
    if "apply_step" not in b.draft.sections:
        raise PlanError(
            f"Method '{method.name}'",
            got="a step without section apply_step",
            expected="gradients handed to bespoke.methods.update, which accumulates and clips",
            next_step="Yield (adapter, gradients) to update, or set " + _micro_step_settings(1, " and ", None),
        )


def _micro_step_settings(accumulation: int, between: str, clip_norm: float | None) -> Words:
    """The two settings that divide a step into micro-steps."""
    return setting("accumulation", accumulation) + between + setting("clip_norm", clip_norm)
