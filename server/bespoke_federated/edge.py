# SPDX-License-Identifier: Apache-2.0
"""What a server does with a request, without HTTP: who sent it, whether it is new, and what it changes.

Each of the three calls changes everything in one transaction, the request's counter with it. They raise RequestError otherwise.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import secrets
from pathlib import Path
from typing import NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bespoke.bundle.reader import Bundle
from bespoke.bundle.signature import public_key_of
from bespoke.errors import BundleError, ConfigError
from bespoke.rules.round_documents import DeviceDocument
from bespoke.rules.signed_request import device_id, signed_bytes
from bespoke_federated.adapter import Adapter
from bespoke_federated.answers import answer, signed
from bespoke_federated.clock import Clock, SystemClock
from bespoke_federated.guidance import check_bundle
from bespoke_federated.led.rounds import LedRounds
from bespoke_federated.led.store import LedStore
from bespoke_federated.limits import Buckets
from bespoke_federated.metrics import Metrics
from bespoke_federated.problems import RequestError, problem
from bespoke_federated.rounds import Rounds
from bespoke_federated.rows import Device, KeptFile
from bespoke_federated.settings import Limits, RoundSettings
from bespoke_federated.signing import Claim, check_signature, public_key_from
from bespoke_federated.store import Store

__all__ = ["Edge", "Enrolled", "Enrolment", "Request", "made_tokens"]

TOKEN_BYTES = 32
_log = logging.getLogger("bespoke_federated")
Model = TypeVar("Model", bound=BaseModel)


class Enrolment(BaseModel):
    """What a device sends to enrol."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    token: str = Field(min_length=1, max_length=256, description="one-time token")
    public_key: str = Field(
        min_length=1, max_length=512, description="SubjectPublicKeyInfo of a P-256 key, DER in base64"
    )


class Enrolled(BaseModel):
    """The answer to a device that has enrolled."""

    device: str = Field(description="sha256 of its public key")
    task: str = Field(description="what the devices learn")


class Request(NamedTuple):
    """A request as it was signed. `path`: with its query."""

    method: str
    path: str
    body: bytes
    claim: Claim


