# SPDX-License-Identifier: Apache-2.0
"""Signatures of requests: anything but what the device signed is refused, and nothing is taken twice."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from federation_client import Client, Served

from bespoke.rules.signed_request import COUNTER_HEADER, DEVICE_HEADER, SIGNATURE_HEADER, signed_bytes

PATH = "/v1/ask"


def body_of(client: Client) -> bytes:
    return json.dumps(client.document()).encode()


def test_what_is_signed_is_written_down() -> None:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    signed = signed_bytes("GET", "/v1/files/ab?x=1", b"", "d" * 64, None, 7)
    assert signed == f"bespoke-request-1\nGET\n/v1/files/ab?x=1\n{empty}\n{'d' * 64}\n-\n7\n".encode()


def test_a_signed_request_is_answered(client: Client) -> None:
    assert client.ask().task == "words"


@pytest.mark.parametrize(
    "change",
    [
        lambda client, body, headers: (PATH, body + b" ", headers),
        lambda client, body, headers: (f"{PATH}?x=1", body, headers),
        lambda client, body, headers: (PATH, body, {**headers, COUNTER_HEADER: "99"}),
        lambda client, body, headers: (PATH, body.replace(b'"round": 0', b'"round": 1'), headers),
        lambda client, body, headers: (PATH, body, {**headers, DEVICE_HEADER: client.served.enrolled().id}),
        lambda client, body, headers: (PATH, body, {**headers, SIGNATURE_HEADER: "A" * 86}),
        lambda client, body, headers: (PATH, body, {**headers, SIGNATURE_HEADER: headers[SIGNATURE_HEADER][:-4]}),
        lambda client, body, headers: (PATH, body, {**headers, SIGNATURE_HEADER: headers[SIGNATURE_HEADER] + "AAAA"}),
        lambda client, body, headers: (PATH, body, {**headers, SIGNATURE_HEADER: ""}),
        lambda client, body, headers: (PATH, body, {**headers, COUNTER_HEADER: "-1"}),
        lambda client, body, headers: (PATH, body, {**headers, COUNTER_HEADER: "1" * 30}),
        lambda client, body, headers: (PATH, body, {**headers, COUNTER_HEADER: "0" + headers[COUNTER_HEADER]}),
        lambda client, body, headers: (PATH, body, {**headers, DEVICE_HEADER: "0" * 64}),
        lambda client, body, headers: (PATH, body, {DEVICE_HEADER: client.id}),
    ],
    ids=[
        "other body",
        "other path",
        "other counter",
        "other round",
        "other device",
        "forged",
        "cut",
        "longer",
        "empty",
        "negative counter",
        "huge counter",
        "padded counter",
        "unknown device",
        "no signature",
    ],
)
def test_another_request_than_the_signed_one_is_refused(client: Client, change: Callable[..., tuple]) -> None:
    body = body_of(client)
    path, body, headers = change(client, body, client.headers("POST", PATH, body, 0))
    response = client.served.send("POST", path, body, headers)
    assert response.status_code == 401
    assert set(response.json()) == {"object", "got", "expected", "next_step"}
    assert client.ask().task == "words"  # nothing has changed


def test_a_signature_in_der_is_refused(client: Client) -> None:
    body = body_of(client)
    headers = client.headers("POST", PATH, body, 0)
    signed = signed_bytes("POST", PATH, body, client.id, 0, client.counter)
    der = client.key.sign(signed, ec.ECDSA(hashes.SHA256()))
    headers[SIGNATURE_HEADER] = base64.urlsafe_b64encode(der).rstrip(b"=").decode()
    response = client.served.send("POST", PATH, body, headers)
    assert response.status_code == 401
    assert "not DER" in response.json()["expected"]


def test_a_counter_is_good_once(client: Client) -> None:
    body = body_of(client)
    headers = client.headers("POST", PATH, body, 0, counter=50)
    assert client.served.send("POST", PATH, body, headers).status_code == 200
    assert client.served.send("POST", PATH, body, headers).status_code == 409  # replayed by somebody
    assert client.post(client.document(), counter=49).status_code == 409
    assert client.post(client.document(), counter=51).status_code == 200


def test_counters_outlive_the_process(serve: Callable[..., Served]) -> None:
    first = serve()
    client = first.enrolled()
    assert client.post(client.document(), counter=50).status_code == 200
    first.close()
    client.served = serve()
    assert client.post(client.document(), counter=50).status_code == 409
    assert client.post(client.document(), counter=51).status_code == 200
