# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a state: which promise is broken, where, and what was found there."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Findings:
    """`broken` in the order in which it was found; a promise is called by one word."""

    broken: list[dict[str, str]] = field(default_factory=list)

    def check(self, holds: object, promise: str, where: str, got: object) -> bool:
        """Notes a broken promise where `holds` is false; returns whether it holds."""
        if not holds:
            self.broken.append({"promise": promise, "where": where, "got": str(got)[:300]})
        return bool(holds)

    def json_object(self, text: str, promise: str, where: str) -> dict[str, Any]:
        """The object that `text` is; an empty one, and a broken promise, where it is none."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        return value if self.check(isinstance(value, dict), promise, where, f"no JSON object: {text[:80]}") else {}


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
