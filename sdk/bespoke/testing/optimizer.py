# SPDX-License-Identifier: Apache-2.0
"""The contract suite of optimizers, on tiny models: call `check_optimizer` from the plugin's own tests."""

from __future__ import annotations

from dataclasses import dataclass

from bespoke.config import Settings
from bespoke.contracts import Optimizer
from bespoke.core.finding import find
from bespoke.errors import PluginError
from bespoke.plan.values import arrays_of
from bespoke.rules.batches import PAIRS
from bespoke.testing.estimates import check_estimates
from bespoke.testing.options import checked_options
from bespoke.testing.rig import Case
from bespoke.testing.run import check_run
from bespoke.testing.step_plans import SHAPES, SMALL, StepPlans
from bespoke.testing.step_results import StepResults
from bespoke.testing.update_rule import check_update_rule


@dataclass(frozen=True)
class OptimizerReport:
    """The result of `check_optimizer`.

    Args:
        name: the optimizer's name.
        replayable: whether its steps replay from a journal.
        accumulates: whether it sums over micro-batches and clips.
        gradient_error: largest relative distance of a gradient to autograd's. None for a method that is not exact.
        peak_bytes: measured memory of a larger step.
        estimated_peak_bytes: the plan's estimate for the same step.
        loss_before: loss on one batch before training on it.
        loss_after: loss on it afterwards.
        run_steps: steps of the run by the device core, 0 where there is no core or where a step reads arrays that examples lack.
    """

    name: str
    replayable: bool
    accumulates: bool
    gradient_error: float | None
    peak_bytes: int
    estimated_peak_bytes: int
    loss_before: float
    loss_after: float
    run_steps: int


def check_optimizer(
    optimizer: Optimizer,
    options: Settings | None = None,
    *,
    exact: bool | None = None,
    steps: int = 30,
    learning_rate: float = 1e-2,
    loss_falls_by: float = 0.0,
) -> OptimizerReport:
    """Checks an optimizer against its contract and returns a report.

    Raises PluginError, or the error of the SDK that names the broken rule (PlanError, GraphError). The promised estimates and the
    stated update rule are checked in any case. If the device core is installed, it trains 250 steps at `learning_rate`. The run is
    killed after a slot and must end like an uninterrupted run.

    Args:
        optimizer: the optimizer to check.
        options: its options; by default those of `Options()`.
        exact: whether its gradients are those of the loss. Then `b.accumulator` is compared with autograd, for each piece that the
            method stores. By default what it promises.
        steps: training steps on one small batch, which must lower its loss. Raise it for a method that estimates.
        learning_rate: the rate of these steps. Lower it for a method that estimates.
        loss_falls_by: the share by which the loss must fall.
    """
    subject = f"optimizer '{getattr(optimizer, 'name', type(optimizer).__name__)}'"

    def fail(got: str, expected: str, next_step: str) -> PluginError:
        return PluginError(subject, got=got, expected=expected, next_step=next_step)

    options = checked_options(optimizer, "optimizer", options, fail)
    if exact is None:
        exact = optimizer.promises == "exact_gradients"
    step_plans, results = StepPlans(optimizer, options, fail), StepResults(optimizer, options, fail)
    plans = step_plans.all_shapes()
    for plan in plans:
        step_plans.check_plan(plan)
    step_plans.check_same_again()
    accumulates = results.accumulation(exact)
    for shape, plan in zip(SHAPES, plans, strict=True):
        results.check_loss(Case.of(*shape), plan, exact)
    error = results.gradients() if exact else None
    check_update_rule(optimizer, options, fail)
    if optimizer.promises not in (None, "exact_gradients"):
        check_estimates(optimizer, options, Case.of(*SMALL), plans[0], fail)
    results.check_repeats(plans[0], learning_rate)
    peak, estimate = results.peak(plans[-1])
    before, after = results.learns(plans[0], steps, learning_rate, loss_falls_by)
    run_steps = 0
    if arrays_of(plans[0]).keys() <= {PAIRS} and find().library is not None:  # examples hold no other arrays
        run_steps = check_run(optimizer, options, fail, learning_rate=learning_rate)
    return OptimizerReport(
        optimizer.name, plans[0].replayable, accumulates, error, peak, estimate, before, after, run_steps
    )
