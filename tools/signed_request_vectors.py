# SPDX-License-Identifier: Apache-2.0
"""Vectors of what a device signs of a request: each client of a federation holds its own code against them.

Keys and signatures are those of RFC 6979, A.2.5 (P-256 with SHA-256), and edges of DER that a signature meets by chance alone.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any

from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from bespoke.rules.signed_request import (
    COUNTER_HEADER,
    DEVICE_HEADER,
    HALF_BYTES,
    MAX_COUNTER,
    SIGNATURE_HEADER,
    device_id,
    signed_bytes,
)

# SubjectPublicKeyInfo of an uncompressed point of P-256, up to the point
HEAD = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d03010703420004")
RFC_6979_KEY = bytes.fromhex(
    "60fed4ba255a9d31c961eb74c6356d68c049b8923b61fa6ce669622e60f29fb6"
    "7903fe1008b8bc99a41ae9e95628bc64f2f1b20c2d7e9f5177a3c294d4462299"
)
GENERATOR = bytes.fromhex(
    "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296"
    "4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"
)
RFC_6979_SIGNATURES = {
    "sample": (
        0xEFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716,
        0xF7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8,
    ),
    "test": (
        0xF1ABB023518351CD71D881567B1EA663ED3EFCF6C5132B354F28D3B0B7D38367,
        0x019F4113742A2B14BD25926B49C649155F267E60D3814B4C0CC84250E46F0083,
    ),
}
SHORT_SIGNATURES = {
    "one byte and a byte with its high bit": (1, 0x80),
    "half of the bytes": (2**127 + 5, 2**120 - 1),
}
# id, method, path, body, round, counter
REQUESTS: tuple[tuple[str, str, str, bytes, int | None, int], ...] = (
    ("an empty body", "GET", f"/v1/files/{'ab' * 32}", b"", None, 1),
    ("a path with a query", "GET", "/v1/files/ab?x=1&y=%20", b"", None, 2),
    ("a server under a path", "POST", "/learn/v1/enrol", b'{"token": "x", "public_key": "y"}', None, 3),
    ("the first round", "POST", "/v1/ask", b'{"round": 0}', 0, 4),
    ("a later round", "POST", "/v1/ask", b'{"round": 1234567890123}', 1234567890123, 5),
    (
        "a body of many alphabets",
        "POST",
        "/v1/ask",
        '{"task": "naïve façade, Äpfel, 日本語, 🐕", "round": 7}\n'.encode(),
        7,
        6,
    ),
    ("bytes that are no text", "POST", "/v1/ask", bytes(range(256)), None, 7),
    ("the largest counter", "POST", "/v1/ask", b"{}", None, MAX_COUNTER),
)


def vectors() -> dict[str, Any]:
    """The document."""
    device = device_id(HEAD + RFC_6979_KEY)
    return {
        "comment": "Written by tools/write_schemas.py. Bytes are base64, hashes are hexadecimal. What is signed: server/README.md",
        "headers": {"device": DEVICE_HEADER, "counter": COUNTER_HEADER, "signature": SIGNATURE_HEADER},
        "max_counter": MAX_COUNTER,
        "keys": [
            {"id": name, "public_key": text(HEAD + point), "device": device_id(HEAD + point)}
            for name, point in (("the key of RFC 6979", RFC_6979_KEY), ("the generator of P-256", GENERATOR))
        ],
        "requests": [_request(device, *request) for request in REQUESTS],
        "signatures": [
            {
                "id": name,
                "der": text(encode_dss_signature(r, s)),
                "raw": text(raw(r, s)),
                "header": base64.urlsafe_b64encode(raw(r, s)).rstrip(b"=").decode(),
            }
            for name, (r, s) in {**RFC_6979_SIGNATURES, **SHORT_SIGNATURES}.items()
        ],
    }


def _request(
    device: str, name: str, method: str, path: str, body: bytes, round_number: int | None, counter: int
) -> dict[str, Any]:
    signed = signed_bytes(method, path, body, device, round_number, counter)
    return {
        "id": name,
        "method": method,
        "path": path,
        "body": text(body),
        "device": device,
        "round": round_number,
        "counter": counter,
        "signed": text(signed),
        "sha256": hashlib.sha256(signed).hexdigest(),
    }


def raw(r: int, s: int) -> bytes:
    """A signature as a request carries it."""
    return r.to_bytes(HALF_BYTES, "big") + s.to_bytes(HALF_BYTES, "big")


def text(data: bytes) -> str:
    """Base64."""
    return base64.b64encode(data).decode()
