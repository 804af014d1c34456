# SPDX-License-Identifier: Apache-2.0
"""SimPO (Meng et al. 2024, arXiv 2405.14734, equation 6): of two answers to a prompt, the chosen one is made more likely.

    r(y) = -beta / |y| sum_t loss_t;   z = r(chosen) - r(rejected) - gamma;   L = -log sigmoid(z);   theta <- theta - eta dL

The chosen answers are the batch, the rejected ones are arrays of the method's own. Both are one batch of 2B rows. A pair counts as
much as its chosen answer has tokens, so that micro-batches add up to the mean over the tokens of a step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from pydantic import Field

from bespoke.contracts import Batch, ModelSpec, Optimizer, Scalar, StepBuilder, Value, hookimpl
from bespoke.methods import (
    FirstOrderOptions,
    embed,
    head_backward,
    head_pass,
    rope_rows,
    token_losses,
    update,
    vjp,
)

Tree = dict[str, Value]
Tensors = dict[str, torch.Tensor]


class SimPOOptions(FirstOrderOptions):
    beta: Scalar = Field(default=2.0, gt=0)
    gamma: Scalar = Field(default=0.5, ge=0)


class SimPO:
    """A preference loss on pairs: its gradients are not those of the batch's mean loss, so nothing is promised."""

    name = "simpo"
    promises = None
    Options = SimPOOptions

    def train_step(self, b: StepBuilder, model: ModelSpec, options: SimPOOptions) -> None:
        batch = b.batch()
        chosen = [batch.tokens, batch.targets, batch.mask]
        rejected = [
            b.array("rejected_tokens", "int64"),
            b.array("rejected_targets", "int64"),
            b.array("rejected_mask", "float32"),
        ]
        both = Batch(*b.call(stacked, chosen, rejected))
        x = embed(b, model, both.tokens)
        inputs = []
        for block, group in enumerate(model.blocks):
            inputs.append(x)
            x = b.call(model.block, x, b.weights(group), b.adapter(group), *constants(b, model, block))
        _, state = head_pass(b, model, x, both, gradient=True)
        losses = {name: state[name] for name in ("m", "l", "label")}
        loss, weights = b.call(
            preference, losses, both.mask, b.scalar("beta"), b.scalar("gamma"), b.scalar("batch_tokens")
        )
        b.emit(loss=loss)
        dx = head_backward(b, model, x, both.targets, weights, state)
        update(b, self.gradients(b, model, inputs, dx), options)

    def gradients(
        self, b: StepBuilder, model: ModelSpec, inputs: list[Value], dx: Value
    ) -> Iterator[tuple[Tree, Tree]]:
        """(adapter, gradients) of each block, last first."""
        backward = vjp(model.block, (0, 2))
        for block in reversed(range(len(inputs))):
            group = model.blocks[block]
            dx, grads = b.call(
                backward, inputs[block], b.weights(group), b.adapter(group), *constants(b, model, block), dx
            )
            yield b.adapter(group), grads


def constants(b: StepBuilder, model: ModelSpec, block: int) -> tuple[Tree, Value]:
    return rope_rows(b, model, block, b.sequence_length), b.constant(model.window(block))


def stacked(chosen: list[torch.Tensor], rejected: list[torch.Tensor]) -> list[torch.Tensor]:
    """tokens, targets and mask of chosen and rejected [B, T] -> of both [2B, T]."""
    return [torch.cat(pair) for pair in zip(chosen, rejected, strict=True)]


def preference(
    state: Tensors, mask: torch.Tensor, beta: torch.Tensor, gamma: torch.Tensor, batch_tokens: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss, and the weight of each token's loss in batch_tokens times its gradient: mask [2B, T] -> [], [2B, T]."""
    counted = mask.sum(1).clamp(min=1.0)  # an empty row's mask is 0 everywhere, and so is everything below
    mean = (token_losses(state).view(mask.shape) * mask).sum(1) / counted
    (chosen, rejected), tokens = mean.chunk(2), mask.sum(1).chunk(2)[0]
    z = beta * (rejected - chosen) - gamma
    slope = tokens * beta * torch.sigmoid(-z)  # derivative of the loss by the mean loss of the chosen answer
    weights = torch.cat([slope, -slope])[:, None] * mask / counted[:, None]
    loss = (-z).clamp(min=0.0) + torch.log(1 + torch.exp(-z.abs()))  # -log sigmoid(z) that does not overflow
    return (tokens * loss).sum() / batch_tokens, weights


@hookimpl
def register_optimizers(register: Callable[[Optimizer], None]) -> None:
    register(SimPO())
