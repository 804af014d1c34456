# SPDX-License-Identifier: Apache-2.0
"""The table of an engine (bespoke.h, "engines") that is written in Python.

The core calls plain C functions. The functions here look up the engine by its number and turn its exceptions into a status and a
message. So no exception passes through C, and the caller of the core can still read it.
"""

from __future__ import annotations

import ctypes as c
import itertools
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

from bespoke.errors import BespokeError

__all__ = ["STRUCTS", "Artifact", "EngineTable", "NoMemory", "OtherSignature", "PythonEngine", "Tensor", "table_of"]

NO_MEMORY, OTHER_SIGNATURE, OTHER_FAILURE = 2, 3, 1


class Tensor(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("name", c.c_char_p),
        ("shape", c.POINTER(c.c_int64)),
        ("rank", c.c_int32),
        ("dtype", c.c_int32),
        ("memory", c.c_void_p),
        ("offset", c.c_uint64),
        ("data", c.c_void_p),
    )


Tensors = c.POINTER(c.POINTER(Tensor))


class Artifact(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("path", c.c_char_p),
        ("descriptor", c.c_int32),
        ("offset", c.c_uint64),
        ("size", c.c_uint64),
        ("bytes", c.c_void_p),
        ("operands", Tensors),
        ("results", Tensors),
        ("operand_count", c.c_size_t),
        ("result_count", c.c_size_t),
        ("baked", Tensors),
        ("baked_count", c.c_size_t),
        ("workspace", c.c_void_p),
        ("workspace_bytes", c.c_size_t),
        ("cache", c.c_char_p),
    )


_SAYS = (c.c_void_p, c.c_size_t)  # message, message_size
_OUT = c.POINTER(c.c_void_p)
# Function of the table -> its result, and its arguments after the context.
_FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "open": (c.c_int, (c.POINTER(Artifact), _OUT, *_SAYS)),
    "run": (c.c_int, (c.c_void_p, Tensors, c.c_size_t, Tensors, c.c_size_t, *_SAYS)),
    "close": (None, (c.c_void_p,)),
    "destroy": (None, ()),
    "finish": (c.c_int, _SAYS),
    "allocate": (c.c_int, (c.c_size_t, _OUT, _OUT, *_SAYS)),
    "release": (None, (c.c_void_p,)),
    "read": (c.c_int, (c.c_void_p, c.c_uint64, c.c_void_p, c.c_size_t, *_SAYS)),
    "write": (c.c_int, (c.c_void_p, c.c_uint64, c.c_void_p, c.c_size_t, *_SAYS)),
    "map_weights": (c.c_int, (c.c_void_p, c.c_size_t, _OUT, *_SAYS)),
    "unmap_weights": (None, (c.c_void_p,)),
    "peak_bytes": (c.c_int64, ()),
}
_TYPES = {name: c.CFUNCTYPE(returned, c.c_void_p, *taken) for name, (returned, taken) in _FUNCTIONS.items()}


class EngineTable(c.Structure):
    _fields_ = (
        ("struct_size", c.c_size_t),
        ("target", c.c_char_p),
        ("context", c.c_void_p),
        *_TYPES.items(),
        ("runs_graphs", c.c_int32),
        (
            "parallel",
            c.CFUNCTYPE(None, c.c_void_p, c.c_size_t, c.c_void_p, c.c_void_p),
        ),  # null: Python computes on one thread
        ("use_threads", c.CFUNCTYPE(c.c_int32, c.c_void_p, c.c_int32)),  # null: torch has its own number
    )


STRUCTS: dict[str, type[c.Structure]] = {
    "bespoke_tensor": Tensor,
    "bespoke_artifact": Artifact,
    "bespoke_engine": EngineTable,
}


class NoMemory(Exception):
    """The system has no memory left."""


class OtherSignature(Exception):
    """The program has other operands or results than its artifact. The text says which."""


class PythonEngine(Protocol):
    """An engine for `table_of`. A handle is any number but 0. Tensors are described by their places, as in bespoke.h."""

    name: str
    runs_graphs: bool  # True: it runs the exported programs of any bundle; False: the artifacts of the target `name`
    failure: BaseException | None  # set here: the exception of the last function

    def open(self, artifact: Artifact) -> int: ...
    def run(self, program: int, operands: Sequence[Tensor], results: Sequence[Tensor]) -> None: ...
    def close(self, program: int) -> None: ...


