# SPDX-License-Identifier: Apache-2.0
"""One step of a method that promises two-sided loss differences, by the dense model in float64."""

from __future__ import annotations

import numpy as np

from bespoke.config import Settings
from bespoke.contracts import Optimizer
from bespoke.golden.promises import GoldenMethod, check_promise, stored_pieces
from bespoke.methods.zeroth_order import ZerothOrderOptions
from bespoke.plan.instructions import Plan
from bespoke.rules.noise import noise
from bespoke.testing.dense import loss_and_gradients
from bespoke.testing.options import Fail
from bespoke.testing.rig import SEED, Case, Rig
from bespoke.testing.tiny import tiny_adapter, tiny_weights

LOSS_NOISE = 2e-6  # relative; what a loss in fp32 may be off: a difference divides it by epsilon
STEP = 1e-4  # relative; of how far a piece moves, as fp32 computes it
LEARNING_RATE = 1e-2


def check_two_sided(optimizer: Optimizer, options: Settings, case: Case, plan: Plan, fail: Fail) -> None:
    """Holds what is recorded, and the step that is taken with it, to `bespoke.methods.ZerothOrderOptions`."""
    check_promise(GoldenMethod(optimizer.name, optimizer.promises, options, case.training, [plan]))
    assert isinstance(options, ZerothOrderOptions)
    start, trained = tiny_adapter(case.model_name), stored_pieces(plan)
    rig = Rig(case, plan, optimizer, options)
    rig.buffers.fill(start)
    batch = rig.batch()
    recorded = rig.step([batch], step=1, learning_rate=LEARNING_RATE).recorded
    after = rig.state()
    moved = {name: np.zeros(start[name].shape) for name in trained}
    for query in range(options.queries):
        z = {
            f"{group}.{name}": noise(
                shape, seed=SEED, step=1, query=query, block=block, tensor=tensor, distribution=options.distribution
            ).astype(np.float64)
            for block, group in enumerate(case.model.blocks)
            for tensor, (name, shape) in enumerate(case.model.adapter_shapes(group).items())
        }  # fmt: skip
        sides = [
            {name: piece + sign * options.epsilon * z[name] if name in trained else piece for name, piece in start.items()}
            for sign in (1, -1)
        ]
        plus, minus = (loss_and_gradients(case.model, tiny_weights(case.model_name), side, batch)[0] for side in sides)
        g, allowed = (plus - minus) / (2 * options.epsilon), LOSS_NOISE * max(1.0, plus) / options.epsilon
        if not abs(recorded[query] - g) <= allowed:
            raise fail(
                f"{recorded[query]:.6g} recorded for query {query} on {case}", f"{g:.6g}, within {allowed:.2g} of it",
                "Record (L(theta + eps z) - L(theta - eps z)) / (2 eps) of all that is stored, or set promises = None",
            )  # fmt: skip
        for name, way in moved.items():
            way -= LEARNING_RATE / options.queries * recorded[query] * z[name]
    for name, way in moved.items():
        off = float(np.linalg.norm(after[name] - start[name] - way))
        if not off <= STEP * float(np.linalg.norm(way)) + 1e-7 * float(np.linalg.norm(start[name])):
            raise fail(
                f"a step of '{name}' that is off by {off / float(np.linalg.norm(way)):.2g} of its length on {case}",
                "theta - (learning_rate / queries) sum_i g_i z_i", "Take that step, or set promises = None",
            )  # fmt: skip
