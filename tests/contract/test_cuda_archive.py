# SPDX-License-Identifier: Apache-2.0
"""Target `cuda`: its archives are torch's own format, hold the graph alone, and compute what was traced."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
import torch

from bespoke import plugins
from bespoke.graph.trace import DTYPE_NAMES, Graph, TensorSpec, Tracer
from bespoke.graph.tree import flatten
from bespoke.model.quantize import quantize
from bespoke.ops import QuantizedWeight, product, product_transposed

ROWS, COLUMNS, OUT = 5, 40, 12


def gated(x: torch.Tensor, w: QuantizedWeight, index: torch.Tensor) -> dict[str, torch.Tensor]:
    y = product(x, w)
    top, place = y.max(-1)
    return {"dx": product_transposed(torch.sigmoid(y) * y, w), "picked": y.gather(1, index), "top": top, "place": place}


@pytest.fixture(scope="module")
def operands() -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    codes, scales = quantize("w", torch.randn(OUT, COLUMNS, generator=generator).numpy())
    return (
        torch.randn(ROWS, COLUMNS, generator=generator), torch.from_numpy(codes), torch.from_numpy(scales),
        torch.randint(OUT, (ROWS, 2), generator=generator),
    )  # fmt: skip


@pytest.fixture(scope="module")
def graph(operands: tuple[torch.Tensor, ...]) -> Graph:
    specs = [TensorSpec(f"operand_{n}", tuple(t.shape), DTYPE_NAMES[t.dtype]) for n, t in enumerate(operands)]
    leaves, form = flatten((specs[0], QuantizedWeight(specs[1], specs[2], COLUMNS), specs[3]))
    return Tracer().trace(gated, leaves, form, {})[0]


@pytest.fixture
def archive(graph: Graph, tmp_path: Path) -> Path:
    cuda = plugins.get("target", "cuda")
    return cuda.lower(graph, tmp_path, cuda.Options()).path


def test_torch_reads_the_archive_and_computes_the_same(
    archive: Path, graph: Graph, operands: tuple[torch.Tensor, ...]
) -> None:
    program = torch.export.load(str(archive))
    found, expected = program.module()(*operands), graph.module(*operands)
    assert len(found) == len(expected) == 4
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_the_archive_opens_to_the_same_results(archive: Path, graph: Graph, operands: tuple[torch.Tensor, ...]) -> None:
    cuda = plugins.get("target", "cuda")
    for one, other in zip(cuda.open(archive, cuda.Options())(*operands), graph.module(*operands), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_the_archive_holds_the_graph_and_no_pickle(archive: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(archive.read_bytes())) as opened:
        names = {name.split("/", 1)[1]: opened.read(name) for name in opened.namelist()}
    kept = {name: data for name, data in names.items() if len(data) > 16}
    assert set(kept) == {"models/model.json"}
    assert {name: names[name] for name in names if name.endswith((".pt", ".pkl"))} == {"data/sample_inputs/model.pt": b""}
    assert names["models/model.json"].startswith(b"{")
    assert b"stack_trace" not in names["models/model.json"]
    assert str(Path(__file__).parent).encode() not in archive.read_bytes()
