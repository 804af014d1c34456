# SPDX-License-Identifier: Apache-2.0
"""Estimates of a bundle, and plans over budgets: data that prints itself as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bespoke.plan.instructions import Estimate

__all__ = ["BuildEstimate", "Dial", "DialPoint", "PlanEstimate", "RunEstimate"]


@dataclass(frozen=True)
class PlanEstimate:
    """Memory, work and time of a plan, of a method or for answers ("generation").

    Memory is anonymous memory over the idle process, in bytes. Work is floating-point operations a step.

    budget_bytes: the budget that the plan fits; None: no limit
    seconds:      time of a step by the planner's formula, for comparing plans
    least:        the estimate of the plan of least memory
    fastest:      the estimate of the fastest plan
    """

    method: str
    sequence_length: int
    budget_bytes: int | None
    choices: dict[str, int | str | bool]
    estimate: Estimate
    seconds: float
    least: Estimate
    fastest: Estimate


@dataclass(frozen=True)
class RunEstimate:
    """Bytes that a run of `steps` steps with a method writes to the files of a state.

    written_bytes: the largest amount, in one call
    slot_bytes:    what each call that ends before the run writes in addition; 0 for a method that keeps a few numbers a step
    """

    method: str
    steps: int
    written_bytes: int
    slot_bytes: int


@dataclass(frozen=True)
class DialPoint:
    """The plan for a budget. No plan fits it if the estimate is None."""

    method: str
    sequence_length: int
    budget_bytes: int
    estimate: Estimate | None
    seconds: float | None
    choices: dict[str, int | str | bool]


@dataclass(frozen=True)
class Dial:
    """Plans over budgets: the cost of less memory or more speed."""

    points: tuple[DialPoint, ...]

    def __str__(self) -> str:
        lines = ["method     length  budget MB   peak MB  in a file   GFLOP/step  seconds by formula  choices"]
        for p in self.points:
            start = f"{p.method:<10} {p.sequence_length:>6} {p.budget_bytes / 1e6:>10.0f}"
            if p.estimate is None:
                lines.append(f"{start} {'does not fit':>9}")
                continue
            e = p.estimate
            figures = f"{e.peak_bytes / 1e6:>9.1f} {e.scratch_bytes / 1e6:>10.1f} {e.work_flops / 1e9:>12.2f} {p.seconds:>19.4f}"
            lines.append(f"{start} {figures}  {_words(p.choices)}")
        return "\n".join(lines)


def _words(choices: Mapping[str, int | str | bool]) -> str:
    return ", ".join(f"{name}={value}" for name, value in choices.items())


@dataclass(frozen=True)
class BuildEstimate:
    """The bundle that `build` would write: its plans, and the size of all files.

    Golden values are not computed for an estimate, so they count at their maximum length.
    """

    plans: tuple[PlanEstimate, ...]  # those for the largest budget first
    runs: tuple[RunEstimate, ...]  # one for each method
    bundle_bytes: int
    budget_bytes: int | None  # the largest
    cache_bytes: int = 0  # size of the files that the engine writes on the device: weights in its processor's layout

    @property
    def peak_bytes(self) -> int:
        """The largest peak of all plans."""
        return max(plan.estimate.peak_bytes for plan in self.plans)

    def __str__(self) -> str:
        budget = "none" if self.budget_bytes is None else f"{self.budget_bytes / 1e6:.1f} MB"
        packed = f", packed weights on the device {self.cache_bytes / 1e6:.1f} MB" if self.cache_bytes else ""
        lines = [
            f"bundle at most {self.bundle_bytes / 1e6:.1f} MB, budget {budget}{packed}",
            "method     length budget MB   peak MB   GFLOP/step   least MB   GFLOP/step  fastest MB   GFLOP/step  choices",
        ]
        for plan in self.plans:
            asked = "none" if plan.budget_bytes is None else f"{plan.budget_bytes / 1e6:.1f}"
            ends = (plan.estimate, plan.least, plan.fastest)
            widths = (9, 10, 11)
            figures = [
                f"{e.peak_bytes / 1e6:>{w}.1f} {e.work_flops / 1e9:>12.2f}" for e, w in zip(ends, widths, strict=True)
            ]
            lines.append(
                f"{plan.method:<10} {plan.sequence_length:>6} {asked:>9} {' '.join(figures)}  {_words(plan.choices)}"
            )
        for run in self.runs:
            more = f", and {run.slot_bytes / 1e6:.1f} MB for each call that ends before it" if run.slot_bytes else ""
            lines.append(
                f"{run.method:<10} a run of {run.steps} steps writes at most {run.written_bytes / 1e6:.1f} MB{more}"
            )
        return "\n".join(lines)
