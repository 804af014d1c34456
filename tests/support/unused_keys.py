# SPDX-License-Identifier: Apache-2.0
"""The keys of an example that say nothing, counted apart from the shipped count (bindings/native/src/text/messages.h)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

MOST_KEYS, MOST_CHARACTERS = 32, 64  # most unused keys in a message, and most characters of a key
_USED = ("role", "content", "weight", "tool_calls", "function_call")  # a call that is not empty is refused


def unused_keys(example: Mapping[str, Any], used: Collection[str]) -> dict[str, int]:
    """How often the example, its messages and their parts have a key that is not `used`: the most frequent by name, the others
    together as "..."."""
    found = Counter(_named(key) for key in example if key not in used)
    for message in example["messages"] if "messages" in used else ():
        found.update(_named(key, "messages.") for key in message if key not in _USED)
        content = message.get("content")
        for part in content if isinstance(content, list | tuple) else ():
            found.update(_named(key, "messages.content.") for key in part if key not in ("type", "text"))
    order = sorted(found.items(), key=lambda item: (-item[1], item[0]))
    named, others = order[:MOST_KEYS], order[MOST_KEYS:]
    return {**dict(sorted(named)), **({"...": sum(count for _, count in others)} if others else {})}


def _named(key: Any, of: str = "") -> str:
    name = str(key)
    return of + (name if len(name) <= MOST_CHARACTERS else name[:MOST_CHARACTERS] + "...")
