# SPDX-License-Identifier: Apache-2.0
"""Swift's types for the JSON of the C API, from the schemas, and the kinds of its errors.

A report may grow: Swift ignores unknown fields, and a word of a list that grows is a struct over its text.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from record_types import Enumeration, Field, Record, Type, call_of, camel, doc_lines, example_types, record_types

HEAD = "// SPDX-License-Identifier: Apache-2.0\n// Written by tools/write_schemas.py from bindings/schema.\n"
_PRIMITIVES = {
    "string": "String",
    "integer": "Int64",
    "number": "Double",
    "boolean": "Bool",
    "bit": "Int",
    "object": "JSONValue",
}
_KEYWORDS = {"as", "in", "is", "default", "case"}  # a name that Swift takes only as `name`


def records(schemas: Mapping[str, dict[str, Any]]) -> str:
    """Records.swift, from the schemas of records and reports by file name."""
    types = record_types(schemas)
    parts = [_words(one) for one in types.enumerations.values()]
    parts += [_record(one) for one in types.records.values()]
    return HEAD + "\n" + "\n".join(parts)


def example(schema: Mapping[str, Any]) -> str:
    """Example.swift: an enum with a case for each form of an example."""
    types, forms = example_types(schema)
    parts = [_closed_words(one) for one in types.enumerations.values()]
    parts += [_given_record(one) for one in types.records.values()]
    cases = "".join(
        f"case {_form_name(form)}({', '.join(_parameter(form, one) for one in form.fields)})\n" for form in forms
    )
    keys = sorted({one.name for form in forms for one in form.fields})
    parts += [
        cases,
        f"private enum Key: String, CodingKey {{\n    case {', '.join(map(_name, keys))}\n}}\n",
        _encode(forms),
    ]
    members = "\n".join(textwrap.indent(text, "    ") for text in parts)
    return f"{HEAD}\n{_doc(schema['description'])}public enum Example: Encodable, Hashable, Sendable {{\n{members}}}\n"


def errors(table: Iterable[Mapping[str, Any]]) -> str:
    """ErrorKinds.swift: a kind of error for each status of the C API."""
    kinds = "".join(
        textwrap.indent(
            f"{_doc(row['means'])}public static let {_kind(row)} = Kind(rawValue: {row['status']})\n\n", "        "
        )
        for row in table
    )
    return (
        f"{HEAD}\nextension BespokeError {{\n    /// What kind of error it is. Later versions add kinds.\n"
        "    public struct Kind: RawRepresentable, Hashable, Sendable {\n        public let rawValue: Int32\n\n"
        "        public init(rawValue: Int32) {\n            self.rawValue = rawValue\n        }\n\n"
        f"{kinds.rstrip()}\n    }}\n}}\n"
    )


def names(table: Mapping[str, Mapping[str, Mapping[str, str | None]]]) -> str:
    """Names.swift: what errors call verbs and settings in Swift."""
    verbs = "".join(f'    "{key}": "{call_of(verb, "swift")}",\n' for key, verb in table["verbs"].items())
    settings = "".join(f'    "{name}": "{setting["swift"]}",\n' for name, setting in table["settings"].items())
    return (
        f"{HEAD}\n/// What an error says to call a verb.\nlet callOfVerb: [String: String] = [\n{verbs}]\n\n"
        f"/// Settings that have another name than in Python.\nlet nameOfSetting: [String: String] = [\n{settings}]\n"
    )


def _kind(row: Mapping[str, Any]) -> str:
    name = "InternalError" if row["status"] == 1 else str(row["kind"])
    return name[0].lower() + name[1:]


def _words(of: Enumeration) -> str:
    words = "".join(
        f'    public static let {_name(word.lower())} = {of.name}(rawValue: "{word}")\n' for word in of.words
    )
    return (
        f"{_doc(f'What `{of.field}` may say. Later versions may say more.')}"
        f"public struct {of.name}: RawRepresentable, Codable, Hashable, Sendable {{\n    public let rawValue: String\n\n"
        f"    public init(rawValue: String) {{\n        self.rawValue = rawValue\n    }}\n\n{words}}}\n"
    )


def _closed_words(of: Enumeration) -> str:
    cases = "".join(f"    case {_name(word)}\n" for word in of.words)
    return f"{_doc(f'What `{of.field}` may say.')}public enum {of.name}: String, Codable, Sendable {{\n{cases}}}\n"


def _record(of: Record) -> str:
    """A record that comes out."""
    fields = "".join(f"    public let {_name(one.name)}: {_field_type(one)}\n" for one in of.fields)
    return f"{_doc(of.doc)}public struct {of.name}: Codable, Hashable, Sendable {{\n{fields}\n{_coding_keys(of)}}}\n"


def _given_record(of: Record) -> str:
    """A record that an app makes: with an initializer."""
    fields = "".join(f"    public var {_name(one.name)}: {_field_type(one)}\n" for one in of.fields)
    parameters = ", ".join(f"{one.name}: {_field_type(one)}{'' if one.required else ' = nil'}" for one in of.fields)
    assignments = "".join(f"        self.{one.name} = {_name(one.name)}\n" for one in of.fields)
    return (
        f"{_doc(of.doc)}public struct {of.name}: Codable, Hashable, Sendable {{\n{fields}\n"
        f"    public init({parameters}) {{\n{assignments}    }}\n}}\n"
    )


def _coding_keys(of: Record) -> str:
    def case(name: str) -> str:
        return _name(name) if camel(name) == name else f'{_name(name)} = "{name}"'

    return (
        "    enum CodingKeys: String, CodingKey {\n"
        + "".join(f"        case {case(one.name)}\n" for one in of.fields)
        + "    }\n"
    )


def _encode(forms: Iterable[Record]) -> str:
    cases = ""
    for form in forms:
        cases += f"    case .{_form_name(form)}({', '.join(f'let {_name(one.name)}' for one in form.fields)}):\n"
        for one in form.fields:
            encode = "encode" if one.required else "encodeIfPresent"
            cases += f"        try fields.{encode}({_name(one.name)}, forKey: .{_name(one.name)})\n"
    return (
        "public func encode(to encoder: any Encoder) throws {\n    var fields = encoder.container(keyedBy: Key.self)\n"
        f"    switch self {{\n{cases}    }}\n}}\n"
    )


def _form_name(of: Record) -> str:
    return of.name[0].lower() + of.name[1:]


def _parameter(form: Record, of: Field) -> str:
    """The field that names the form needs no label."""
    label = "" if of.name == _form_name(form) else f"{of.name}: "
    return f"{label}{_field_type(of)}{'' if of.required else ' = nil'}"


def _field_type(of: Field) -> str:
    kind = _type(of.type)
    return kind if of.required else f"{kind.removesuffix('?')}?"


def _type(of: Type) -> str:
    if of.of is not None:
        inner = _type(of.of)
        kind = f"[{inner}]" if of.kind == "list" else f"[String: {inner}]"
    else:
        kind = of.name or _PRIMITIVES[of.kind]
    return f"{kind}?" if of.nullable else kind


def _name(name: str) -> str:
    return f"`{name}`" if name in _KEYWORDS else camel(name)


def _doc(text: str) -> str:
    linked = re.sub(r"\[(\w+)\]", r"``\1``", text)  # a link, as Kotlin writes it
    return "".join(f"/// {line}".rstrip() + "\n" for line in doc_lines(linked))
