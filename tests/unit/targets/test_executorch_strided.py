# SPDX-License-Identifier: Apache-2.0
"""Programs for a few rows: what lies between products is one call of our own operator, with what torch gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from bespoke.model import layers
from tests.unit.targets.programs import kernels_of, run, traced

pytest.importorskip("executorch")

from bespoke_plugins.targets.executorch import program
from bespoke_plugins.targets.executorch.program import compile_graph
from bespoke_plugins.targets.executorch.run import _operators
from bespoke_plugins.targets.executorch.strided import OPERATOR

TOLERANCE = 2e-6  # relative to the largest value
WIDTH, HEADS, RANK = 128, 4, 8


def normed(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return layers.norm(x, w, eps=1e-6)


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    return layers.rope(x.view(1, x.shape[0], HEADS, -1), cos, sin).reshape(x.shape)


def adapted(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return x + 2.0 * ((x @ a.t()) @ b.t())


def gated(g: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    return layers.gate(g, activation="silu") * u + layers.gate(u, activation="gelu") / (1.5 + g * g)


def per_head(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Transposes, a product of each head, and heads side by side."""
    a, b = (t.view(-1, HEADS, WIDTH // HEADS).transpose(0, 1) for t in (x, y))
    return torch.bmm(a @ b.transpose(1, 2), b).transpose(0, 1).reshape(x.shape)


def extended(x: torch.Tensor) -> torch.Tensor:
    """A constant among what is put side by side."""
    return torch.cat([x, torch.full_like(x, 2.0), x * 3.0], 1).t().contiguous()


def operands(rows: int, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    return [torch.randn(shape, generator=generator) for shape in ((rows, WIDTH), *shapes)]


def given(name: str, rows: int) -> tuple[Callable[..., torch.Tensor], list[torch.Tensor]]:
    half = WIDTH // HEADS // 2
    return {
        "norm": (normed, operands(rows, (WIDTH,))),
        "rotation": (rotated, operands(rows, (rows, half), (rows, half))),
        "adapter": (adapted, operands(rows, (RANK, WIDTH), (WIDTH, RANK))),
        "gate": (gated, operands(rows, (rows, WIDTH))),
        "heads": (per_head, operands(rows, (rows, WIDTH))),
        "constant": (extended, operands(rows)),
    }[name]


def results_of(data: bytes, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    if not _operators():
        pytest.skip("the device core is not installed")
    return run(data, tensors)[0]


@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("name", ["norm", "rotation", "adapter", "gate", "heads", "constant"])
def test_few_rows_are_one_call(name: str, rows: int) -> None:
    function, tensors = given(name, rows)
    data = compile_graph(traced(function, tensors)).data
    assert kernels_of(data) - {"executorch_prim::et_view.default"} == {OPERATOR}
    (found,) = results_of(data, tensors)
    expected = function(*(t.double() for t in tensors))
    assert (found - expected).abs().max() <= TOLERANCE * expected.abs().max()


def test_more_rows_are_left_to_xnnpack() -> None:
    function, tensors = given("norm", 9)
    assert OPERATOR not in kernels_of(compile_graph(traced(function, tensors)).data)


def test_the_first_row_has_the_same_bits_among_others() -> None:
    """A draft must not change what is answered."""
    for name in ("norm", "adapter", "gate"):
        function, tensors = given(name, 8)
        alone = [tensors[0][:1], *(t[:1] if name == "gate" else t for t in tensors[1:])]
        (all_rows,) = results_of(compile_graph(traced(function, tensors)).data, tensors)
        (row,) = results_of(compile_graph(traced(function, alone)).data, alone)
        assert torch.equal(row, all_rows[:1]), name


def test_what_has_no_loop_stays_with_xnnpack() -> None:
    _, tensors = given("gate", 2)
    data = compile_graph(traced(lambda x, y: torch.exp(x) + y * y, tensors)).data
    assert OPERATOR not in kernels_of(data)


def test_a_call_that_does_not_fit_its_tensors_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each number of the code is replaced by others: the call fails, or stays within its tensors."""
    function, tensors = given("norm", 2)
    replaced: dict[str, Any] = {}

    def damaged(*stage: Any) -> Any:
        op = original(*stage)
        code = op.arguments[1]
        replaced["size"] = len(code)
        if "at" in replaced:
            code[replaced["at"]] = replaced["by"]
        return op

    original = program.strided.as_one_call
    monkeypatch.setattr(program.strided, "as_one_call", damaged)
    results_of(compile_graph(traced(function, tensors)).data, tensors)
    failed = 0
    for at in range(replaced["size"]):
        for by in (-1, 70, 1 << 20, 1 << 40, -(1 << 62), (1 << 62)):
            replaced.update(at=at, by=by)
            data = compile_graph(traced(function, tensors)).data
            try:
                run(data, tensors)
            except RuntimeError:
                failed += 1
    assert failed > replaced["size"] * 2
