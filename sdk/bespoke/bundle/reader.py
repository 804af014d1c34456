# SPDX-License-Identifier: Apache-2.0
"""Reader of a bundle that may come from anyone. Names come from the manifest only; sizes and hashes are checked before use.

Opening reads the manifest, checks the pin or signature on its exact bytes, and compares names and sizes on the disk with it.
A file that the manifest does not list is refused. A file's hash is computed once, at its first use, on the descriptor that
is then read or mapped. So opening a bundle does not read its weights.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from bespoke.bundle.file_names import MANIFEST_FILE, RESERVED, SIGNATURE_FILE, SUM_FILE
from bespoke.bundle.manifest import FileRecord, Manifest
from bespoke.bundle.manifest_document import MAX_MANIFEST_BYTES, manifest_sum, read_manifest
from bespoke.bundle.plan_records import MethodRecord
from bespoke.bundle.signature import SIGNATURE_BYTES, check_trust, raw_public_key, verify_signature
from bespoke.bundle.sources import Extent, Source, open_source
from bespoke.errors import BundleError, ConfigError, SignatureError
from bespoke.format.tensors import tensors_from_buffer
from bespoke.remedies import setting

__all__ = ["Authenticated", "Bundle", "read_bundle"]

Authenticated = Literal["pin", "signature", "none"]

_CHUNK_BYTES = 2**20
_MAX_READ_BYTES = 2**28
_MAX_UNLISTED_BYTES = 256


def read_bundle(
    path: Path | str | Sequence[Path | str],
    *,
    pin_sha256: str | None = None,
    public_key: bytes | None = None,
    require_authenticated: bool = False,
) -> Bundle:
    """Open a bundle: its folder, a folder with `method.zip` and `weights.zip`, a zip, or a list of zips.

    Raises BundleVersionError for a format that this reader does not accept, SignatureError for pin and signature,
    BundleError for any other problem.

    Args:
        path: The bundle's folder, a folder of zips, a zip or several zips.
        pin_sha256: The sha256 of manifest.json in hexadecimal. Give it if the app ships its bundle.
        public_key: An ed25519 public key, 32 bytes or PEM. Give it if the bundle must be signed by its owner.
        require_authenticated: Refuse to open without a pin or a key.
    """
    check_trust(pin_sha256, public_key)
    source = open_source(path)
    try:
        return Bundle(source, pin_sha256, public_key, require_authenticated)
    except BaseException:
        source.close()
        raise


class Bundle:
    """An open bundle. Close it, or use it as a context manager; mapped tensors outlive it.

    `signed`: the bundle has a signature, by anybody. `authenticated`: the check that it passed. It is "pin" if a pin and a key
    were given: a pin accepts a single bundle, a key accepts every bundle that its owner has signed.
    """

    manifest: Manifest
    manifest_sha256: str
    signed: bool
    authenticated: Authenticated
    public_key: bytes | None  # 32 bytes: the key that the signature was checked with

    def __init__(
        self, source: Source, pin_sha256: str | None, public_key: bytes | None, require_authenticated: bool = False
    ) -> None:
        self._source = source
        self._verified: set[str] = set()

        present = source.names()
        self._manifest_bytes = self._small(MANIFEST_FILE, MAX_MANIFEST_BYTES)
        self.manifest_sha256 = hashlib.sha256(self._manifest_bytes).hexdigest()

        self.signed = SIGNATURE_FILE in present
        self.authenticated = "pin" if pin_sha256 is not None else "signature" if public_key is not None else "none"
        self.public_key = None if public_key is None else raw_public_key(public_key)
        self._authenticate(pin_sha256, self.public_key)
        if require_authenticated and self.authenticated == "none":
            raise SignatureError(
                self._at(MANIFEST_FILE),
                got="neither a pinned sha256 nor a public key to hold it against",
                expected="a bundle that is pinned or signed: authentication is required",
                next_step="Give the sha256 of its manifest.json, or the public key of the one who signs it",
            )

        self._check_sum()
        self.manifest = read_manifest(self._manifest_bytes)
        self._check_presence(present - RESERVED)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the files that the manifest lists, sorted."""
        return tuple(sorted(self.manifest.files))

    @property
    def unlisted(self) -> tuple[str, ...]:
        """Names of the files that the manifest does not list: itself, its sum and the signature, if there is one."""
        return (MANIFEST_FILE, SUM_FILE, SIGNATURE_FILE) if self.signed else (MANIFEST_FILE, SUM_FILE)

    def path(self, name: str) -> Path:
        """Path of a file, hash checked. Raises BundleError if the bundle is a zip: read or map the file instead."""
        folder = self._source.folder()
        if folder is None:
            raise BundleError(
                self._at(name),
                got="a bundle in a zip",
                expected="a bundle that is a folder",
                next_step="Install it with bespoke.install, or use read() or mapped()",
            )
        os.close(self._checked(name).descriptor)
        return folder / name

    def read(self, name: str) -> bytes:
        """The bytes of a file (at most 256 MiB), hash checked."""
        record = self._record(name)
        if record.size > _MAX_READ_BYTES:
            raise self._refused(name, f"{record.size} bytes", f"at most {_MAX_READ_BYTES} to read at once; map it")
        return b"".join(self.chunks(name))

    def chunks(self, name: str) -> Iterator[bytes]:
        """The bytes of a file in pieces. The hash is compared after the last piece: use none before the end."""
        if name in self.unlisted:
            yield self._manifest_bytes if name == MANIFEST_FILE else self._small(name, _MAX_UNLISTED_BYTES)
            return
        extent = self._extent(name)
        try:
            digest = hashlib.sha256()
            for chunk in self._chunks(name, extent):
                digest.update(chunk)
                yield chunk
            self._compare(name, digest.hexdigest())
        finally:
            os.close(extent.descriptor)

    def weights(self, group: str) -> dict[str, np.ndarray]:
        """The tensors of a group of weights, as from `mapped`."""
        return self.mapped(next(record.file for record in self.manifest.weights if record.group == group))

    def mapped(self, name: str) -> dict[str, np.ndarray]:
        """Read-only views of a safetensors file's tensors over a mapping, hash checked.

        The mapping ends with the last view, so a group of weights can be mapped, used and dropped.
        """
        extent = self._checked(name)
        subject = self._at(name)
        try:
            if not extent.size:
                raise self._refused(name, "an empty file", "a safetensors file")
            shift = extent.offset % mmap.ALLOCATIONGRANULARITY
            whole = mmap.mmap(
                extent.descriptor, extent.size + shift, access=mmap.ACCESS_READ, offset=extent.offset - shift
            )
        except (OSError, ValueError) as problem:
            raise self._refused(name, str(problem), "a file that can be mapped") from None
        finally:
            os.close(extent.descriptor)
        weights = any(record.file == name for record in self.manifest.weights)
        return tensors_from_buffer(memoryview(whole)[shift:], subject, page_aligned=weights)

    def initial_adapter(self) -> dict[str, np.ndarray]:
        """The adapter that a first run starts from, checked to have exactly the pieces of the manifest's `lora`."""
        name = self.manifest.adapter
        pieces = self.mapped(name)
        shapes = self.manifest.model.config.adapter_shapes(self.manifest.lora.settings)
        for piece in sorted(pieces.keys() | shapes.keys()):
            got = f"{pieces[piece].dtype} {list(pieces[piece].shape)}" if piece in pieces else "nothing"
            expected = f"float32 {list(shapes[piece])}" if piece in shapes else "nothing"
            if got != expected:
                raise self._refused(f"{name}: {piece}", got, f"{expected}, as lora says")
        return pieces

    def method(self, name: str | None = None) -> MethodRecord:
        """The method of this name, by default the first of the bundle. Raises ConfigError if there is none."""
        methods = {method.name: method for method in self.manifest.methods}
        if not methods:
            raise ConfigError(
                setting("method"),
                got="a bundle without methods, which answers and does not train",
                expected="a bundle with a method",
                next_step="Build it again with an optimizer",
            )
        if name is None:
            return self.manifest.methods[0]
        if name not in methods:
            raise ConfigError(
                f"method '{name}'",
                got="no method of that name in the bundle",
                expected=f"one of {', '.join(methods)}",
                next_step="Name one of them, or build the bundle with it",
            )
        return methods[name]

    def verify_files(self, progress: Callable[[str, int], None] | None = None) -> int:
        """Check the hash of every file, even if it was checked before; returns the number of files.

        Each file is read in pieces, and its pages are given back to the system. `progress` is called with name and bytes.
        """
        for name in self.names:
            extent = self._extent(name)
            try:
                self._hash(name, extent)
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(extent.descriptor, extent.offset, extent.size, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(extent.descriptor)
            if progress is not None:
                progress(name, extent.size)
        return len(self.names)

    def close(self) -> None:
        self._source.close()

    def __enter__(self) -> Bundle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _authenticate(self, pin_sha256: str | None, public_key: bytes | None) -> None:
        if (
            pin_sha256 is not None and self.manifest_sha256 != pin_sha256.lower()
        ):  # no constant-time comparison: neither is a secret
            raise SignatureError(
                self._at(MANIFEST_FILE),
                got=f"sha256 {self.manifest_sha256}",
                expected=f"the pinned {pin_sha256}",
                next_step="Get the bundle that the app was built with",
            )
        signature = self._small(SIGNATURE_FILE, _MAX_UNLISTED_BYTES) if self.signed else None
        if signature is not None and len(signature) != SIGNATURE_BYTES:
            raise self._refused(SIGNATURE_FILE, f"{len(signature)} bytes", f"{SIGNATURE_BYTES}")
        if public_key is not None:
            verify_signature(self._manifest_bytes, signature, public_key, self._at(SIGNATURE_FILE))

    def _check_sum(self) -> None:
        """Raise BundleError if the manifest is damaged."""
        expected = manifest_sum(self._manifest_bytes)
        if self._small(SUM_FILE, _MAX_UNLISTED_BYTES) != expected:
            raise self._refused(
                SUM_FILE,
                f"another sum than {self.manifest_sha256}",
                "the sha256 of manifest.json, as sha256sum writes it",
            )

    def _check_presence(self, present: set[str]) -> None:
        listed = set(self.manifest.files)
        for name in sorted(present - listed):
            raise self._refused(ascii(name[:255]), "a file that the manifest does not list", "listed files only")
        for name in sorted(listed):
            os.close(self._extent(name).descriptor)

    def _record(self, name: str) -> FileRecord:
        record = self.manifest.files.get(name)
        if record is None:
            raise self._refused(ascii(name[:255]), "a name that the manifest does not list", "a listed one")
        return record

    def _extent(self, name: str) -> Extent:
        """A file whose size agrees with the manifest. The caller closes the descriptor."""
        record = self._record(name)
        extent = self._source.extent(name)
        if extent.size != record.size:
            os.close(extent.descriptor)
            raise self._refused(name, f"{extent.size} bytes", f"{record.size}")
        return extent

    def _checked(self, name: str) -> Extent:
        """A file whose size and hash agree with the manifest; the hash is checked once."""
        extent = self._extent(name)
        if name not in self._verified:
            try:
                self._hash(name, extent)
            except BaseException:
                os.close(extent.descriptor)
                raise
        return extent

    def _hash(self, name: str, extent: Extent) -> None:
        digest = hashlib.sha256()
        for chunk in self._chunks(name, extent):
            digest.update(chunk)
        self._compare(name, digest.hexdigest())

    def _compare(self, name: str, sha256: str) -> None:
        if sha256 != self._record(name).sha256:
            raise self._refused(name, f"sha256 {sha256}", self._record(name).sha256)
        self._verified.add(name)

    def _small(self, name: str, limit: int) -> bytes:
        """The bytes of a file that the manifest does not list, of at most `limit` bytes."""
        extent = self._source.extent(name)
        try:
            if extent.size > limit:
                raise self._refused(name, f"{extent.size} bytes", f"at most {limit}")
            return b"".join(self._chunks(name, extent))
        finally:
            os.close(extent.descriptor)

    def _chunks(self, name: str, extent: Extent) -> Iterator[bytes]:
        """The bytes of an extent. There are fewer if the file shrank meanwhile; the hash then differs."""
        position, end = extent.offset, extent.offset + extent.size
        while position < end:
            try:
                chunk = os.pread(extent.descriptor, min(_CHUNK_BYTES, end - position), position)
            except OSError as problem:
                raise self._refused(name, problem.strerror or "an error", "a file that can be read") from None
            if not chunk:
                return
            yield chunk
            position += len(chunk)

    def _at(self, name: str) -> str:
        return f"{self._source.subject}: {name}"

    def _refused(self, name: str, got: str, expected: str) -> BundleError:
        return BundleError(
            self._at(name), got=got, expected=expected, next_step="Get the bundle again from where it was built"
        )
