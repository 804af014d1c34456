# SPDX-License-Identifier: Apache-2.0
"""The space that a tokenizer puts before a text: reads where it does so, and removes it from a tokenizer.json."""

from __future__ import annotations

import json
from typing import Any, Literal

__all__ = ["prefix_of", "settings_of", "steps_of", "without_prefix"]

# Where a tokenizer puts its space: nowhere, before the whole text, or before every stretch between two added tokens.
SpacePlace = Literal["none", "text", "stretch"]


def steps_of(part: Any, inner: str) -> list[dict[str, Any]]:
    """The steps of a normalizer or pre-tokenizer, which is a single step, a sequence of them, or null."""
    if not isinstance(part, dict):
        return []
    return list(part[inner]) if part.get("type") == "Sequence" else [part]


def settings_of(component: Any) -> Any:
    """A normalizer or pre-tokenizer as tokenizer.json has it. Parsing the whole file would cost 45 MB for Qwen2.5."""
    return None if component is None else json.loads(component.__getstate__())


def prefix_of(normalizer: Any, pre_tokenizer: Any) -> SpacePlace:
    """Where the tokenizer with these two parts puts a space before a text."""
    for step in steps_of(normalizer, "normalizers"):
        if step.get("type") == "Prepend":
            return "stretch"
    for step in steps_of(pre_tokenizer, "pretokenizers"):
        if step.get("type") == "Metaspace":
            scheme = step.get("prepend_scheme") or ("always" if step.get("add_prefix_space", True) else "never")
            return {"first": "text", "never": "none"}.get(scheme, "stretch")  # type: ignore[return-value]
        if step.get("type") == "ByteLevel" and step.get("add_prefix_space"):
            return "stretch"
    return "none"


def without_prefix(data: dict[str, Any]) -> dict[str, Any]:
    """A copy of a tokenizer.json that puts no space before a text."""
    changed = dict(data)
    normalizers = [s for s in steps_of(data.get("normalizer"), "normalizers") if s.get("type") != "Prepend"]
    changed["normalizer"] = {"type": "Sequence", "normalizers": normalizers} if normalizers else None

    steps = []
    for step in steps_of(data.get("pre_tokenizer"), "pretokenizers"):
        if step.get("type") == "Metaspace":
            step = {k: v for k, v in step.items() if k != "add_prefix_space"} | {"prepend_scheme": "never"}
        elif step.get("type") == "ByteLevel":
            step = {**step, "add_prefix_space": False}
        steps.append(step)
    changed["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps} if steps else None
    return changed
