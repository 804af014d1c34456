# SPDX-License-Identifier: Apache-2.0
"""`.mlxfn` files record by record, as MLX 0.31.1 writes them (mlx/export.cpp). An unknown record is an error that names it.

MLX names arrays by their addresses in the exporting process, so two builds of one graph differ. `read` parses such a file to its
last byte. `write` writes it again with arrays numbered in order of appearance, for the processor or the graphics card.

    header    version text, functions int32 (1), any shape? bool (no)
    function  keywords (none), operands: ids, then shape and dtype of each; results: ids
    tape      id, made here? bool
      made    inputs: ids; stream (index, device, device's index: int32); primitive text; its state; siblings u64
              none: shape, dtype; else ids, shapes and dtypes of all that it makes
      given   constant? bool; a constant at its first mention: shape, dtype, its bytes

Integers are little-endian; a list is its length (u64) and its entries; text is a list of bytes; a shape is a list of int32; a dtype
is its number (int32) and its size (u8). The state of a primitive has no length: STATES says what each one has.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Literal, TypeAlias

from bespoke.errors import Unsupported

VERSION = "0.31.1"  # the MLX that writes these files; mlx-swift 0.31.3 to 0.31.6 read them

Device = Literal["cpu", "gpu"]
_DEVICES: tuple[Device, ...] = ("cpu", "gpu")  # by MLX's number

# Primitive by its name in files -> the fields of its state, in order. It lists only the primitives that our operators use.
STATES: dict[str, tuple[str, ...]] = {
    "Abs": (),
    "Add": (),
    "Arange": ("f8", "f8", "f8"),  # from, to, step
    "ArgReduce": ("i4", "i4"),  # which, axis
    "AsType": ("dtype",),
    "BitwiseBinary": ("i4",),  # which
    "Broadcast": ("list i4",),  # shape
    "Concatenate": ("i4",),  # axis
    "Divide": (),
    "DynamicSlice": ("list i4", "list i4"),  # axes, sizes
    "Equal": ("bool",),  # NaN equals NaN?
    "Exp": (),
    "ExpandDims": ("list i4",),
    "Expm1": (),
    "Full": (),
    "Gather": ("list i4", "list i4"),  # axes, sizes
    "GatherAxis": ("i4",),
    "Greater": (),
    "GreaterEqual": (),
    "Less": (),
    "LessEqual": (),
    "Log": ("i4",),  # base
    "LogicalAnd": (),
    "Matmul": (),
    "Maximum": (),
    "Minimum": (),
    "Multiply": (),
    "Negative": (),
    "Pad": ("list i4", "list i4", "list i4"),  # axes, before, behind
    "Power": (),
    "QuantizedMatmul": ("i4", "i4", "i4", "bool"),  # group, bits, mode, transposed?
    "Reduce": ("i4", "list i4"),  # which, axes
    "Reshape": ("list i4",),
    "Select": (),
    "Sigmoid": (),
    "Sign": (),
    "Slice": ("list i4", "list i4", "list i4"),  # from, to, steps
    "Softmax": ("bool",),  # in more precision?
    "Split": ("list i4", "i4"),  # where, axis
    "Sqrt": ("bool",),  # reciprocal?
    "Square": (),
    "Squeeze": ("list i4",),
    "Subtract": (),
    "Tanh": (),
    "Transpose": ("list i4",),
    "View": ("dtype",),
}
_SIZES = {"bool": 1, "i4": 4, "dtype": 5, "f8": 8}


@dataclass(frozen=True)
class Array:
    """Shape, and MLX's number and size of the element type."""

    shape: tuple[int, ...]
    dtype: int
    itemsize: int

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.itemsize


@dataclass(frozen=True)
class Made:
    """Arrays that a primitive computes. `id` is one of `outputs`."""

    id: int
    inputs: tuple[int, ...]
    primitive: str
    state: bytes
    outputs: tuple[tuple[int, Array], ...]
    siblings: int  # 0: `outputs` is one array


