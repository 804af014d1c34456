# SPDX-License-Identifier: Apache-2.0
"""Workspace of an exported program's call on torch, computed from the program itself.

The plan does not know it: its workspaces may be those of another engine.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable

from bespoke.format.program_json import ParsedProgram, ProgramNode, ProgramValue
from bespoke.ops.dtypes import PROGRAM_DTYPES
from bespoke.ops.live_storage import VIEWS, Step, largest_live
from bespoke.ops.operators import OPERATORS, CallSizes

__all__ = ["workspace_bytes"]


def workspace_bytes(program: ParsedProgram) -> int:
    """Bytes of a call in addition to its operands: intermediates, results, and scratch of operators."""
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
            if isinstance(value, ProgramValue):
                yield value.name


def _nbytes(program: ParsedProgram, name: str) -> int:
    shape, dtype = program.tensors[name]
    return math.prod(shape) * PROGRAM_DTYPES[dtype].itemsize


def _scratch(program: ParsedProgram, node: ProgramNode, result_bytes: int) -> int:
    if node.namespace != "bespoke":
        return 0
    given = {operand.name: operand.value for operand in node.operands}
    # Zeros where a program lies about the rank: the operator refuses such operands when it is called.
    first, codes = ((*program.tensors[name][0], 0, 0) for name in list(_tensors(node))[:2])
    return OPERATORS[node.operator].torch_workspace(CallSizes(first, codes, given.get("columns", 0), result_bytes))
