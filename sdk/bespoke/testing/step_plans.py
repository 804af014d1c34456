# SPDX-License-Identifier: Apache-2.0
"""Checks of the plans that an optimizer's `train_step` writes, before any of them runs."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from bespoke.config import Settings, Training
from bespoke.contracts import Optimizer
from bespoke.golden.promises import GoldenMethod, check_promise
from bespoke.graph.builder import PlanBuilder
from bespoke.graph.trace import Tracer
from bespoke.methods.sections import evaluate_step
from bespoke.plan.compile import TRAINING_SECTIONS
from bespoke.plan.draft import DraftPlan
from bespoke.plan.instructions import Emit, Plan, Store
from bespoke.testing.options import Fail
from bespoke.testing.rig import Case, planned
from bespoke.testing.tiny import CONTEXT, shared_tracer

__all__ = ["LARGE", "NORMED", "ONLY_B", "PARTIAL", "SHAPES", "SMALL", "StepPlans"]

SMALL, NORMED, PARTIAL, ONLY_B, LARGE = (
    ("plain", 7, 2),
    ("normed", 9, 2),
    ("partial", 7, 2),
    ("only_b", 7, 2),
    ("plain", 64, 3),
)
SHAPES = (SMALL, NORMED, PARTIAL, ONLY_B, LARGE)


class StepPlans:
    """Plans one optimizer with one set of options for tiny models."""

    def __init__(self, optimizer: Optimizer, options: Settings, fail: Fail) -> None:
        self.optimizer, self.options, self.fail = optimizer, options, fail

    def all_shapes(self) -> list[Plan]:
        """Plans of all SHAPES. Writing them touches nothing but the builder."""
        world, own = _world(), self.own_sections()
        plans = [self.planned(Case.of(*shape)) for shape in SHAPES]
        self.check_unchanged(world, own)
        return plans

    def planned(self, case: Case) -> Plan:
        """Returns the plan of least memory. The fastest plan must verify too."""
        planned(self.optimizer, self.options, case, fastest=True)
        return planned(self.optimizer, self.options, case)

    def own_sections(self) -> tuple[Any, ...]:
        """The SDK's own part of a plan, which must not depend on what the plugin did before."""
        case = Case.of(*SMALL)
        b = PlanBuilder(case.model, case.training, case.length, CONTEXT, shared_tracer())
        evaluate_step(b, case.model)
        return _anonymous(b.draft), [graph.key for graph in b.draft.graphs], b.draft.sections

    def check_unchanged(self, world: dict[str, Any], own: tuple[Any, ...]) -> None:
        """Raises an error if writing a step changed anything but the builder."""
        now = _world()
        changed = [name for name in world if world[name] != now[name]]
        if own != self.own_sections():
            changed.append("the SDK's evaluate_step")
        if changed:
            raise self.fail(
                f"{', '.join(changed)} changed by train_step",
                "a function of its arguments alone",
                "Draw noise by b.noise, and leave torch's settings and other plugins alone",
            )

    def check_plan(self, plan: Plan) -> None:
        """The plan can keep the promise, emits `loss` once as one number, stores the adapter and leaves no state unstored."""
        check_promise(GoldenMethod(self.optimizer.name, self.optimizer.promises, self.options, Training(), [plan]))
        training = [i for name in (*TRAINING_SECTIONS, "finish") for i in plan.sections.get(name, [])]
        losses = [i for i in training if isinstance(i, Emit) and i.name == "loss"]
        if len(losses) != 1 or plan.values[losses[0].source].shape:
            raise self.fail(
                f"`loss` emitted {len(losses)} times" if len(losses) != 1 else "a `loss` that is not one number",
                "one emit of the mean loss over b.scalar('batch_tokens')",
                "Call b.emit(loss=...) once, with a scalar",
            )
        stored = {i.state for i in training if isinstance(i, Store)}
        if not any(plan.values[state].role == "adapter" for state in stored):
            raise self.fail(
                "no store to the adapter", "new values for what is trained", "Call b.store(b.adapter(group), new)"
            )
        idle = [v.place.name for n, v in enumerate(plan.values) if v.role == "optimizer" and n not in stored]  # type: ignore[union-attr]
        if idle:
            raise self.fail(
                f"optimizer state '{idle[0]}' that is never stored",
                "state that steps change",
                "Store it, or do not ask for it",
            )

    def check_same_again(self) -> None:
        """Planning again gives the same plan: no sets in the order of their hashes, no time, no random names."""
        case = Case.of(*SMALL)
        drafts = []
        for tracer in (shared_tracer(), shared_tracer(), Tracer()):
            b = PlanBuilder(case.model, case.training, case.length, CONTEXT, tracer, options=type(self.options))
            self.optimizer.train_step(b, case.model, self.options)
            drafts.append(
                (_anonymous(b.draft), [graph.key for graph in b.draft.graphs], b.draft.sections, b.candidates)
            )
        if drafts[1:] != drafts[:1] * 2:
            raise self.fail(
                "another plan when asked again",
                "the same plan from the same input",
                "Keep nothing from one train_step to the next, and let no order depend on hashes",
            )


def _anonymous(draft: DraftPlan) -> list[tuple[Any, ...]]:
    """Values without the names of temporaries. These depend on which of two equal graphs was traced first."""
    return [
        (v.shape, v.dtype, v.role, v.lifetime, v.number, v.name if v.role not in ("temporary", "recorded") else "")
        for v in draft.values
    ]


_SETTINGS: Sequence[Callable[[], Any]] = (
    torch.get_default_dtype,
    torch.is_grad_enabled,
    torch.get_num_threads,
    torch.are_deterministic_algorithms_enabled,
)


def _world() -> dict[str, Any]:
    """State outside the builder that a plugin could change."""
    return {
        "torch's random state": torch.get_rng_state().numpy().tobytes(),
        "numpy's random state": repr(np.random.get_state()),
        "Python's random state": random.getstate(),
        "torch's settings": [setting() for setting in _SETTINGS],
        "the environment": {
            name: value for name, value in os.environ.items() if not name.startswith("TORCH")
        },  # its own
    }
