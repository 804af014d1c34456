# SPDX-License-Identifier: Apache-2.0
"""bindings/schema/signed_request_vectors.json, which the clients in Kotlin and Swift read too, against other code than wrote it."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from bespoke.rules.signed_request import device_id, signed_bytes
from tests.conftest import REPOSITORY

VECTORS = json.loads((REPOSITORY / "bindings" / "schema" / "signed_request_vectors.json").read_text(encoding="utf-8"))


def named(kind: str) -> Any:
    return pytest.mark.parametrize("vector", VECTORS[kind], ids=[vector["id"] for vector in VECTORS[kind]])


@named("requests")
def test_a_request_is_signed_as_the_vector_says(vector: dict[str, Any]) -> None:
    body = base64.b64decode(vector["body"])
    given = (vector["method"], vector["path"], body, vector["device"], vector["round"], vector["counter"])
    signed = signed_bytes(*given)
    assert signed == base64.b64decode(vector["signed"])
    assert hashlib.sha256(signed).hexdigest() == vector["sha256"]


def test_one_of_them_is_written_down() -> None:
    body = hashlib.sha256(b'{"round": 0}').hexdigest()
    (vector,) = (vector for vector in VECTORS["requests"] if vector["id"] == "the first round")
    lines = ["bespoke-request-1", "POST", "/v1/ask", body, VECTORS["keys"][0]["device"], "0", "4", ""]
    assert base64.b64decode(vector["signed"]).decode() == "\n".join(lines)


@named("keys")
def test_a_key_has_the_id_that_the_vector_says(vector: dict[str, Any]) -> None:
    der = base64.b64decode(vector["public_key"])
    key = serialization.load_der_public_key(der)
    assert isinstance(key, ec.EllipticCurvePublicKey)
    assert isinstance(key.curve, ec.SECP256R1)
    assert device_id(der) == vector["device"] == hashlib.sha256(der).hexdigest()


@pytest.mark.parametrize("message", ["sample", "test"])
def test_signatures_of_the_rfc_are_those_of_its_key(message: str) -> None:
    key = serialization.load_der_public_key(base64.b64decode(VECTORS["keys"][0]["public_key"]))
    (vector,) = (vector for vector in VECTORS["signatures"] if vector["id"] == message)
    assert isinstance(key, ec.EllipticCurvePublicKey)
    key.verify(base64.b64decode(vector["der"]), message.encode(), ec.ECDSA(hashes.SHA256()))
    assert base64.urlsafe_b64decode(vector["header"] + "==") == base64.b64decode(vector["raw"])
