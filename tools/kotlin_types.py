# SPDX-License-Identifier: Apache-2.0
"""Kotlin's classes for the JSON of the C API, from the schemas, and its exceptions, from the kinds of errors.

A report may grow: Kotlin ignores unknown fields and reads an unknown value of an enumeration as UNKNOWN.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

HEAD = (
    "// SPDX-License-Identifier: Apache-2.0\n"
    "// Written by tools/write_schemas.py from bindings/schema.\n"
    "package dev.bespoke\n"
)
_PRIMITIVES = {"string": "String", "integer": "Long", "number": "Double", "boolean": "Boolean"}
_KEYWORDS = {"as", "in", "is", "object", "when"}  # Kotlin's keywords; a property of such a name is written `so`
_WIDTH = 116
_RECORDS_IMPORTS = (
    "import kotlinx.serialization.SerialName\nimport kotlinx.serialization.Serializable\n"
    "import kotlinx.serialization.json.JsonObject\n"
)


def records(schemas: Mapping[str, dict[str, Any]]) -> str:
    """Records.kt, from the schemas of records and reports by file name."""
    writer = _Writer(_ambiguous(schemas.values()))
    for name in sorted(schemas):
        schema = schemas[name]
        for part, nested in schema.get("$defs", {}).items():
            writer.record(part, nested)
        writer.record(schema["title"], schema)
    return HEAD + "\n" + _RECORDS_IMPORTS + "\n" + "\n".join([*writer.enumerations.values(), *writer.classes.values()])


def example(schema: Mapping[str, Any]) -> str:
    """Example.kt: a sealed interface with a class for each form of an example."""
    writer = _Writer(frozenset(), grows=False)
    titled = [(_capital(form["title"]), form) for form in schema["oneOf"]]
    forms = [writer.data_class(name, form, owner="Example", implements=" : Example") for name, form in titled]
    members = "\n".join(
        textwrap.indent(text, "    ") for text in [*writer.enumerations.values(), *writer.classes.values(), *forms]
    )
    imports = "import kotlinx.serialization.SerialName\nimport kotlinx.serialization.Serializable\n"
    return f"{HEAD}\n{imports}\n{_doc(schema['description'])}@Serializable\nsealed interface Example {{\n{members}}}\n"


def errors(table: Iterable[Mapping[str, Any]]) -> str:
    """BespokeErrors.kt: an exception for each status of the C API."""
    kinds = [dict(row) for row in table]
    base, *others = kinds
    classes = "".join(
        f"{_doc(row['means'])}class {row['kind']} internal constructor(details: ErrorDetails) : {base['kind']}(details)\n\n"
        for row in others
    )
    branches = "".join(f"    {row['status']} -> {row['kind']}(details)\n" for row in others)
    return (
        f"{HEAD}\n{_doc(base['means'])}"
        f"open class {base['kind']} internal constructor(private val details: ErrorDetails) : "
        "RuntimeException(details.toString()) {\n"
        f"{''.join(_error_fields())}}}\n\n"
        f"{classes}/** Of a status that this version does not know yet: the base of all. */\n"
        f"internal fun errorOf(status: Int, details: ErrorDetails): {base['kind']} = when (status) {{\n{branches}"
        f"    else -> {base['kind']}(details)\n}}\n"
    )


def names(table: Mapping[str, Mapping[str, Mapping[str, str | None]]]) -> str:
    """Names.kt: what errors call verbs and settings in Kotlin."""
    verbs = "".join(f'    "{key}" to "{_call(verb)}",\n' for key, verb in table["verbs"].items())
    settings = "".join(f'    "{name}" to "{setting["kotlin"]}",\n' for name, setting in table["settings"].items())
    return (
        f"{HEAD}\n/** What an error says to call a verb. */\ninternal val CALLS: Map<String, String> = mapOf(\n{verbs})\n\n"
        "/** Settings that have another name than in Python. */\n"
        f"internal val SETTINGS: Map<String, String> = mapOf(\n{settings})\n"
    )


def _call(verb: Mapping[str, str | None]) -> str:
    name = verb["kotlin"]
    return f"in Python, call {verb['python']}" if name is None else f"call {name.rpartition('.')[2]}"


def _error_fields() -> Iterable[str]:
    means_of = {
        "subject": "What it is about.",
        "got": "What was found.",
        "expected": "What should be.",
        "nextStep": "What to do.",
    }
    for number, (name, means) in enumerate(means_of.items()):
        yield ("\n" if number else "") + f"    /** {means} */\n    val {name}: String get() = details.{name}\n"


class _Writer:
    """Writer of classes in the order of their use. Records share the class of an equal enumeration.

    ambiguous:  fields whose enumerations differ between records
    grows:      later versions may send unknown values
    """

    def __init__(self, ambiguous: frozenset[str], grows: bool = True) -> None:
        self.enumerations: dict[str, str] = {}
        self.classes: dict[str, str] = {}
        self._ambiguous, self._grows = ambiguous, grows

    def record(self, name: str, schema: Mapping[str, Any]) -> None:
        if name not in self.classes:
            text = self.data_class(name, schema, owner=name)
            self.classes[name] = text

    def data_class(self, name: str, schema: Mapping[str, Any], owner: str, implements: str = "") -> str:
        fields = [self._field(owner, field, schema) for field in schema["properties"]]
        return (
            f"{_doc(schema.get('description', ''))}@Serializable\ndata class {name}(\n{''.join(fields)}){implements}\n"
        )

    def _field(self, owner: str, name: str, schema: Mapping[str, Any]) -> str:
        kind = self._type(owner, name, schema["properties"][name])
        default = ""
        if self._grows and kind.removesuffix("?") in self.enumerations:
            default = f" = {kind.removesuffix('?')}.UNKNOWN"  # null would say that there is no word
        elif name not in schema["required"]:
            kind, default = f"{kind.removesuffix('?')}?", " = null"
        return f'    @SerialName("{name}") val {_property(name)}: {kind}{default},\n'

    def _type(self, owner: str, name: str, schema: Mapping[str, Any]) -> str:
        if "$ref" in schema:
            return str(schema["$ref"].rsplit("/", 1)[-1])
        kinds = schema.get("type")
        if "anyOf" in schema or isinstance(kinds, list):
            options = schema.get("anyOf") or [{"type": kind} for kind in kinds]
            inner = next((option for option in options if "enum" in option), None) or next(
                option for option in options if option.get("type") != "null"
            )
            nullable = {"type": "null"} in options
            return f"{self._type(owner, name, inner)}{'?' if nullable else ''}"
        if "enum" in schema:
            if all(isinstance(value, int) for value in schema["enum"]):
                return "Int"
            return self._enumeration(owner, name, tuple(schema["enum"]))
        if kinds == "array":
            return f"List<{self._type(owner, name, schema['items'])}>"
        if kinds == "object":
            if "properties" not in schema:
                values = schema.get("additionalProperties", True)
                return "JsonObject" if values is True else f"Map<String, {self._type(owner, name, values)}>"
            inner_name = "Message" if name in ("messages", "prompt") else f"{owner}{_capital(name)}"
            if inner_name not in self.classes:
                described = schema if "description" in schema else {**schema, "description": f"`{name}` of [{owner}]."}
                self.classes[inner_name] = self.data_class(inner_name, described, owner)
            return inner_name
        return _PRIMITIVES[kinds]

    def _enumeration(self, owner: str, name: str, values: tuple[str, ...]) -> str:
        kind = f"{owner if name in self._ambiguous else ''}{_capital(name)}"
        entries = "".join(f'    @SerialName("{value}") {value.upper()},\n' for value in values)
        unknown = "    UNKNOWN,\n" if self._grows else ""
        self.enumerations[kind] = (
            f"{_doc(f'What `{name}` may say.')}@Serializable\nenum class {kind} {{\n{entries}{unknown}}}\n"
        )
        return kind


def _ambiguous(schemas: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Fields whose enumerations differ between schemas."""
    enumerations: dict[str, set[tuple[str, ...]]] = {}
    for schema in schemas:
        for name, field in schema["properties"].items():
            for option in field.get("anyOf", [field]):
                if "enum" in option:
                    enumerations.setdefault(name, set()).add(tuple(option["enum"]))
    return frozenset(name for name, values in enumerations.items() if len(values) > 1)


def _property(name: str) -> str:
    return f"`{name}`" if name in _KEYWORDS else _camel(name)


def _camel(name: str) -> str:
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


def _capital(name: str) -> str:
    return _camel(f"_{name}")


def _doc(text: str) -> str:
    """KDoc of a Python docstring, wrapped again paragraph by paragraph."""
    if not text:
        return ""
    lines = [line for part in re.split(r"\n\s*\n", text.strip()) for line in (*_wrapped(part), "")][:-1]
    if len(lines) == 1 and len(lines[0]) <= _WIDTH - 7:
        return f"/** {lines[0]} */\n"
    return "/**\n" + "".join(f" * {line}".rstrip() + "\n" for line in lines) + " */\n"


def _wrapped(part: str) -> list[str]:
    """Lines of a paragraph. A list of fields, `name:  words`, keeps its lines."""
    if re.search(r"^\w[\w, ]*:  ", part, re.MULTILINE):
        return [line.rstrip() for line in part.splitlines()]
    return textwrap.wrap(" ".join(part.split()), _WIDTH - 3)