_engines: dict[int, PythonEngine] = {}  # engines that a core may call, by number
_numbers = itertools.count(1)


def table_of(engine: PythonEngine, optional: Sequence[str] = ()) -> EngineTable:
    """Returns the table of an engine, with these optional functions. The engine lives until the core destroys it."""
    number = next(_numbers)
    _engines[number] = engine
    table = EngineTable(
        struct_size=c.sizeof(EngineTable),
        target=engine.name.encode(),
        context=number,
        runs_graphs=int(engine.runs_graphs),
    )
    for name in ("open", "run", "close", "destroy", *optional):
        setattr(table, name, _functions()[name])
    return table


@cache
def _functions() -> dict[str, Any]:
    """Returns the functions of all tables. The process keeps them: a function is on the stack while it destroys its engine."""
    return {name: kind(globals()[f"_{name}"]) for name, kind in _TYPES.items()}


def _status(number: int, message: int, size: int, body: Callable[[Any], None]) -> int:
    """Runs `body` and returns its status. Writes the message of an exception to `message`."""
    engine = _engines[number]
    try:
        body(engine)
    except BaseException as problem:  # an interrupt too: above is only C
        engine.failure = problem
        whole = f"{problem.subject}: {problem.got}" if isinstance(problem, BespokeError) else str(problem)
        first = whole.strip().partition("\n")[0] or type(problem).__name__
        line = first.encode()[: size - 1].decode(errors="ignore").encode()  # no part of a character at the end
        c.memmove(message, line + b"\0", len(line) + 1)
        if isinstance(problem, NoMemory | MemoryError):
            return NO_MEMORY
        return OTHER_SIGNATURE if isinstance(problem, OtherSignature) else OTHER_FAILURE
    return 0


def _quietly(number: int, body: Callable[[Any], int | None]) -> int:
    """Runs the body of a function that has no status. An exception is only kept in `failure`."""
    engine = _engines[number]
    try:
        return body(engine) or 0
    except BaseException as problem:
        engine.failure = problem
        return 0


def _open(number: int, artifact: Any, program: Any, message: int, size: int) -> int:
    def body(engine: Any) -> None:
        program[0] = engine.open(artifact.contents)

    return _status(number, message, size, body)


def _run(
    number: int,
    program: int,
    operands: Any,
    operand_count: int,
    results: Any,
    result_count: int,
    message: int,
    size: int,
) -> int:
    def body(engine: Any) -> None:
        engine.run(program, listed(operands, operand_count), listed(results, result_count))

    return _status(number, message, size, body)


def listed(tensors: Any, count: int) -> list[Tensor]:
    return [tensors[i].contents for i in range(count)]


def _close(number: int, program: int) -> None:
    _quietly(number, lambda engine: engine.close(program))


def _destroy(number: int) -> None:
    del _engines[number]


def _finish(number: int, message: int, size: int) -> int:
    return _status(number, message, size, lambda engine: engine.finish())


def _allocate(number: int, size: int, memory: Any, address: Any, message: int, message_size: int) -> int:
    def body(engine: Any) -> None:
        memory[0], address[0] = engine.allocate(size), None

    return _status(number, message, message_size, body)


def _release(number: int, memory: int) -> None:
    _quietly(number, lambda engine: engine.release(memory))


def _read(number: int, memory: int, offset: int, to: int, size: int, message: int, message_size: int) -> int:
    return _status(number, message, message_size, lambda engine: engine.read(memory, offset, to, size))


def _write(number: int, memory: int, offset: int, source: int, size: int, message: int, message_size: int) -> int:
    return _status(number, message, message_size, lambda engine: engine.write(memory, offset, source, size))


def _map_weights(number: int, address: int, size: int, memory: Any, message: int, message_size: int) -> int:
    def body(engine: Any) -> None:
        memory[0] = engine.map_weights(address, size)

    return _status(number, message, message_size, body)


def _unmap_weights(number: int, memory: int) -> None:
    _quietly(number, lambda engine: engine.unmap_weights(memory))


def _peak_bytes(number: int) -> int:
    return _quietly(number, lambda engine: engine.peak_bytes())
