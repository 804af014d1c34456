# SPDX-License-Identifier: Apache-2.0
"""Enrolment: a token lets in one key, once."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from federation_client import Client, Served


def test_the_same_token_with_the_same_key_has_the_same_answer(served: Served) -> None:
    client, token = Client(served), served.token()
    first, again = client.enrol(token), client.enrol(token)
    assert (first.status_code, again.status_code) == (200, 200)
    assert first.json() == again.json() == {"device": client.id, "task": "words"}
    assert served.edge.store.device_count() == 1


def test_a_token_is_good_for_one_key(served: Served) -> None:
    token = served.token()
    assert Client(served).enrol(token).status_code == 200
    refused = Client(served).enrol(token)
    assert refused.status_code == 403
    assert "another device" in refused.json()["got"]
    assert token not in refused.text


def test_a_token_that_nobody_was_given_is_refused(served: Served) -> None:
    assert Client(served).enrol("x" * 43).status_code == 403
    assert served.edge.store.device_count() == 0


def test_a_token_expires(served: Served) -> None:
    client, token = Client(served), served.token(seconds=60)
    served.clock.wait(61)
    assert client.enrol(token).status_code == 403
    used, late = served.token(seconds=60), Client(served)
    assert late.enrol(used).status_code == 200
    served.clock.wait(61)
    assert late.enrol(used).status_code == 200  # its answer was lost


def test_a_key_enrols_once(client: Client) -> None:
    token = client.served.token()
    assert client.enrol(token).status_code == 403
    assert Client(client.served).enrol(token).status_code == 200  # the token is not used up


def test_the_key_must_sign(served: Served) -> None:
    client, other = Client(served), Client(served)
    body = json.dumps({"token": served.token(), "public_key": base64.b64encode(client.public_key).decode()}).encode()
    headers = other.headers("POST", "/v1/enrol", body, None)
    assert served.send("POST", "/v1/enrol", body, headers).status_code == 401
    headers["Bespoke-Device"] = client.id
    assert served.send("POST", "/v1/enrol", body, headers).status_code == 401


def test_keys_of_another_kind_are_refused(served: Served) -> None:
    form, der = serialization.PublicFormat.SubjectPublicKeyInfo, serialization.Encoding.DER
    client = Client(served)
    point = ec.generate_private_key(ec.SECP256R1()).public_key()
    compressed = point.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.CompressedPoint)
    prefix = bytes.fromhex("3039301306072a8648ce3d020106082a8648ce3d030107032200")
    for key in (
        ed25519.Ed25519PrivateKey.generate().public_key().public_bytes(der, form),
        ec.generate_private_key(ec.SECP384R1()).public_key().public_bytes(der, form),
        client.public_key[:-1],
        client.public_key + b"\0",
        prefix + compressed,
        b"",
    ):
        text = base64.b64encode(key).decode()
        body = json.dumps({"token": served.token(), "public_key": text}).encode()
        response = served.send("POST", "/v1/enrol", body, client.headers("POST", "/v1/enrol", body, None))
        assert response.status_code == 400, response.text
    assert served.edge.store.device_count() == 0


def test_only_so_many_devices_enrol(serve: Callable[..., Served]) -> None:
    served = serve(limit_devices=2)
    served.enrolled()
    served.enrolled()
    refused = Client(served).enrol(served.token())
    assert refused.status_code == 403
    assert "more devices" in refused.json()["got"]


@pytest.mark.parametrize("body", [b"", b"{}", b"[", b'{"token": 1, "public_key": "secret"}', b"[" * 100_000])
def test_a_body_that_is_no_enrolment_is_refused_and_not_repeated(served: Served, body: bytes) -> None:
    client = Client(served)
    response = served.send("POST", "/v1/enrol", body, client.headers("POST", "/v1/enrol", body, None))
    assert response.status_code == 400
    assert "secret" not in response.text


def test_a_removed_device_needs_a_new_token_and_its_numbers_stay(served: Served) -> None:
    client, token = Client(served), served.token()
    assert client.enrol(token).status_code == 200
    client.take_part(1.0)
    assert served.edge.store.remove_device(client.id)
    assert not served.edge.store.remove_device(client.id)
    assert client.post(client.document()).status_code == 401
    assert client.enrol(token).status_code == 403
    assert served.edge.store.number_count(1) == 1
    assert client.enrol(served.token()).status_code == 200
    client.ask()
    assert served.edge.store.rounds_told_by(client.id) == 1  # what it has spent
