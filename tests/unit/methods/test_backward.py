# SPDX-License-Identifier: Apache-2.0
"""The hand-derived stages of a block in float64, each against autograd through the model's own whole block."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bespoke.config import Training
from bespoke.graph.tree import leaves_of, map_leaves
from bespoke.methods import backward
from bespoke.methods.forward import attention_forward, attention_output, block_forward, mlp_forward
from tests.gradients.eager import Cell, EagerBuilder, doubles
from tests.gradients.harness import Base, random_adapter, random_batch, spec
from tests.support.models import TINY_FAMILIES, tiny_model

EXACT: dict[str, float] = {"rtol": 1e-10, "atol": 1e-10}
LENGTH, ROWS, RANK = 11, 2, 3
TILES = [{}, {"query_tile": 4, "mlp_slice": 64}]


@pytest.fixture(scope="module", params=TINY_FAMILIES)
def base(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Base:
    folder = tiny_model(request.param, tmp_path_factory.mktemp("model"))
    return Base.convert(request.param, folder, tmp_path_factory.mktemp("weights"))


class Block:
    """One block: its input, a gradient at its output, and what autograd says of every stage."""

    def __init__(self, base: Base, tiles: dict[str, int], block: int) -> None:
        self.model, self.block = spec(base, RANK), block
        batch = random_batch(base.config, LENGTH, rows=ROWS)
        state = doubles(random_adapter(self.model))
        self.b: Any = EagerBuilder(base, self.model, Training(batch_size=ROWS), batch, state, {}, tiles)
        generator = torch.Generator().manual_seed(0)
        shape = (ROWS * LENGTH, base.config.hidden_size)
        self.x, self.dy = (torch.randn(shape, dtype=torch.float64, generator=generator) for _ in range(2))
        self.adapter = self.b.adapter(self.model.blocks[block])

    def autograd(self) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """dx and the adapter's gradients, through ModelSpec.block in one piece."""
        weights = map_leaves(lambda cell: cell.tensor, self.b.weights(self.model.blocks[self.block]))
        adapter = {name: cell.tensor.clone().requires_grad_() for name, cell in self.adapter.items()}
        tables = self.b.weights("rope")
        names = self.model.rope_names(self.block)
        rope = {short: tables[name].tensor[:LENGTH] for short, name in zip(("cos", "sin"), names, strict=True)}
        x = self.x.clone().requires_grad_()
        y = self.model.block(x, weights, adapter, rope, torch.tensor(self.model.window(self.block)))
        dx, *grads = torch.autograd.grad(y, [x, *adapter.values()], self.dy)
        self.y = y.detach()
        return dx, dict(zip(adapter, grads, strict=True))


@pytest.mark.parametrize("tiles", TILES, ids=["whole", "tiled"])
def test_stages_together_are_the_vjp_of_the_block(base: Base, tiles: dict[str, int]) -> None:
    one = Block(base, tiles, 1)
    b, model, x, dy = one.b, one.model, Cell(one.x), Cell(one.dy)
    expected_dx, expected = one.autograd()

    y, branch = block_forward(b, model, 1, x, one.adapter)
    torch.testing.assert_close(y.tensor, one.y, **EXACT)

    attention = attention_forward(b, model, 1, x, one.adapter)
    middle = attention_output(b, model, 1, x, attention.o, one.adapter)
    dmiddle, mlp = backward.mlp_backward(b, model, 1, middle, branch, dy, one.adapter)
    do, output = backward.attention_output_backward(b, model, 1, attention.o, dmiddle, one.adapter)
    dqkv = backward.attention_backward(b, model, 1, attention, do)
    dx, inputs = backward.inputs_backward(b, model, 1, x, dqkv, dmiddle, one.adapter)

    found = {name: cell.tensor for name, cell in (mlp | output | inputs).items()}
    assert found.keys() == expected.keys()
    for name, reference in expected.items():
        torch.testing.assert_close(found[name], reference, **EXACT, msg=lambda m, name=name: f"{name}: {m}")
    torch.testing.assert_close(dx.tensor, expected_dx, **EXACT)


def test_the_first_block_has_the_same_adapter_gradients_and_asks_for_none_of_its_input(base: Base) -> None:
    one = Block(base, {}, 0)
    b, model, x, dy = one.b, one.model, Cell(one.x), Cell(one.dy)
    _, expected = one.autograd()
    attention = attention_forward(b, model, 0, x, one.adapter)
    middle = attention_output(b, model, 0, x, attention.o, one.adapter)
    branch, _ = mlp_forward(b, model, 0, middle, one.adapter)
    dmiddle, _ = backward.mlp_backward(b, model, 0, middle, branch, dy, one.adapter)
    do, _ = backward.attention_output_backward(b, model, 0, attention.o, dmiddle, one.adapter)
    dqkv = backward.attention_backward(b, model, 0, attention, do)
    passed, inputs = backward.inputs_backward(b, model, 0, x, dqkv, dmiddle, one.adapter)
    assert passed is dmiddle
    for name, cell in inputs.items():
        torch.testing.assert_close(cell.tensor, expected[name], **EXACT)
    assert len(leaves_of(inputs)) == 6