@dataclass(frozen=True)
class Given:
    """An operand or a constant. A constant's first mention has its `array` and `data`."""

    id: int
    constant: bool
    array: Array | None = None
    data: bytes = b""


Record: TypeAlias = Made | Given


@dataclass(frozen=True)
class Program:
    """A file with one function. Every record of its tape is for the same device."""

    device: Device
    operands: tuple[tuple[int, Array], ...]
    results: tuple[int, ...]
    tape: tuple[Record, ...]


def read(data: bytes) -> Program:
    """The program in a file.

    Raises Unsupported for another version, for a primitive that STATES lacks, and for anything but one function of fixed shapes.
    """
    return _Reader(data).program()


def write(program: Program, device: Device = "cpu", results: tuple[int, ...] | None = None) -> bytes:
    """The file for `device`, with arrays numbered from 1 in order of appearance. `results`: ids that replace the program's own."""
    return _Writer(device).program(program, program.results if results is None else results)


def version_of(data: bytes) -> str | None:
    """The version of the MLX that wrote a file, or None for another kind of file. The header after it differs by version."""
    if len(data) < 8 or not 0 < (size := struct.unpack_from("<Q", data)[0]) <= 32 or len(data) < 8 + size:
        return None
    text = data[8 : 8 + size]
    return text.decode("ascii") if text.replace(b".", b"").isalnum() else None


def _refused(what: str, got: str, expected: str) -> Unsupported:
    return Unsupported(
        f"MLX file, {what}",
        got=got,
        expected=expected,
        next_step=f"Compile with mlx {VERSION}: pip install 'bespoke-sdk[mlx]'",
    )


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._devices: set[Device] = set()
        self._constants: set[int] = set()

    def program(self) -> Program:
        version = version_of(self._data)
        if version != VERSION:
            raise _refused("header", "no version" if version is None else f"MLX {version}", f"MLX {VERSION}")
        self._text()
        functions, any_shape = self._number("<i"), self._number("<B")
        keywords = self._number("<Q")
        if (functions, any_shape, keywords) != (1, 0, 0):
            raise _refused(
                "header", f"{functions} functions, {keywords} keywords", "one function of fixed shapes without keywords"
            )
        ids = self._list("<Q")
        operands = tuple(zip(ids, (self._array() for _ in range(self._count(len(ids)))), strict=True))
        results = self._list("<Q")
        tape = tuple(self._record() for _ in range(self._number("<Q")))
        if self._at != len(self._data):
            raise _refused(
                f"byte {self._at}", f"{len(self._data) - self._at} bytes behind the last record", "the end of the file"
            )
        if len(self._devices) > 1:
            raise _refused("tape", "records for several devices", "one device for all of them")
        return Program(self._devices.pop() if self._devices else "cpu", operands, results, tape)

    def _record(self) -> Record:
        id = self._number("<Q")
        if self._flag():
            return self._made(id)
        constant = self._flag()
        if not constant or id in self._constants:
            return Given(id, constant)
        self._constants.add(id)
        array = self._array()
        return Given(id, True, array, self._take(array.nbytes))

    def _made(self, id: int) -> Made:
        inputs = self._list("<Q")
        _, device, _ = (self._number("<i") for _ in range(3))  # the indices belong to the exporting process
        at = self._at
        primitive = self._text()
        if primitive not in STATES:
            raise _refused(f"byte {at}", f"the primitive '{primitive}'", f"one of {', '.join(STATES)}")
        if not 0 <= device < len(_DEVICES):
            raise _refused(
                f"byte {at}, primitive '{primitive}'", f"device {device}", "0 (processor) or 1 (graphics card)"
            )
        self._devices.add(_DEVICES[device])
        start = self._at
        for field in STATES[primitive]:
            of_list = field.removeprefix("list ")
            self._take(_SIZES[of_list] * (1 if of_list == field else self._number("<Q")))
        state = self._data[start : self._at]
        siblings = self._number("<Q")
        if not siblings:
            return Made(id, inputs, primitive, state, ((id, self._array()),), 0)
        ids = self._list("<Q")
        shapes = [self._list("<i") for _ in range(self._count(len(ids)))]
        arrays = [Array(shape, *self._dtype()) for shape, _ in zip(shapes, range(self._count(len(ids))), strict=True)]
        return Made(id, inputs, primitive, state, tuple(zip(ids, arrays, strict=True)), siblings)

    def _count(self, expected: int) -> int:
        """The length of a list that must match another list."""
        if (count := self._number("<Q")) != expected:
            raise _refused(f"byte {self._at - 8}", f"a list of {count}", f"one of {expected}")
        return count

    def _array(self) -> Array:
        return Array(self._list("<i"), *self._dtype())

    def _dtype(self) -> tuple[int, int]:
        return self._number("<i"), self._number("<B")

    def _flag(self) -> bool:
        if (value := self._number("<B")) > 1:
            raise _refused(f"byte {self._at - 1}", f"{value} as yes or no", "0 or 1")
        return value == 1

    def _text(self) -> str:
        return self._take(self._number("<Q")).decode("ascii", "replace")

    def _list(self, kind: str) -> tuple[int, ...]:
        count, size = self._number("<Q"), struct.calcsize(kind)
        return tuple(entry for (entry,) in struct.iter_unpack(kind, self._take(count * size)))

    def _number(self, kind: str) -> int:
        (value,) = struct.unpack(kind, self._take(struct.calcsize(kind)))
        return int(value)

    def _take(self, size: int) -> bytes:
        if size > len(self._data) - self._at:
            raise _refused(f"byte {self._at}", f"{len(self._data) - self._at} bytes to the end", f"{size} more")
        self._at += size
        return self._data[self._at - size : self._at]


