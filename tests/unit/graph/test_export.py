# SPDX-License-Identifier: Apache-2.0
"""Graphs in a bundle: the same numbers as before they were saved, the same bytes from any process that traces them, and no code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._export.serde.serialize import SerializedArtifact, deserialize
from torch.fx.experimental.proxy_tensor import make_fx

import bespoke.ops as ops
from bespoke.errors import GraphError
from bespoke.graph.export import program_bytes
from bespoke.ops.load_program import load_program


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


class Plain(torch.nn.Module):
    """A function as a module, which is what torch.export takes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *operands: torch.Tensor) -> Any:
        return self.function(*operands)


def export(function: Callable[..., Any], *operands: torch.Tensor, traced: bool = False) -> Any:
    """`traced` as the builder does it: first down to aten operators, which also removes autodiff."""
    if traced:
        flat = make_fx(lambda *args: tuple(torch.utils._pytree.tree_leaves(function(*args))))(*operands)
        return torch.export.export(flat, operands)
    return torch.export.export(Plain(function), operands)


def attention(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    q, k, v = (x @ w).view(-1, 3, 2, 4).unbind(1)
    mask = torch.arange(x.shape[0])[:, None] >= torch.arange(x.shape[0])[None]
    scores = torch.where(mask, torch.einsum("thd,shd->hts", q, k), -float("inf"))
    probabilities = torch.softmax(scores * 0.5, -1)
    out = torch.einsum("hts,shd->thd", probabilities, v).reshape(x.shape[0], -1)
    return out, torch.nn.functional.layer_norm(out, (8,)), out.max(-1).values, out.to(torch.float16)


def backward(x: torch.Tensor, w: torch.Tensor, dy: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.func.vjp(lambda y: attention(y, w)[0], x)[1](dy)


def pieces(x: torch.Tensor, tokens: torch.Tensor) -> dict[str, Any]:
    a, b = torch.split(x, [3, 5], 1)
    picked = x.gather(1, tokens[:, None].clamp(0, 7))[:, 0]
    joined = torch.cat([torch.nn.functional.gelu(a, approximate="tanh"), torch.nn.functional.silu(b)], 1)
    return {"joined": joined, "rows": x[tokens], "picked": [picked, torch.var_mean(x)[1]], "same": x.clone()}


def fused(x: torch.Tensor) -> torch.Tensor:
    heads = x.view(1, 1, *x.shape)
    return torch.nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)


def quantized(
    x: torch.Tensor, codes: torch.Tensor, scales: torch.Tensor, start: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    y = ops.linear_int4(x, codes, scales, None, 40)
    cut = ops.linear_int4(x[:, :8], codes, scales, start, 8)
    return (
        y,
        cut,
        ops.linear_int4_transposed(y, codes, scales, None, 40),
        ops.embedding_int4(start[None], codes, scales, 40),
    )


def cases() -> list[tuple[Callable[..., Any], tuple[torch.Tensor, ...]]]:
    torch.manual_seed(0)
    x, w, tokens = torch.randn(6, 8), torch.randn(8, 24), torch.tensor([0, 5, 3, 3, 1, 2])
    codes = torch.randint(0, 256, (12, 32), dtype=torch.uint8)
    scales = torch.rand(12, 2, dtype=torch.float16)
    return [
        (attention, (x, w)),
        (backward, (x, w, torch.randn(6, 8))),
        (pieces, (x, tokens)),
        (fused, (x,)),
        (quantized, (torch.randn(6, 40), codes, scales, torch.tensor(0))),
    ]


@pytest.mark.parametrize(("case", "traced"), [(0, False), (0, True), (1, True), (2, False), (3, False), (4, True)])
def test_a_loaded_graph_computes_what_torchs_own_reader_would(case: int, traced: bool) -> None:
    function, operands = cases()[case]
    program = export(function, *operands, traced=traced)
    data = program_bytes(program)
    with torch.no_grad():
        ours = load_program(data, "graph")(*operands)
        theirs = deserialize(SerializedArtifact(data, b"", b"", b"")).module()(*operands)
        plain = torch.utils._pytree.tree_leaves(function(*operands))
    assert isinstance(ours, tuple)
    for a, b, c in zip(ours, theirs, plain, strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, c)


def test_names_paths_and_lines_leave_no_trace() -> None:
    def renamed(first_operand: torch.Tensor, secret_matrix: torch.Tensor) -> Any:
        # another line, another name

        secret_result = attention(first_operand, secret_matrix)
        return {"outputs": list(secret_result)}

    x, w = cases()[0][1]
    data = program_bytes(export(attention, x, w))
    assert data == program_bytes(export(renamed, x, w)) == program_bytes(export(attention, x, w))
    for trace in (b"secret", b"operand", Path(__file__).name.encode(), b"/", b"attention", b"Plain", b"+cu", b"+cpu"):
        assert trace not in data


def test_a_traced_module_gives_the_bytes_of_its_export() -> None:
    for function, operands in cases()[:2]:
        flat = make_fx(lambda *args, of=function: tuple(of(*args)), tracing_mode="fake")(*operands)
        assert program_bytes(flat) == program_bytes(torch.export.export(flat, operands))


def test_functions_that_differ_differ_in_bytes() -> None:
    x = torch.ones(2, 2)
    variants = [lambda a: a * 2.0, lambda a: a * 2.5, lambda a: a + 2.0, lambda a: (a * 2.0).t()]
    assert len({program_bytes(export(v, x)) for v in variants} | {program_bytes(export(variants[0], x[:1]))}) == 5


def test_constructors_follow_the_device() -> None:
    data = program_bytes(export(lambda x: x + torch.arange(4) + torch.full((4,), 2.0), torch.ones(4)))
    on_meta = load_program(data, "graph", device="meta")
    assert on_meta(torch.ones(4, device="meta"))[0].device.type == "meta"


class Holder(torch.nn.Module):
    """Keeps one tensor in the way that `kind` says."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        tensor = torch.ones(2)
        if kind == "weight":
            self.weight = torch.nn.Parameter(tensor)
        elif kind == "constant":
            self.constant = tensor
        else:
            self.register_buffer(kind, tensor)

    def forward(self, x: torch.Tensor) -> Any:
        if self.kind == "grown":
            self.grown.add_(x)
        return x * getattr(self, self.kind)


@pytest.mark.parametrize("kind", ["weight", "table", "constant", "grown"])
def test_a_graph_that_holds_tensors_is_refused_by_name(kind: str) -> None:
    with pytest.raises(GraphError) as caught:
        program_bytes(torch.export.export(Holder(kind), (torch.ones(2),)), "scale")
    assert kind in caught.value.got
    assert caught.value.subject == "Graph 'scale'"


def test_other_graphs_that_no_bundle_holds_are_refused() -> None:
    x = torch.ones(4)

    def mutates(a: torch.Tensor) -> torch.Tensor:
        return a.add_(1)

    def branches(a: torch.Tensor) -> Any:
        return torch.cond(a.sum() > 0, lambda b: b.sin(), lambda b: b.cos(), (a,))

    cases: list[tuple[Callable[..., Any], str]] = [
        (mutates, "."),
        (branches, "."),
        (lambda a: torch.rand_like(a), "random"),
        (lambda a: torch.nn.functional.dropout(a, 0.5), "random"),
        (lambda a: a.clone().add_(1), "writes to its operands"),
        (lambda a: (a, 3), "."),
        (lambda a: torch.nn.functional.pad(a[None, None], (1, 1), mode="reflect"), "the word 'reflect'"),
    ]
    for function, what in cases:
        with pytest.raises(GraphError, match=what):
            program_bytes(export(function, x))
    any_size = {"operands": ({0: torch.export.Dim.DYNAMIC},)}
    dynamic = torch.export.export(Plain(lambda a: a * 2), (x,), dynamic_shapes=any_size)
    with pytest.raises(GraphError, match=r"tensor_values|size"):
        program_bytes(dynamic)


def test_what_is_written_is_json_that_says_only_what_is_computed() -> None:
    document = json.loads(program_bytes(export(attention, *cases()[0][1])))
    assert document["guards_code"] == []
    assert document["range_constraints"] == {}
    assert all(node["metadata"] == {} for node in document["graph_module"]["graph"]["nodes"])
