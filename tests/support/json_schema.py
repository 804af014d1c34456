# SPDX-License-Identifier: Apache-2.0
"""Holds a JSON value against a schema of bindings/schema as a reader of this version would: unknown fields and words are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

_SAYS_NOTHING = {"$comment", "$defs", "$schema", "description", "title"}
_KNOWN = {"$ref", "additionalProperties", "anyOf", "enum", "items", "minItems", "properties", "required", "type"}
_TYPES = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "null": type(None),
    "number": (int, float),
    "object": dict,
    "string": str,
}


def violations(value: Any, schema: dict[str, Any]) -> list[str]:
    """What is wrong with the value, each with its place. A schema that this function cannot judge by is an AssertionError."""
    return list(_violations(value, schema, schema.get("$defs", {}), "$"))


def _violations(value: Any, schema: dict[str, Any], defs: dict[str, Any], place: str) -> Iterator[str]:
    assert set(schema) <= _SAYS_NOTHING | _KNOWN, f"unknown keywords in {schema}"
    if "$ref" in schema:
        yield from _violations(value, defs[schema["$ref"].removeprefix("#/$defs/")], defs, place)
    if options := schema.get("anyOf"):
        listed = [option for option in options if "enum" in option]
        if listed:  # then any text is valid too, which is for readers of an older version
            options = [option for option in options if option.get("type") != "string" or "enum" in option]
        if all(any(_violations(value, option, defs, place)) for option in options):
            yield f"{place}: {value!r} is none of {options}"
    if "type" in schema and not _is_of(value, schema["type"]):
        yield f"{place}: {value!r} is no {schema['type']}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place}: {value!r} is none of {schema['enum']}"
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield f"{place}: too short"
        for number, item in enumerate(value):
            yield from _violations(item, schema.get("items", {}), defs, f"{place}[{number}]")
    if isinstance(value, dict):
        fields = schema.get("properties")
        others = schema.get("additionalProperties", fields is None)
        yield from (f"{place}: no '{name}'" for name in schema.get("required", ()) if name not in value)
        for name, item in value.items():
            if fields is not None and name in fields:
                yield from _violations(item, fields[name], defs, f"{place}.{name}")
            elif isinstance(others, dict):
                yield from _violations(item, others, defs, f"{place}.{name}")
            elif not others:
                yield f"{place}: '{name}' is not in the schema"


def _is_of(value: Any, types: str | list[str]) -> bool:
    names = [types] if isinstance(types, str) else types
    kinds = [name for name in names if isinstance(value, _TYPES[name])]
    return "boolean" in kinds if isinstance(value, bool) else bool(kinds)
