# SPDX-License-Identifier: Apache-2.0
"""How far the estimate of a plan may be off from what training was seen to add: a share of it, or so many bytes."""

from __future__ import annotations

SHARE, OR_BYTES = 0.15, 8_000_000
