# SPDX-License-Identifier: Apache-2.0
"""Arrays of each dtype, and tensor files with a header of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

NUMBERS = np.random.default_rng(3)

ARRAYS: dict[str, np.ndarray] = {
    "q_proj.codes": NUMBERS.integers(0, 256, (5, 16), dtype=np.uint8),
    "q_proj.scales": NUMBERS.standard_normal((5, 1)).astype(np.float16),
    "input_norm": NUMBERS.standard_normal(7).astype(np.float32),
    "offsets": np.array([0, 3, 2**40], np.int64),
    "tokens": np.arange(6, dtype=np.int32).reshape(2, 3),
    "empty": np.empty((0, 4), np.float32),
    "scalar": np.array(1.5, np.float32),
}


def craft(path: Path, header: bytes | dict[str, object], data: bytes = b"") -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    text += b" " * (-(len(text)) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def entry(dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


LYING_HEADERS: list[tuple[bytes | dict[str, object], str]] = [
    ({"a": entry(offsets=(0, 16))}, "16 bytes for shape"),
    ({"a": entry(offsets=(8, 0))}, "-8 bytes"),
    ({"a": entry(offsets=(-8, 0))}, "data_offsets"),
    ({"a": entry(offsets=(8, 16))}, "a hole"),
    ({"a": entry(), "b": entry(offsets=(4, 12))}, "an overlap"),
    ({"a": entry(), "b": entry()}, "an overlap"),
    ({"a": entry(shape=(2**62, 2**62), offsets=(0, 0))}, "shape"),
    ({"a": entry(shape=(2**32, 2**32), offsets=(0, 0))}, "bytes for shape"),
    ({"a": entry(shape=(True, 2))}, "shape [true, 2]"),
    ({"a": entry(shape=(2.0,))}, "shape"),
    ({"a": entry(shape="2")}, "shape"),
    ({"a": entry(shape=(1,) * 9)}, "shape"),
    ({"a": entry(dtype="F64", shape=(1,))}, "dtype 'F64'"),
    ({"a": entry(dtype="BF16", shape=(4,))}, "dtype 'BF16'"),
    ({"a": entry(dtype=["F32"])}, 'dtype ["F32"]'),
    ({"a": entry(dtype=None)}, "dtype null"),
    ({"a": entry(offsets=(0, None))}, "data_offsets [0, null]"),
    ({"a": entry() | {"more": 1}}, "other fields"),
    ({"a": {"dtype": "F32", "shape": [2]}}, "other fields"),
    ({"a": 3}, "other fields"),
    ({"": entry()}, "a name"),
    ({"a\n": entry()}, "a name"),
    ({"x" * 300: entry()}, "a name"),
    ({"__metadata__": {"a": 1}, "a": entry()}, "other than texts"),
    ({"b": entry("U8", (1,), (0, 1)), "a": entry("F32", (1,), (1, 5)), "c": entry("U8", (3,), (5, 8))}, "byte"),
    ({}, "24 bytes"),
    (b'{"a": {"dtype":"F32","shape":[2],"data_offsets":[0,8]}, "a": {}}', "twice"),
    (b"[1]", "begins with '['"),
    (b" {}", "begins with"),
    (b'{"a": {"dtype":"F32","shape":[[2]],"data_offsets":[[0,8]]}}', "nesting"),
    (b'{"a": [[[[]]]]}', "nesting"),
    (b'{"a": ' + b"[" * 100_000, "nesting"),
    (b"{", "partner"),
    (b"{} x", "not JSON"),
]

LENGTHS_TOO_LARGE = [2**64 - 1, 2**63, 2**40, 5 * 2**20, 9, 3]
