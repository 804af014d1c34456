# SPDX-License-Identifier: Apache-2.0
"""Parser of an exported program's `model.json`. A bundle's programs are straight lines of operators on tensors.

torch's own reader of this file evaluates text: symbolic expressions go to sympy, guards are Python source, a node's target
is looked up by attribute from the `torch` module, and the other files of the archive are unpickled. A graph of fixed shapes
whose operands are all inputs needs none of that. So this module reads the file as plain data. It accepts the nodes, and
around them exactly the document that `program_document` writes. It needs no torch.

Values are named `v0`, `v1`, ... in order of appearance, so names of variables leave no trace.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bespoke.errors import BespokeError, BundleError
from bespoke.format.json_strict import loads_strict, shown_json
from bespoke.format.program_document import program_document

__all__ = ["Code", "Operand", "ParsedProgram", "ProgramNode", "ProgramValue", "parse_program"]

MAX_PROGRAM_BYTES = 32 * 2**20
MAX_VALUES = 200_000
MAX_LIST = 4096
MAX_STRING = 64

_TARGET = re.compile(r"torch\.ops\.(aten|bespoke)\.([A-Za-z][A-Za-z0-9_]*|_[A-Za-z0-9_]+)\.([A-Za-z][A-Za-z0-9_]*)")
_NAME = re.compile(r"v(0|[1-9][0-9]*)")
_NON_FINITE = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}
_INT64 = 2**63


@dataclass(frozen=True)
class ProgramValue:
    """An operand that is an input or the result of an earlier node."""

    name: str


@dataclass(frozen=True)
class Code:
    """An operand that is a number of a torch enumeration. `kind` is dtype, layout, memory_format or device."""

    kind: str
    number: int


@dataclass(frozen=True)
class Operand:
    """An argument of a node, under its name in the operator's schema."""

    name: str
    field: str  # member of the union: as_tensor, as_int, ...
    value: Any
    positional: bool


@dataclass(frozen=True)
class ProgramNode:
    """A call of `torch.ops.<namespace>.<operator>.<overload>`. `listed`: its results are a single list."""

    namespace: str
    operator: str
    overload: str
    operands: tuple[Operand, ...]
    outputs: tuple[str, ...]
    listed: bool

    @property
    def target(self) -> str:
        return f"{self.namespace}::{self.operator}.{self.overload}"