class Edge:
    """A server of one bundle. `private_key`: PEM, whose public half the bundle names. `led`: a cloud decides of its rounds."""

    def __init__(
        self,
        bundle: Bundle,
        private_key: bytes,
        state: Path,
        settings: RoundSettings,
        limits: Limits | None = None,
        clock: Clock | None = None,
        led: bool = False,
    ) -> None:
        self.limits, self.clock = limits or Limits(), clock or SystemClock()
        self.metrics = Metrics()
        initial = Adapter.of_bundle(bundle)
        federation = bundle.manifest.federation
        if federation is None or public_key_of(private_key).hex() != federation.server_key:
            raise BundleError(
                "the bundle",
                got="a federation that another server leads",
                expected="one that names the key of this server",
                next_step="Give the private key whose public half the bundle was built with",
            )
        check_bundle(initial, federation, settings)
        self.federation, self._key = federation, private_key
        self.store = LedStore(state, serves=True) if led else Store(state, serves=True)
        self._of_devices = Buckets(self.limits.device_requests, "the device", self.clock)
        try:
            more = (initial, federation, settings, self.clock, self.metrics)
            led_store = isinstance(self.store, LedStore)
            self.rounds = LedRounds(self.store, *more) if led_store else Rounds(self.store, *more)
        except BaseException:
            self.store.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.store.close()

    def enrol(self, request: Request) -> Enrolled:
        """Lets in the device that holds the key and the token. The same token with the same key has the same answer."""
        enrolment = _parsed(Enrolment, request.body, "the enrolment")
        public_key = _bytes_of(enrolment.public_key)
        public_key_from(public_key)
        id = device_id(public_key)
        if id != request.claim.device:
            raise problem(401, "the request's signature")("another device", "the one of the key", "Sign with the key")
        self._check(request, public_key, None)
        self._of_devices.take(id)
        refused = problem(403, "the enrolment")
        token = hashlib.sha256(enrolment.token.encode()).hexdigest()
        with self.store.transaction():
            known, found = self.store.token(token), self.store.device(id)
            if known is None:
                raise refused("a token that nobody was given", "one of this server", "Ask for a token")
            if known.device is not None and known.device != id:
                raise refused("a token that another device has used", "one that is new", "Ask for another token")
            if known.device == id:
                if found is None:
                    raise refused("a token of a device that was removed", "one that is new", "Ask for another token")
                self._count(request.claim)
            elif found is not None:
                raise refused("a key that has enrolled with another token", "a new key", "Go on: it may ask already")
            elif known.expires < self.clock.calendar():
                raise refused("a token that has expired", "one that is valid", "Ask for another token")
            elif self.store.device_count() >= self.limits.devices:
                raise refused("more devices than this server takes", f"{self.limits.devices}", "Try again later")
            else:
                device = Device(id, public_key, request.claim.counter)
                self.store.add_device(device, token, self.clock.calendar())
        return Enrolled(device=id, task=self.federation.task)

    def ask(self, request: Request) -> bytes:
        """The signed answer to a device's document."""
        document = _parsed(DeviceDocument, request.body, "the device's document")
        device = self._sender(request, document.round)
        if document.task != self.federation.task:
            refused = problem(400, "the device's document: task")
            raise refused("another task", "the one of the server's bundle", "Ask the server of the app's own bundle")
        with self.store.transaction():
            self._count(request.claim)
            taken = self.rounds.take(device, document)
            given = answer(self.store, self.rounds, device, document, taken)
        return signed(given, self._key)

    def file(self, request: Request, sha256: str) -> KeptFile:
        """The record of a file that a document named."""
        self._sender(request, None)
        with self.store.transaction():
            self._count(request.claim)
            file = self.store.file(sha256)
            if file is not None and not (self.store.folder / file.path).is_file():
                _log.error("%s is gone: devices start from a new snapshot", file.path)
                self.store.drop_file(sha256)
                self.rounds.want_snapshot()
                file = None
        if file is None:
            refused = problem(404, "the file")
            raise refused("a sha256 that no document named", "one of the last document", "Ask the server again")
        return file

    def _sender(self, request: Request, round_number: int | None) -> str:
        """The device that signed the request."""
        device = self.store.device(request.claim.device)
        if device is None:
            refused = problem(401, "the request's signature")
            raise refused("one of a device that has not enrolled", "one that has", "First enrol with a token")
        self._check(request, device.public_key, round_number)
        self._of_devices.take(device.id)  # by now nobody else can empty this device's bucket
        return device.id

    def _check(self, request: Request, public_key: bytes, round_number: int | None) -> None:
        claim = request.claim
        exact = signed_bytes(request.method, request.path, request.body, claim.device, round_number, claim.counter)
        check_signature(claim, public_key, exact)

    def _count(self, claim: Claim) -> None:
        if not self.store.raise_counter(claim.device, claim.counter):
            refused = problem(409, "the request's counter")
            raise refused("one that is not above the last one", "a larger one", "Sign again with a larger counter")


def made_tokens(store: Store, count: int, expires: float) -> list[str]:
    """New one-time tokens. The store keeps their hashes alone."""
    if count < 1:
        raise ConfigError("--count", got=str(count), expected="at least 1", next_step="Say how many tokens to make")
    tokens = [secrets.token_urlsafe(TOKEN_BYTES) for _ in range(count)]
    with store.transaction():
        store.add_tokens([hashlib.sha256(token.encode()).hexdigest() for token in tokens], expires)
    return tokens


def _parsed(kind: type[Model], body: bytes, subject: str) -> Model:
    """The body as a model. An error tells the kind of the first fault and nothing of what is in the body."""
    try:
        return kind.model_validate_json(body)
    except (ValidationError, RecursionError) as error:
        fault = error.errors()[0]["type"] if isinstance(error, ValidationError) else "too deep"
    raise RequestError(
        subject,
        got=f"a body that it does not fit: {fault}",
        expected=f"a {kind.__name__} as JSON, as /openapi.json has it",
        next_step="Send what the device core gave, unchanged",
        status=400,
    )


def _bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise problem(400, "the public key")("no base64", "DER in base64", "Send the device's own key") from None
