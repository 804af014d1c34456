# SPDX-License-Identifier: Apache-2.0
"""The server in server/, in a process of its own, and devices with the real core: they come to the same adapter, bit for bit."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from bespoke import PersonalModel
from tests.conftest import REPOSITORY
from tests.native.federation_devices import PRIVATE, exact, joined, with_federation

__all__ = ["exact"]

PYTHON = REPOSITORY / "server" / ".venv" / "bin" / "python"
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="no server/.venv: run make test-server once")
START_SECONDS = 60
COMMAND = [str(PYTHON), "-m", "bespoke_federated"]


class Edge:
    """A process that serves a bundle."""

    def __init__(self, bundle: Path, place: Path, *options: str) -> None:
        place.mkdir()
        (place / "server.pem").write_bytes(PRIVATE)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.state, self.url = place / "state", f"http://127.0.0.1:{port}"
        command = [*COMMAND, "serve", str(bundle), "--key", str(place / "server.pem"), "--state", str(self.state)]
        self.command = [*command, "--port", str(port), "--retry-seconds", "0", *options]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self.command)
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                self.get("/v1/health")
                break
            except urllib.error.URLError:
                assert self.process.poll() is None, "the server has ended"
                assert time.monotonic() < deadline, "the server does not answer"
                time.sleep(0.1)

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=20) as answer:
            text: str = answer.read().decode()
        return text

    def figure(self, name: str) -> float:
        found = re.search(rf"^bespoke_{name} (\S+)$", self.get("/metrics"), re.MULTILINE)
        assert found, name
        return float(found[1])

    def token(self) -> str:
        made = subprocess.run(
            [*COMMAND, "token", "--state", str(self.state)], capture_output=True, text=True, check=True
        )
        return made.stdout.strip()

    def rounds(self) -> int:
        ended: int = json.loads(self.get("/v1/health"))["rounds_ended"]
        return ended

    def wait_for_round(self, number: int) -> None:
        deadline = time.monotonic() + 20
        while self.rounds() < number:
            assert time.monotonic() < deadline, f"round {number} does not end"
            time.sleep(0.05)


class Device:
    """What an app does around an open model: it signs what the core says, and sends it."""

    def __init__(self, model: PersonalModel, edge: Edge) -> None:
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


@pytest.fixture
def edges() -> Iterator[list[Edge]]:
    started: list[Edge] = []
    yield started
    for edge in started:
        edge.process.terminate()
        edge.process.wait(20)


def adapter_in(edge: Edge) -> tuple[int, str]:
    """The last round that has ended, and the adapter's hash after it, as the state has them."""
    program = (
        "import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute("
        "\"SELECT number, adapter FROM rounds WHERE state = 'ended' ORDER BY number DESC LIMIT 1\").fetchone())"
    )
    path = str(edge.state / "edge.sqlite")
    number, sha256 = subprocess.run(
        [str(PYTHON), "-c", program, path], capture_output=True, text=True, check=True
    ).stdout.split()
    return int(number), sha256


@pytest.mark.parametrize("method", ["zgr", "mesp"])
def test_devices_and_server_come_to_one_adapter(exact: Path, tmp_path: Path, edges: list[Edge], method: str) -> None:
    """The server is killed in between. With zgr the plan has guidance of which nothing comes.

    With mesp the one that is late starts from a snapshot.
    """
    bundle = with_federation(exact, tmp_path / "bundle", method=method)  # type: ignore[arg-type]
    count = {"zgr": "1", "mesp": "512"}[method]  # so many that a snapshot is less than the rounds
    options = ("--devices", "2", "--least-devices", "2", "--directions", count, "--rate", "0.05", "--half-every", "3")
    edges.append(Edge(bundle, tmp_path / "edge", *options))
    (edge,) = edges
    with (
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
        number, adapter = adapter_in(edge)
        assert number == 7
        for device in devices:
            assert (device.document["round"], device.document["adapter"]) == (7, adapter)
        assert [device.fetched > 0 for device in devices] == [False, False, method == "mesp"]
        assert edge.figure("numbers_counted_total") == 14
