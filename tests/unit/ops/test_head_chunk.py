# SPDX-License-Identifier: Apache-2.0
"""A chunk of the head as one operator, against softmax over all logits at once in float64; sub-tiles of any size give the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bespoke.graph.trace import Tracer
from bespoke.graph.tree import flatten
from bespoke.graph.value import PlanValue
from bespoke.methods import head
from bespoke.ops import (
    HEAD_CHUNK_GRADIENT_INT4,
    HEAD_CHUNK_INT4,
    OUT_VARIANTS,
    QuantizedWeight,
    head_chunk_bytes,
    head_chunk_int4,
    operator_workspace_bytes,
)
from bespoke.ops import head_chunk as operators
from tests.unit.ops.int4_weights import random, weight

EXACT: dict[str, Any] = {"rtol": 1e-10, "atol": 1e-10}
ROWS, VOCABULARY, WIDTH = 11, 150, 44


def start_state(h: torch.Tensor, *, gradient: bool) -> list[torch.Tensor]:
    zeros = torch.zeros_like(h[:, 0])
    state = [zeros - 1e30, zeros, zeros, zeros.to(torch.int64)]
    return [*state, torch.zeros_like(h)] if gradient else state


def one_pass(
    w: QuantizedWeight, h: torch.Tensor, targets: torch.Tensor, chunk: int, *, gradient: bool = True
) -> list[torch.Tensor]:
    state = start_state(h, gradient=gradient)
    for start in range(0, VOCABULARY, chunk):
        codes, scales = w.codes[start : start + chunk], w.scales[start : start + chunk]
        state = list(head_chunk_int4(h, codes, scales, targets, torch.tensor(start), *state))
    return state


@pytest.mark.parametrize("scale", [1.0, 300.0])
@pytest.mark.parametrize(
    ("chunk", "at_once"), [(VOCABULARY, 1 << 18), (VOCABULARY, 1), (64, 1), (1, 1), (149, ROWS * 50)]
)
def test_the_state_is_that_of_all_logits(
    chunk: int, at_once: int, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operators, "LOGITS_AT_ONCE", at_once)
    w, dense = weight(VOCABULARY, WIDTH)
    h, targets = scale * random(ROWS, WIDTH), torch.arange(ROWS) * 14
    m, total, label, best, acc = one_pass(w, h, targets, chunk)
    logits = h @ dense.t()
    p = torch.softmax(logits, -1)
    torch.testing.assert_close(m + total.log(), logits.logsumexp(-1), **EXACT)
    torch.testing.assert_close(m, logits.amax(-1), **EXACT)
    torch.testing.assert_close(label, logits.gather(1, targets[:, None])[:, 0], **EXACT)
    torch.testing.assert_close(acc / total[:, None], p @ dense, **EXACT)
    assert torch.equal(best, logits.argmax(-1))
    without = one_pass(w, h, targets, chunk, gradient=False)
    for one, other in zip(without, (m, total, label, best), strict=True):
        torch.testing.assert_close(one, other, **EXACT)


def test_of_equal_logits_the_first_row_is_the_best_token(monkeypatch: pytest.MonkeyPatch) -> None:
    w, _ = weight(VOCABULARY, WIDTH)
    w.codes[:], w.scales[:] = w.codes[:1].clone(), 0.125
    h = random(ROWS, WIDTH).round()  # sums of whole numbers of eighths are exact: a processor may add them in any order
    assert not one_pass(w, h, torch.zeros(ROWS, dtype=torch.int64), 64)[3].any()


def test_operands_stay_as_they_are() -> None:
    w, _ = weight(VOCABULARY, WIDTH)
    h = random(ROWS, WIDTH)
    state = start_state(h, gradient=True)
    before = [value.clone() for value in state]
    head_chunk_int4(h, w.codes, w.scales, torch.zeros(ROWS, dtype=torch.int64), torch.tensor(0), *state)
    assert all(torch.equal(a, b) for a, b in zip(state, before, strict=True))


def test_what_is_not_a_number_shows_in_the_loss() -> None:
    w, _ = weight(VOCABULARY, WIDTH)
    h = random(ROWS, WIDTH)
    h[3, 5] = torch.nan
    _, total, *_ = one_pass(w, h, torch.zeros(ROWS, dtype=torch.int64), 64)
    assert torch.isnan(total).tolist() == [row == 3 for row in range(ROWS)]


@pytest.mark.parametrize("gradient", [False, True])
def test_a_plan_calls_the_operator_and_knows_its_cost(gradient: bool) -> None:
    tracer, width, chunk = Tracer(), 64, 4096

    def value(*shape: int, dtype: Any = "float32") -> PlanValue:
        return PlanValue(0, shape, dtype, "temporary", "operand")

    names = ("m", "l", "label", "best", "acc")[: 5 if gradient else 4]
    state = {
        n: value(ROWS, width) if n == "acc" else value(ROWS, dtype="int64" if n == "best" else "float32") for n in names
    }
    w = QuantizedWeight(value(chunk, width // 2, dtype="uint8"), value(chunk, width // 32, dtype="float16"), width)
    leaves, form = flatten((value(ROWS, width), w, value(1, ROWS, dtype="int64"), value(dtype="int64"), state))
    graph, _ = tracer.trace(head.head_chunk, leaves, form, {})
    (call,) = [n for n in graph.module.graph.nodes if n.op == "call_function" and "bespoke" in str(n.target)]
    assert str(call.target) == (HEAD_CHUNK_GRADIENT_INT4 if gradient else HEAD_CHUNK_INT4)
    assert graph.flops == (2 if gradient else 1) * 2 * ROWS * width * chunk
    assert graph.workspace_bytes >= head_chunk_bytes(ROWS, chunk, width)
    assert [(spec.shape, spec.dtype) for spec in graph.outputs] == [(state[n].shape, state[n].dtype) for n in names]


@pytest.mark.parametrize("name", ["head_chunk_int4", "head_chunk_gradient_int4"])
def test_operators_pass_torchs_own_checks(name: str) -> None:
    w, _ = weight(24, WIDTH)
    h = random(5, WIDTH)
    state = start_state(h, gradient="gradient" in name)
    arguments = (h, w.codes, w.scales, torch.tensor([[0, 23, 4, 99, 5]]), torch.tensor(0), *state)
    torch.library.opcheck(
        getattr(torch.ops.bespoke, name).default, arguments, test_utils=("test_schema", "test_faketensor")
    )


@pytest.mark.parametrize("schema", OUT_VARIANTS)
def test_out_variants_have_the_operands_of_the_operators(schema: str) -> None:
    name = schema.partition(".out(")[0]
    ours = torch._C.parse_schema(f"bespoke::{schema}")
    functional = getattr(torch.ops.bespoke, name).default._schema
    operands = [(a.name, str(a.type)) for a in ours.arguments if not a.is_out]
    assert operands == [(a.name, str(a.type)) for a in functional.arguments]
    assert len([a for a in ours.arguments if a.is_out]) == len(ours.returns) == len(functional.returns)
    assert operator_workspace_bytes(name, 256) >= 0
