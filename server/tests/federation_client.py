# SPDX-License-Identifier: Apache-2.0
"""A server in this process with a clock of the test, and clients that sign as phones do."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import httpx
from bespoke_federated.app import application
from bespoke_federated.edge import Edge, made_tokens
from bespoke_federated.settings import Limits, RoundSettings
from bespoke_federated.signing import sign
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from tests.support.federation_key import PRIVATE

from bespoke.bundle.reader import read_bundle
from bespoke.bundle.signature import ROUND_DOCUMENT, public_key_of
from bespoke.rules.round_documents import RoundDocument
from bespoke.rules.signed_request import (
    COUNTER_HEADER,
    DEVICE_HEADER,
    SIGNATURE_HEADER,
    device_id,
    signed_bytes,
)

DEFAULTS: dict[str, Any] = {"rounds": 4, "devices": 3, "least_devices": 2, "rate": 0.5, "half_every": 0}


class ManualClock:
    """Two clocks that the test sets."""

    def __init__(self) -> None:
        self.date, self.passed = 1_700_000_000.0, 1000.0

    def calendar(self) -> float:
        return self.date

    def running(self) -> float:
        return self.passed

    def wait(self, seconds: float) -> None:
        self.date += seconds
        self.passed += seconds


class Reached(Protocol):
    """A server that a client can send to, and the adapter where devices start."""

    @property
    def initial(self) -> str: ...

    def send(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> httpx.Response: ...


class Served:
    """A server over its state."""

    def __init__(self, bundle: Path, state: Path, clock: ManualClock, settings: dict[str, Any]) -> None:
        led = settings.pop("led", False)
        limits = {name: settings.pop(name) for name in list(settings) if name.startswith("limit_")}
        self.settings = RoundSettings(**{**DEFAULTS, "deadline_seconds": 100.0, **settings})
        self.clock = clock
        self.edge = Edge(
            read_bundle(bundle),
            PRIVATE,
            state,
            self.settings,
            Limits(**{name.removeprefix("limit_"): value for name, value in limits.items()}),
            clock,
            led,
        )
        self.app = application(self.edge)

    def close(self) -> None:
        self.edge.close()

    def send(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> httpx.Response:
        async def sent() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, client=("192.0.2.1", 1))
            async with httpx.AsyncClient(transport=transport, base_url="http://edge") as client:
                return await client.request(method, path, content=body, headers=headers)

        return asyncio.run(sent())

    def token(self, seconds: float = 60.0) -> str:
        return made_tokens(self.edge.store, 1, self.clock.calendar() + seconds)[0]

    def enrolled(self) -> Client:
        client = Client(self)
        response = client.enrol(self.token())
        assert response.status_code == 200, response.text
        return client

    @property
    def initial(self) -> str:
        return self.edge.rounds.initial_sha256

    @property
    def adapter(self) -> str:
        return self.edge.rounds.adapter.sha256


class Client:
    """A device's part of the protocol: it signs, follows rounds by their hashes, and sends numbers that the test chooses."""

    def __init__(self, served: Reached) -> None:
        self.served = served
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.counter = 0
        self.round, self.adapter, self.differs = 0, served.initial, False
        self.numbers: list[dict[str, Any]] = []

    @property
    def public_key(self) -> bytes:
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return self.key.public_key().public_bytes(serialization.Encoding.DER, form)

    @property
    def id(self) -> str:
        return device_id(self.public_key)

    def headers(
        self, method: str, path: str, body: bytes, round_number: int | None, counter: int | None = None
    ) -> dict[str, str]:
        if counter is None:
            self.counter += 1
            counter = self.counter
        signature = sign(self.key, signed_bytes(method, path, body, self.id, round_number, counter))
        return {DEVICE_HEADER: self.id, COUNTER_HEADER: str(counter), SIGNATURE_HEADER: signature}

    def enrol(self, token: str) -> httpx.Response:
        body = json.dumps({"token": token, "public_key": base64.b64encode(self.public_key).decode()}).encode()
        return self.served.send("POST", "/v1/enrol", body, self.headers("POST", "/v1/enrol", body, None))

    def document(self, **changes: Any) -> dict[str, Any]:
        own = {"task": "words", "round": self.round, "adapter": self.adapter, "differs": self.differs}
        return {**own, "measures": True, "numbers": self.numbers, **changes}

    def post(self, document: dict[str, Any], counter: int | None = None) -> httpx.Response:
        body = json.dumps(document).encode()
        headers = self.headers("POST", "/v1/ask", body, document["round"], counter)
        return self.served.send("POST", "/v1/ask", body, headers)

    def ask(self, **changes: Any) -> RoundDocument:
        """Asks, and follows what comes: rounds by the hashes that the server says, and numbers that it has."""
        response = self.post(self.document(**changes))
        assert response.status_code == 200, response.text
        answer = read_answer(response.content)
        self.numbers = [sent for sent in self.numbers if sent["round"] not in answer.taken]
        if answer.snapshot:
            self.round, self.adapter, self.differs = answer.snapshot.round, answer.snapshot.adapter, False
        for span in answer.rounds:
            self.round, self.adapter = span.first + span.count - 1, span.adapter
        return answer

    def measure(self, answer: RoundDocument, numbers: Sequence[float]) -> None:
        """Keeps numbers for what was asked, to send with the next document."""
        assert answer.measure is not None
        asked = answer.measure
        self.numbers.append({"round": asked.round, "first": asked.first, "numbers": list(numbers)})

    def take_part(self, *numbers: float) -> RoundDocument:
        """Asks, measures and sends. Returns the answer to what it sent."""
        self.measure(self.ask(), numbers)
        return self.ask()

    def fetch(self, sha256: str, range: str | None = None) -> httpx.Response:
        path = f"/v1/files/{sha256}"
        headers = self.headers("GET", path, b"", None)
        return self.served.send("GET", path, headers=headers | ({"Range": range} if range else {}))


def read_answer(answer: bytes) -> RoundDocument:
    """The document of an answer, its signature checked as devices check it."""
    whole = json.loads(answer)
    key = ed25519.Ed25519PublicKey.from_public_bytes(public_key_of(PRIVATE))
    key.verify(bytes.fromhex(whole["signature"]), ROUND_DOCUMENT + whole["payload"].encode())
    return RoundDocument.model_validate_json(whole["payload"])
