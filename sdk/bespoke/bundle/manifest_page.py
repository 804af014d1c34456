# SPDX-License-Identifier: Apache-2.0
"""Writer of docs/reference/manifest.md: `python -m bespoke.bundle.manifest_page > docs/reference/manifest.md`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["manifest_page"]

_HEAD = """# Manifest

These are the fields of `manifest.json`, format 1.8. All of them are required at every level. `null` is a value and must be
written. How a reader treats the whole document is on [the format's page](bundle_format.md).
`python -m bespoke.bundle.manifest_page` writes this page from the models that read the file.
"""


def manifest_page(schema: dict[str, Any]) -> str:
    """The page in Markdown: a table for each record, the manifest first, then the records in order of reference."""
    records = schema["$defs"]
    lines = [_HEAD]
    names = ["Manifest"]
    for name in names:  # grows during the loop
        record = schema if name == "Manifest" else records[name]
        lines += [f"## {name}\n", f"{_first_line(record)}\n", "| field | type | meaning |", "|---|---|---|"]
        for field, part in record["properties"].items():
            since = f" (from 1.{part['x-since-minor']} on)" if "x-since-minor" in part else ""
            lines.append(f"| `{field}` | {_type(part)} | {_cell(part.get('description', ''))}{since} |")
            names += [other for other in _references(part) if other not in names]
        lines.append("")
    return "\n".join(lines)


def _first_line(record: dict[str, Any]) -> str:
    return " ".join(str(record.get("description", "")).split("\n\n")[0].split())


def _type(part: dict[str, Any]) -> str:
    if "$ref" in part:
        name = part["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in part:
        return " or ".join(_type(choice) for choice in part["anyOf"])
    if "enum" in part or "const" in part:
        return " or ".join(f"`{value}`" for value in part.get("enum", [part.get("const")]))
    kind = part.get("type", "any")
    if kind == "array":
        return f"list of {_type(part.get('items', {}))}{_limits(part, 'Items')}"
    if kind == "object":
        return f"object of {_type(part.get('additionalProperties', {}))}{_limits(part, 'Properties')}"
    return f"{kind}{_limits(part, 'Length')}"


def _limits(part: dict[str, Any], counted: str) -> str:
    shown = []
    for key, sign in (("minimum", ">="), ("exclusiveMinimum", ">"), ("maximum", "<="), ("exclusiveMaximum", "<")):
        if key in part and part[key] != 2**53:
            shown.append(f"{sign} {part[key]}")
    if part.get(f"min{counted}"):
        shown.append(f"at least {part[f'min{counted}']}")
    if f"max{counted}" in part:
        shown.append(f"at most {part[f'max{counted}']}")
    if part.get("pattern") == "^[0-9a-f]{64}$":
        return " of 64 hexadecimal digits"
    return f" ({', '.join(shown)})" if shown else ""


def _references(part: Any) -> Iterator[str]:
    """Names of the records that a field refers to."""
    if isinstance(part, dict):
        for key, value in part.items():
            if key == "$ref":
                yield value.rsplit("/", 1)[1]
            else:
                yield from _references(value)
    elif isinstance(part, list):
        for item in part:
            yield from _references(item)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    from bespoke.bundle.manifest_schema import manifest_schema

    print(manifest_page(manifest_schema()), end="")