@dataclass(frozen=True)
class ParsedProgram:
    """A straight line of nodes. `tensors`: shape and torch's number of the dtype, for every value."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nodes: tuple[ProgramNode, ...]
    tensors: Mapping[str, tuple[tuple[int, ...], int]]


def parse_program(data: bytes, subject: str, error: type[BespokeError] = BundleError) -> ParsedProgram:
    """Parse the bytes of a model.json. Raises `error` about `subject` for anything but a program of this form."""
    document = loads_strict(
        data, subject=subject, error=error, max_bytes=MAX_PROGRAM_BYTES, max_depth=16, max_items=4_000_000
    )
    return _ProgramReader(subject, error).program(document)


class _ProgramReader:
    def __init__(self, subject: str, error: type[BespokeError]) -> None:
        self._subject = subject
        self._error = error
        self._known: set[str] = set()

    def program(self, document: Any) -> ParsedProgram:
        graph = self._at(document, "graph_module", "graph")
        inputs = [self._define(self._reference(entry)) for entry in self._list(graph, "inputs")]
        nodes = [self._node(entry) for entry in self._list(graph, "nodes", MAX_VALUES)]
        outputs = [self._use(self._reference(entry)) for entry in self._list(graph, "outputs")]

        values = self._at(graph, "tensor_values")
        if not isinstance(values, dict) or set(values) != self._known:
            raise self._refuse("graph.tensor_values", "other names than the values of the graph", "these names")
        tensors = {name: self._tensor_meta(name, meta) for name, meta in values.items()}

        version, minor = self._at(document, "torch_version"), self._at(document, "schema_version", "minor")
        if not isinstance(version, str) or not re.fullmatch(r"[0-9.]{1,32}", version) or type(minor) is not int:
            raise self._refuse("torch_version", repr(version)[:80], "a release such as 2.13.0")
        expected = program_document(inputs, outputs, graph["nodes"], values, minor, version)
        self._same(document, expected, "program")
        return ParsedProgram(tuple(inputs), tuple(outputs), tuple(nodes), tensors)

    def _node(self, entry: Any) -> ProgramNode:
        expected = {"target", "inputs", "outputs", "metadata", "is_hop_single_tensor_return", "name"}
        self._keys(entry, expected, "node")
        target = entry["target"]
        match = _TARGET.fullmatch(target) if isinstance(target, str) else None
        if match is None:
            raise self._refuse(f"operator {shown_json(target, 100)}", "an operator of another kind", "aten or bespoke")
        where = f"operator {target}"
        if entry["metadata"] != {} or entry["is_hop_single_tensor_return"] is not None or entry["name"] is not None:
            raise self._refuse(where, "metadata", "none")

        operands = tuple(self._operand(where, operand) for operand in self._list(entry, "inputs"))
        outputs, listed = self._outputs(where, self._list(entry, "outputs"))
        return ProgramNode(match[1], match[2], match[3], operands, outputs, listed)

    def _outputs(self, where: str, entries: list[Any]) -> tuple[tuple[str, ...], bool]:
        if len(entries) == 1 and isinstance(entries[0], dict) and set(entries[0]) == {"as_tensors"}:
            listed = self._list(entries[0], "as_tensors")
            return tuple(self._define(self._tensor(where, entry)) for entry in listed), True
        if not entries:
            raise self._refuse(where, "no result", "at least one tensor")
        return tuple(self._define(self._reference(entry)) for entry in entries), False

    def _operand(self, where: str, entry: Any) -> Operand:
        self._keys(entry, {"name", "arg", "kind"}, where)
        name, argument, kind = entry["name"], entry["arg"], entry["kind"]
        if not isinstance(name, str) or len(name) > MAX_STRING or type(kind) is not int or kind not in (1, 2):
            raise self._refuse(
                where, f"an argument {shown_json(name)} of kind {shown_json(kind, 20)}", "a name, kind 1 or 2"
            )
        if not isinstance(argument, dict) or len(argument) != 1:
            raise self._refuse(f"{where}, argument {name}", "no single value", "one value")

        ((field, value),) = argument.items()
        reader = _READERS.get(field)
        if reader is None:
            raise self._refuse(f"{where}, argument {name}", f"a {field[:40]!r}", f"one of {', '.join(_READERS)}")
        try:
            return Operand(name, field, reader(self, value), kind == 1)
        except _Wrong as problem:
            raise self._refuse(f"{where}, argument {name}", str(problem), f"a value for {field}") from None

    def _tensor_meta(self, name: str, meta: Any) -> tuple[tuple[int, ...], int]:
        where = f"tensor_values.{name}"
        keys = {"dtype", "sizes", "requires_grad", "device", "strides", "storage_offset", "layout"}
        self._keys(meta, keys, where)
        sizes = [*self._list(meta, "sizes", 16), *self._list(meta, "strides", 16), meta["storage_offset"]]
        for size in sizes:
            if not isinstance(size, dict) or set(size) != {"as_int"} or not _is_integer(size["as_int"]):
                raise self._refuse(where, f"the size {shown_json(size)}", "a fixed size")

        rest = (meta["requires_grad"], meta["device"], meta["layout"])
        if rest != (False, {"type": "cpu", "index": None}, 7) or not _is_integer(meta["dtype"]):
            raise self._refuse(where, "another kind of tensor", "a dense tensor without gradient, traced on the CPU")

        shape = tuple(size["as_int"] for size in meta["sizes"])
        if any(size < 0 for size in shape):
            raise self._refuse(where, f"the shape {list(shape)}", "sizes of 0 and more")
        return shape, meta["dtype"]

    def _reference(self, entry: Any) -> str:
        if not isinstance(entry, dict) or set(entry) != {"as_tensor"}:
            raise self._refuse("an input or result of the graph", shown_json(entry), "a tensor")
        return self._tensor("an input or result of the graph", entry["as_tensor"])

    def _tensor(self, where: str, entry: Any) -> str:
        name = entry["name"] if isinstance(entry, dict) and set(entry) == {"name"} else None
        if not isinstance(name, str) or len(name) > 12 or not _NAME.fullmatch(name):
            raise self._refuse(where, f"the value {shown_json(entry)}", "a value named v0, v1, ...")
        return name

    def _define(self, name: str) -> str:
        if name != f"v{len(self._known)}":
            raise self._refuse("graph", f"the value {name}", f"v{len(self._known)} as the next one")
        self._known.add(name)
        return name

    def _use(self, name: str) -> str:
        if name not in self._known:
            raise self._refuse("graph", f"a use of {name} before it is there", "values that an earlier node made")
        return name

    def value(self, entry: Any) -> ProgramValue:
        """An operand that is a tensor."""
        return ProgramValue(self._use(self._tensor("graph", entry)))

    def _same(self, got: Any, expected: Any, where: str) -> None:
        """Refuse a document at the first place where it differs from the expected one."""
        if got is expected or (type(got) is type(expected) and got == expected):
            return
        if isinstance(got, dict) and isinstance(expected, dict):
            self._keys(got, set(expected), where)
            for key in expected:
                self._same(got[key], expected[key], f"{where}.{key}")
        raise self._refuse(where, repr(got)[:100], repr(expected)[:100])

    def _keys(self, entry: Any, expected: set[str], where: str) -> None:
        if not isinstance(entry, dict):
            raise self._refuse(where, type(entry).__name__, "an object")
        for key in sorted(entry.keys() ^ expected):
            raise self._refuse(f"{where}.{key[:80]}", "it" if key in entry else "nothing", "exactly the known fields")

    def _at(self, entry: Any, *path: str) -> Any:
        for key in path:
            if not isinstance(entry, dict) or key not in entry:
                raise self._refuse(".".join(path), "nothing", "an exported program")
            entry = entry[key]
        return entry

    def _list(self, entry: Any, key: str, limit: int = MAX_LIST) -> list[Any]:
        entries = self._at(entry, key)
        if not isinstance(entries, list) or len(entries) > limit:
            raise self._refuse(key, "no list, or too long a one", f"a list of at most {limit}")
        return entries

    def _refuse(self, where: str, got: str, expected: str) -> BespokeError:
        return self._error(
            f"{self._subject}: {where}", got=got, expected=expected, next_step="Build the bundle again from its source"
        )


class _Wrong(Exception):
    """A value of a type that its field cannot hold."""


def _is_integer(value: Any) -> bool:
    return type(value) is int and -_INT64 <= value < _INT64


def _plain(kind: type, check: Callable[[Any], bool] = lambda value: True) -> Callable[[_ProgramReader, Any], Any]:
    def read(_: _ProgramReader, value: Any) -> Any:
        if type(value) is not kind or not check(value):
            raise _Wrong(shown_json(value))
        return value

    return read


def _float(_: _ProgramReader, value: Any) -> float:
    if isinstance(value, str) and value in _NON_FINITE:  # JSON has no such numbers; torch writes them as text
        return _NON_FINITE[value]
    if type(value) not in (int, float):
        raise _Wrong(shown_json(value))
    return float(value)


def _code(kind: str) -> Callable[[_ProgramReader, Any], Code]:
    def read(_: _ProgramReader, value: Any) -> Code:
        if type(value) is not int or not 0 <= value < 64:
            raise _Wrong(shown_json(value))
        return Code(kind, value)

    return read


def _device(_: _ProgramReader, value: Any) -> Code:
    if value != {"type": "cpu", "index": None}:
        raise _Wrong(f"the device {shown_json(value)}")
    return Code("device", 0)


def _optional_tensor(reader: _ProgramReader, value: Any) -> ProgramValue | None:
    if value == {"as_none": True}:
        return None
    if not isinstance(value, dict) or set(value) != {"as_tensor"}:
        raise _Wrong(shown_json(value))
    return reader.value(value["as_tensor"])


def _many(read: Callable[[_ProgramReader, Any], Any]) -> Callable[[_ProgramReader, Any], list[Any]]:
    def read_all(reader: _ProgramReader, value: Any) -> list[Any]:
        if not isinstance(value, list) or len(value) > MAX_LIST:
            raise _Wrong("no list, or too long a one")
        return list(_each(read, reader, value))

    return read_all


def _each(read: Callable[[_ProgramReader, Any], Any], reader: _ProgramReader, values: list[Any]) -> Iterator[Any]:
    for value in values:
        yield read(reader, value)


def _none(_: _ProgramReader, value: Any) -> None:
    if value is not True:
        raise _Wrong(shown_json(value))


_integer = _plain(int, _is_integer)
_boolean = _plain(bool)
_READERS: dict[str, Callable[[_ProgramReader, Any], Any]] = {
    "as_none": _none,
    "as_tensor": _ProgramReader.value,
    "as_tensors": _many(_ProgramReader.value),
    "as_optional_tensor": _optional_tensor,
    "as_optional_tensors": _many(_optional_tensor),
    "as_int": _integer,
    "as_ints": _many(_integer),
    "as_float": _float,
    "as_floats": _many(_float),
    "as_bool": _boolean,
    "as_bools": _many(_boolean),
    "as_string": _plain(str, lambda text: len(text) <= MAX_STRING),
    "as_scalar_type": _code("dtype"),
    "as_layout": _code("layout"),
    "as_memory_format": _code("memory_format"),
    "as_device": _device,
}
