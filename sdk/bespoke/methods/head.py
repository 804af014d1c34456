# SPDX-License-Identifier: Apache-2.0
"""Loss and its gradient in ONE pass over the vocabulary: online softmax over chunks of the head's rows (MeSP; the same idea
as in flash attention). The head is frozen, so only dloss/dhidden is needed. No [N, V] tensor ever exists.

    per chunk W_c: z = h W_c^T; m' = max(m, max z); acc = acc exp(m - m') + exp(z - m') W_c; l = l exp(m - m') + sum exp(z - m')
    at the end:    loss_t = m + log l - z_label;  dh = (acc / l - W[label]) mask_t / batch_tokens

Dimensions: N rows, D hidden, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from bespoke.graph.step_builder import StepBuilder
from bespoke.graph.value import Batch, Value
from bespoke.model import layers
from bespoke.ops import QuantizedWeight, head_chunk_int4, head_chunk_of_logits, lookup, product, product_transposed
from bespoke.ops.weight import Weight

if TYPE_CHECKING:
    from bespoke.model.spec import ModelSpec

State = dict[str, Any]
_LOWEST = -1e30  # below every logit, and finite, so that the first rescaling is exp of a large negative number: 0
_STATE = ("m", "l", "label", "best", "acc")  # in the order of the operator


def head_start(x: torch.Tensor, w: torch.Tensor, *, model: ModelSpec, gradient: bool) -> tuple[torch.Tensor, State]:
    """Final norm and the state before the first chunk: x [N, D] -> h [N, D], m, l, label logit and best token [N], acc [N, D]."""
    h = model.final_norm(x, w)
    zeros = torch.zeros_like(h[:, 0])
    state = {"m": zeros + _LOWEST, "l": zeros, "label": zeros, "best": zeros.to(torch.int64)}
    return h, state | ({"acc": torch.zeros_like(h)} if gradient else {})


def head_chunk(h: torch.Tensor, w: Weight, targets: torch.Tensor, start: torch.Tensor, state: State) -> State:
    """The state after rows [start, start + C) of the head: w [C, D], targets [B, T].

    On int4 rows this is one operator, which never holds [N, C] logits; below is the same with a dense table.
    """
    if isinstance(w, QuantizedWeight):
        names = [name for name in _STATE if name in state]
        return dict(
            zip(names, head_chunk_int4(h, w.codes, w.scales, targets, start, *[state[n] for n in names]), strict=True)
        )
    z = product(h, w)  # [N, C]
    statistics, keep, p = head_chunk_of_logits(z, targets, start, *[state[name] for name in _STATE[:4]])
    new = dict(zip(_STATE[:4], statistics, strict=True))
    if "acc" in state:
        new["acc"] = state["acc"] * keep[:, None] + product_transposed(p, w)
    return new


def token_losses(state: State) -> torch.Tensor:
    """Cross-entropy of each row [N] after the last chunk."""
    return state["m"] + torch.log(state["l"]) - state["label"]


def head_end(state: State, targets: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """Sum of the losses of unmasked rows, and how many of them the best token predicts."""
    weight = mask.reshape(-1)
    losses = token_losses(state)
    correct = (state["best"] == targets.reshape(-1)).to(weight.dtype)
    return {"loss_sum": (losses * weight).sum(), "correct": (correct * weight).sum()}


def head_gradient(
    x: torch.Tensor,
    norm_w: torch.Tensor,
    w: Weight,
    acc: torch.Tensor,
    total: torch.Tensor,
    targets: torch.Tensor,
    mask: torch.Tensor,
    batch_tokens: torch.Tensor,
    *,
    model: ModelSpec,
) -> torch.Tensor:
    """dloss/dx through the final norm: x [N, D] -> [N, D]."""
    weight = mask.reshape(-1) / batch_tokens
    dh = (acc / total[:, None] - lookup(targets.reshape(-1), w).to(acc.dtype)) * weight[:, None]
    return layers.norm_backward(x, norm_w, dh, eps=model.config.norm_eps)


def mean_loss(loss_sum: torch.Tensor, batch_tokens: torch.Tensor) -> torch.Tensor:
    return loss_sum / batch_tokens


def path_loss(state: State, mask: torch.Tensor, batch_tokens: torch.Tensor, *, paths: int) -> torch.Tensor:
    """Mean loss of each path [paths], whose rows follow each other."""
    return (token_losses(state) * mask.reshape(-1)).view(paths, -1).sum(1) / batch_tokens


def _last_state(b: StepBuilder, model: ModelSpec, x: Value, batch: Batch, *, gradient: bool) -> State:
    table = b.weights(model.head_table_group)["table"]
    vocabulary = table.out
    chunk = b.choose("head_chunk", [min(size, vocabulary) for size in (1024, 4096, 8192)])
    h, state = b.call(head_start, x, b.weights("head")["norm"], model=model, gradient=gradient)
    for start in range(0, vocabulary, chunk):
        rows = table.rows(start, min(start + chunk, vocabulary))
        state = b.call(head_chunk, h, rows, batch.targets, b.constant(start), state)
    return state


def head_pass(
    b: StepBuilder, model: ModelSpec, x: Value, batch: Batch, *, gradient: bool
) -> tuple[dict[str, Value], State]:
    """One pass over the vocabulary: {loss_sum, correct} over unmasked rows, and the last state: `token_losses` of it, in a graph,
    are the losses of all rows; with `gradient`, `head_backward` takes it."""
    state = _last_state(b, model, x, batch, gradient=gradient)
    statistics = {name: leaf for name, leaf in state.items() if name != "acc"}
    return b.call(head_end, statistics, batch.targets, batch.mask), state


def head_loss(b: StepBuilder, model: ModelSpec, x: Value, batch: Batch) -> Value:
    """Mean cross-entropy over the unmasked tokens of the step, a scalar: x [N, D]."""
    sums, _ = head_pass(b, model, x, batch, gradient=False)
    return b.call(mean_loss, sums["loss_sum"], b.scalar("batch_tokens"))


def head_losses(b: StepBuilder, model: ModelSpec, x: Value, batch: Batch, paths: int) -> Value:
    """The mean loss of each of so many paths, [paths]: x [N, D] and a batch of as many copies, one below the other.

    `batch_tokens` counts one path.
    """
    state = _last_state(b, model, x, batch, gradient=False)
    losses = {name: state[name] for name in ("m", "l", "label")}
    return b.call(path_loss, losses, batch.mask, b.scalar("batch_tokens"), paths=paths)


def head_loss_and_gradient(b: StepBuilder, model: ModelSpec, x: Value, batch: Batch) -> tuple[Value, Value]:
    """The mean loss, and dloss/dx [N, D]."""
    sums, state = head_pass(b, model, x, batch, gradient=True)
    loss = b.call(mean_loss, sums["loss_sum"], b.scalar("batch_tokens"))
    return loss, head_backward(b, model, x, batch.targets, batch.mask, state)


def head_backward(b: StepBuilder, model: ModelSpec, x: Value, targets: Value, weights: Value, state: State) -> Value:
    """Gradient at x [N, D] of sum(weights x losses) / batch_tokens: weights fp32 [B, T] of any sign, the mask for the mean loss."""
    table = b.weights(model.head_table_group)["table"]
    return b.call(
        head_gradient,
        x,
        b.weights("head")["norm"],
        table,
        state["acc"],
        state["l"],
        targets,
        weights,
        b.scalar("batch_tokens"),
        model=model,
    )
