# SPDX-License-Identifier: Apache-2.0
"""The engine's library by its table, as the core calls it.

python -m tests.apple.mlx.engine PROGRAM [LIBRARY]: opens and runs one twice, with operands of zeros, and prints what the first run
held at most, in bytes.
"""

from __future__ import annotations

import ctypes as c
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bespoke.core import find
from bespoke.core.engine_table import Artifact, EngineTable, Tensor
from bespoke_plugins.targets.mlx.records import Array, Program, read

NUMBERS = {"float32": 0, "float16": 1, "uint8": 2, "int64": 3, "int32": 4}  # dtypes in bespoke.h
NAMES = {10: "float32", 9: "float16", 1: "uint8", 8: "int64", 7: "int32", 0: "bool"}  # MLX's dtypes
LIBRARY = "libbespoke_engine_mlx.so"
NOT_BUILT = "the core was built without the engine mlx: pip install 'bespoke-sdk[mlx]', then install bespoke-sdk again"
MESSAGE = 256


def engine_library() -> Path | None:
    """Where the core was built with the engine."""
    core = find().library
    library = None if core is None else core.parent / LIBRARY
    return library if library is not None and library.is_file() else None


class EngineError(Exception):
    """What a function of the table returned, and said."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status, self.message = status, message


class Engine:
    """One of it; arrays are numpy's."""

    def __init__(self, library: Path) -> None:
        self.table = EngineTable()
        self._call(c.CDLL(str(library)).bespoke_engine_module, c.byref(self.table))

    def open(self, data: bytes, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> Any:
        self._bytes = np.frombuffer(data, dtype=np.uint8)  # until it is closed
        takes, _held = tensors(operands)
        gives, _held_too = tensors(results)
        artifact = Artifact(
            struct_size=c.sizeof(Artifact),
            size=len(data),
            bytes=self._bytes.ctypes.data,
            operands=takes,
            results=gives,
            operand_count=len(operands),
            result_count=len(results),
        )
        program = c.c_void_p()
        self._call(self.table.open, self.table.context, c.byref(artifact), c.byref(program))
        return program

    def run(self, program: Any, operands: Sequence[np.ndarray], results: Sequence[np.ndarray]) -> int:
        """Fills `results`; what the engine held at most."""
        takes, _held = tensors(operands)
        gives, _held_too = tensors(results)
        self._call(self.table.run, self.table.context, program, takes, len(operands), gives, len(results))
        return int(self.table.peak_bytes(self.table.context))

    def close(self, program: Any) -> None:
        self.table.close(self.table.context, program)

    def destroy(self) -> None:
        self.table.destroy(self.table.context)

    @staticmethod
    def _call(function: Any, *arguments: Any) -> None:
        message = c.create_string_buffer(MESSAGE)
        status = function(*arguments, c.cast(message, c.c_void_p), c.c_size_t(MESSAGE))
        if status:
            raise EngineError(status, message.value.decode())


def tensors(arrays: Sequence[np.ndarray]) -> tuple[Any, Any]:
    """As the table takes them, and what has to live as long."""
    shapes = [(c.c_int64 * array.ndim)(*array.shape) for array in arrays]
    made = [
        Tensor(
            struct_size=c.sizeof(Tensor),
            name=b"x",
            shape=shape,
            rank=array.ndim,
            dtype=NUMBERS[array.dtype.name],
            data=array.ctypes.data,
        )
        for array, shape in zip(arrays, shapes, strict=True)
    ]
    pointers = (c.POINTER(Tensor) * len(made))(*(c.pointer(tensor) for tensor in made))
    return c.cast(pointers, c.POINTER(c.POINTER(Tensor))), (shapes, made, pointers)


def zeros(array: Array) -> np.ndarray:
    return np.zeros(array.shape, dtype=NAMES[array.dtype])


def places(program: Program) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Zeros for what it takes and gives."""
    known = dict(program.operands)
    for record in program.tape:
        known |= dict(getattr(record, "outputs", ()))
    return [zeros(array) for _, array in program.operands], [zeros(known[id]) for id in program.results]


def main(path: str, given: str | None = None) -> int:
    library = engine_library() if given is None else Path(given)
    assert library is not None
    data = Path(path).read_bytes()
    operands, results = places(read(data))
    engine = Engine(library)
    program = engine.open(data, operands, results)
    peak = engine.run(program, operands, results)
    engine.run(program, operands, results)
    engine.close(program)
    engine.destroy()
    return peak


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
