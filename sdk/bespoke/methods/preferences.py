# SPDX-License-Identifier: Apache-2.0
"""Loss and gradient of a batch that may hold pairs of answers: a chosen and a rejected answer to the same prompt.

A pair takes two rows of a batch, the chosen answer's at an even place and the rejected one's below it. With the mean loss of a row
l = -mean log p, a pair's loss is that of SimPO (Meng et al. 2024, arXiv 2405.14734, equation 6), which needs no reference model:

    z = beta (l_rejected - l_chosen) - gamma;   L = -log sigmoid(z);   dL/dl_chosen = beta sigmoid(-z) = -dL/dl_rejected

The chosen answer is also learned as every other row is, weighted by `chosen_weight`: SimPO alone may make both answers less likely.
A batch's pairs count alike, and together as much as their chosen answers have tokens. So micro-batches add up, and the loss of a
batch of pairs is TRL's (CPOTrainer with loss_type="simpo", cpo_alpha=chosen_weight).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from pydantic import Field

from bespoke.errors import ConfigError
from bespoke.graph.step_builder import StepBuilder
from bespoke.graph.value import Batch, Value
from bespoke.methods.head import State, head_backward, head_loss_and_gradient, head_pass, token_losses
from bespoke.methods.update import FirstOrderOptions
from bespoke.remedies import setting
from bespoke.rules.batches import PAIRS

if TYPE_CHECKING:
    from bespoke.model.spec import ModelSpec


class PreferenceOptions(FirstOrderOptions):
    """Options of first-order methods that may learn from pairs of answers.

    Without `preferences`, a pair is its chosen answer and nothing else.
    """

    preferences: Literal["chosen", "simpo"] = "chosen"
    simpo_beta: float = Field(default=2.0, gt=0)
    simpo_gamma: float = Field(default=1.0, ge=0)
    chosen_weight: float = Field(default=1.0, ge=0)

    @property
    def training_defaults(self) -> dict[str, float]:
        """A pair takes two rows of a batch."""
        rows = {"batch_size": 2} if self.preferences == "simpo" else {}
        return super().training_defaults | rows


def loss_and_gradient(
    b: StepBuilder, model: ModelSpec, x: Value, batch: Batch, options: PreferenceOptions
) -> tuple[Value, Value]:
    """The loss of the batch, with its pairs where the options say so, and dloss/dx [N, D]."""
    if options.preferences == "chosen":
        return head_loss_and_gradient(b, model, x, batch)
    if b.training.batch_size < 2:
        raise ConfigError(
            setting("training.batch_size"),
            got=str(b.training.batch_size),
            expected="2 or more with preferences = 'simpo': a pair takes two rows",
            next_step="Set " + setting("batch_size", 2),
        )
    _, state = head_pass(b, model, x, batch, gradient=True)
    losses = {name: state[name] for name in ("m", "l", "label")}
    loss, weights = b.call(
        pair_weights,
        losses,
        batch.mask,
        b.array(PAIRS, "float32"),
        b.scalar("batch_tokens"),
        beta=options.simpo_beta,
        gamma=options.simpo_gamma,
        chosen_weight=options.chosen_weight,
    )
    return loss, head_backward(b, model, x, batch.targets, weights, state)


def pair_weights(
    state: State,
    mask: torch.Tensor,
    pairs: torch.Tensor,
    batch_tokens: torch.Tensor,
    *,
    beta: float,
    gamma: float,
    chosen_weight: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The loss [], and the weight of each token's loss in batch_tokens times its gradient [B, T]; mask, pairs [B, T].

    `pairs` is 1 in the rows of a pair and 0 elsewhere; the first column is read.
    """
    rows, length = mask.shape
    whole = rows // 2 * 2  # the last of an odd number of rows is never of a pair
    tokens = mask.sum(1)  # (B,)
    row_losses = (token_losses(state).view(rows, length) * mask).sum(1)  # (B,)
    counted = tokens.clamp(min=1.0)
    means = (row_losses / counted)[:whole].view(-1, 2)  # (P, 2)
    is_pair = pairs[:whole, 0].view(-1, 2)[:, 0]  # (P,)
    z = beta * (means[:, 1] - means[:, 0]) - gamma
    trained = tokens[:whole].view(-1, 2)[:, 0]  # (P,) tokens of the chosen answers
    share = (trained * is_pair).sum() / is_pair.sum().clamp(min=1.0)  # of each pair, in tokens
    slope = is_pair * share * beta * torch.sigmoid(-z)  # of the loss by the mean loss of the chosen answer
    slopes = torch.stack([slope, -slope], 1).view(whole)
    plain = torch.stack([1.0 - is_pair * (1.0 - chosen_weight), 1.0 - is_pair], 1).view(whole)  # of the cross entropy
    if whole < rows:
        one = torch.ones_like(tokens[whole:])
        slopes, plain = torch.cat([slopes, 0.0 * one]), torch.cat([plain, one])
    weights = (plain + slopes / counted)[:, None] * mask
    surprise = (-z).clamp(min=0.0) + torch.log(1.0 + torch.exp(-z.abs()))  # -log sigmoid(z) that does not overflow
    loss = (plain * row_losses).sum() + (is_pair * share * surprise).sum()
    return loss / batch_tokens, weights
