# SPDX-License-Identifier: Apache-2.0
"""A device's key for a server of federated learning, in a file of its own.

The key belongs to one user's part in one task. Nothing of the user is in it, and deleting the file ends what a server can tell
about this device. The file also counts requests, since a server accepts each counter once.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple

from bespoke.errors import MissingDependency, StateError
from bespoke.rules.signed_request import HALF_BYTES, device_id, signed_bytes

__all__ = ["DeviceKey", "Traffic"]

_TABLES = """
CREATE TABLE device (one INTEGER PRIMARY KEY CHECK (one = 1), key BLOB NOT NULL, server TEXT, counter INTEGER NOT NULL,
  bytes_sent INTEGER NOT NULL, bytes_received INTEGER NOT NULL) STRICT;
"""
_BUSY_SECONDS = 10.0


class Traffic(NamedTuple):
    """What has passed between this device and servers, in bytes of bodies."""

    bytes_sent: int
    bytes_received: int


class DeviceKey:
    """An ES256 key and its counter, in the file `path`. The key is made when it is first needed.

    Raises StateError for a file that is no such key, and MissingDependency without the package `cryptography`.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @property
    def exists(self) -> bool:
        """Whether there is a key."""
        return self.path.exists()

    @property
    def public_key(self) -> bytes:
        """The public key as SubjectPublicKeyInfo in DER. Makes the key if there is none."""
        return _public_bytes(self._key())

    @property
    def server(self) -> str | None:
        """The server that has let this device in."""
        if not self.exists:
            return None
        server: str | None = self._asked("SELECT server FROM device")[0]
        return server

    def let_in_by(self, server: str) -> None:
        """Notes the server that has let this device in."""
        self._asked("UPDATE device SET server = ? RETURNING 1", server)

    def sign(self, method: str, path: str, body: bytes, round_number: int | None) -> tuple[str, int, bytes]:
        """Signs a request. Returns the device's id, the counter and the signature's r and s.

        The counter is on the disk before anything is sent. A process that is killed skips one and repeats none.
        """
        _, ec, hashes, decode = _cryptography()
        key = self._key()
        device = device_id(_public_bytes(key))
        (counter,) = self._asked("UPDATE device SET counter = counter + 1 RETURNING counter")
        exact = signed_bytes(method, path, body, device, round_number, counter)
        r, s = decode(key.sign(exact, ec.ECDSA(hashes.SHA256())))
        return device, counter, r.to_bytes(HALF_BYTES, "big") + s.to_bytes(HALF_BYTES, "big")

    def add_traffic(self, sent: int, received: int) -> None:
        """Adds bytes that have passed."""
        changes = "bytes_sent = bytes_sent + ?, bytes_received = bytes_received + ?"
        self._asked(f"UPDATE device SET {changes} RETURNING 1", sent, received)

    def traffic(self) -> Traffic:
        """What has passed with this key."""
        if not self.exists:
            return Traffic(0, 0)
        return Traffic(*self._asked("SELECT bytes_sent, bytes_received FROM device"))

    def delete(self) -> None:
        """Deletes the key. Its bytes are overwritten first."""
        if self.exists:
            with suppress(StateError):  # a file of something else goes too
                self._asked("DELETE FROM device RETURNING 1")
            for suffix in ("", "-journal"):
                Path(f"{self.path}{suffix}").unlink(missing_ok=True)

    def _key(self) -> Any:
        serialization, ec, _, _ = _cryptography()
        if not self.exists:
            self._make(ec.generate_private_key(ec.SECP256R1()))
        (der,) = self._asked("SELECT key FROM device")
        try:
            return serialization.load_der_private_key(der, None)
        except (TypeError, ValueError):
            raise self._refused("a key that cannot be read") from None

    def _make(self, key: Any) -> None:
        """Writes a file under another name, which takes its place if there is none yet."""
        serialization = _cryptography()[0]
        der = key.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(f"{self.path}.{os.getpid()}")
        partial.unlink(missing_ok=True)
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with closing(sqlite3.connect(partial, isolation_level=None)) as connection:
            connection.executescript(_TABLES)
            connection.execute("INSERT INTO device VALUES (1, ?, NULL, 0, 0, 0)", (der,))
        try:
            os.link(partial, self.path)  # of two processes one makes it
        except FileExistsError:
            pass
        finally:
            partial.unlink()

    def _asked(self, statement: str, *values: object) -> tuple[Any, ...]:
        """The one row that a statement gives, in a transaction that is on the disk afterwards."""
        try:
            with closing(sqlite3.connect(self.path, timeout=_BUSY_SECONDS)) as connection, connection:
                connection.execute("PRAGMA secure_delete = ON")
                connection.execute("PRAGMA synchronous = FULL")
                row = connection.execute(statement, values).fetchone()
        except sqlite3.Error as error:
            raise self._refused(f"a file that SQLite refuses: {error}") from None
        if row is None:
            raise self._refused("a file without a key")
        return tuple(row)

    def _refused(self, got: str) -> StateError:
        return StateError(
            str(self.path),
            got=got,
            expected="a device's key as the SDK writes it",
            next_step="Leave the federation and join again: the server lets in the new key with a new token",
        )


def _public_bytes(key: Any) -> bytes:
    serialization = _cryptography()[0]
    der: bytes = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return der


def _cryptography() -> tuple[Any, Any, Any, Any]:
    try:
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
    except ImportError:
        raise MissingDependency.of("Federated learning", "cryptography", "sign") from None
    return serialization, ec, hashes, decode_dss_signature
