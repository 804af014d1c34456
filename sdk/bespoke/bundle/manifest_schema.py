# SPDX-License-Identifier: Apache-2.0
"""JSON Schema of the manifest, in which every property is required and none has a default."""

from __future__ import annotations

from typing import Any

from bespoke.bundle.manifest import ADDED, Manifest

__all__ = ["manifest_schema"]


def manifest_schema() -> dict[str, Any]:
    """JSON Schema of the current manifest. Documents of minor versions before `x-since-minor` must not have the property."""
    schema = Manifest.model_json_schema()
    for path, since in ADDED.items():
        _property(schema, path)["x-since-minor"] = since
    for part in (schema, *schema.get("$defs", {}).values()):
        properties = part.get("properties", {})
        for field in properties.values():
            field.pop("default", None)
        if properties:
            part["required"] = sorted(properties)
    return schema


def _property(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """The part of the schema at a path of ADDED."""
    part = schema
    for name in path.split("."):
        part = part.get("items") or part.get("additionalProperties") or part
        part = schema["$defs"][part["$ref"].rsplit("/", 1)[1]] if "$ref" in part else part
        part = part["properties"][name]
    return part
