# SPDX-License-Identifier: Apache-2.0
"""Measured memory and speed of the runtime of a target. Plans and estimates rest on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True)
class Speed:
    """The parts of a step's time, for ranking plans. A formula, because a clock would make two builds differ."""

    flops_per_second: float = 150e9
    bytes_per_second: float = 10e9
    call_seconds: float = 40e-6
    scratch_bytes_per_second: float = (
        5e7  # written to a mapped file and read back; below what it takes, since flash wears
    )


class Sized(Protocol):
    """Bytes of a call without its operands: with its results, or with the results in their places."""

    @property
    def workspace_bytes(self) -> int: ...
    @property
    def in_place_bytes(self) -> int: ...


@dataclass(frozen=True)
class Costs:
    """Measured memory of the runtime of a target that no plan knows of.

    constant_bytes:   memory whatever the plan
    record_bytes:     memory for each value and each instruction of the plan
    results_in_place: results are written to where they belong, and only those that are added to a value are temporaries; else all
                      results of a call are in its workspace
    copies_weights:   a loaded group is memory of the engine, and so is the group that is loaded next; else they are clean pages of
                      a file and count nowhere
    """

    constant_bytes: int
    record_bytes: int = 0
    results_in_place: bool = False
    copies_weights: bool = False
    speed: Speed = Speed()

    def workspace_bytes(self, graph: Sized) -> int:
        """Estimated for a call of `graph`."""
        return graph.in_place_bytes if self.results_in_place else graph.workspace_bytes


class Workspace(NamedTuple):
    """Measured workspace of a graph: see `contracts.Artifact`."""

    workspace_bytes: int
    engine_bytes: int = 0


TORCH_COSTS = Costs(constant_bytes=4_000_000, record_bytes=1_500)
"""The costs of the engine `torch`: one set of constants for all models and methods.

4 MB: bundle, tokenizer and state opened, and what torch's matrix products set up at their first use. 1.5 KB for each value and each
instruction of the plan: its record, tensors over its place, and what Python holds after reading it (Qwen2.5-0.5B: 11,000 of
them). `tests/benchmarks/test_estimate.py` holds the sum against measured runs.
"""
