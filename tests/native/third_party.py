# SPDX-License-Identifier: Apache-2.0
"""Sources of others in the core."""

from __future__ import annotations

import json
from typing import Any

from tests.native.conftest import SOURCE

FOLDER = SOURCE / "third_party"
SOURCES: dict[str, dict[str, Any]] = json.loads((FOLDER / "sources.json").read_text(encoding="utf-8"))
