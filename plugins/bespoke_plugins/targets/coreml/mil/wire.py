# SPDX-License-Identifier: Apache-2.0
"""Reads protobuf's wire format by a table of fields and refuses a field that the table lacks.

message    (key, value)*; key = varint of field << 3 | wire type
wire type  0: varint, 1: 8 bytes, 2: length as varint, then so many bytes, 5: 4 bytes
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bespoke.errors import DataError

Message = dict[str, list[Any]]
"""The fields of a message: name -> values in order."""


class Field(NamedTuple):
    """A field. `kind`: "number" (varints, also packed), "bytes", "text" or the name of a message."""

    name: str
    kind: str


Schema = Mapping[str, Mapping[int, Field]]


def refused(got: str, expected: str) -> DataError:
    return DataError("A MIL spec", got=got, expected=expected, next_step="Build it with the target of this version")


def read_message(data: bytes, kind: str, schema: Schema) -> Message:
    """The message of this kind in `data`. Raises DataError for a field that the schema lacks and for bytes that end early."""
    fields, message = schema[kind], Message()
    for number, value in _entries(data):
        field = fields.get(number)
        if field is None:
            raise refused(f"field {number} of a {kind}", f"one of {', '.join(f.name for f in fields.values())}")
        message.setdefault(field.name, []).extend(_values(field, value, schema))
    return message


def _values(field: Field, value: int | bytes, schema: Schema) -> Iterator[Any]:
    if field.kind == "number":
        if isinstance(value, int):
            yield value
        else:
            at = 0
            while at < len(value):
                number, at = _varint(value, at)
                yield number
    elif not isinstance(value, bytes):
        raise refused(f"a number as {field.name}", "bytes")
    elif field.kind == "bytes":
        yield value
    elif field.kind == "text":
        yield value.decode()
    else:
        yield read_message(value, field.kind, schema)


def _entries(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if key & 7 == 2:
            size, at = _varint(data, at)
        else:
            size = {1: 8, 5: 4}.get(key & 7, 0)
        if not size and key & 7 != 2:
            raise refused(f"the wire type {key & 7}", "0, 1, 2 or 5")
        if at + size > len(data):
            raise refused("bytes that end within a field", "a whole message")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A 64-bit number, negative if its highest bit is set, and the position after it."""
    number = shift = 0
    while at < len(data) and shift < 70:
        number |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            number &= 2**64 - 1
            return number - 2**64 if number >> 63 else number, at
    raise refused("a number without an end", "a varint")
