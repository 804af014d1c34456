# SPDX-License-Identifier: Apache-2.0
"""Kind of error -> its status in the C API, with which the core's process ends too."""

from __future__ import annotations

import json
from pathlib import Path

SCHEMA = Path(__file__).resolve().parents[2] / "bindings" / "schema"
STATUS: dict[str, int] = {row["kind"]: row["status"] for row in json.loads((SCHEMA / "errors.json").read_text())}
