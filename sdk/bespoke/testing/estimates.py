# SPDX-License-Identifier: Apache-2.0
"""Checks two steps of a method that promises estimates against the dense model in float64: recorded numbers and moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bespoke.config import Settings
from bespoke.contracts import Optimizer
from bespoke.golden.promises import GoldenMethod, check_promise, stored_pieces
from bespoke.methods.zeroth_order import LEAST_CURVATURE, CurvatureOptions, NormalizedOptions, ZerothOrderOptions
from bespoke.plan.instructions import Plan
from bespoke.rules.noise import noise
from bespoke.testing.dense import loss_and_gradients
from bespoke.testing.options import Fail
from bespoke.testing.rig import SEED, Case, Rig
from bespoke.testing.tiny import tiny_adapter, tiny_weights

LOSS_NOISE = 2e-6  # relative error of a loss in fp32; a difference divides it by epsilon
STEP = 1e-4  # relative error of a piece's update in fp32
LEARNING_RATE = 1e-2
STEPS = 2  # the second with the state of the first

Arrays = dict[str, np.ndarray]
Loss = Callable[[float, Arrays], float]  # the loss at a multiple of a direction from the adapter
Numbers = list[tuple[float, float]]  # each with its tolerance


def check_estimates(optimizer: Optimizer, options: Settings, case: Case, plan: Plan, fail: Fail) -> None:
    """Raises `fail(...)` if recorded numbers or steps differ from the promised options of `bespoke.methods`."""
    check_promise(GoldenMethod(optimizer.name, optimizer.promises, options, case.training, [plan]))
    here, trained = tiny_adapter(case.model_name), stored_pieces(plan)
    rig = Rig(case, plan, optimizer, options)
    rig.buffers.fill(here)
    batch = rig.batch()
    h = {name: np.ones(here[name].shape) for name in trained}

    def loss(times: float, direction: Arrays) -> float:
        side = {name: piece + times * direction[name] if name in trained else piece for name, piece in here.items()}
        return loss_and_gradients(case.model, tiny_weights(case.model_name), side, batch)[0]

    for step in range(1, STEPS + 1):
        z = [_noise(case, options, step, query) for query in range(getattr(options, "queries", 1))]
        rate = (
            LEARNING_RATE * getattr(options, "epsilon", 1.0)
            if isinstance(options, NormalizedOptions)
            else LEARNING_RATE
        )
        recorded = rig.step([batch], step=step, learning_rate=rate).recorded
        for number, (expected, allowed) in enumerate(_numbers(options, loss, z, h)):
            if not abs(recorded[number] - expected) <= allowed:
                raise fail(
                    f"{recorded[number]:.6g} recorded as number {number} of step {step} on {case}",
                    f"{expected:.6g}, within {allowed:.2g} of it",
                    f"Record what {_promised(options)} says, of all that is stored, or set promises = None",
                )
        after = rig.adapter()
        for name in trained:
            way = -rate * _way(options, name, recorded, z, h)
            off, length = (float(np.linalg.norm(array)) for array in (after[name] - here[name] - way, way))
            if not off <= STEP * length + 1e-7 * float(np.linalg.norm(here[name])):
                raise fail(
                    f"step {step} of '{name}' off by {off / length:.2g} of its length on {case}",
                    f"the step that {_promised(options)} says",
                    "Take that step, or set promises = None",
                )
        here = {**here, **{name: after[name].copy() for name in trained}}


def _promised(options: Any) -> str:
    kind = next(k for k in (ZerothOrderOptions, NormalizedOptions, CurvatureOptions) if isinstance(options, k))
    return f"bespoke.methods.{kind.__name__}"


def _noise(case: Case, options: Any, step: int, query: int) -> Arrays:
    return {
        f"{group}.{name}": noise(
            shape,
            seed=SEED,
            step=step,
            query=query,
            block=block,
            tensor=tensor,
            distribution=getattr(options, "distribution", "normal"),
        ).astype(np.float64)
        for block, group in enumerate(case.model.blocks)
        for tensor, (name, shape) in enumerate(case.model.adapter_shapes(group).items())
    }


def _numbers(options: Any, loss: Loss, z: list[Arrays], h: Arrays) -> Numbers:
    """The numbers that the method must record."""
    eps = options.epsilon
    if isinstance(options, ZerothOrderOptions):
        pairs = [(loss(eps, along), loss(-eps, along)) for along in z]
        return [((plus - minus) / (2 * eps), LOSS_NOISE * max(1.0, plus) / eps) for plus, minus in pairs]
    nowhere = {name: np.zeros_like(array) for name, array in z[0].items()}
    at = loss(0.0, nowhere)
    off = LOSS_NOISE * max(1.0, at)
    if isinstance(options, NormalizedOptions):
        losses = np.array([loss(eps, along) for along in z])
        sigma = max(float(losses.std(ddof=1)), options.loss_rounding * max(1.0, at))
        return [
            ((there - at) / (eps * sigma), 2 * off / (eps * sigma) * (1 + abs(there - at) / sigma)) for there in losses
        ]
    scaled = {name: array / np.sqrt(h.get(name, 1.0)) for name, array in z[0].items()}
    plus, minus = loss(eps, scaled), loss(-eps, scaled)
    return [((plus - minus) / (2 * eps), off / eps), (abs(plus + minus - 2 * at) / (2 * eps**2), 2 * off / eps**2)]


def _way(options: Any, name: str, recorded: list[float], z: list[Arrays], h: Arrays) -> np.ndarray:
    """The step of a piece for a rate of -1, with the recorded numbers. Updates h."""
    if isinstance(options, CurvatureOptions):
        g, c, w = recorded[0], recorded[1], options.smoothing
        h[name] = np.maximum((1 - w) * h[name] + w * c * h[name] * z[0][name] ** 2, LEAST_CURVATURE)
        return g * z[0][name] / np.sqrt(h[name])
    mean: np.ndarray = sum(recorded[query] * along[name] for query, along in enumerate(z)) / len(z)  # type: ignore[assignment]
    return mean
