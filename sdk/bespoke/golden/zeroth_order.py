# SPDX-License-Identifier: Apache-2.0
"""The first steps of zeroth-order methods by the reference: the points whose losses a step needs, and the results from them.

Losses are all float64, because what is recorded divides their differences by epsilon; those of the first step are known in fp32
too, which says how far fp32 is off. `z` is drawn from the noise counter, of the pieces that are trained.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from bespoke.config import Training
from bespoke.contracts import Promise
from bespoke.golden.document import Known, MethodGolden
from bespoke.golden.first_order import FLOOR
from bespoke.golden.rates import STEPS, rates
from bespoke.golden.reference import Lane
from bespoke.methods.zeroth_order import LEAST_CURVATURE
from bespoke.model.spec import ModelSpec
from bespoke.ops.dtypes import Tensors
from bespoke.rules.noise import noise

__all__ = ["ESTIMATES", "ZerothOrder"]

LOSS_NOISE = 2e-6  # what an fp32 loss of a few nats may be off
EXACT_QUERIES = 4  # with more, only these are computed, and no step is taken
EXACT_LOSSES = 9  # with more of them, none is known but the first: their spread takes all
Point = tuple[int, int]  # query, and how many epsilons along its direction


class ZerothOrder:
    """Two-sided estimates, as `ZerothOrderOptions` describe them, and what other estimates share with them."""

    distribution: Any

    def __init__(
        self,
        options: Any,
        training: Training,
        trained: Sequence[str],
        model: ModelSpec,
        start: Mapping[str, np.ndarray],
        seed: int,
        rounding: float,
    ) -> None:
        """`rounding`: largest relative error of a loss on a target that computes in less than fp32."""
        self.rounding = rounding
        self.loss_noise = max(LOSS_NOISE, rounding)
        self.options = options
        self.training = training
        self.model = model
        self.trained = list(trained)
        self.start = start
        self.seed = seed
        self.distribution = getattr(options, "distribution", "normal")
        self.queries = self.known_queries()
        self.partial = self.queries < getattr(options, "queries", 1)
        self.rates = rates(training, 1 if self.partial else STEPS)
        self.losses: list[Known] = []
        self.recorded: list[list[Known]] = []
        self.moved: list[list[Known]] = []
        self._now: Tensors = {name: torch.tensor(start[name]).double() for name in start}
        self._lanes: list[Lane] = []
        self._drawn: tuple[tuple[int, int, int], Tensors] = ((-1, -1, -1), {})
        self._relative_loss = self._drift = 0.0
        self._off: np.ndarray | float = 0.0
        self._slope = 1.0  # of the loss along a direction, for each unit of what is recorded of it

    @property
    def key(self) -> Hashable:
        """Everything that the results depend on."""
        return self.options, self.training, tuple(self.trained)

    # ---- what an estimate is ---------------------------------------------------------------------------------------------

    def known_queries(self) -> int:
        return min(self.options.queries, EXACT_QUERIES)

    def points(self) -> list[Point]:
        return [(query, sign) for query in range(self.queries) for sign in (1, -1)]

    def estimate(self, losses: np.ndarray) -> tuple[float, np.ndarray]:
        """The loss that is emitted and the numbers that are recorded, from the losses at `points`."""
        return float(losses.mean()), (losses[0::2] - losses[1::2]) / (2 * self.options.epsilon)

    def noise_of(self, loss: float, numbers: np.ndarray) -> np.ndarray:
        """The error of the numbers for the error of the losses."""
        return np.full(len(numbers), self.loss_noise * max(1.0, loss) / self.options.epsilon)

    def off_of(self, apart: np.ndarray) -> np.ndarray | float:
        """The difference between fp32 and float64 of the first step's numbers: one for all of them."""
        return float(apart.max())

    def direction(self, name: str, z: torch.Tensor) -> torch.Tensor:
        return z

    def learn(self, name: str, z: torch.Tensor, numbers: np.ndarray) -> None:
        """Takes what was recorded into the method's state, before the step."""

    def uncertain_direction(self, way: torch.Tensor, z: torch.Tensor, tolerances: Sequence[float]) -> float:
        """The error of a direction itself."""
        return 0.0

    # ---- steps -------------------------------------------------------------------------------------------------------------

    def lanes(self, step: int, base: Sequence[Lane]) -> list[Lane]:
        """Each point in float64, and in the first step in fp32 too."""
        if step > len(self.rates):
            return []
        dtypes = (torch.float64, torch.float32) if step == 1 else (torch.float64,)
        self._lanes = [
            Lane(self._moved(step, query, sign), dtype, gradient=False)
            for dtype in dtypes
            for query, sign in self.points()
        ]
        return self._lanes

    def _moved(self, step: int, query: int, sign: int) -> Any:
        def adapter(block: int) -> Tensors:
            group, z = self.model.blocks[block], self._noise(step, query, block)
            pieces = {name: f"{group}.{name}" for name in self.model.adapter_shapes(group)}
            return {
                name: self._now[full] + sign * self.options.epsilon * self.direction(full, z[name])
                for name, full in pieces.items()
            }

        return adapter

    def _noise(self, step: int, query: int, block: int) -> Tensors:
        """z of a block's pieces; the last one drawn is kept, for the other sign."""
        if self._drawn[0] != (step, query, block):
            group = self.model.blocks[block]
            z = {
                name: torch.from_numpy(
                    noise(
                        shape,
                        seed=self.seed,
                        step=step,
                        query=query,
                        block=block,
                        tensor=tensor,
                        distribution=self.distribution,
                    )
                ).double()
                * (f"{group}.{name}" in self.trained)
                for tensor, (name, shape) in enumerate(self.model.adapter_shapes(group).items())
            }
            self._drawn = ((step, query, block), z)
        return self._drawn[1]

    def advance(self, step: int, base: Sequence[Lane]) -> None:
        """Takes the losses of this step's lanes, and the step itself."""
        if step > len(self.rates):
            return
        count = len(self.points())
        loss, numbers = self.estimate(np.array([lane.mean_loss for lane in self._lanes[:count]]))
        if step == 1:
            rough, rough_numbers = self.estimate(np.array([lane.mean_loss for lane in self._lanes[count:]]))
            self._relative_loss = max(FLOOR, self.rounding, 10 * abs(rough - loss) / loss)
            self._off = 10 * self.off_of(np.abs(rough_numbers - numbers)) if len(numbers) else 0.0
        tolerances = np.maximum(np.maximum(self._off, self.noise_of(loss, numbers)), FLOOR * np.abs(numbers)).tolist()
        self.recorded.append([Known(value=float(v), tolerance=t) for v, t in zip(numbers, tolerances, strict=True)])
        if self.partial and count > 1:
            return
        self._drift += self._uncertainty_of_loss(loss)
        self.losses.append(Known(value=loss, tolerance=self._relative_loss * loss + self._drift))
        if step < len(self.rates):
            self._step(step, numbers, tolerances)

    def _uncertainty_of_loss(self, loss: float) -> float:
        """The error of this step's loss by the tolerance of the last step's estimates.

        On a parabola through the last loss with slope -g that reaches `loss` at distance s = share * g, the slope there is
        2 * (loss - last) / s + g.
        """
        if not self.losses:
            return 0.0
        change, share = loss - self.losses[-1].value, self.rates[len(self.losses) - 1] / self.queries
        return sum(
            abs(2 * change / known.value + share * self._slope * known.value) * known.tolerance
            for known in self.recorded[-2][: self.queries]
            if known.value
        )

    def _step(self, step: int, numbers: np.ndarray, tolerances: Sequence[float]) -> None:
        share = self.rates[step - 1] / self.queries
        uncertain = dict.fromkeys(self.trained, 0.0)
        for block, group in enumerate(self.model.blocks):
            for query in range(self.queries):
                for name, z in self._noise(step, query, block).items():
                    full = f"{group}.{name}"
                    if full not in uncertain:
                        continue
                    self.learn(full, z, numbers)
                    way = self.direction(full, z)
                    self._now[full] = self._now[full] - share * float(numbers[query]) * way
                    uncertain[full] += share * tolerances[query] * float(way.norm())
                    uncertain[full] += share * abs(float(numbers[query])) * self.uncertain_direction(way, z, tolerances)
        row = []
        for number, name in enumerate(self.trained):
            way = float((self._now[name] - torch.as_tensor(self.start[name])).norm())
            rounding = 1e-7 * float(torch.as_tensor(self.start[name]).norm()) + FLOOR * way
            before = self.moved[-1][number].tolerance if self.moved else 0.0
            row.append(Known(value=way, tolerance=uncertain[name] + rounding + before))
        self.moved.append(row)

    def result(self, name: str) -> MethodGolden:
        return MethodGolden(
            name=name,
            learning_rates=self.rates,
            micro_batches=1,
            losses=self.losses,
            recorded=[row for row in self.recorded if row],
            trained=self.trained,
            gradient=None,
            moved=self.moved,
        )


