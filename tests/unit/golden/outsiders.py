# SPDX-License-Identifier: Apache-2.0
"""Methods from outside as their authors would write them: an option more, only B trained, update rules of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from pydantic import Field

from bespoke import plugins
from bespoke.contracts import ModelSpec, Optimizer, Promise, Settings, StepBuilder, Value, hookimpl
from bespoke.methods import (
    FirstOrderOptions,
    PreferenceOptions,
    ZerothOrderOptions,
    embed,
    head_loss_and_gradient,
    rope_rows,
    summed_gradients,
    update,
    vjp,
)

Gradients = Iterator[tuple[dict[str, Value], dict[str, Value]]]
MeSP: Any = type(plugins.get("optimizer", "mesp"))
MeZO: Any = type(plugins.get("optimizer", "mezo"))


class Sketched(MeSP):
    """mesp with an option that says nothing of its gradients."""

    name = "sketched"

    class Options(PreferenceOptions):
        sketch: int = 4


class Shaded(MeZO):
    """mezo with an option that says nothing of its estimates."""

    name = "shaded"

    class Options(ZerothOrderOptions):
        shade: float = 0.5


class Exact:
    """Gradients by autodiff, block by block; what is done with them is for others to say."""

    name = "exact"
    promises: Promise | None = "exact_gradients"
    Options: Any = FirstOrderOptions

    def train_step(self, b: StepBuilder, model: ModelSpec, options: Any) -> None:
        batch = b.batch()
        x = embed(b, model, batch.tokens)
        inputs = []
        for block, group in enumerate(model.blocks):
            inputs.append(x)
            x = b.call(model.block, x, b.weights(group), b.adapter(group), *self.constants(b, model, block))
        loss, dx = head_loss_and_gradient(b, model, x, batch)
        b.emit(loss=loss)
        self.step(b, self.gradients(b, model, inputs, dx), options)

    def gradients(self, b: StepBuilder, model: ModelSpec, inputs: list[Value], dx: Value) -> Gradients:
        for block in reversed(range(len(inputs))):
            group = model.blocks[block]
            backward = vjp(model.block, (0, 2))
            dx, grads = b.call(
                backward, inputs[block], b.weights(group), b.adapter(group), *self.constants(b, model, block), dx
            )
            yield b.adapter(group), grads

    def constants(self, b: StepBuilder, model: ModelSpec, block: int) -> tuple[dict[str, Value], Value]:
        return rope_rows(b, model, block, b.sequence_length), b.constant(model.window(block))

    def step(self, b: StepBuilder, gradients: Gradients, options: Any) -> None:
        update(b, gradients, options)


class LoraFA(Exact):
    """LoRA-FA (arXiv 2308.03303): A stays as it was, only B is trained."""

    name = "lora_fa"

    def step(self, b: StepBuilder, gradients: Gradients, options: Any) -> None:
        update(
            b,
            (({n: p for n, p in adapter.items() if n.endswith("lora_B")}, grads) for adapter, grads in gradients),
            options,
        )


class HeavyBall(Exact):
    """u <- mu u + c g;  p <- p - lr u (Polyak 1964), with a state and an option of its own."""

    name = "heavy_ball"

    class Options(Settings):
        momentum: float = Field(default=0.9, ge=0, lt=1)

    def step(self, b: StepBuilder, gradients: Gradients, options: Any) -> None:
        for p, g, clip in summed_gradients(b, gradients):
            u = b.state(p, "u")
            b.store(
                [p, u], list(b.call(heavy_ball, p, g, u, b.scalar("learning_rate"), clip, momentum=options.momentum))
            )


def heavy_ball(
    p: torch.Tensor,
    g: torch.Tensor,
    u: torch.Tensor,
    lr: torch.Tensor,
    clip: dict[str, torch.Tensor],
    *,
    momentum: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    u = momentum * u + (g * clip["factor"] if clip else g)
    return p - lr * u, u


class Misnamed(Exact):
    """Steps twice as far, by a function that is called as the library's is."""

    name = "misnamed"

    def step(self, b: StepBuilder, gradients: Gradients, options: Any) -> None:
        for p, g, _ in summed_gradients(b, gradients):
            b.store(p, b.call(sgd, p, g, b.scalar("learning_rate"), {}))


def sgd(p: torch.Tensor, g: torch.Tensor, lr: torch.Tensor, clip: dict[str, torch.Tensor]) -> torch.Tensor:
    return p - 2 * lr * g


class OtherRule(Exact):
    """Takes another rule of the library than its options say."""

    name = "other_rule"

    def step(self, b: StepBuilder, gradients: Gradients, options: Any) -> None:
        update(b, gradients, FirstOrderOptions(update={"sgd": "adamw", "adamw": "sgd"}[options.update]))


class OtherScalar(Exact):
    """The library's function for SGD, with another number in the place of the learning rate."""

    name = "other_scalar"

    def step(self, b: StepBuilder, gradients: Gradients, options: Any) -> None:
        from bespoke.methods.update import sgd

        for p, g, clip in summed_gradients(b, gradients):
            b.store(p, b.call(sgd, p, g, b.scalar("epsilon"), clip))


class HalfClipped(Exact):
    """Clips by the norm of B's gradients alone."""

    name = "half_clipped"

    def step(self, b: StepBuilder, gradients: Gradients, options: Any) -> None:
        from bespoke.methods.update import clip_factor, sgd, square_sum

        pieces = [(p, g) for p, g, _ in summed_gradients(b, gradients)]
        if b.training.clip_norm is None:
            for p, g in pieces:
                b.store(p, b.call(sgd, p, g, b.scalar("learning_rate"), {}))
            return
        squares = b.zeros(())
        for p, g in pieces:
            if p.name.endswith("lora_B"):
                b.call(square_sum, g, add_to=squares)
        clip = {"factor": b.call(clip_factor, squares, clip_norm=b.training.clip_norm)}
        for p, g in pieces:
            b.store(p, b.call(sgd, p, g, b.scalar("learning_rate"), clip))


class Mixed(Exact):
    """The library's rule for A, a longer step for B."""

    name = "mixed"

    def step(self, b: StepBuilder, gradients: Gradients, options: Any) -> None:
        for adapter, grads in gradients:
            update(b, [({n: p for n, p in adapter.items() if n.endswith("lora_A")}, grads)], options)
            for name in (n for n in adapter if n.endswith("lora_B")):
                b.store(adapter[name], b.call(sgd, adapter[name], grads[name], b.scalar("learning_rate"), {}))


@hookimpl
def register_optimizers(register: Callable[[Optimizer], None]) -> None:
    for kind in (Sketched, Shaded, LoraFA, HeavyBall):
        register(kind())
