# SPDX-License-Identifier: Apache-2.0
"""A device of the tests that speaks HTTP to the server in server/, by the README's words alone."""

from __future__ import annotations

import base64
import hashlib
import json
import urllib.request

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from bespoke import PersonalModel
from tests.native.federation_devices import joined
from tests.support.federation_edge import RunningEdge


class EdgeDevice:
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
    def done(self) -> bool:
        """Whether the task has ended."""
        return self.model.federation.request().step == "done"

    @property
    def document(self) -> dict[str, object]:
        found: dict[str, object] = json.loads(self.model.federation.request().body)
        return found
