# SPDX-License-Identifier: Apache-2.0
"""Records and enumerations of the C API's JSON, read from the schemas: what the types and names of each language
are written from."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

_LINE = 113  # characters of a doc comment's line, without what stands before it


@dataclass(frozen=True)
class Type:
    """A type of JSON.

    kind: "string", "integer", "number", "boolean", "bit" (0 or 1), "object" (any), "list" and "map" (of `of`), "enumeration" or
          "record" (of `name`)
    """

    kind: str
    name: str = ""
    of: Type | None = None
    nullable: bool = False


@dataclass(frozen=True)
class Field:
    """A field of a record, with its name in JSON. One that is not required may be missing."""

    name: str
    type: Type
    required: bool


@dataclass(frozen=True)
class Record:
    name: str
    doc: str
    fields: tuple[Field, ...]


@dataclass(frozen=True)
class Enumeration:
    """The words that the field `field` may say."""

    name: str
    field: str
    words: tuple[str, ...]


@dataclass
class Types:
    """All types in the order of their use. Records share an equal enumeration."""

    enumerations: dict[str, Enumeration] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)


def record_types(schemas: Mapping[str, dict[str, Any]]) -> Types:
    """The types of records and reports, from their schemas by file name."""
    reader = _Reader(_ambiguous(schemas.values()))
    for name in sorted(schemas):
        schema = schemas[name]
        for part, nested in schema.get("$defs", {}).items():
            reader.add(part, nested)
        reader.add(schema["title"], schema)
    return reader.types


def example_types(schema: Mapping[str, Any]) -> tuple[Types, list[Record]]:
    """What an example's forms are made of, and the forms."""
    reader = _Reader(frozenset())
    forms = [reader.record(capital(form["title"]), form, "Example") for form in schema["oneOf"]]
    return reader.types, forms


class _Reader:
    """`ambiguous`: fields whose enumerations differ between records."""

    def __init__(self, ambiguous: frozenset[str]) -> None:
        self.types = Types()
        self._ambiguous = ambiguous

    def add(self, name: str, schema: Mapping[str, Any]) -> None:
        if name not in self.types.records:
            self.types.records[name] = self.record(name, schema, name)

    def record(self, name: str, schema: Mapping[str, Any], owner: str) -> Record:
        fields = tuple(
            Field(key, self._type(owner, key, value), key in schema["required"])
            for key, value in schema["properties"].items()
        )
        return Record(name, schema.get("description", ""), fields)

    def _type(self, owner: str, name: str, schema: Mapping[str, Any]) -> Type:
        if "$ref" in schema:
            return Type("record", str(schema["$ref"].rsplit("/", 1)[-1]))
        kinds = schema.get("type")
        if "anyOf" in schema or isinstance(kinds, list):
            options = schema.get("anyOf") or [{"type": kind} for kind in kinds]
            inner = next((option for option in options if "enum" in option), None) or next(
                option for option in options if option.get("type") != "null"
            )
            found = self._type(owner, name, inner)
            return Type(found.kind, found.name, found.of, nullable={"type": "null"} in options)
        if "enum" in schema:
            if all(isinstance(value, int) for value in schema["enum"]):
                return Type("bit")
            return self._enumeration(owner, name, tuple(schema["enum"]))
        if kinds == "array":
            return Type("list", of=self._type(owner, name, schema["items"]))
        if kinds == "object":
            return self._object(owner, name, schema)
        return Type(str(kinds))

    def _object(self, owner: str, name: str, schema: Mapping[str, Any]) -> Type:
        if "properties" not in schema:
            values = schema.get("additionalProperties", True)
            return Type("object") if values is True else Type("map", of=self._type(owner, name, values))
        record = "Message" if name in ("messages", "prompt") else f"{owner}{capital(name)}"
        if record not in self.types.records:
            described = schema if "description" in schema else {**schema, "description": f"`{name}` of [{owner}]."}
            self.types.records[record] = self.record(record, described, owner)
        return Type("record", record)

    def _enumeration(self, owner: str, name: str, words: tuple[str, ...]) -> Type:
        kind = f"{owner if name in self._ambiguous else ''}{capital(name)}"
        self.types.enumerations[kind] = Enumeration(kind, name, words)
        return Type("enumeration", kind)


def _ambiguous(schemas: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Fields whose enumerations differ between schemas."""
    enumerations: dict[str, set[tuple[str, ...]]] = {}
    for schema in schemas:
        for name, field_schema in schema["properties"].items():
            for option in field_schema.get("anyOf", [field_schema]):
                if "enum" in option:
                    enumerations.setdefault(name, set()).add(tuple(option["enum"]))
    return frozenset(name for name, values in enumerations.items() if len(values) > 1)


def camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


def capital(name: str) -> str:
    return camel(f"_{name}")


def call_of(verb: Mapping[str, str | None], language: str) -> str:
    """What an error says in a language to call a verb, which a language may leave to Python."""
    name = verb[language]
    return f"in Python, call {verb['python']}" if name is None else f"call {name.rpartition('.')[2]}"


def doc_lines(text: str) -> list[str]:
    """The lines of a Python docstring, wrapped again paragraph by paragraph. A list of fields, `name:  words`, keeps its lines."""
    if not text:
        return []
    return [line for part in re.split(r"\n\s*\n", text.strip()) for line in (*_wrapped(part), "")][:-1]


def _wrapped(part: str) -> list[str]:
    if re.search(r"^\w[\w, ]*:  ", part, re.MULTILINE):
        return [line.rstrip() for line in part.splitlines()]
    return textwrap.wrap(" ".join(part.split()), _LINE)
