# SPDX-License-Identifier: Apache-2.0
"""The manifest's record of one small graph."""

from __future__ import annotations

from bespoke.bundle.target_records import GraphRecord, TensorRecord

RECORD = GraphRecord(
    key="0" * 64,
    name="scale",
    file="graphs/scale.json",
    inputs=(
        TensorRecord(name="x", shape=(4, 8), dtype="float32", role="x"),
        TensorRecord(name="w", shape=(8,), dtype="float32", role="w"),
    ),
    outputs=(TensorRecord(name="y", shape=(4, 8), dtype="float32", role="y"),),
)