class _Writer:
    def __init__(self, device: Device) -> None:
        self._device = _DEVICES.index(device)
        self._numbers: dict[int, int] = {}
        self._out = bytearray()

    def program(self, program: Program, results: tuple[int, ...]) -> bytes:
        self._text(VERSION)
        self._put("<iBQ", 1, 0, 0)
        self._ids([id for id, _ in program.operands])
        self._put("<Q", len(program.operands))
        for _, array in program.operands:
            self._array(array)
        self._ids(results)
        self._put("<Q", len(program.tape))
        for record in program.tape:
            self._id(record.id)
            if isinstance(record, Made):
                self._put("<B", 1)
                self._made(record)
            else:
                self._put("<BB", 0, record.constant)
                if record.array is not None:
                    self._array(record.array)
                    self._out += record.data
        return bytes(self._out)

    def _made(self, record: Made) -> None:
        self._ids(record.inputs)
        self._put("<iii", 0, self._device, 0)
        self._text(record.primitive)
        self._out += record.state
        self._put("<Q", record.siblings)
        if not record.siblings:
            return self._array(record.outputs[0][1])
        self._ids([id for id, _ in record.outputs])
        self._put("<Q", len(record.outputs))
        for _, array in record.outputs:
            self._shape(array)
        self._put("<Q", len(record.outputs))
        for _, array in record.outputs:
            self._put("<iB", array.dtype, array.itemsize)

    def _ids(self, ids: list[int] | tuple[int, ...]) -> None:
        self._put("<Q", len(ids))
        for id in ids:
            self._id(id)

    def _id(self, id: int) -> None:
        self._put("<Q", self._numbers.setdefault(id, len(self._numbers) + 1))

    def _array(self, array: Array) -> None:
        self._shape(array)
        self._put("<iB", array.dtype, array.itemsize)

    def _shape(self, array: Array) -> None:
        self._put(f"<Q{len(array.shape)}i", len(array.shape), *array.shape)

    def _text(self, text: str) -> None:
        self._put("<Q", len(text))
        self._out += text.encode("ascii")

    def _put(self, kind: str, *values: int) -> None:
        self._out += struct.pack(kind, *values)
