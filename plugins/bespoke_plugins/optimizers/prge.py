# SPDX-License-Identifier: Apache-2.0
"""P-RGE: MeZO's q queries and both signs of each as one batched forward pass ("Enabling Efficient On-Device Fine-Tuning of LLMs
Using Only Inference Engines", arXiv 2409.15520, Algorithm 3; later versions call it MobiZO and this MP-LoRA).

    for all queries i at once:  g_i = (L(theta + eps z_i) - L(theta - eps z_i)) / (2 eps)
    then                        theta <- theta - (eta / q) sum_i g_i z_i

The batch is repeated for each *path* (1+, 1-, 2+, 2-, ...) and stacked path by path: rows = q x batch_size x 2. The frozen weights
are read and decoded once for all paths. Each path has a copy of the adapter, which is computed block by block and dropped. The
papers train B alone: Lora(train="B").

`outer` batches the queries and `inner` the two signs. With both off the method equals `mezo` with train="B" to the bit. With either
on the losses differ by rounding alone.

`dual_forwarding` is Algorithm 2: the update is applied one step later (bespoke.methods.trailing).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import Field

from bespoke.contracts import ModelSpec, Optimizer, Promise, hookimpl
from bespoke.graph import StepBuilder, Value
from bespoke.methods import (
    ZerothOrderOptions,
    block_forward,
    descended,
    embed,
    head_loss,
    head_losses,
    mean,
    perturbed,
    projected_gradient,
    trail,
    trailing_perturbed,
)

Path = tuple[int, int]  # query, sign


class PRGEOptions(ZerothOrderOptions):
    """Options of MeZO and of the batching. `epsilon` defaults to the papers' value for LoRA."""

    epsilon: float = Field(default=1e-2, gt=0)
    queries: int = Field(default=4, ge=1, le=64)
    outer: bool = Field(default=True, description="all queries in one pass")
    inner: bool = Field(default=True, description="both signs in one pass")
    dual_forwarding: bool = Field(default=False, description="the update trails by one step (Algorithm 2)")


class PRGE:
    """Zeroth-order method: projected gradients along several random directions in parallel."""

    name = "prge"
    promises: Promise = "two_sided_loss_difference"
    Options = PRGEOptions

    def train_step(self, b: StepBuilder, model: ModelSpec, options: PRGEOptions) -> None:
        losses: dict[Path, Value] = {}
        for paths in passes(options):
            losses |= self.losses(b, model, options, paths)
        pairs = [(losses[query, +1], losses[query, -1]) for query in range(options.queries)]
        gs = [b.record(b.call(projected_gradient, *pair, b.scalar("epsilon"))) for pair in pairs]
        b.emit(loss=b.call(mean, [loss for pair in pairs for loss in pair]), projected_gradient=gs[0])
        if options.dual_forwarding:
            trail(b, model, gs, options)
            return
        for group in model.blocks:
            for theta in b.adapter(group).values():
                b.store(theta, descended(b, theta, gs, options))

    def losses(self, b: StepBuilder, model: ModelSpec, options: PRGEOptions, paths: list[Path]) -> dict[Path, Value]:
        """The loss L(theta + sign eps z_query) of each path, from one forward pass over all paths."""
        batch = b.batch(copies=len(paths))
        x = embed(b, model, batch.tokens)  # (n B T, D)
        for block, group in enumerate(model.blocks):
            x, _ = block_forward(b, model, block, x, self.perturbed_adapter(b, model, group, options, paths))
        if len(paths) == 1:
            return {paths[0]: head_loss(b, model, x, batch)}
        losses = head_losses(b, model, x, batch, len(paths))
        return {path: losses.rows(number, number + 1) for number, path in enumerate(paths)}

    def perturbed_adapter(
        self, b: StepBuilder, model: ModelSpec, group: str, options: PRGEOptions, paths: list[Path]
    ) -> dict[str, Any]:
        """A copy theta + sign eps z_query of one block's adapter for each path."""
        pieces: dict[str, Any] = {}
        for name, theta in b.adapter(group).items():
            if options.dual_forwarding:
                copies = trailing_perturbed(b, model, theta, paths, options)
            else:
                copies = list(perturbed(b, theta, theta, paths, options))
            pieces[name] = copies if len(copies) > 1 else copies[0]
        return pieces


def passes(options: PRGEOptions) -> list[list[Path]]:
    """The paths of each forward pass: all of them, a query's pair, a sign's queries, or one."""
    queries, signs = range(options.queries), (+1, -1)
    if options.outer:
        by_sign = [[(query, sign) for query in queries] for sign in signs]
        return [[(query, sign) for query in queries for sign in signs]] if options.inner else by_sign
    pairs = [[(query, sign) for sign in signs] for query in queries]
    return pairs if options.inner else [[path] for pair in pairs for path in pair]


@hookimpl
def register_optimizers(register: Callable[[Optimizer], None]) -> None:
    register(PRGE())
