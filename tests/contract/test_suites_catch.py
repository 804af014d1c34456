# SPDX-License-Identifier: Apache-2.0
"""The suite of optimizers finds what is wrong: methods broken in one way each, and the words that tell the author."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from bespoke import plugins
from bespoke.contracts import Settings
from bespoke.errors import BespokeError, PlanError, PluginError
from bespoke.graph import StepBuilder
from bespoke.methods import block_forward, descended, embed, head_loss
from bespoke.testing import check_optimizer
from tests.support.checks import few_rows_of

METHOD = "mebp"


class Options(Settings):
    """None."""


class Estimating:
    """A small optimizer that keeps the contract: steps by a number that is recorded."""

    name = "small"
    promises: Any = None
    Options: Any = Options
    sign = -1.0

    def train_step(self, b: StepBuilder, model: Any, options: Any) -> None:
        loss = self.loss(b, model)
        recorded = b.record(loss)
        self.store(b, model, recorded, loss)
        b.emit(loss=loss)

    def loss(self, b: StepBuilder, model: Any) -> Any:
        batch = b.batch()
        x = embed(b, model, batch.tokens)
        for block, group in enumerate(model.blocks):
            x, _ = block_forward(b, model, block, x, b.adapter(group))
        return head_loss(b, model, x, batch)

    def store(self, b: StepBuilder, model: Any, recorded: Any, loss: Any) -> None:
        for theta in b.adapter(model.blocks[0]).values():
            b.store(theta, b.call(shrunk, theta, recorded))


def shrunk(theta: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return theta * (1 - 1e-2 * g)


def doubled(g: torch.Tensor) -> torch.Tensor:
    return 2 * g


class NoSettings(Estimating):
    Options = dict


class Undecided(Estimating):
    promises = "about_right"


class EstimatesWithoutOptions(Estimating):
    promises = "two_sided_loss_difference"


class Unnamed(Estimating):
    name = "../small"


class Unset(Estimating):
    class Options(Options):
        epsilon: float


class Callless(Estimating):
    train_step = "later"  # type: ignore[assignment]


class TakesAnything(Estimating):
    class Options(Options):
        model_config = {"extra": "ignore"}  # noqa: RUF012


class SilentLoss(Estimating):
    def train_step(self, b: StepBuilder, model: Any, options: Any) -> None:
        self.store(b, model, b.record(self.loss(b, model)), None)


class Idle(Estimating):
    def store(self, b: StepBuilder, model: Any, recorded: Any, loss: Any) -> None:
        """Learns nothing."""


class StoresTwice(Estimating):
    def store(self, b: StepBuilder, model: Any, recorded: Any, loss: Any) -> None:
        for _ in range(2):
            super().store(b, model, recorded, loss)


class Forgetful(Estimating):
    """Its second plan is not its first."""

    calls = 0

    def train_step(self, b: StepBuilder, model: Any, options: Any) -> None:
        self.calls += 1
        super().train_step(b, model, options)
        if self.calls % 2:
            b.emit(again=b.call(doubled, b.scalar("learning_rate")))


class DrawsItself(Estimating):
    def train_step(self, b: StepBuilder, model: Any, options: Any) -> None:
        torch.rand(1)
        super().train_step(b, model, options)


class HalfTheLoss(Estimating):
    def loss(self, b: StepBuilder, model: Any) -> Any:
        return b.call(doubled, super().loss(b, model))


class UnstoredState(Estimating):
    def store(self, b: StepBuilder, model: Any, recorded: Any, loss: Any) -> None:
        for theta in b.adapter(model.blocks[0]).values():
            b.store(theta, b.call(shrunk, b.state(theta, "m"), recorded))


class Crashes(Estimating):
    def train_step(self, b: StepBuilder, model: Any, options: Any) -> None:
        b.adapter("block_00")["no_proj.lora_A"]


@pytest.mark.parametrize(
    ("broken", "kind", "words"),
    [
        (NoSettings, PluginError, "subclass of bespoke.contracts.Settings"),
        (
            Undecided,
            PluginError,
            r"promises = 'about_right'.*'exact_gradients', 'two_sided_loss_difference', .* or None",
        ),
        (EstimatesWithoutOptions, PluginError, "derived from bespoke.methods.ZerothOrderOptions"),
        (Unnamed, PluginError, "name = '../small'"),
        (Unset, PluginError, "a default for every option"),
        (Callless, PluginError, "train_step = 'later'"),
        (TakesAnything, PluginError, "unknown option"),
        (Crashes, PluginError, "KeyError in train_step"),
        (SilentLoss, PluginError, "emitted 0 times"),
        (Idle, PluginError, "no store"),
        (StoresTwice, PlanError, "stored twice"),
        (UnstoredState, PluginError, "never stored"),
        (DrawsItself, PluginError, "torch's random state"),
        (Forgetful, PluginError, "another plan"),
        (HalfTheLoss, PluginError, "a loss of"),
    ],
)
def test_the_error_says_what_is_wrong_with_an_optimizer(broken: type, kind: type[BespokeError], words: str) -> None:
    with pytest.raises(kind, match=words) as caught:
        check_optimizer(broken(), exact=False)
    assert all((caught.value.subject, caught.value.got, caught.value.expected, caught.value.next_step))


class Boasts(Estimating):
    promises = "exact_gradients"


@pytest.mark.parametrize(("optimizer", "said"), [(Estimating(), {"exact": True}), (Boasts(), {})])
def test_an_estimate_that_says_it_is_exact_is_found_out(optimizer: Any, said: Any) -> None:
    with pytest.raises(PluginError, match="accumulation refused"):
        check_optimizer(optimizer, **said)


def test_a_gradient_that_is_off_is_found_out() -> None:
    exact = plugins.get("optimizer", METHOD)

    class Scaled(type(exact)):  # type: ignore[misc]
        def gradients(self, b: StepBuilder, *rest: Any) -> Any:
            for adapter, grads in super().gradients(b, *rest):
                name = next(iter(grads))
                yield adapter, {**grads, name: b.call(doubled, grads[name])}

    with pytest.raises(PluginError, match=r"a gradient of '.*' that is off by 1 of its norm"):
        check_optimizer(Scaled())


@pytest.mark.slow
def test_gradients_are_asked_of_the_pieces_that_are_stored_and_of_no_other() -> None:
    exact = plugins.get("optimizer", METHOD)

    class OnlyB(type(exact)):  # type: ignore[misc]
        def gradients(self, b: StepBuilder, *rest: Any) -> Any:
            for adapter, grads in super().gradients(b, *rest):
                yield {name: piece for name, piece in adapter.items() if name.endswith("lora_B")}, grads

    report = check_optimizer(OnlyB(), exact.Options(update="sgd"), learning_rate=0.1)
    assert report.gradient_error is not None
    assert report.gradient_error < 1e-4


Estimate: Any = type(plugins.get("optimizer", "mezo"))


class OneSided(Estimate):
    """Compares with where it is."""

    def loss(self, b: StepBuilder, model: Any, options: Any, query: int, sign: int) -> Any:
        return super().loss(b, model, options, query, max(sign, 0))


class Stepping(Estimate):
    """Steps by `descended` of its own."""

    def train_step(self, b: StepBuilder, model: Any, options: Any) -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys.modules[Estimate.__module__], "descended", self.descended)
            super().train_step(b, model, options)

    def descended(self, b: StepBuilder, theta: Any, gs: Any, options: Any) -> Any:
        raise NotImplementedError


class Signs(Stepping):
    """Steps of one size."""

    def descended(self, b: StepBuilder, theta: Any, gs: Any, options: Any) -> Any:
        z = b.noise(theta, 0, options.distribution)
        return b.call(signed, theta, z, gs[0], b.scalar("learning_rate"))


class Forgets(Stepping):
    """Moves all that it stores by one of its queries."""

    def descended(self, b: StepBuilder, theta: Any, gs: Any, options: Any) -> Any:
        return descended(b, theta, gs[:1], options)


class RecordsMeans(Estimate):
    """One number where its options say two."""

    def train_step(self, b: StepBuilder, model: Any, options: Any) -> None:
        super().train_step(b, model, options.model_copy(update={"queries": 1}))


def signed(theta: torch.Tensor, z: torch.Tensor, g: torch.Tensor, lr: torch.Tensor) -> torch.Tensor:
    return theta - lr * torch.sign(g * z)


@pytest.mark.parametrize(
    ("broken", "words"),
    few_rows_of(
        [
            (OneSided, "recorded as number 0 of step 1"),
            (Signs, "step 1 of '.*' off by"),
            (Forgets, "step 1 of '.*' off by"),
            (RecordsMeans, "records 1 values.*each of 2 queries"),
        ],
        (1, 3),
    ),
)
def test_estimates_that_are_not_what_is_promised_are_found_out(broken: Any, words: str) -> None:
    with pytest.raises(PluginError, match=words):
        check_optimizer(broken(), broken.Options(queries=2), steps=20, learning_rate=3e-4)


@pytest.mark.slow
def test_a_method_that_climbs_is_found_out() -> None:
    exact = plugins.get("optimizer", METHOD)
    with pytest.raises(PluginError, match="after 30 steps on one batch"):
        check_optimizer(exact, exact.Options(update="sgd"), exact=True, learning_rate=-0.1)
