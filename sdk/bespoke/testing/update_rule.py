# SPDX-License-Identifier: Apache-2.0
"""Checks the update rule that a method of exact gradients states: two steps against torch.optim on autograd's gradients."""

from __future__ import annotations

import numpy as np
import torch

from bespoke.config import Settings
from bespoke.contracts import Optimizer
from bespoke.golden.promises import GoldenMethod, check_promise, stored_pieces, update_rule
from bespoke.methods.update import FirstOrderOptions
from bespoke.testing.dense import loss_and_gradients
from bespoke.testing.options import Fail
from bespoke.testing.rig import Case, Rig, planned
from bespoke.testing.tiny import TokenBatch, tiny_adapter, tiny_weights

__all__ = ["check_update_rule"]

STEP = 1e-3  # relative error of a piece's update; AdamW's first steps divide gradients by themselves
LEARNING_RATE = 1e-2
STEPS = 2  # the second with the state of the first


def check_update_rule(optimizer: Optimizer, options: Settings, fail: Fail) -> None:
    """Raises `fail(...)` if steps are not those of the stated rule, alone or with two micro-batches and clipping."""
    method = GoldenMethod(optimizer.name, optimizer.promises, options, Case.of("plain", 7, 2).training, [])
    rule = update_rule(method)
    if rule is not None:
        for case in (Case.of("plain", 7, 2), Case.of("plain", 7, 2, accumulation=2, clip_norm=0.5)):
            _check_steps(optimizer, options, rule, case, fail)


def _check_steps(optimizer: Optimizer, options: Settings, rule: FirstOrderOptions, case: Case, fail: Fail) -> None:
    plan = planned(optimizer, options, case)
    check_promise(GoldenMethod(optimizer.name, optimizer.promises, options, case.training, [plan]))
    rig = Rig(case, plan, optimizer, options)
    start = tiny_adapter(case.model_name)
    rig.buffers.fill(start)
    pieces = {name: torch.nn.Parameter(torch.from_numpy(start[name]).double()) for name in sorted(stored_pieces(plan))}
    stated = _torch_optimizer(rule, list(pieces.values()))
    for step in range(1, STEPS + 1):
        batches = [rig.batch(2 * step + number) for number in range(case.training.accumulation)]
        now = {**start, **{name: piece.detach().numpy().copy() for name, piece in pieces.items()}}
        _, gradients = loss_and_gradients(case.model, tiny_weights(case.model_name), now, _joined(batches))
        for name, piece in pieces.items():
            piece.grad = torch.from_numpy(gradients[name])
        if case.training.clip_norm is not None:
            torch.nn.utils.clip_grad_norm_(list(pieces.values()), case.training.clip_norm)
        stated.step()
        rig.step(batches, step=step, learning_rate=LEARNING_RATE)
        after = rig.adapter()
        for name, piece in pieces.items():
            expected = piece.detach().numpy()
            off, way = (float(np.linalg.norm(a - b)) for a, b in ((after[name], expected), (expected, now[name])))
            if not off <= STEP * way + 1e-6 * float(np.linalg.norm(now[name])):
                raise fail(
                    f"step {step} of '{name}' off by {off / way:.2g} of its length on {case}",
                    f"{rule.update} on the gradients of the loss: options derived from FirstOrderOptions state that rule",
                    "Give (adapter, gradients) to bespoke.methods.update, or derive Options from Settings for a rule of your own",
                )


def _torch_optimizer(rule: FirstOrderOptions, pieces: list[torch.Tensor]) -> torch.optim.Optimizer:
    if rule.update == "sgd":
        return torch.optim.SGD(pieces, lr=LEARNING_RATE)
    betas = (rule.beta1, rule.beta2)
    return torch.optim.AdamW(
        pieces, lr=LEARNING_RATE, betas=betas, eps=rule.adam_epsilon, weight_decay=rule.weight_decay
    )


def _joined(batches: list[TokenBatch]) -> TokenBatch:
    """All rows of a step as one batch."""
    return TokenBatch(*(torch.cat([getattr(b, part) for b in batches]) for part in ("tokens", "targets", "mask")))
