# SPDX-License-Identifier: Apache-2.0
"""Compares the results of an artifact with those of its traced graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import torch

from bespoke.graph.trace import Graph
from bespoke.testing.options import Fail

__all__ = ["Comparison", "unstable"]

# Random shifts of operands that reveal indices that depend on rounding. A near tie escapes them once in 2^16.
MOVES = 16


class Comparison:
    """Compares artifacts with graphs and keeps the largest relative `error`.

    Args:
        fail: creates the error from got, expected and next step.
        tolerance: largest error of a result, relative to its largest value.
        rounds: whether the target computes in less than float32. The index of a largest value may then differ if the traced graph's
            index also changes when its operands move by `tolerance` of their size.
    """

    def __init__(self, fail: Fail, tolerance: float, rounds: bool) -> None:
        self.error = 0.0
        self._fail, self._tolerance, self._rounds = fail, tolerance, rounds

    def compare(
        self, graph: Graph, program: Callable[..., Any], operands: Sequence[torch.Tensor], baked: Collection[int] = ()
    ) -> None:
        """Runs an opened artifact and its graph with the same operands. `baked`: positions that the artifact does not take."""
        before = [operand.clone() for operand in operands]
        expected = graph.module(*before)
        got = program(*[operand for position, operand in enumerate(operands) if position not in baked])
        at = f"graph '{graph.name}'"
        for spec, operand, kept in zip(graph.inputs, operands, before, strict=True):
            if not torch.equal(operand, kept):
                raise self._fail(
                    f"operand '{spec.name}' of {at} written to", "operands left as they are", "Work on a copy"
                )
        if len(got) != len(expected):
            raise self._fail(
                f"{len(got)} results of {at}", f"{len(expected)}, flat", "Return a tuple in the order of graph.outputs"
            )
        for number, (spec, result, wanted) in enumerate(zip(graph.outputs, got, expected, strict=True)):
            if (result.shape, result.dtype) != (wanted.shape, wanted.dtype):
                raise self._fail(
                    f"{result.dtype} {list(result.shape)} as {spec.name} of {at}",
                    f"{wanted.dtype} {list(wanted.shape)}",
                    "See graph.outputs",
                )
            if wanted.is_floating_point():
                self._check_near(at, spec.name, result, wanted)
            else:
                uncertain = partial(unstable, graph.module, before, number, self._tolerance)
                self._check_same(at, spec.name, result, wanted, uncertain)

    def _check_near(self, at: str, name: str, result: torch.Tensor, wanted: torch.Tensor) -> None:
        if not wanted.numel():
            return
        largest = float(wanted.double().abs().max())
        error = float((result.double() - wanted.double()).abs().max()) / (largest or 1.0)
        if not error <= self._tolerance:
            raise self._fail(
                f"{name} of {at} off by {error:.2g} of its largest value",
                f"at most {self._tolerance:g}, against the traced graph",
                "Check the operators of this graph one by one; graph.module is what it should compute",
            )
        self.error = max(self.error, error)

    def _check_same(
        self, at: str, name: str, result: torch.Tensor, wanted: torch.Tensor, uncertain: Callable[[], torch.Tensor]
    ) -> None:
        """Compares one result. `uncertain`: places where a rounding target may give another number."""
        wrong = result != wanted
        if wrong.any() and self._rounds:
            wrong &= ~uncertain()
        if wrong.any():
            raise self._fail(
                f"{int(wrong.sum())} other numbers of {wanted.numel()} as {name} of {at}",
                "those of the traced graph",
                "Check what the numbers are the indices of; graph.module is what it should compute",
            )


def unstable(
    module: Callable[..., Sequence[torch.Tensor]], operands: Sequence[torch.Tensor], number: int, size: float
) -> torch.Tensor:
    """Places where result `number` of a module changes when each element of its operands moves by at most `size` of itself.

    The result depends on a target's rounding there.
    """
    expected, generator = module(*operands)[number], torch.Generator().manual_seed(0)
    changed = torch.zeros_like(expected, dtype=torch.bool)
    for _ in range(MOVES):
        shifted = [
            operand * (1 + size * (2 * torch.rand(operand.shape, generator=generator) - 1)).to(operand.dtype)
            if operand.is_floating_point()
            else operand
            for operand in operands
        ]
        changed |= module(*shifted)[number] != expected
    return changed
