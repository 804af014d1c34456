# SPDX-License-Identifier: Apache-2.0
"""The first steps of a method by the reference: which lanes each step needs, and what is made of their losses and gradients.

First-order steps are torch.optim's on autograd's gradients; where the update rule is the method's own, only the first loss and the
gradients are known. The first step is known in fp32 and float64, which says how far fp32 is
off; later ones are taken in fp32. Zeroth-order losses are all float64, because g divides their difference by 2 epsilon.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from bespoke.config import Training
from bespoke.golden.document import Known, MethodGolden
from bespoke.golden.promises import Stepped
from bespoke.golden.reference import Lane
from bespoke.methods.update import FirstOrderOptions
from bespoke.methods.zeroth_order import ZerothOrderOptions
from bespoke.model.spec import ModelSpec
from bespoke.rules.noise import noise
from bespoke.rules.schedule import learning_rate_at

STEPS = 3
FLOOR = 1e-5
MOVED_FLOOR = 1e-4  # AdamW's first steps are signs: an element near 0 may go either way
LOSS_NOISE = 2e-6  # what an fp32 loss of a few nats may be off
EXACT_QUERIES = 4  # with more, only these are computed, and no step is taken

Tensors = dict[str, torch.Tensor]


def rates(training: Training, steps: int = STEPS) -> list[float]:
    """Learning rates of the first steps of a whole run."""
    return [
        learning_rate_at(
            step, peak=training.learning_rate, schedule=training.schedule, warmup_steps=training.warmup_steps,
            total_steps=training.steps,
        )
        for step in range(1, steps + 1)
    ]  # fmt: skip


class FirstOrder:
    """SGD or AdamW with clipping on exact gradients, or one step of a rule that is not known."""

    def __init__(
        self, known: Stepped, training: Training, trained: Sequence[str], start: Mapping[str, np.ndarray]
    ) -> None:
        self.rule = known.rule
        self.gradient = known.gradient
        self.training = training
        self.trained = list(trained)
        self.start = start
        self.rates = rates(training, 1 if known.rule is None else STEPS)
        self.losses: list[Known] = []
        self.moved: list[list[Known]] = []
        self._now: Tensors = {}
        self._optimizer: torch.optim.Optimizer | None = None
        self._lane: Lane | None = None
        self._tolerances: list[tuple[float, float]] = []

    @property
    def key(self) -> Hashable:
        """What the results follow from."""
        return self.rule, self.gradient, self.training, tuple(self.trained)

    def lanes(self, step: int, base: Sequence[Lane]) -> list[Lane]:
        """The first step is that of the base lanes."""
        if step == 1 or step > len(self.rates):
            return []
        self._lane = Lane(self._adapter, torch.float32, gradient=step < STEPS)
        return [self._lane]

    def _adapter(self, block: int) -> Mapping[str, torch.Tensor]:
        prefix = f"block_{block:02d}."
        whole = {name: self._now.get(name, torch.as_tensor(value)) for name, value in self.start.items() if name.startswith(prefix)}
        return {name.removeprefix(prefix): value.detach() for name, value in whole.items()}

    def advance(self, step: int, base: Sequence[Lane]) -> None:
        """Takes what the lanes of this step gave."""
        if step > len(self.rates):
            return
        exact, rough = base
        lane = rough if step == 1 else self._lane
        assert lane is not None
        value = exact.mean_loss if step == 1 else lane.mean_loss
        off = 10 * abs(rough.mean_loss - exact.mean_loss)
        self.losses.append(Known(value=value, tolerance=max(off, FLOOR * abs(value))))
        if self.rule is None or step == STEPS:
            return
        if self._optimizer is None:
            self._now = {name: torch.nn.Parameter(torch.tensor(self.start[name])) for name in self.trained}
            self._optimizer = _optimizer(self.rule, list(self._now.values()))
        self._set(self._optimizer, self._now, lane.gradients, step)
        moved = [float((p.detach().double() - torch.as_tensor(self.start[name])).norm()) for name, p in self._now.items()]
        if step == 1:
            self._measure(self.rule, moved, exact, rough)
        self.moved.append(
            [Known(value=m, tolerance=step * max(r * m, a)) for m, (r, a) in zip(moved, self._tolerances, strict=True)]
        )
        lane.gradients = {} if step > 1 else lane.gradients

    def _measure(self, rule: FirstOrderOptions, moved: Sequence[float], exact: Lane, rough: Lane) -> None:
        """(relative, absolute) tolerance of each piece's way, from the same step in float64, a piece at a time."""
        rate = self.rates[0]
        largest = max(float(g.norm()) for g in exact.gradients.values())
        clip = self._clip_factor(exact.gradients)
        for name, went in zip(self.trained, moved, strict=True):
            gradient = exact.gradients[name] * clip
            step = self._first_step(rule, name, gradient)
            way = float(step.norm())
            relative = max(MOVED_FLOOR, 10 * abs(went - way) / way if way else 0.0)
            unknown = 0.0
            if rule.update == "adamw":
                # Of an element whose gradient is as small as epsilon, rounding decides how far it goes.
                off = 10 * clip * float((rough.gradients[name].double() - exact.gradients[name]).abs().max())
                apart = [(self._first_step(rule, name, gradient + sign * off) - step).abs() for sign in (-1, 1)]
                unknown = float(torch.maximum(*apart).norm())
            # A gradient that is noise: AdamW makes whole steps of it, in any direction.
            if float(gradient.norm()) < 1e-5 * largest:
                unknown = rate * gradient.numel() ** 0.5 if rule.update == "adamw" else rate * 1e-5 * largest
            self._tolerances.append((relative, unknown))

    def _first_step(self, rule: FirstOrderOptions, name: str, gradient: torch.Tensor) -> torch.Tensor:
        """How far a piece goes, in float64."""
        start = torch.tensor(self.start[name]).double()
        p = torch.nn.Parameter(start.clone())
        p.grad = gradient
        optimizer = _optimizer(rule, [p])
        _with_rate(optimizer, self.rates[0])
        optimizer.step()
        return p.detach() - start

    def _set(self, optimizer: torch.optim.Optimizer, now: Tensors, gradients: Mapping[str, torch.Tensor], step: int) -> None:
        for name, p in now.items():
            p.grad = gradients[name].float().clone()
        if self.training.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(list(now.values()), self.training.clip_norm)
        _with_rate(optimizer, self.rates[step - 1])
        optimizer.step()

    def _clip_factor(self, gradients: Mapping[str, torch.Tensor]) -> float:
        if self.training.clip_norm is None:
            return 1.0
        total = float(torch.stack([gradients[name].norm() for name in self.trained]).norm())
        return min(1.0, self.training.clip_norm / (total + 1e-6))

    def result(self, name: str) -> MethodGolden:
        return MethodGolden(
            name=name, learning_rates=self.rates, micro_batches=2 if self.training.accumulation > 1 else 1, losses=self.losses,
            recorded=[], trained=self.trained, gradient=self.gradient, moved=self.moved,
        )  # fmt: skip


