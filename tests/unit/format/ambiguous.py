# SPDX-License-Identifier: Apache-2.0
"""JSON texts that two readers could read differently, each with what the error says."""

from __future__ import annotations

AMBIGUOUS = [
    (b'{"a": 1, "a": 2}', "twice"),
    (b'[{"x": {"a": 1, "b": 2, "a": 1}}]', "twice"),
    (b"[NaN]", "NaN"),
    (b"[-Infinity]", "-Infinity"),
    (b"[1e999]", "1e999"),
    (b"[" + b"9" * 21 + b"]", "21 characters"),
    (b"[" + b"9" * 5000 + b"]", "5000 characters"),
    (b'["\\ud800"]', "surrogate"),
    (b'["\xff"]', "0xff"),
    (b"\xef\xbb\xbf[]", "not JSON"),
    (b"[1,]", "not JSON"),
    (b"[1] [2]", "not JSON"),
    (b"", "not JSON"),
    (b"[1", "without partner"),
    (b"[" * 40 + b"]" * 40, "deeper than 32"),
    (b'{"a":' * 33 + b"1" + b"}" * 33, "deeper than 32"),
    (b"[{]}", "not JSON"),
    (b'["unended', "without partner"),
]
