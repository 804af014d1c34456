# SPDX-License-Identifier: Apache-2.0
"""Files of keys: the server's own pair, and a certificate for trying it on one machine."""

from __future__ import annotations

import datetime
import ipaddress
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bespoke.bundle.signature import generate_key
from bespoke.errors import ConfigError

__all__ = ["write_certificate", "write_key"]

CERTIFICATE_DAYS = 30


def write_key(folder: Path) -> str:
    """Writes server.pem. Returns the public key in hexadecimal, as `Federation(server_key=...)` takes it."""
    private, public = generate_key()
    _write_new(folder / "server.pem", private, 0o600)
    return public.hex()


def write_certificate(folder: Path) -> tuple[Path, Path]:
    """Writes tls-cert.pem and tls-key.pem: a certificate for localhost that nobody else trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=CERTIFICATE_DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    paths = folder / "tls-cert.pem", folder / "tls-key.pem"
    _write_new(paths[0], certificate.public_bytes(pem), 0o644)
    _write_new(paths[1], private, 0o600)
    return paths


def _write_new(path: Path, data: bytes, mode: int) -> None:
    """Writes a file that is not there yet: a key that was lost cannot be made again."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except OSError as error:
        raise ConfigError(
            str(path), got=error.strerror or "an error", expected="a new file", next_step="Name another folder"
        ) from None
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
