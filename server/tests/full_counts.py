# SPDX-License-Identifier: Apache-2.0
"""Whether tests run in full counts, as they do with BESPOKE_FULL=1."""

from __future__ import annotations

import os

FULL = os.environ.get("BESPOKE_FULL") == "1"
