# SPDX-License-Identifier: Apache-2.0
"""What every optimizer plugin promises, checked on tiny models: call `check_optimizer` from the plugin's own tests."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bespoke.config import Settings, Training
from bespoke.contracts import Optimizer
from bespoke.core.finding import find
from bespoke.errors import ConfigError, PlanError, PluginError
from bespoke.golden.promises import GoldenMethod, check_promise, stored_pieces
from bespoke.graph.builder import PlanBuilder
from bespoke.graph.trace import Tracer
from bespoke.methods.sections import evaluate_step
from bespoke.plan.compile import TRAINING_SECTIONS
from bespoke.plan.draft import DraftPlan
from bespoke.plan.instructions import Emit, Plan, Store
from bespoke.plan.values import arrays_of
from bespoke.system.footprint import can_measure
from bespoke.system.guard import KernelPeak, MemoryMeter
from bespoke.testing.dense import loss_and_gradients
from bespoke.testing.estimates import check_estimates
from bespoke.testing.options import checked_options
from bespoke.testing.rig import Case, Rig, planned
from bespoke.testing.run import check_run
from bespoke.testing.tiny import CONTEXT, TokenBatch, shared_tracer, tiny_adapter, tiny_weights

SMALL, NORMED, PARTIAL, ONLY_B, LARGE = (
    ("plain", 7, 2),
    ("normed", 9, 2),
    ("partial", 7, 2),
    ("only_b", 7, 2),
    ("plain", 64, 3),
)
SHAPES = (SMALL, NORMED, PARTIAL, ONLY_B, LARGE)
EXACT_LOSS, EXACT_GRADIENT = 1e-5, 1e-4  # relative; fp32 against float64, an order above what is measured
ESTIMATED_LOSS = 0.2  # relative: losses near the adapter, not at it
STEPS_REPEATED = 3


@dataclass(frozen=True)
class OptimizerReport:
    """What was found. `gradient_error` is the largest relative distance to autograd, None for a method that is not exact;
    `run_steps` those of the run by the device core, 0 where there was none: without a core, or where a step reads arrays."""

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
    """Holds an optimizer to its contract and says what was found.

    `exact`: its gradients are those of the loss, not estimates; then `b.accumulator` is compared with autograd, for each piece that
    it stores. By default what the method promises; a promise of estimates is held to the letter in any case.
    `steps` at `learning_rate` on one small batch must lower its loss, and by more than the share `loss_falls_by`. At that rate the
    device core, where it is installed, trains 250 steps: it is killed behind a slot, and must end as a run that nobody killed.
    Raises PluginError, or the error of the SDK that names the broken rule (PlanError, GraphError).
    """
    check = _Check(optimizer, options)
    check.settings()
    if exact is None:
        exact = optimizer.promises == "exact_gradients"
    world, own = _world(), check.own_sections()
    plans = [check.planned(Case.of(*shape)) for shape in SHAPES]
    check.unchanged(world, own)
    for plan in plans:
        check.promises(plan)
    check.same_again()
    accumulates = check.accumulation(exact)
    for shape, plan in zip(SHAPES, plans, strict=True):
        check.loss(Case.of(*shape), plan, exact)
    error = check.gradients() if exact else None
    if optimizer.promises not in (None, "exact_gradients"):
        check_estimates(optimizer, check.options, Case.of(*SMALL), plans[0], check.fail)
    check.repeats(plans[0], learning_rate)
    peak, estimate = check.peak(plans[-1])
    before, after = check.learns(plans[0], steps, learning_rate, loss_falls_by)
    ran = check.run(plans[0], learning_rate)
    return OptimizerReport(optimizer.name, plans[0].replayable, accumulates, error, peak, estimate, before, after, ran)


class _Check:
    """One method of the contract each."""

    def __init__(self, optimizer: Optimizer, options: Settings | None) -> None:
        self.optimizer = optimizer
        self.subject = f"optimizer '{getattr(optimizer, 'name', type(optimizer).__name__)}'"
        self._given = options

    @property
    def options(self) -> Settings:
        assert self._given is not None
        return self._given

    def fail(self, got: str, expected: str, next_step: str) -> PluginError:
        return PluginError(self.subject, got=got, expected=expected, next_step=next_step)

    # ---- what needs no plan ------------------------------------------------------------------------------------------------

    def settings(self) -> None:
        """A name, a promise that is one, options whose defaults are complete, and an error for an option that there is none of."""
        self._given = checked_options(self.optimizer, "optimizer", self._given, self.fail)

    def planned(self, case: Case) -> Plan:
        """The plan of the least memory; the fastest one must verify too."""
        planned(self.optimizer, self.options, case, fastest=True)
        return planned(self.optimizer, self.options, case)

    def own_sections(self) -> tuple[Any, ...]:
        """The SDK's own part of a plan, which must not depend on what the plugin did before."""
        case = Case.of(*SMALL)
        b = PlanBuilder(case.model, case.training, case.length, CONTEXT, shared_tracer())
        evaluate_step(b, case.model)
        return _anonymous(b.draft), [graph.key for graph in b.draft.graphs], b.draft.sections

    def unchanged(self, world: dict[str, Any], own: tuple[Any, ...]) -> None:
        """Writing a step touches nothing but the builder."""
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

    # ---- what a plan says ----------------------------------------------------------------------------------------------------

    def promises(self, plan: Plan) -> None:
        """What is promised can be had of the plan; `loss` is emitted once, as one number; something is learned."""
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

    def same_again(self) -> None:
        """Two builds give the same bytes: no sets in the order of their hashes, no time, no random names."""
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

    def accumulation(self, exact: bool) -> bool:
        """Sums over micro-batches and clips, or says in a ConfigError that it cannot."""
        case = Case.of(*SMALL, accumulation=2, clip_norm=0.5)
        try:
            plan = planned(self.optimizer, self.options, case)
        except ConfigError as error:
            if exact:
                raise self.fail(
                    f"accumulation refused: {error}",
                    "an exact method to accumulate and clip",
                    "Yield (adapter, gradients) to bespoke.methods.update, or set promises = None if they are estimates",
                ) from None
            return False
        except PlanError as error:
            raise self.fail(
                str(error),
                "a plan with micro_step and apply_step, or a ConfigError that says accumulation cannot be had",
                "Yield (adapter, gradients) to bespoke.methods.update; a method that records is refused for you",
            ) from error
        self.promises(plan)
        rig = self.rig(case, plan)
        start = rig.adapter()
        rig.step([rig.batch(seed) for seed in (0, 1)], step=1, learning_rate=1e-2)
        self.moved(start, rig)
        return True

    # ---- what running it shows -------------------------------------------------------------------------------------------------

    def rig(self, case: Case, plan: Plan) -> Rig:
        rig = Rig(case, plan, self.optimizer, self.options)
        rig.buffers.fill(tiny_adapter(case.model_name))
        return rig

    def moved(self, start: dict[str, np.ndarray], rig: Rig) -> None:
        """A step changes the adapter, to finite numbers."""
        after = rig.adapter()
        bad = [name for name, value in {**rig.state(), **after}.items() if not np.isfinite(value).all()]
        if bad:
            raise self.fail(
                f"NaN or infinity in '{bad[0]}' after a step on {rig.case}", "finite numbers", "Look for 0 / 0"
            )
        if all(np.array_equal(after[name], start[name]) for name in start):
            raise self.fail(
                f"the adapter as before after a step on {rig.case}", "an adapter that moves", "Look at what is stored"
            )

    def loss(self, case: Case, plan: Plan, exact: bool) -> None:
        """The emitted loss is the mean over unmasked tokens, but of a method that reads arrays; a step moves the adapter."""
        rig = self.rig(case, plan)
        start = rig.adapter()
        batch = rig.batch()
        loss = float(rig.step([batch], step=1, learning_rate=1e-2).metrics["loss"])
        self.moved(start, rig)
        if batch.arrays:
            return
        expected, _ = loss_and_gradients(
            case.model, tiny_weights(case.model_name), tiny_adapter(case.model_name), batch
        )
        tolerance = EXACT_LOSS if exact else ESTIMATED_LOSS
        if not abs(loss - expected) <= tolerance * expected:
            raise self.fail(
                f"a loss of {loss:.6f} for {case}",
                f"{expected:.6f}, within {tolerance:g} of it",
                "Divide the sum over unmasked tokens by b.scalar('batch_tokens'), as bespoke.methods.head_loss does",
            )

    def gradients(self) -> float:
        """Summed over two micro-batches, they are autograd's of both together; the largest relative error."""
        worst = 0.0
        for name, length, rows in (SMALL, NORMED, PARTIAL, ONLY_B):
            case = Case.of(name, length, rows, accumulation=2)
            plan = planned(self.optimizer, self.options, case)
            rig = self.rig(case, plan)
            batches = [rig.batch(seed) for seed in (0, 1)]
            loss = float(rig.step(batches, step=1, learning_rate=0.0).metrics["loss"])
            both = TokenBatch(
                *(torch.cat([getattr(b, part) for b in batches]) for part in ("tokens", "targets", "mask"))
            )
            expected_loss, expected = loss_and_gradients(case.model, tiny_weights(name), tiny_adapter(name), both)
            if not abs(loss - expected_loss) <= EXACT_LOSS * expected_loss:
                raise self.fail(
                    f"losses of two micro-batches that add up to {loss:.6f}",
                    f"{expected_loss:.6f}, that of one big batch",
                    "Divide by b.scalar('batch_tokens'), which counts the whole step",
                )
            found = rig.gradients()
            for piece in sorted(stored_pieces(plan)):
                reference = expected[piece]
                if piece not in found:
                    raise self.fail(
                        f"no gradient of '{piece}' in its accumulator",
                        "one for each piece of the adapter that it stores",
                        "Yield every block to bespoke.methods.update, or to summed_gradients for a rule of its own",
                    )
                error = float(np.linalg.norm(found[piece] - reference) / np.linalg.norm(reference))
                if not error <= EXACT_GRADIENT:
                    raise self.fail(
                        f"a gradient of '{piece}' that is off by {error:.2g} of its norm on {case}",
                        f"that of autograd, within {EXACT_GRADIENT:g}",
                        "Compare stage by stage with bespoke.methods.vjp, or set promises = None if it is an estimate",
                    )
                worst = max(worst, error)
        return worst

    def repeats(self, plan: Plan, learning_rate: float) -> None:
        """The same steps from the same state, and for a replayable method from its journal, end in the same bits."""
        case = Case.of(*SMALL)
        first, second, replayed = (self.rig(case, plan) for _ in range(3))
        for step in range(1, STEPS_REPEATED + 1):
            batch = first.batch(step)
            outcome = first.step([batch], step=step, learning_rate=learning_rate)
            second.step([batch], step=step, learning_rate=learning_rate)
            if plan.replayable:
                replayed.replay(outcome.recorded, step=step, learning_rate=learning_rate)
        if not _same(first, second):
            raise self.fail(
                "other bits when steps are run again", "the same steps, the same bits", "Draw noise by b.noise alone"
            )
        if plan.replayable and not _same(first, replayed):
            raise self.fail(
                "another adapter when replayed from the journal",
                "the same bits",
                "Let stores depend on what b.record returns, never on the value that was recorded",
            )

    def peak(self, plan: Plan) -> tuple[int, int]:
        """Measured and estimated bytes of a larger step. What the plan keeps in mapped files is anonymous here."""
        case = Case.of(*LARGE)
        e = plan.estimate
        allowed = e.peak_bytes + 2 * e.state_bytes + e.step_bytes + e.scratch_bytes
        meter = MemoryMeter()
        rig = self.rig(case, plan)
        batch = rig.batch()
        kernel = KernelPeak()
        added = 0
        for step in (1, 2):
            kernel.start()
            rig.step([batch], step=step, learning_rate=1e-3)
            added = max(added, kernel.stop()[0] - meter.idle)
        kernel.close()
        if can_measure() and added > allowed:
            raise self.fail(
                f"{added / 1e6:.1f} MB added by a step on {case}",
                f"at most {allowed / 1e6:.1f} MB, which the plan says",
                "Look for a function whose operators take scratch memory; split it into smaller calls",
            )
        return added, allowed

    def learns(self, plan: Plan, steps: int, learning_rate: float, falls_by: float) -> tuple[float, float]:
        """Loss on one batch before and after training on it: the model's, or the method's own where it reads arrays."""
        rig = self.rig(Case.of(*SMALL), plan)
        batch = rig.batch()
        before, emitted = rig.evaluate(batch), []
        for step in range(1, steps + 1):
            emitted.append(float(rig.step([batch], step=step, learning_rate=learning_rate).metrics["loss"]))
        after = rig.evaluate(batch)
        if batch.arrays:
            before, after = emitted[0], float(rig.step([batch], step=steps + 1, learning_rate=0.0).metrics["loss"])
        if not after < before * (1 - falls_by):
            raise self.fail(
                f"a loss of {after:.4f} after {steps} steps on one batch, {before:.4f} before",
                f"below {before * (1 - falls_by):.4f}",
                "Check the sign of the step, or give check_optimizer a learning_rate and steps that suit the method",
            )
        return before, after

    def run(self, plan: Plan, learning_rate: float) -> int:
        """Steps of a run that was killed, went on, was accepted and rolled back: 0 of a method that asks for arrays, which examples
        cannot hold."""
        if arrays_of(plan) or find().library is None:
            return 0
        return check_run(self.optimizer, self.options, self.fail, learning_rate=learning_rate)


def _anonymous(draft: DraftPlan) -> list[tuple[Any, ...]]:
    """Values without the names of temporaries, which are for messages: equal graphs go by the name that was traced first."""
    return [
        (v.shape, v.dtype, v.role, v.lifetime, v.number, v.name if v.role not in ("temporary", "recorded") else "")
        for v in draft.values
    ]


def _same(one: Rig, other: Rig) -> bool:
    other_state = other.state()
    return all(value.tobytes() == other_state[name].tobytes() for name, value in one.state().items())


_SETTINGS: Sequence[Callable[[], Any]] = (
    torch.get_default_dtype,
    torch.is_grad_enabled,
    torch.get_num_threads,
    torch.are_deterministic_algorithms_enabled,
)


def _world() -> dict[str, Any]:
    """What a plugin could change for others without being asked."""
    return {
        "torch's random state": torch.get_rng_state().numpy().tobytes(),
        "numpy's random state": repr(np.random.get_state()),
        "Python's random state": random.getstate(),
        "torch's settings": [setting() for setting in _SETTINGS],
        "the environment": {
            name: value for name, value in os.environ.items() if not name.startswith("TORCH")
        },  # its own
    }
