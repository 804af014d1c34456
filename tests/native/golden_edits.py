# SPDX-License-Identifier: Apache-2.0
"""Changes of the document in a file of golden vectors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np


def edited(change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, np.ndarray]], None]:
    """A change of the document in the file."""

    def apply(arrays: dict[str, np.ndarray]) -> None:
        content = json.loads(arrays["document"].tobytes())
        change(content)
        arrays["document"] = np.frombuffer(json.dumps(content).encode(), np.uint8)

    return apply
