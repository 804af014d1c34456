# SPDX-License-Identifier: Apache-2.0
"""HTTP: files and their ranges, limits, figures, and errors that repeat nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

import pytest
from federation_client import Client, Served

Serve = Callable[..., Served]


@pytest.fixture
def file(serve: Serve) -> tuple[Client, str, bytes]:
    """A client, and the sha256 and bytes of a snapshot."""
    served = serve(devices=1, least_devices=1, half_every=1)
    client = served.enrolled()
    client.take_part(1.0)
    kept = served.edge.store.newest_snapshot()
    assert kept is not None
    return client, kept.sha256, (served.edge.store.folder / kept.path).read_bytes()


def test_a_file_is_given_whole_or_in_ranges(file: tuple[Client, str, bytes]) -> None:
    client, sha256, data = file
    whole = client.fetch(sha256)
    assert (whole.status_code, whole.content) == (200, data)
    for range, expected in (
        ("bytes=0-9", data[:10]),
        ("bytes=10-", data[10:]),
        ("bytes=-5", data[-5:]),
        (f"bytes=0-{10 * len(data)}", data),
    ):
        part = client.fetch(sha256, range)
        assert (part.status_code, part.content) == (206, expected), range
    assert client.fetch(sha256, f"bytes={len(data)}-").status_code == 416
    assert client.fetch(sha256, "lines=1-2").status_code == 400


def test_a_file_has_to_be_asked_for_by_a_device(file: tuple[Client, str, bytes]) -> None:
    client, sha256, _ = file
    assert client.served.send("GET", f"/v1/files/{sha256}").status_code == 401
    stranger = Client(client.served)
    assert stranger.fetch(sha256).status_code == 401


@pytest.mark.parametrize("name", ["0" * 64, "edge.sqlite", "..%2Fedge.sqlite", "%2e%2e"])
def test_only_files_that_documents_name_are_given(client: Client, name: str) -> None:
    assert client.fetch(name).status_code == 404


def test_a_body_that_is_too_large_is_refused(serve: Serve) -> None:
    served = serve(limit_body_bytes=2000)
    client = served.enrolled()
    assert client.post(client.document(task="x" * 2000)).status_code == 413
    assert client.ask().task == "words"


def test_a_device_may_ask_so_often(serve: Serve) -> None:
    served = serve(limit_device_requests=6, limit_address_requests=1000)
    client, other = served.enrolled(), served.enrolled()
    statuses = [client.post(client.document()).status_code for _ in range(7)]
    assert statuses == [200] * 5 + [429] * 2  # it has enrolled too
    refused = client.post(client.document())
    assert refused.headers["Retry-After"] == "10"
    assert set(refused.json()) == {"object", "got", "expected", "next_step"}
    assert other.post(other.document()).status_code == 200
    served.clock.date -= 1e6  # a clock that is set back changes nothing
    served.clock.passed += 10
    assert client.post(client.document()).status_code == 200
    assert client.post(client.document()).status_code == 429


def test_others_cannot_use_up_what_a_device_may_ask(serve: Serve) -> None:
    served = serve(limit_device_requests=6)
    client = served.enrolled()
    for _ in range(10):
        body = json.dumps(client.document()).encode()
        headers = client.headers("POST", "/v1/ask", body, 0) | {"Bespoke-Signature": "A" * 86}
        assert served.send("POST", "/v1/ask", body, headers).status_code == 401
    assert client.post(client.document()).status_code == 200


def test_an_address_may_ask_so_often(serve: Serve) -> None:
    served = serve(limit_address_requests=3)
    assert [served.send("GET", "/v1/health").status_code for _ in range(4)] == [200, 200, 200, 429]


def test_health_tells_where_the_rounds_are(serve: Serve) -> None:
    served = serve(devices=1, least_devices=1)
    served.enrolled().take_part(1.0)
    assert served.send("GET", "/v1/health").json() == {"task": "words", "rounds_ended": 1, "done": False}


def test_metrics_are_what_prometheus_reads(serve: Serve) -> None:
    served = serve(devices=2, least_devices=2)
    served.enrolled().take_part(1.0)
    served.enrolled().take_part(1.0)
    served.send("GET", "/v1/ask")
    response = served.send("GET", "/metrics")
    assert response.headers["content-type"].startswith("text/plain")
    figures = dict(line.rsplit(" ", 1) for line in response.text.splitlines() if not line.startswith("#"))
    assert figures["bespoke_rounds_ended_total"] == "1"
    assert figures["bespoke_devices"] == "2"
    assert figures["bespoke_numbers_counted_total"] == "2"
    assert figures["bespoke_numbers_late_total"] == "0"
    assert figures["bespoke_most_active_rho"] == "0.5"
    assert figures['bespoke_requests_total{status="200"}'] == "6"
    assert figures['bespoke_requests_total{status="405"}'] == "1"
    assert int(figures['bespoke_body_bytes_total{direction="in"}']) > 500
    assert int(figures['bespoke_body_bytes_total{direction="out"}']) > 500


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/v1/other", 404), ("PUT", "/v1/ask", 405)])
def test_errors_of_the_framework_have_the_same_form(served: Served, method: str, path: str, status: int) -> None:
    response = served.send(method, path)
    assert response.status_code == status
    assert set(response.json()) == {"object", "got", "expected", "next_step"}


def test_a_fault_of_the_server_says_nothing(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(client.served.edge.rounds, "take", fails)
    with pytest.raises(RuntimeError):  # httpx's transport raises it; uvicorn logs it
        client.post(client.document())
    assert "a secret" not in [record.getMessage() for record in caplog.records]
    monkeypatch.undo()
    assert client.post(client.document(), counter=client.counter).status_code == 200  # the counter was not used up


def test_nothing_of_a_body_is_repeated_or_logged(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "the user's words"
    for document in (
        client.document(task=secret),
        client.document(more=secret),
        client.document(numbers=[{"round": 1, "first": 0, "numbers": [secret]}]),
        client.document(**{secret: 1}),
    ):
        response = client.post(document)
        assert response.status_code == 400
        assert secret not in response.text
    assert secret not in caplog.text


def test_the_openapi_document_describes_all_of_it(served: Served) -> None:
    document = served.send("GET", "/openapi.json").json()
    assert set(document["paths"]) == {"/v1/enrol", "/v1/ask", "/v1/files/{sha256}", "/v1/health", "/metrics"}
    ask = document["paths"]["/v1/ask"]["post"]
    schema = ask["requestBody"]["content"]["application/json"]["schema"]
    assert set(schema["properties"]) == {"task", "round", "adapter", "differs", "measures", "numbers"}
    assert "$ref" not in json.dumps(schema)
    assert [one["name"] for one in ask["parameters"]] == ["Bespoke-Device", "Bespoke-Counter", "Bespoke-Signature"]
