# SPDX-License-Identifier: Apache-2.0
"""Every gradient of every LoRA tensor against transformers and peft autograd in float64, family by family.

Models are tiny and random (norms, biases and qk-norms too), B is random, masks have gaps and a wholly masked row, Gemma's window is
eight tokens. Accumulators hold the gradients exactly, so they are read from there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

import pytest

from bespoke.graph.trace import Tracer
from tests.gradients.harness import (
    LARGEST,
    LOSS_TOLERANCE,
    SOME_KEPT,
    TINY_TILES,
    TOLERANCE,
    Base,
    Bases,
    Reference,
    Tiles,
    random_adapter,
    random_batch,
    rig,
    spec,
    worst_error,
)
from tests.support.checks import few_rows_of
from tests.support.models import TINY_FAMILIES

METHODS = ("mebp", "mesp")
MODELS = (*TINY_FAMILIES, "stories260K")
LENGTHS = (1, 7, 33, 129)
RANKS = (1, 3, 8)
# Few tokens and rank 1 make a gradient one number times a vector; where that number cancels, fp32 keeps too few digits in any
# implementation (peft's own fp32 gradients are then 1e-5 to 1e-4 off). So short sequences come in more rows, and the trained model,
# whose attention is far from even, gets real text in yet more.
ROWS = {1: 8}
ROWS_TRAINED = {1: 8, 7: 16, 33: 8, 129: 8}


class Checked(NamedTuple):
    """What was compared: tensors, largest error, and where it was."""

    tensors: int
    error: float
    where: str


def check(
    base: Base,
    tracer: Tracer,
    length: int,
    rank: int,
    *,
    tiles: Tiles | None = None,
    seed: int = 0,
    text: Sequence[int] | None = None,
) -> dict[str, Checked]:
    """Both methods against one reference."""
    adapter = random_adapter(spec(base, rank), seed=seed)
    rows = (ROWS if text is None else ROWS_TRAINED).get(length, 3)
    batch = random_batch(base.config, length, rows=rows, seed=seed, text=text)
    reference_loss, expected = Reference(base, spec(base, rank), adapter).gradients(batch)
    found = {}
    for method in METHODS:
        loss, gradients = rig(base, method, length, rank, tracer, tiles=tiles, rows=rows).gradients(adapter, batch)
        error, where = worst_error(gradients, expected)
        assert error <= TOLERANCE, f"{base.name}, {method}, T = {length}, rank {rank}: {where} is off by {error:.2e}"
        assert loss == pytest.approx(reference_loss, rel=LOSS_TOLERANCE)
        found[method] = Checked(len(expected), error, f"T={length} r={rank} {where}")
    return found


# Each model, length and rank at least once; 7 is below Gemma's window, 33 and 129 above it and no multiple of any tile. With tiny
# tiles queries come by five, rows by seven, the width by 32 and the vocabulary by 17: every tile and every last, shorter one. With
# some kept, what is kept and what is computed again stand side by side.
COVERING = (
    ("llama", 129, 3, None),
    ("llama", 129, 3, LARGEST),
    ("llama3", 33, 8, None),
    ("qwen2", 7, 1, None),
    ("qwen3", 33, 3, None),
    ("qwen3", 33, 3, TINY_TILES),
    ("qwen2", 33, 3, SOME_KEPT),
    ("gemma3_text", 33, 8, TINY_TILES),
    ("gemma3_text", 33, 3, SOME_KEPT),
)


@pytest.mark.parametrize(("name", "length", "rank", "tiles"), few_rows_of(COVERING, (1, 5)))
def test_gradients_are_those_of_peft(
    name: str, length: int, rank: int, tiles: Tiles | None, bases: Bases, tracer: Tracer
) -> None:
    check(bases(name), tracer, length, rank, tiles=tiles)


@pytest.mark.slow
def test_gradients_of_a_trained_model_are_those_of_peft(bases: Bases, tracer: Tracer, shakespeare: list[int]) -> None:
    check(bases("stories260K"), tracer, 1, 1, text=shakespeare)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_gradients_over_all_lengths_and_ranks(
    name: str, bases: Bases, tracer: Tracer, table: list[tuple[str, ...]], request: pytest.FixtureRequest
) -> None:
    text = request.getfixturevalue("shakespeare") if name == "stories260K" else None
    results: dict[str, list[Checked]] = {method: [] for method in METHODS}
    for found in _everything(bases(name), tracer, text):
        for method, checked in found.items():
            results[method].append(checked)
    for method, checks in results.items():
        worst = max(checks, key=lambda c: c.error)
        tensors = sum(c.tensors for c in checks)
        table.append((name, method, str(len(checks)), str(tensors), f"{worst.error:.1e}", worst.where))


def _everything(base: Base, tracer: Tracer, text: Sequence[int] | None) -> Iterator[dict[str, Checked]]:
    for length, rank in product(LENGTHS, RANKS):
        yield check(base, tracer, length, rank, seed=1, text=text)
    for length in LENGTHS:
        yield check(base, tracer, length, 3, tiles=TINY_TILES, seed=2, text=text)
    yield check(base, tracer, 129, 8, tiles=LARGEST, seed=3, text=text)
    yield check(base, tracer, 33, 8, tiles=SOME_KEPT, seed=4, text=text)


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[list[tuple[str, ...]]]:
    """Rows that the slow tests fill; printed when the last of them is done."""
    rows: list[tuple[str, ...]] = []
    yield rows
    if not rows:
        return
    head = ("model", "method", "cases", "tensors", "worst error", "where")
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows)]
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print("\n\nLoRA gradients against transformers + peft in float64, ||g - ref|| / ||ref||\n" + "\n".join(lines))
