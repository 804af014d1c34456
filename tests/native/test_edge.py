# SPDX-License-Identifier: Apache-2.0
"""The server in server/, in a process of its own, and devices with the real core: they come to the same adapter, bit for bit."""

from __future__ import annotations

import base64
import hashlib
import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from bespoke import PersonalModel
from tests.native.federation_devices import PRIVATE, exact, joined, with_federation
from tests.support.federation_edge import RunningEdge, running_edge

__all__ = ["exact"]


class Device:
    """What an app does around an open model: it signs what the core says, and sends it."""

    def __init__(self, model: PersonalModel, edge: RunningEdge) -> None:
        self.model, self.edge, self.counter, self.fetched = joined(model), edge, 0, 0
        self.key = ec.generate_private_key(ec.SECP256R1())
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        self.public = self.key.public_key().public_bytes(serialization.Encoding.DER, form)
        key = base64.b64encode(self.public).decode()
        self.send("POST", "/v1/enrol", json.dumps({"token": edge.token(), "public_key": key}).encode(), "-")

    def send(self, method: str, path: str, body: bytes, named: str, **headers: str) -> bytes:
        self.counter += 1
        device = hashlib.sha256(self.public).hexdigest()
        lines = ("bespoke-request-1", method, path, hashlib.sha256(body).hexdigest(), device, named, str(self.counter))
        signed = "".join(f"{line}\n" for line in lines).encode()
        r, s = decode_dss_signature(self.key.sign(signed, ec.ECDSA(hashes.SHA256())))
        raw = base64.urlsafe_b64encode(r.to_bytes(32, "big") + s.to_bytes(32, "big")).rstrip(b"=").decode()
        own = {"Bespoke-Device": device, "Bespoke-Counter": str(self.counter), "Bespoke-Signature": raw}
        request = urllib.request.Request(
            self.edge.url + path, body if method == "POST" else None, {**own, **headers}, method=method
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            content: bytes = answer.read()
        return content

    def exchange(self) -> None:
        """One question, and the work that comes of it."""
        request = self.model.federation.request()
        assert request.step == "ask"
        body = request.body.encode()
        answer = self.send("POST", "/v1/ask", body, str(json.loads(body)["round"]))
        self.model.federation.respond(request, answer)
        while (request := self.model.federation.request()).step == "fetch":
            part = f"bytes={request.offset}-{request.offset + request.size - 1}"
            data = self.send("GET", f"/v1/files/{request.sha256}", b"", "-", Range=part)
            self.model.federation.respond(request, data)
            self.fetched += len(data)
        if request.step == "take_part":
            assert not self.model.federation.take_part().differs

    @property
    def document(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.model.federation.request().body)
        return found


@pytest.mark.parametrize("method", ["zgr", "mesp"])
def test_devices_and_server_come_to_one_adapter(exact: Path, tmp_path: Path, method: str) -> None:
    """The server is killed in between. With zgr the plan has guidance of which nothing comes.

    With mesp the one that is late starts from a snapshot.
    """
    bundle = with_federation(exact, tmp_path / "bundle", method=method)  # type: ignore[arg-type]
    count = {"zgr": "1", "mesp": "512"}[method]  # so many that a snapshot is less than the rounds
    settings = {
        "devices": 2,
        "least_devices": 2,
        "directions": count,
        "rate": 0.05,
        "half_every": 3,
        "retry_seconds": 0,
    }
    with (
        running_edge(bundle, PRIVATE, tmp_path / "edge", tls=False, **settings) as edge,
        PersonalModel.open(bundle, tmp_path / "a") as first,
        PersonalModel.open(bundle, tmp_path / "b") as second,
        PersonalModel.open(bundle, tmp_path / "c") as late,
    ):
        devices = [Device(first, edge), Device(second, edge)]
        for number in range(1, 8):
            for device in devices:
                device.exchange()  # follows the last round and measures for this one
            for device in devices:
                device.exchange()  # sends the numbers
            edge.wait_for_round(number)
            if number == 4:
                edge.process.kill()
                edge.process.wait(20)
                edge.start()
        devices.append(Device(late, edge))
        for device in devices:
            device.exchange()
        last = "SELECT number, adapter FROM rounds WHERE state = 'ended' ORDER BY number DESC LIMIT 1"
        ((number, adapter),) = edge.rows(last)
        assert number == 7
        for device in devices:
            assert (device.document["round"], device.document["adapter"]) == (7, adapter)
        assert [device.fetched > 0 for device in devices] == [False, False, method == "mesp"]
        assert edge.figure("numbers_counted_total") == 14
