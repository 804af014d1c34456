# SPDX-License-Identifier: Apache-2.0
"""The first steps of a method of exact gradients by the reference: which lanes each step needs, and the results from their losses
and gradients. Estimates are in `zeroth_order`.

Steps are torch.optim's on autograd's gradients; where the update rule is the method's own, only the first loss and the gradients
are known. The first step is known in fp32 and float64, which says how far fp32 is off; later ones are taken in fp32.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import torch

from bespoke.config import Training
from bespoke.golden.document import GradientSource, Known, MethodGolden
from bespoke.golden.rates import STEPS, rates
from bespoke.golden.reference import Lane
from bespoke.methods.update import FirstOrderOptions
from bespoke.ops.dtypes import Tensors

FLOOR = 1e-5
MOVED_FLOOR = 1e-4  # AdamW's first steps are signs: an element near 0 may go either way


class FirstOrder:
    """SGD or AdamW with clipping on exact gradients, or one step of a rule that is not known."""

    def __init__(
        self,
        rule: FirstOrderOptions | None,
        gradient: GradientSource | None,
        training: Training,
        trained: Sequence[str],
        start: Mapping[str, np.ndarray],
    ) -> None:
        self.rule = rule
        self.gradient = gradient
        self.training = training
        self.trained = list(trained)
        self.start = start
        self.rates = rates(training, 1 if rule is None else STEPS)
        self.losses: list[Known] = []
        self.moved: list[list[Known]] = []
        self._now: Tensors = {}
        self._optimizer: torch.optim.Optimizer | None = None
        self._lane: Lane | None = None
        self._tolerances: list[tuple[float, float]] = []

    @property
    def key(self) -> Hashable:
        """Everything that the results depend on."""
        return self.rule, self.gradient, self.training, tuple(self.trained)

    def lanes(self, step: int, base: Sequence[Lane]) -> list[Lane]:
        """The first step is that of the base lanes."""
        if step == 1 or step > len(self.rates):
            return []
        self._lane = Lane(self._adapter, torch.float32, gradient=step < STEPS)
        return [self._lane]

    def _adapter(self, block: int) -> Mapping[str, torch.Tensor]:
        prefix = f"block_{block:02d}."
        whole = {
            name: self._now.get(name, torch.as_tensor(value))
            for name, value in self.start.items()
            if name.startswith(prefix)
        }
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
        distances = [
            float((p.detach().double() - torch.as_tensor(self.start[name])).norm()) for name, p in self._now.items()
        ]
        if step == 1:
            self._measure(self.rule, distances, exact, rough)
        self.moved.append(
            [
                Known(value=m, tolerance=step * max(r * m, a))
                for m, (r, a) in zip(distances, self._tolerances, strict=True)
            ]
        )
        lane.gradients = {} if step > 1 else lane.gradients

    def _measure(self, rule: FirstOrderOptions, distances: Sequence[float], exact: Lane, rough: Lane) -> None:
        """(relative, absolute) tolerance of each piece's way, from the same step in float64, a piece at a time."""
        rate = self.rates[0]
        largest = max(float(g.norm()) for g in exact.gradients.values())
        clip = self._clip_factor(exact.gradients)
        for name, went in zip(self.trained, distances, strict=True):
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

    def _set(
        self, optimizer: torch.optim.Optimizer, now: Tensors, gradients: Mapping[str, torch.Tensor], step: int
    ) -> None:
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
            name=name,
            learning_rates=self.rates,
            micro_batches=2 if self.training.accumulation > 1 else 1,
            losses=self.losses,
            recorded=[],
            trained=self.trained,
            gradient=self.gradient,
            moved=self.moved,
        )


def _optimizer(rule: FirstOrderOptions, parameters: list[torch.Tensor]) -> torch.optim.Optimizer:
    if rule.update == "sgd":
        return torch.optim.SGD(parameters, lr=1.0)
    return torch.optim.AdamW(
        parameters, lr=1.0, betas=(rule.beta1, rule.beta2), eps=rule.adam_epsilon, weight_decay=rule.weight_decay
    )


def _with_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = rate
