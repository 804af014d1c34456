# SPDX-License-Identifier: Apache-2.0
"""Kotlin's classes for the JSON of the C API, from the schemas, and its exceptions, from the kinds of errors.

A report may grow: Kotlin ignores unknown fields and reads an unknown value of an enumeration as UNKNOWN.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from record_types import Enumeration, Field, Record, Type, call_of, camel, doc_lines, example_types, record_types

HEAD = (
    "// SPDX-License-Identifier: Apache-2.0\n"
    "// Written by tools/write_schemas.py from bindings/schema.\n"
    "package dev.bespoke\n"
)
_PRIMITIVES = {
    "string": "String",
    "integer": "Long",
    "number": "Double",
    "boolean": "Boolean",
    "bit": "Int",
    "object": "JsonObject",
}
_KEYWORDS = {"as", "in", "is", "object", "when"}  # Kotlin's keywords; a property of such a name is written `so`
_WIDTH = 116
_RECORDS_IMPORTS = (
    "import kotlinx.serialization.SerialName\nimport kotlinx.serialization.Serializable\n"
    "import kotlinx.serialization.json.JsonObject\n"
)


def records(schemas: Mapping[str, dict[str, Any]]) -> str:
    """Records.kt, from the schemas of records and reports by file name."""
    types = record_types(schemas)
    enumerations = [_enumeration(one, grows=True) for one in types.enumerations.values()]
    classes = [_data_class(one, grows=True) for one in types.records.values()]
    return HEAD + "\n" + _RECORDS_IMPORTS + "\n" + "\n".join([*enumerations, *classes])


def example(schema: Mapping[str, Any]) -> str:
    """Example.kt: a sealed interface with a class for each form of an example."""
    types, forms = example_types(schema)
    parts = [_enumeration(one, grows=False) for one in types.enumerations.values()]
    parts += [_data_class(one, grows=False) for one in types.records.values()]
    parts += [_data_class(one, grows=False, implements=" : Example") for one in forms]
    members = "\n".join(textwrap.indent(text, "    ") for text in parts)
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
    verbs = "".join(f'    "{key}" to "{call_of(verb, "kotlin")}",\n' for key, verb in table["verbs"].items())
    settings = "".join(f'    "{name}" to "{setting["kotlin"]}",\n' for name, setting in table["settings"].items())
    return (
        f"{HEAD}\n/** What an error says to call a verb. */\ninternal val CALLS: Map<String, String> = mapOf(\n{verbs})\n\n"
        "/** Settings that have another name than in Python. */\n"
        f"internal val SETTINGS: Map<String, String> = mapOf(\n{settings})\n"
    )


def _error_fields() -> Iterable[str]:
    means_of = {
        "subject": "What it is about.",
        "got": "What was found.",
        "expected": "What should be.",
        "nextStep": "What to do.",
    }
    for number, (name, means) in enumerate(means_of.items()):
        yield ("\n" if number else "") + f"    /** {means} */\n    val {name}: String get() = details.{name}\n"


def _enumeration(of: Enumeration, grows: bool) -> str:
    """`grows`: later versions may send unknown words."""
    entries = "".join(f'    @SerialName("{word}") {word.upper()},\n' for word in of.words)
    unknown = "    UNKNOWN,\n" if grows else ""
    return f"{_doc(f'What `{of.field}` may say.')}@Serializable\nenum class {of.name} {{\n{entries}{unknown}}}\n"


def _data_class(of: Record, grows: bool, implements: str = "") -> str:
    fields = "".join(_field(one, grows) for one in of.fields)
    return f"{_doc(of.doc)}@Serializable\ndata class {of.name}(\n{fields}){implements}\n"


def _field(of: Field, grows: bool) -> str:
    kind, default = _type(of.type), ""
    if grows and of.type.kind == "enumeration":
        default = f" = {of.type.name}.UNKNOWN"  # null would say that there is no word
    elif not of.required:
        kind, default = f"{kind.removesuffix('?')}?", " = null"
    return f'    @SerialName("{of.name}") val {_property(of.name)}: {kind}{default},\n'


def _type(of: Type) -> str:
    if of.kind == "list":
        assert of.of is not None
        kind = f"List<{_type(of.of)}>"
    elif of.kind == "map":
        assert of.of is not None
        kind = f"Map<String, {_type(of.of)}>"
    else:
        kind = of.name or _PRIMITIVES[of.kind]
    return f"{kind}?" if of.nullable else kind


def _property(name: str) -> str:
    return f"`{name}`" if name in _KEYWORDS else camel(name)


def _doc(text: str) -> str:
    """KDoc of a Python docstring."""
    lines = doc_lines(text)
    if not lines:
        return ""
    if len(lines) == 1 and len(lines[0]) <= _WIDTH - 7:
        return f"/** {lines[0]} */\n"
    return "/**\n" + "".join(f" * {line}".rstrip() + "\n" for line in lines) + " */\n"
