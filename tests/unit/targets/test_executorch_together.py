# SPDX-License-Identifier: Apache-2.0
"""Products of the same few rows are one call, with the bits that each of them has alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bespoke.core import find
from bespoke.model import layers
from bespoke.model.quantize import quantize
from bespoke.ops import QuantizedWeight, product
from tests.unit.targets.programs import kernels_of, traced

pytest.importorskip("executorch")

from bespoke_plugins.targets.executorch import program, vendor
from bespoke_plugins.targets.executorch.program import compile_graph
from bespoke_plugins.targets.executorch.run import open_program
from bespoke_plugins.targets.executorch.together import ADAPTED, MOST, OPERATOR, PLAIN

pytestmark = [
    pytest.mark.xdist_group("executorch"),
    pytest.mark.skipif(find().path is None, reason="the device core, which has our operators, is not installed"),
]
IN, RANK = 96, 8
OUTS = (40, 64, 33)
Function = Callable[..., tuple[torch.Tensor, ...]]


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    vendor.load_executorch()


def operands(rows: int, outs: tuple[int, ...] = OUTS) -> list[torch.Tensor]:
    """x, then codes, scales, A and B of each linear."""
    generator = torch.Generator().manual_seed(rows)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    found = [random(rows, IN)]
    for out in outs:
        codes, scales = quantize("w", random(out, IN).numpy())
        found += [torch.from_numpy(codes), torch.from_numpy(scales), random(RANK, IN), random(out, RANK)]
    return found


def adapted(x: torch.Tensor, *rest: torch.Tensor) -> tuple[torch.Tensor, ...]:
    each = [rest[at : at + 4] for at in range(0, len(rest), 4)]
    return tuple(
        layers.lora_linear(x, QuantizedWeight(codes, scales, IN), None, a, b, scale=0.5) for codes, scales, a, b in each
    )


def plain(x: torch.Tensor, *rest: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(product(x, QuantizedWeight(*rest[at : at + 2], IN)) for at in range(0, len(rest), 4))


def chained(x: torch.Tensor, *rest: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The second adapter reads the first product, so the two have to stay apart."""
    first = product(x, QuantizedWeight(*rest[:2], IN))
    h = first[:, :RANK] * 2
    return first, product(x, QuantizedWeight(*rest[4:6], IN)) + h @ rest[7].t()


def results(function: Function, tensors: list[torch.Tensor], folder: Path) -> tuple[set[str], list[torch.Tensor]]:
    """The kernels of the program, and what it gives."""
    compiled = compile_graph(traced(function, tensors))
    file = folder / f"{len(list(folder.iterdir()))}.pte"
    file.write_bytes(compiled.data)
    opened = open_program(file)
    assert opened is not None
    return kernels_of(compiled.data), list(opened(*tensors))


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize(("function", "alone"), [(adapted, ADAPTED), (plain, PLAIN)])
def test_one_call_has_the_bits_of_three(
    function: Function, alone: str, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = operands(rows)
    kernels, found = results(function, tensors, tmp_path)
    assert OPERATOR in kernels
    assert alone not in kernels
    monkeypatch.setattr(program, "put_together", lambda tape: None)
    kernels, expected = results(function, tensors, tmp_path)
    assert alone in kernels
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


def test_many_rows_stay_apart(tmp_path: Path) -> None:
    assert OPERATOR not in results(plain, operands(9), tmp_path)[0]


def test_products_that_need_each_other_stay_apart(tmp_path: Path) -> None:
    tensors = operands(2)
    kernels, found = results(chained, tensors, tmp_path)
    assert OPERATOR not in kernels
    for one, expected in zip(found, chained(*tensors), strict=True):
        torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-4)


def test_a_call_takes_so_many_and_the_rest_has_its_own(tmp_path: Path) -> None:
    tensors = operands(1, (32,) * (MOST + 1))
    kernels, found = results(plain, tensors, tmp_path)
    assert {OPERATOR, PLAIN} <= kernels
    for one, expected in zip(found, plain(*tensors), strict=True):
        torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-4)
