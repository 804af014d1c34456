# SPDX-License-Identifier: Apache-2.0
"""What a bundle is known by: a pin, a signature, or nothing; and who refuses nothing."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from bespoke.bundle.reader import read_bundle
from bespoke.bundle.signature import generate_key, raw_public_key, sign_bundle
from bespoke.errors import ConfigError, SignatureError
from tests.unit.bundle.example import write_example
from tests.unit.cli.commands import bespoke

PEM, DER = serialization.Encoding.PEM, serialization.Encoding.DER
PUBLIC = serialization.PublicFormat.SubjectPublicKeyInfo
COMMANDS = ("inspect", "verify", "train", "evaluate", "generate", "export", "versions", "rollback", "reset", "abandon")


@pytest.fixture(scope="module")
def keys() -> tuple[bytes, bytes]:
    return generate_key()


@pytest.fixture
def bundle(tmp_path: Path, keys: tuple[bytes, bytes]) -> Path:
    folder = write_example(tmp_path / "a.bundle")
    sign_bundle(folder, keys[0])
    return folder


@pytest.fixture
def pin(bundle: Path) -> str:
    return hashlib.sha256((bundle / "manifest.json").read_bytes()).hexdigest()


def pem(raw: bytes) -> bytes:
    return ed25519.Ed25519PublicKey.from_public_bytes(raw).public_bytes(PEM, PUBLIC)


def test_opening_says_what_the_bundle_is_known_by(bundle: Path, pin: str, keys: tuple[bytes, bytes]) -> None:
    for known_by, said in (
        ({}, "none"),  # there is a signature, which says nothing to those who have no key
        ({"pin_sha256": pin}, "pin"),
        ({"public_key": keys[1]}, "signature"),
        ({"public_key": pem(keys[1])}, "signature"),
        ({"pin_sha256": pin, "public_key": keys[1]}, "pin"),  # the stronger one of both
    ):
        with read_bundle(bundle, **known_by) as opened:  # type: ignore[arg-type]
            assert opened.authenticated == said


def test_what_is_known_by_nothing_is_refused_where_that_is_asked_for(
    bundle: Path, pin: str, keys: tuple[bytes, bytes]
) -> None:
    with pytest.raises(SignatureError) as refused:
        read_bundle(bundle, require_authenticated=True)
    assert refused.value.subject.endswith("manifest.json")
    assert refused.value.got == "neither a pinned sha256 nor a public key to hold it against"
    assert "public key" in refused.value.next_step
    for known_by in ({"pin_sha256": pin}, {"public_key": keys[1]}):
        read_bundle(bundle, require_authenticated=True, **known_by).close()  # type: ignore[arg-type]
    for wrong in ({"pin_sha256": "0" * 64}, {"pin_sha256": ""}, {"public_key": generate_key()[1]}):
        with pytest.raises((SignatureError, ConfigError)):
            read_bundle(bundle, require_authenticated=True, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_opens_a_bundle_refuses_it(bundle: Path, tmp_path: Path, command: str) -> None:
    state = tmp_path / "state"
    more = {"generate": ["prompt"], "export": [tmp_path / "out"]}.get(command, [])
    where = [] if command in ("inspect", "verify") else ["--state", state]
    answer = bespoke(command, bundle, *more, *where, "--require-authenticated")
    assert answer.code == SignatureError.exit_code
    assert "neither a pinned sha256 nor a public key" in answer.err
    assert not state.exists()


def test_the_command_line_tells_it_and_takes_a_key_in_each_form(
    bundle: Path, tmp_path: Path, keys: tuple[bytes, bytes]
) -> None:
    path = tmp_path / "app.pub"
    for data in (keys[1], pem(keys[1]), keys[1].hex().encode() + b"\n"):
        path.write_bytes(data)
        answer = bespoke("inspect", bundle, "--public-key", path, "--require-authenticated", "--format", "json").ok()
        assert (answer.json["authenticated"], answer.json["signed"]) == ("signature", True)
    assert bespoke("inspect", bundle, "--format", "json").ok().json["authenticated"] == "none"
    assert bespoke("inspect", bundle).ok().err == ""  # nobody is warned who did not ask


def test_a_key_is_raw_or_pem_and_of_ed25519(keys: tuple[bytes, bytes]) -> None:
    for _ in range(20):
        raw = generate_key()[1]
        assert (
            raw_public_key(raw)
            == raw_public_key(pem(raw))
            == raw_public_key(b"\n" + pem(raw).replace(b"\n", b"\r\n"))
            == raw
        )
    other = ec.generate_private_key(ec.SECP256R1()).public_key()
    der = ed25519.Ed25519PublicKey.from_public_bytes(keys[1]).public_bytes(DER, PUBLIC)
    for wrong in (
        other.public_bytes(PEM, PUBLIC),
        keys[0],
        der,
        b"",
        keys[1][:-1],
        keys[1] + b"\n",
        keys[1].hex(),
        None,
        b"-----BEGIN PUBLIC KEY-----",
        pem(keys[1])[:-30],
        pem(keys[1]).replace(b"\n", b"!", 2),
    ):
        with pytest.raises(SignatureError, match="ed25519") as refused:
            raw_public_key(wrong)  # type: ignore[arg-type]
        assert "BEGIN" not in str(refused.value)  # no part of a key is printed


def test_openssl_makes_keys_that_are_taken(bundle: Path, tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    private, public = tmp_path / "app.key", tmp_path / "app.pub"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", private], check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
    sign_bundle(bundle, private.read_bytes())
    assert bespoke("inspect", bundle, "--public-key", public, "--require-authenticated").code == 0
