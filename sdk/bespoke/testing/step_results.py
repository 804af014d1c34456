# SPDX-License-Identifier: Apache-2.0
"""Checks what the steps of an optimizer compute: loss, gradients, accumulation, repeated bits, memory, and that training learns."""

from __future__ import annotations

import numpy as np
import torch

from bespoke.config import Settings
from bespoke.contracts import Optimizer
from bespoke.errors import ConfigError, PlanError
from bespoke.golden.promises import stored_pieces
from bespoke.plan.instructions import Plan
from bespoke.system.footprint import can_measure
from bespoke.system.guard import KernelPeak, MemoryMeter
from bespoke.testing.dense import loss_and_gradients
from bespoke.testing.options import Fail
from bespoke.testing.rig import Case, Rig, planned
from bespoke.testing.step_plans import LARGE, NORMED, ONLY_B, PARTIAL, SMALL, StepPlans
from bespoke.testing.tiny import TokenBatch, tiny_adapter, tiny_weights

__all__ = ["StepResults"]

EXACT_LOSS, EXACT_GRADIENT = 1e-5, 1e-4  # relative; fp32 against float64, an order above what is measured
ESTIMATED_LOSS = 0.2  # relative: losses near the adapter, not at it
STEPS_REPEATED = 3


class StepResults:
    """Runs the plans of one optimizer on tiny models."""

    def __init__(self, optimizer: Optimizer, options: Settings, fail: Fail) -> None:
        self.optimizer, self.options, self.fail = optimizer, options, fail

    def rig(self, case: Case, plan: Plan) -> Rig:
        rig = Rig(case, plan, self.optimizer, self.options)
        rig.buffers.fill(tiny_adapter(case.model_name))
        return rig

    def check_moved(self, start: dict[str, np.ndarray], rig: Rig) -> None:
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

    def accumulation(self, exact: bool) -> bool:
        """Whether it sums over micro-batches and clips. If not, a ConfigError says so."""
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
        StepPlans(self.optimizer, self.options, self.fail).check_plan(plan)
        rig = self.rig(case, plan)
        start = rig.adapter()
        rig.step([rig.batch(seed) for seed in (0, 1)], step=1, learning_rate=1e-2)
        self.check_moved(start, rig)
        return True

    def check_loss(self, case: Case, plan: Plan, exact: bool) -> None:
        """The emitted loss is the mean over unmasked tokens, unless the method reads arrays and promises nothing. A step moves
        the adapter."""
        rig = self.rig(case, plan)
        start = rig.adapter()
        batch = rig.batch()
        loss = float(rig.step([batch], step=1, learning_rate=1e-2).metrics["loss"])
        self.check_moved(start, rig)
        if batch.arrays and rig.promises is None:
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
        """Returns the largest relative error of gradients, summed over two micro-batches, against autograd's of both together."""
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
            gradients = rig.gradients()
            for piece in sorted(stored_pieces(plan)):
                reference = expected[piece]
                if piece not in gradients:
                    raise self.fail(
                        f"no gradient of '{piece}' in its accumulator",
                        "one for each piece of the adapter that it stores",
                        "Yield every block to bespoke.methods.update, or to summed_gradients for a rule of its own",
                    )
                error = float(np.linalg.norm(gradients[piece] - reference) / np.linalg.norm(reference))
                if not error <= EXACT_GRADIENT:
                    raise self.fail(
                        f"a gradient of '{piece}' that is off by {error:.2g} of its norm on {case}",
                        f"that of autograd, within {EXACT_GRADIENT:g}",
                        "Compare stage by stage with bespoke.methods.vjp, or set promises = None if it is an estimate",
                    )
                worst = max(worst, error)
        return worst

    def check_repeats(self, plan: Plan, learning_rate: float) -> None:
        """The same steps from the same state end in the same bits, and so does a replay from the journal."""
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
        """Returns the measured and the estimated bytes of a larger step. Mapped files of the plan are anonymous memory here."""
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
        """Returns the loss on one batch before and after training on it: the method's own loss where it reads arrays and promises
        nothing."""
        rig = self.rig(Case.of(*SMALL), plan)
        batch = rig.batch()
        before, emitted = rig.evaluate(batch), []
        for step in range(1, steps + 1):
            emitted.append(float(rig.step([batch], step=step, learning_rate=learning_rate).metrics["loss"]))
        after = rig.evaluate(batch)
        if batch.arrays and rig.promises is None:
            before, after = emitted[0], float(rig.step([batch], step=steps + 1, learning_rate=0.0).metrics["loss"])
        if not after < before * (1 - falls_by):
            raise self.fail(
                f"a loss of {after:.4f} after {steps} steps on one batch, {before:.4f} before",
                f"below {before * (1 - falls_by):.4f}",
                "Check the sign of the step, or give check_optimizer a learning_rate and steps that suit the method",
            )
        return before, after


def _same(first: Rig, second: Rig) -> bool:
    second_state = second.state()
    return all(value.tobytes() == second_state[name].tobytes() for name, value in first.state().items())
