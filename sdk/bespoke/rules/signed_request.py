# SPDX-License-Identifier: Apache-2.0
"""What a device signs of each request to a server of federated learning, and the headers that carry it.

The signature is ES256 (ECDSA on P-256 with SHA-256), as the key stores of phones make it. What is signed is exact bytes. Seven
lines, each with \\n behind it:

    bespoke-request-1
    POST                     method
    /v1/ask?x=1              path with its query, as it stands in the request
    9f86d0...                sha256 of the body in hexadecimal
    a591a6...                id of the device
    12                       the round that the body's document names, - where there is none
    7                        counter

A counter is good once, and only if it is above the last one that was accepted. So a client that lost an answer asks again with
a new counter. `Bespoke-Signature` is base64url of r and s, 32 bytes each.
"""

from __future__ import annotations

import hashlib

__all__ = [
    "COUNTER_HEADER",
    "DEVICE_HEADER",
    "HALF_BYTES",
    "MAX_COUNTER",
    "SIGNATURE_HEADER",
    "device_id",
    "signed_bytes",
]

DEVICE_HEADER, COUNTER_HEADER, SIGNATURE_HEADER = "Bespoke-Device", "Bespoke-Counter", "Bespoke-Signature"
MAX_COUNTER = 2**53 - 1  # the largest whole number that every language's JSON and doubles hold
HALF_BYTES = 32  # of r and of s
_VERSION = "bespoke-request-1"


def device_id(public_key: bytes) -> str:
    """The id of the device with this key: sha256 of its SubjectPublicKeyInfo in DER, in hexadecimal."""
    return hashlib.sha256(public_key).hexdigest()


def signed_bytes(method: str, path: str, body: bytes, device: str, round_number: int | None, counter: int) -> bytes:
    """What a device signs. `path`: with the query. `round_number`: of the body's document, if it is one."""
    named = "-" if round_number is None else str(round_number)
    lines = (_VERSION, method, path, hashlib.sha256(body).hexdigest(), device, named, str(counter))
    return "".join(f"{line}\n" for line in lines).encode()