def _optimizer(rule: FirstOrderOptions, parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    if rule.update == "sgd":
        return torch.optim.SGD(parameters, lr=1.0)
    return torch.optim.AdamW(
        parameters, lr=1.0, betas=(rule.beta1, rule.beta2), eps=rule.adam_epsilon, weight_decay=rule.weight_decay
    )


class ZerothOrder:
    """Two-sided estimates along z from the noise counter, of the pieces that are trained."""

    def __init__(
        self, options: ZerothOrderOptions, training: Training, trained: Sequence[str], model: ModelSpec,
        start: Mapping[str, np.ndarray], seed: int,
    ) -> None:  # fmt: skip
        self.options = options
        self.training = training
        self.model = model
        self.trained = list(trained)
        self.start = start
        self.seed = seed
        self.queries = min(options.queries, EXACT_QUERIES)
        self.partial = self.queries < options.queries
        self.rates = rates(training, 1 if self.partial else STEPS)
        self.losses: list[Known] = []
        self.recorded: list[list[Known]] = []
        self.moved: list[list[Known]] = []
        self._now: Tensors = {name: torch.tensor(start[name]).double() for name in start}
        self._lanes: list[Lane] = []
        self._drawn: tuple[tuple[int, int, int], Tensors] = ((-1, -1, -1), {})
        self._relative_loss = self._g_off = self._drift = 0.0

    @property
    def key(self) -> Hashable:
        """What the results follow from."""
        return self.options, self.training, tuple(self.trained)

    def lanes(self, step: int, base: Sequence[Lane]) -> list[Lane]:
        """For each query both signs in float64, and in the first step in fp32 too."""
        if step > len(self.rates):
            return []
        dtypes = (torch.float64, torch.float32) if step == 1 else (torch.float64,)
        self._lanes = [
            Lane(self._perturbed(step, query, sign), dtype, gradient=False)
            for dtype in dtypes
            for query in range(self.queries)
            for sign in (1, -1)
        ]
        return self._lanes

    def _perturbed(self, step: int, query: int, sign: int) -> Any:
        def adapter(block: int) -> Tensors:
            group, z = self.model.blocks[block], self._noise(step, query, block)
            return {
                name: self._now[f"{group}.{name}"] + sign * self.options.epsilon * z[name]
                for name in self.model.adapter_shapes(group)
            }

        return adapter

    def _noise(self, step: int, query: int, block: int) -> Tensors:
        """z of a block's pieces; the last one drawn is kept, for the other sign."""
        if self._drawn[0] != (step, query, block):
            group = self.model.blocks[block]
            z = {
                name: torch.from_numpy(
                    noise(
                        shape, seed=self.seed, step=step, query=query, block=block, tensor=tensor,
                        distribution=self.options.distribution,
                    )
                ).double()
                * (f"{group}.{name}" in self.trained)
                for tensor, (name, shape) in enumerate(self.model.adapter_shapes(group).items())
            }  # fmt: skip
            self._drawn = ((step, query, block), z)
        return self._drawn[1]

    def advance(self, step: int, base: Sequence[Lane]) -> None:
        """Takes the losses of this step's lanes, and the step itself."""
        if step > len(self.rates):
            return
        exact = np.array([lane.mean_loss for lane in self._lanes[: 2 * self.queries]])
        g = (exact[0::2] - exact[1::2]) / (2 * self.options.epsilon)
        loss = float(exact.mean())
        if step == 1:
            rough = np.array([lane.mean_loss for lane in self._lanes[2 * self.queries :]])
            rough_g = (rough[0::2] - rough[1::2]) / (2 * self.options.epsilon)
            self._relative_loss = max(FLOOR, 10 * abs(float(rough.mean()) - loss) / loss)
            self._g_off = 10 * float(np.abs(rough_g - g).max())
        noise_of_g = LOSS_NOISE * max(1.0, loss) / self.options.epsilon
        tolerances = [max(self._g_off, noise_of_g, FLOOR * abs(value)) for value in g]
        self.recorded.append([Known(value=float(v), tolerance=t) for v, t in zip(g, tolerances, strict=True)])
        if self.partial:
            return
        self._drift += self._uncertainty_of_loss(loss)
        self.losses.append(Known(value=loss, tolerance=self._relative_loss * loss + self._drift))
        if step < STEPS:
            self._step(step, g, tolerances)

    def _uncertainty_of_loss(self, loss: float) -> float:
        """What the tolerance of the last step's estimates makes of this step's loss. On a parabola through the last loss with slope
        -g that has come to `loss` at distance s = share * g, the slope there is 2 * (loss - last) / s + g."""
        if not self.losses:
            return 0.0
        change, share = loss - self.losses[-1].value, self.rates[len(self.losses) - 1] / self.queries
        return sum(
            abs(2 * change / known.value + share * known.value) * known.tolerance for known in self.recorded[-2] if known.value
        )

    def _step(self, step: int, g: np.ndarray, tolerances: Sequence[float]) -> None:
        share = self.rates[step - 1] / self.queries
        uncertain = dict.fromkeys(self.trained, 0.0)
        for block, group in enumerate(self.model.blocks):
            for query in range(self.queries):
                for name, z in self._noise(step, query, block).items():
                    full = f"{group}.{name}"
                    self._now[full] = self._now[full] - share * float(g[query]) * z
                    if full in uncertain:
                        uncertain[full] += share * tolerances[query] * float(z.norm())
        row = []
        for number, name in enumerate(self.trained):
            way = float((self._now[name] - torch.as_tensor(self.start[name])).norm())
            rounding = 1e-7 * float(torch.as_tensor(self.start[name]).norm()) + FLOOR * way
            before = self.moved[-1][number].tolerance if self.moved else 0.0
            row.append(Known(value=way, tolerance=uncertain[name] + rounding + before))
        self.moved.append(row)

    def result(self, name: str) -> MethodGolden:
        return MethodGolden(
            name=name, learning_rates=self.rates, micro_batches=1, losses=self.losses, recorded=self.recorded,
            trained=self.trained, gradient=None, moved=self.moved,
        )  # fmt: skip


def _with_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate
