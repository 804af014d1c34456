# SPDX-License-Identifier: Apache-2.0
"""Measures the engine's peak memory in a call: copies of operands, temporaries and results.

MLX runs ahead of what it has computed, so the peak of a plain run depends on threads and load. The engine waits after every large
step (bindings/native/src/engines/mlx/evaluate.h). Here the same program runs step by step in the order of its records, and MLX
reports its peak at the end. The number is the same every time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import mlx.core as mx
import numpy as np

from bespoke.graph import TensorSpec
from bespoke_plugins.targets.mlx.records import Array, Made, Program, write

ALONE_BYTES = (
    1 << 20
)  # the engine's kAloneBytes: steps whose operands and results are smaller run together, up to this size


def engine_bytes(program: Program, operands: Sequence[TensorSpec]) -> int:
    """Peak bytes of a call. Operands are copied in, and MLX holds the results until they are copied out."""
    with mx.stream(mx.cpu):
        return _step_by_step(program, operands) + _in_portions(program)


def _step_by_step(program: Program, specs: Sequence[TensorSpec]) -> int:
    steps = tuple(record.id for record in program.tape if isinstance(record, Made))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "steps.mlxfn"
        path.write_bytes(write(program, results=(*steps, *program.results)))
        function = mx.import_function(str(path))
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    operands = [mx.array(np.zeros(spec.shape, spec.dtype)) for spec in specs]  # mx.zeros would store one number
    values = list(function(*operands))
    operands.clear()
    results = values[len(steps) :]
    del values[len(steps) :]
    values.reverse()
    while values:  # a remaining handle would keep a value past its last use
        mx.eval(values.pop())
    for number, result in enumerate(results):  # in the order in which they are copied out
        results[number] = mx.contiguous(result)
        mx.eval(results[number])
    return int(mx.get_peak_memory() - before)


def _in_portions(program: Program) -> int:
    """Bytes that small steps may take together in addition to their own."""
    arrays: dict[int, Array] = dict(program.operands)
    small = 0
    for record in program.tape:
        if isinstance(record, Made):
            arrays |= dict(record.outputs)
            around = sum(array.nbytes for _, array in record.outputs) + sum(arrays[id].nbytes for id in record.inputs)
            small += around if around <= ALONE_BYTES else 0
        elif record.array is not None:
            arrays[record.id] = record.array
    return min(small, ALONE_BYTES)
