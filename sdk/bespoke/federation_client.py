# SPDX-License-Identifier: Apache-2.0
"""Carries what passes between a device and a server of federated learning (`bespoke-federated`), over HTTPS.

`learn_together` is what an app does in the background, once a day. Phones do the same in Kotlin and Swift.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from bespoke import arguments
from bespoke.errors import ConfigError, ServerError, shown
from bespoke.federated_device import DeviceKey
from bespoke.rules.signed_request import COUNTER_HEADER, DEVICE_HEADER, SIGNATURE_HEADER

if TYPE_CHECKING:
    from bespoke.personal_model import PersonalModel

__all__ = ["FederationClient", "LearnedTogether", "learn_together"]

MAX_ANSWER = 16 << 20  # bytes of a document, as in the device core
MAX_PROBLEM = 4096  # bytes of an error's answer
TIMEOUT_SECONDS = 60.0
ASKS_OF_A_ROUND = 2  # before it is measured and after that
GONE = (404, 410)  # statuses of a file that the server no longer has
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True)
class LearnedTogether:
    """What one call of `learn_together` has done.

    measured:     rounds whose numbers were made in this call
    followed:     rounds that the shared adapter has followed in this call
    round:        last round that it has followed
    wait_seconds: until the server wants to be asked again
    done:         whether the task has ended
    """

    measured: tuple[int, ...]
    followed: int
    round: int
    wait_seconds: float
    done: bool


class FederationClient:
    """A device's requests to a server. Each is signed with the device's key.

    Args:
        server: Address of the server, https://... Plain http is taken for this machine alone.
        key: File of the device's key. It is made when it is first needed.
        ca_file: PEM file of the certificates that the server's may be signed with. None: those of the system.

    Calls raise ServerError where the server cannot be reached or refuses.
    """

    def __init__(self, server: str, key: DeviceKey | Path | str, *, ca_file: Path | str | None = None) -> None:
        self.server = _checked(server)
        self.key = key if isinstance(key, DeviceKey) else DeviceKey(key)
        context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
        self._opener = build_opener(HTTPSHandler(context=context), _NoRedirect)

    def enrol(self, token: str) -> None:
        """Has the server let this device in. It gives each device a token, which is good once."""
        public_key = base64.b64encode(self.key.public_key).decode()
        self._send(
            "POST", "/v1/enrol", json.dumps({"token": token, "public_key": public_key}).encode(), None, MAX_ANSWER
        )
        self.key.let_in_by(self.server)

    def ask(self, body: str) -> bytes:
        """Posts the device's document. Returns the server's signed answer."""
        return self._send("POST", "/v1/ask", body.encode(), json.loads(body)["round"], MAX_ANSWER)

    def fetch(self, sha256: str, offset: int, size: int) -> bytes:
        """Returns bytes of a file that the server has named, and none if the server no longer has it."""
        if size == 0:
            return b""
        headers = {"Range": f"bytes={offset}-{offset + size - 1}"}
        try:
            return self._send("GET", f"/v1/files/{sha256}", b"", None, size, headers)
        except ServerError as error:
            if error.status in GONE:
                return b""
            raise

    def _send(
        self,
        method: str,
        path: str,
        body: bytes,
        round_number: int | None,
        most: int,
        headers: dict[str, str] | None = None,
    ) -> bytes:
        signed_path = urlsplit(self.server).path + path
        device, counter, signature = self.key.sign(method, signed_path, body, round_number)
        request = Request(self.server + path, body or None, method=method)
        for name, value in {
            DEVICE_HEADER: device,
            COUNTER_HEADER: str(counter),
            SIGNATURE_HEADER: base64.urlsafe_b64encode(signature).rstrip(b"=").decode(),
            "Content-Type": "application/json",
            **(headers or {}),
        }.items():
            request.add_header(name, value)
        try:
            with self._opener.open(request, timeout=TIMEOUT_SECONDS) as response:
                answer: bytes = response.read(most + 1)
        except HTTPError as error:
            raise self._refused(error) from None
        except (URLError, HTTPException, OSError) as error:
            reason = getattr(error, "reason", error)
            raise ServerError(
                self.server, got=shown(str(reason)), expected="an answer", next_step="Try again later"
            ) from None
        self.key.add_traffic(len(body), len(answer))
        if len(answer) > most:
            raise ServerError(
                self.server, got=f"more than {most} bytes", expected="no more", next_step="Ask who runs the server"
            )
        return answer

    def _refused(self, error: HTTPError) -> ServerError:
        """What the server says of an error, in its words where they are such."""
        try:
            document = json.loads(error.read(MAX_PROBLEM))
            subject, got, expected, next_step = (document[name] for name in ("object", "got", "expected", "next_step"))
            refused = ServerError(f"{self.server}: {subject}", got=got, expected=expected, next_step=next_step)
        except (ValueError, TypeError, KeyError, OSError, HTTPException):
            refused = ServerError(
                self.server, got=f"status {error.code}", expected="an answer", next_step="Ask who runs the server"
            )
        refused.status, refused.retry_seconds = error.code, _seconds(error.headers.get("Retry-After"))
        return refused


def learn_together(
    model: PersonalModel,
    client: FederationClient,
    *,
    rounds: int = 1,
    seconds: float | None = None,
    stop: Callable[[], bool] | None = None,
) -> LearnedTogether:
    """Follows the rounds that have ended and measures for at most `rounds` that are open. The user has joined before.

    What a killed call leaves is sent by the next one. Nothing is measured or sent twice.

    Args:
        rounds: Most rounds to measure.
        seconds: Deadline of the whole call. Raises Cancelled where it falls into a computation.
        stop: Asked 20 times a second while the device computes, and before each request. The call ends once it returns True.
    """
    rounds = arguments.whole_number("learn_together.rounds", rounds, 1)
    ends = None if seconds is None else time.monotonic() + seconds
    measured: list[int] = []
    followed, asks = 0, 0
    wait_seconds, done = 0.0, False

    def over() -> bool:
        return (ends is not None and time.monotonic() >= ends) or (stop is not None and stop())

    while not over():
        request = model.federation.request()
        if request.step == "ask":
            if asks == ASKS_OF_A_ROUND * rounds + 1:
                break
            asks += 1
            model.federation.respond(request, client.ask(request.body))
        elif request.step == "fetch":
            model.federation.respond(request, client.fetch(request.sha256, request.offset, request.size))
        elif request.step == "take_part":
            if len(measured) == rounds:
                break
            left = None if ends is None else max(1e-3, ends - time.monotonic())
            report = model.federation.take_part(seconds=left, stop=stop)
            followed += report.followed
            if report.measured is not None:
                measured.append(report.measured)
        else:
            wait_seconds, done = request.wait_seconds, request.step == "done"
            break
    return LearnedTogether(tuple(measured), followed, model.federation.status().round, wait_seconds, done)


class _NoRedirect(HTTPRedirectHandler):
    """A signature is good for one path at one server."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        return None


def _checked(server: str) -> str:
    """The address without a slash at its end."""
    parts = urlsplit(server) if isinstance(server, str) else None
    if parts is None or not (parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)):
        raise ConfigError(
            "server",
            got=shown(server),
            expected="https:// and the server's name; http:// for this machine alone",
            next_step="Give the address of the app's server",
        )
    if not parts.hostname or parts.query or parts.fragment or parts.username or parts.password:
        raise ConfigError(
            "server",
            got=shown(server),
            expected="a name, perhaps a port and a path",
            next_step="Give the address of the app's server",
        )
    return server.rstrip("/")


def _seconds(text: Any) -> float:
    return float(text) if isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 9 else 0.0