class Normalized(ZerothOrder):
    """One-sided estimates over the spread of their losses, as `NormalizedOptions` describe them."""

    def known_queries(self) -> int:
        return self.options.queries if self.options.queries < EXACT_LOSSES else 0

    def points(self) -> list[Point]:
        return [(0, 0), *((query, 1) for query in range(self.queries))]

    def estimate(self, losses: np.ndarray) -> tuple[float, np.ndarray]:
        here, there = float(losses[0]), losses[1:]
        if not len(there):
            return here, there
        self._slope = max(float(there.std(ddof=1)), self.options.loss_rounding * max(1.0, here))
        return here, (there - here) / (self.options.epsilon * self._slope)

    def noise_of(self, loss: float, numbers: np.ndarray) -> np.ndarray:
        """The error of the difference, and of the spread that divides it, which has about the error of a loss."""
        off = self.loss_noise * max(1.0, loss) / (self.options.epsilon * self._slope)
        return off * (2 + 2 * self.options.epsilon * np.abs(numbers))


class CurvatureScaled(ZerothOrder):
    """Two-sided estimates along directions that a diagonal of the Hessian scales, as `CurvatureOptions` describe them."""

    def known_queries(self) -> int:
        self._h: Tensors = {name: torch.ones(self.start[name].shape, dtype=torch.float64) for name in self.trained}
        return 1

    def points(self) -> list[Point]:
        return [(0, 0), (0, 1), (0, -1)]

    def estimate(self, losses: np.ndarray) -> tuple[float, np.ndarray]:
        here, plus, minus = losses
        epsilon = self.options.epsilon
        return float(here), np.array([(plus - minus) / (2 * epsilon), abs(plus + minus - 2 * here) / (2 * epsilon**2)])

    def noise_of(self, loss: float, numbers: np.ndarray) -> np.ndarray:
        """The error of losses, and of the direction: h has learned from curvatures with errors."""
        off = self.loss_noise * max(1.0, loss) / self.options.epsilon
        relative = 1.5 * self.options.smoothing * sum(row[1].tolerance for row in self.recorded)
        return np.array([off, 2 * off / self.options.epsilon]) + relative * np.abs(numbers)

    def off_of(self, apart: np.ndarray) -> np.ndarray | float:
        return apart  # g and c are of different sizes

    def direction(self, name: str, z: torch.Tensor) -> torch.Tensor:
        return z / torch.sqrt(self._h[name]) if name in self._h else z

    def learn(self, name: str, z: torch.Tensor, numbers: np.ndarray) -> None:
        w, h = self.options.smoothing, self._h[name]
        self._h[name] = torch.clamp((1 - w) * h + w * float(numbers[1]) * h * z * z, min=LEAST_CURVATURE)

    def uncertain_direction(self, way: torch.Tensor, z: torch.Tensor, tolerances: Sequence[float]) -> float:
        """z / sqrt(h) is off by half of what h is off, relatively: smoothing z^2 times what c is off, and what was off before."""
        relative = self.options.smoothing * (
            tolerances[1] * z * z + 2 * sum(row[1].tolerance for row in self.recorded[:-1])
        )
        return float((0.5 * relative * way).norm())


ESTIMATES: Mapping[Promise, type[ZerothOrder]] = {
    "two_sided_loss_difference": ZerothOrder,
    "normalized_loss_difference": Normalized,
    "curvature_scaled_difference": CurvatureScaled,
}
