# SPDX-License-Identifier: Apache-2.0
"""Signature of a bundle: ed25519 over the exact bytes of manifest.json, 64 raw bytes in the file `signature`.

The manifest holds the hash of every other file, so its signature covers the bundle. Nothing is normalised before the check:
the signed bytes are the parsed bytes. An app that ships its bundle may pin the manifest's sha256 instead and needs no key.

A public key is 32 raw bytes, or the PEM that `openssl pkey -pubout` writes. Reading it needs no library, as in apps that are
written in other languages.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from pathlib import Path
from typing import Any

from bespoke import arguments
from bespoke.errors import ConfigError, MissingDependency, SignatureError, shown
from bespoke.format.plain_file import read_plain
from bespoke.remedies import setting

__all__ = [
    "PUBLIC_KEY_BYTES",
    "SIGNATURE_BYTES",
    "check_trust",
    "generate_key",
    "public_key_of",
    "raw_public_key",
    "sign_bundle",
    "signature_of",
    "signed_document",
    "verify_signature",
]

SIGNATURE_BYTES = 64
ROUND_DOCUMENT = (
    b"bespoke round document 1\0"  # stands before what is signed, so the signature is good for nothing else
)
PUBLIC_KEY_BYTES = 32
_PEM = b"-----BEGIN PUBLIC KEY-----", b"-----END PUBLIC KEY-----"
_DER = bytes.fromhex("302a300506032b6570032100")  # SubjectPublicKeyInfo of ed25519 (RFC 8410), before the key itself


def generate_key() -> tuple[bytes, bytes]:
    """A new pair: the private key as PEM (PKCS 8, not encrypted: keep it out of the app), the public key raw."""
    ed25519, serialization = _cryptography()
    key = ed25519.Ed25519PrivateKey.generate()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return pem, key.public_key().public_bytes_raw()


def public_key_of(private_key: bytes) -> bytes:
    """The public key, 32 raw bytes, of a private key in PEM."""
    raw: bytes = _private(private_key).public_key().public_bytes_raw()
    return raw


def check_trust(pin_sha256: str | None, public_key: bytes | None) -> None:
    """Raise ConfigError unless each is None or valid in form. An empty pin is an error, not a missing pin."""
    if pin_sha256 is not None and not (isinstance(pin_sha256, str) and re.fullmatch("[0-9a-fA-F]{64}", pin_sha256)):
        raise ConfigError(
            setting("pin_sha256"),
            got=shown(pin_sha256),
            expected="64 hexadecimal digits: the sha256 of manifest.json",
            next_step="Change " + setting("pin_sha256"),
        )
    if public_key is not None and not isinstance(public_key, bytes):
        raise ConfigError(
            setting("public_key"), got=shown(public_key), expected="bytes", next_step="Read the key's file as bytes"
        )


def raw_public_key(key: bytes) -> bytes:
    """The 32 bytes of a public key that is raw or in PEM. Raises SignatureError for any other."""
    if isinstance(key, bytes) and len(key) == PUBLIC_KEY_BYTES:
        return key
    expected = f"ed25519: {PUBLIC_KEY_BYTES} raw bytes, or the PEM of a public key"
    if not isinstance(key, bytes):
        raise _refused("public key", f"a {type(key).__name__}", expected)
    text = key.strip()
    if not (text.startswith(_PEM[0]) and text.endswith(_PEM[1])):
        private = b"PRIVATE KEY" in text[:64]
        raise _refused("public key", "a private key" if private else f"{len(key)} bytes", expected)
    try:
        der = base64.b64decode(b"".join(text[len(_PEM[0]) : -len(_PEM[1])].split()), validate=True)
    except binascii.Error:
        raise _refused("public key", "PEM that is no base64", expected) from None
    if len(der) != len(_DER) + PUBLIC_KEY_BYTES or not der.startswith(_DER):
        raise _refused("public key", "PEM of another kind of key", expected)
    return der[len(_DER) :]


def signature_of(manifest: bytes, private_key: bytes) -> bytes:
    """The signature of a manifest's bytes by a private key in PEM. Raises SignatureError for a key other than ed25519."""
    signature: bytes = _private(private_key).sign(manifest)
    return signature


def signed_document(payload: str, private_key: bytes) -> bytes:
    """What a server of federated learning answers: a round document as JSON text, and its signature by a private key in PEM."""
    signature = signature_of(ROUND_DOCUMENT + payload.encode(), private_key)
    return json.dumps({"payload": payload, "signature": signature.hex()}).encode()


def sign_bundle(folder: Path | str, private_key: bytes) -> bytes:
    """Write `signature` into a bundle's folder and return it. Raises SignatureError for a key other than ed25519."""
    folder = arguments.folder("folder", folder)
    try:
        manifest = read_plain(folder / "manifest.json")
    except OSError as problem:
        raise _refused(str(folder), problem.strerror or "no manifest", "the folder of a bundle") from None
    signature = signature_of(manifest, private_key)
    partial = folder.parent / f".{folder.name}.signature"
    try:
        partial.write_bytes(signature)
        os.replace(partial, folder / "signature")
    except OSError as problem:
        raise _refused(str(folder), problem.strerror or "an error", "a folder that can be written") from None
    return signature


def verify_signature(manifest: bytes, signature: bytes | None, public_key: bytes, subject: str) -> None:
    """Raise SignatureError about `subject` unless the owner of `public_key` signed `manifest` with `signature`."""
    raw = raw_public_key(public_key)
    if signature is None:
        raise _refused(subject, "no signature", "a signature: the app asks for one")
    ed25519, _ = _cryptography()
    from cryptography.exceptions import InvalidSignature

    try:
        ed25519.Ed25519PublicKey.from_public_bytes(raw).verify(signature, manifest)
    except (InvalidSignature, ValueError):
        raise _refused(subject, "a signature of other bytes or by another key", "one by the app's key") from None


def _private(pem: bytes) -> Any:
    ed25519, serialization = _cryptography()
    try:
        key = serialization.load_pem_private_key(pem, password=None)
    except (ValueError, TypeError) as problem:
        raise _refused("private key", str(problem)[:100] or "other bytes", "ed25519 in PEM (PKCS 8)") from None
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise _refused("private key", type(key).__name__, "an ed25519 key")
    return key


def _cryptography() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise MissingDependency.of("Signatures", "cryptography", "sign") from None
    return ed25519, serialization


def _refused(subject: str, got: str, expected: str) -> SignatureError:
    return SignatureError(
        subject, got=got, expected=expected, next_step="Get the bundle and its key from the one who built it"
    )
