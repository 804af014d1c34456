# SPDX-License-Identifier: Apache-2.0
"""Loss and gradient in one pass over the vocabulary, in float64, against cross_entropy over all logits at once."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bespoke.config import Lora
from bespoke.methods import head
from bespoke.model.families import read_config
from bespoke.model.spec import ModelSpec
from tests.support.models import tiny_config

EXACT: dict[str, float] = {"rtol": 1e-10, "atol": 1e-12}
VOCABULARY, HIDDEN = 131, 64


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    folder = tmp_path_factory.mktemp("config")
    tiny_config("llama").save_pretrained(folder)
    return ModelSpec(read_config(folder), Lora())


def random(*shape: int, seed: int, scale: float = 1.0) -> torch.Tensor:
    return scale * torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


class Case:
    def __init__(self, scale: float = 1.0) -> None:
        self.x, self.norm, self.table = (
            random(14, HIDDEN, seed=0),
            random(HIDDEN, seed=1),
            random(VOCABULARY, HIDDEN, seed=2),
        )
        self.table *= scale
        generator = torch.Generator().manual_seed(3)
        self.targets = torch.randint(0, VOCABULARY, (2, 7), generator=generator)
        self.mask = torch.tensor([[1, 0, 1, 1, 0, 0, 1], [0] * 7], dtype=torch.float64)
        self.tokens = torch.tensor(
            9.0, dtype=torch.float64
        )  # more than this micro-batch has: another one brings the rest

    def in_chunks(self, model: ModelSpec, chunk: int, *, gradient: bool = True) -> tuple[dict[str, torch.Tensor], Any]:
        h, state = head.head_start(self.x, self.norm, model=model, gradient=gradient)
        for start in range(0, VOCABULARY, chunk):
            rows = self.table[start : start + chunk]
            state = head.head_chunk(h, rows, self.targets, torch.tensor(start), state)
        statistics = {name: value for name, value in state.items() if name != "acc"}
        return head.head_end(statistics, self.targets, self.mask), state

    def at_once(self, model: ModelSpec) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Sum of losses, its gradient over the tokens of the batch, and logits."""
        x = self.x.clone().requires_grad_()
        logits = model.final_norm(x, self.norm) @ self.table.t()
        losses = torch.nn.functional.cross_entropy(logits, self.targets.flatten(), reduction="none")
        total = (losses * self.mask.flatten()).sum()
        (dx,) = torch.autograd.grad(total / self.tokens, x)
        return total.detach(), dx, logits.detach()


@pytest.mark.parametrize("scale", [1.0, 300.0])  # logits of thousands: exp of one would overflow
@pytest.mark.parametrize("chunk", [1, 17, 130, 131])
def test_one_pass_gives_loss_gradient_and_guesses(chunk: int, scale: float, model: ModelSpec) -> None:
    case = Case(scale)
    sums, state = case.in_chunks(model, chunk)
    total, dx, logits = case.at_once(model)
    torch.testing.assert_close(sums["loss_sum"], total, **EXACT)
    right = (logits.argmax(-1) == case.targets.flatten()) * case.mask.flatten()
    assert float(sums["correct"]) == float(right.sum())
    assert torch.equal(state["best"], logits.argmax(-1))
    found = head.head_gradient(
        case.x, case.norm, case.table, state["acc"], state["l"], case.targets, case.mask, case.tokens, model=model
    )
    torch.testing.assert_close(found, dx, **EXACT)


def test_without_gradient_no_sum_of_rows_is_kept(model: ModelSpec) -> None:
    sums, state = Case().in_chunks(model, 17, gradient=False)
    assert "acc" not in state
    torch.testing.assert_close(sums["loss_sum"], Case().at_once(model)[0], **EXACT)


def test_a_guess_in_any_chunk_counts(model: ModelSpec) -> None:
    case = Case()
    _, _, logits = case.at_once(model)
    case.targets = logits.argmax(-1).view(2, 7)
    sums, _ = case.in_chunks(model, 17)
    assert float(sums["correct"]) == float(case.mask.sum())


def test_a_batch_without_trained_tokens_has_no_loss_and_no_gradient(model: ModelSpec) -> None:
    case = Case()
    case.mask = torch.zeros_like(case.mask)
    sums, state = case.in_chunks(model, 17)
    found = head.head_gradient(
        case.x, case.norm, case.table, state["acc"], state["l"], case.targets, case.mask, case.tokens, model=model
    )
    assert float(sums["loss_sum"]) == 0
    assert not found.any()
