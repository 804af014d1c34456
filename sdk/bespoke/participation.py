# SPDX-License-Identifier: Apache-2.0
"""A user's part in federated learning: consent, what passes between the device and a server, and the shared adapter."""

from __future__ import annotations

from collections.abc import Callable

from bespoke import arguments
from bespoke.core.engine import Engine
from bespoke.core.federation_calls import FederationCalls
from bespoke.core.handle import Handle
from bespoke.rules.records import FederationReport, FederationRequest, FederationStatus
from bespoke.rules.report import TrainReport

__all__ = ["Participation"]


class Participation:
    """A user's part in what the users of an app learn together.

    The SDK has no network of its own. The app carries what passes between it and the server:

        request = model.federation.request()
        match request.step:
            case "ask": model.federation.respond(request, post(request.body))
            case "fetch": model.federation.respond(request, get(request.sha256, request.offset, request.size))
            case "take_part": model.federation.take_part()
            case "wait": ...  # ask again after request.wait_seconds

    All calls but `status` and `leave` raise ConfigError without the user's consent.
    """

    def __init__(self, core: Handle, engine: Engine) -> None:
        self._calls, self._engine = FederationCalls(core), engine

    def join(self) -> None:
        """Gives the user's consent. Show `status().explanation` first."""
        self._calls.join()

    def leave(self) -> None:
        """Takes the consent back. Deletes what was to be sent, and the shared adapter; one that was adopted goes on answering."""
        self._calls.leave()

    def status(self) -> FederationStatus:
        """Returns what the user takes part in, and what it has cost."""
        return self._calls.status()

    def request(self) -> FederationRequest:
        """Returns what to do next. The same numbers are in it again and again until the server confirms them."""
        return self._calls.request()

    def respond(self, request: FederationRequest, response: bytes) -> None:
        """Takes what came for a request: the server's answer, or bytes of a file.

        No bytes say that the server no longer has the file (HTTP 404 or 410). The next request asks the server again.

        Raises SignatureError for an answer that the bundle's server has not signed, and DataError for one that no server may send.
        Nothing has changed then.
        """
        self._calls.respond(request, response)

    def take_part(self, *, seconds: float | None = None, stop: Callable[[], bool] | None = None) -> FederationReport:
        """Follows the rounds that have ended, and measures for the one that is open.

        Files that are still missing may be fetched meanwhile, on another thread or in another process: the call waits for them.

        Args:
            seconds: Deadline. Raises Cancelled then; rounds that were followed are kept. None: no deadline.
            stop: Asked 20 times a second. The call ends as at its deadline once it returns True.
        """
        arguments.function("take_part.stop", stop, "a function that says whether to stop")
        if seconds is not None:
            seconds = arguments.number("take_part.seconds", seconds, "more than 0", lambda length: length > 0)
        return self._engine.take_part(seconds, stop)

    def adopt(self) -> TrainReport:
        """Judges the shared adapter by the user's own examples, as `train` judges what it learned.

        If it is accepted, it answers from now on and the next run starts from it. What a run learns from the user is never sent.
        """
        return self._engine.adopt()
