# SPDX-License-Identifier: Apache-2.0
"""What the torch runtime takes beside what the plan says: measured, one set of constants for all models and methods.

4 MB: bundle, tokenizer and state opened, and what torch's matrix products set up at their first use. 1.5 KB for each value and each
instruction of the plan: its record, tensors over its place, and what Python holds after reading it (Qwen2.5-0.5B: 11,000 of
them). `tests/benchmarks/test_estimate.py` holds the sum against measured runs.

A bundle's plan may say what another runtime takes, so the workspace of a call is told from the program that torch runs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass

from bespoke.bundle.program_json import Program, ProgramNode, Value
from bespoke.ops import decode_bytes, head_chunk_bytes
from bespoke.plan.compile import Costs

TORCH_COSTS = Costs(constant_bytes=4_000_000, record_bytes=1_500)

VIEWS = frozenset(
    f"aten.{name}"
    for name in (
        "view.default", "_unsafe_view.default", "t.default", "transpose.int", "permute.default", "slice.Tensor", "select.int",
        "expand.default", "unsqueeze.default", "squeeze.dim", "split.Tensor", "split_with_sizes.default",
    )
)  # fmt: skip
"""Operators whose results share the storage of their first argument."""

_ITEMSIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 2, 7: 4, 8: 8, 12: 1, 13: 2}  # by torch.export's number of a dtype


@dataclass(frozen=True, slots=True)
class Step:
    """An operator of a graph: the storage that it writes and what it reads. A view writes none: `nbytes` is 0, and its `storage` is
    that of its operand."""

    storage: Hashable
    nbytes: int
    reads: Sequence[Hashable]
    scratch: int


def largest_live(steps: Sequence[Step], elsewhere: Collection[Hashable]) -> int:
    """Largest sum of living storages and the running operator's scratch; those `elsewhere` are not counted."""
    last: dict[Hashable, int] = {}
    sizes: dict[Hashable, int] = {}
    for position, step in enumerate(steps):
        sizes.setdefault(step.storage, 0 if step.storage in elsewhere else step.nbytes)
        for storage in (step.storage, *step.reads):
            last[storage] = position
    ends: dict[int, list[Hashable]] = {}
    for storage, position in last.items():
        ends.setdefault(position, []).append(storage)
    live = peak = 0
    begun: set[Hashable] = set()
    for position, step in enumerate(steps):
        if step.storage not in begun:
            begun.add(step.storage)
            live += sizes[step.storage]
        peak = max(peak, live + step.scratch)
        live -= sum(sizes.get(storage, 0) for storage in ends.get(position, ()))
    return peak


def operator_bytes(name: str, first: Sequence[int], codes: Sequence[int], columns: int, result_bytes: int) -> int:
    """Scratch of an operator of ours here, by shapes of its first operand and its codes; those of aten keep nothing."""
    if name.startswith("linear_int4"):
        return decode_bytes(codes[0], columns)
    if name.startswith("head_chunk"):
        return head_chunk_bytes(first[0], codes[0], first[1])
    if name.startswith("embedding_int4"):
        return result_bytes * 3 // 2
    return 0


def workspace_bytes(program: Program) -> int:
    """What a call of a program takes beside its operands: intermediates, results, and scratch of operators."""
    storage: dict[str, Hashable] = {name: name for name in program.inputs}
    steps = []
    for node in program.nodes:
        reads = [storage[name] for name in _tensors(node)]
        target = f"{node.namespace}.{node.operator}.{node.overload}"
        place = reads[0] if target in VIEWS else node.outputs[0]
        nbytes = 0 if target in VIEWS else sum(_nbytes(program, name) for name in node.outputs)
        storage |= dict.fromkeys(node.outputs, place)
        steps.append(Step(place, nbytes, reads, _scratch(program, node, nbytes)))
    results = Step("results", 0, [storage[name] for name in program.outputs], 0)
    return largest_live([*steps, results], program.inputs)


def _tensors(node: ProgramNode) -> Iterable[str]:
    for operand in node.operands:
        for value in operand.value if isinstance(operand.value, list) else [operand.value]:
            if isinstance(value, Value):
                yield value.name


def _nbytes(program: Program, name: str) -> int:
    shape, dtype = program.tensors[name]
    return math.prod(shape) * _ITEMSIZES[dtype]


def _scratch(program: Program, node: ProgramNode, result_bytes: int) -> int:
    if node.namespace != "bespoke":
        return 0
    given = {operand.name: operand.value for operand in node.operands}
    # Zeros where a program lies about the rank: the operator refuses such operands when it is called.
    first, codes = ((*program.tensors[name][0], 0, 0) for name in list(_tensors(node))[:2])
    return operator_bytes(node.operator, first, codes, given.get("columns", 0), result_bytes)
