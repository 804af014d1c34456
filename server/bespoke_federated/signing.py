# SPDX-License-Identifier: Apache-2.0
"""Signatures of requests: ES256 (ECDSA on P-256 with SHA-256), as the key stores of phones make them.

`bespoke.rules.signed_request` says what is signed and in which headers. A signature in DER is refused: one signature has one form.
A counter is good once, and only if it is above the last one that was accepted. So a client that lost an answer asks again with a
new counter.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature

from bespoke.rules.signed_request import COUNTER_HEADER, DEVICE_HEADER, HALF_BYTES, MAX_COUNTER, SIGNATURE_HEADER
from bespoke_federated.problems import problem

__all__ = [
    "Claim",
    "check_signature",
    "claim_of",
    "public_key_from",
    "sign",
]

MAX_KEY_BYTES = 256

_unsigned = problem(401, "the request's signature")
_SIGN_AGAIN = "Sign the request again with the device's key"


class Claim(NamedTuple):
    """What the headers of a request say: who sent it, its counter, and the signature's r and s."""

    device: str
    counter: int
    signature: bytes


def public_key_from(der: bytes) -> ec.EllipticCurvePublicKey:
    """The key of a SubjectPublicKeyInfo in DER. Raises RequestError unless it is one of P-256 in its only form."""
    refused = problem(400, "the public key")
    expected, next_step = (
        "a SubjectPublicKeyInfo of P-256 in DER, its point not compressed",
        "Send the device's own key",
    )
    try:
        key = serialization.load_der_public_key(der) if len(der) <= MAX_KEY_BYTES else None
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise refused("another key, or none", expected, next_step)
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    if (
        key.public_bytes(serialization.Encoding.DER, form) != der
    ):  # another form of the same key would be another device
        raise refused("another form of a key", expected, next_step)
    return key


def claim_of(headers: Mapping[str, str]) -> Claim:
    """What the headers say. Raises RequestError where one is missing or of another form."""
    device, counter, signature = (headers.get(name, "") for name in (DEVICE_HEADER, COUNTER_HEADER, SIGNATURE_HEADER))
    if not re.fullmatch("[0-9a-f]{64}", device):
        raise _unsigned(f"no device in {DEVICE_HEADER}", "64 hexadecimal digits", "Send the headers of a signature")
    if not re.fullmatch("0|[1-9][0-9]{0,15}", counter) or int(counter) > MAX_COUNTER:
        raise _unsigned(
            f"no counter in {COUNTER_HEADER}",
            f"a whole number from 0 to {MAX_COUNTER}",
            "Send the headers of a signature",
        )
    try:
        raw = base64.b64decode(signature + "=" * (-len(signature) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != 2 * HALF_BYTES or base64.urlsafe_b64encode(raw).rstrip(b"=").decode() != signature.rstrip("="):
        raise _unsigned(
            f"{len(raw)} bytes in {SIGNATURE_HEADER}",
            f"{2 * HALF_BYTES} in base64url: r and s, not DER",
            "Send the signature in its raw form",
        )
    return Claim(device, int(counter), raw)


def check_signature(claim: Claim, public_key: bytes, signed: bytes) -> None:
    """Raises RequestError unless the owner of the key, as DER, made the claim's signature of these bytes."""
    r, s = (int.from_bytes(half, "big") for half in (claim.signature[:HALF_BYTES], claim.signature[HALF_BYTES:]))
    try:
        key = public_key_from(public_key)
        key.verify(encode_dss_signature(r, s), signed, ec.ECDSA(hashes.SHA256()))
    except (InvalidSignature, ValueError):
        raise _unsigned(
            "one of other bytes or by another key", "one of this request by its device", _SIGN_AGAIN
        ) from None


def sign(key: ec.EllipticCurvePrivateKey, signed: bytes) -> str:
    """The header of a signature, as a device makes it."""
    r, s = decode_dss_signature(key.sign(signed, ec.ECDSA(hashes.SHA256())))
    raw = r.to_bytes(HALF_BYTES, "big") + s.to_bytes(HALF_BYTES, "big")
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
