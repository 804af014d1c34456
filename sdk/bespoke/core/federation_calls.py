# SPDX-License-Identifier: Apache-2.0
"""The functions of bespoke.h for federated learning, on an open model."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from bespoke.core.handle import Handle
from bespoke.core.library import record, text
from bespoke.rules.records import FederationRequest, FederationStatus

__all__ = ["FederationCalls"]


class FederationCalls:
    """The calls of a handle."""

    def __init__(self, core: Handle) -> None:
        self._core = core

    def join(self) -> None:
        self._core._call("bespoke_federation_join", self._core._place.waiting)

    def leave(self) -> None:
        self._core._call("bespoke_federation_leave", self._core._place.waiting)

    def status(self) -> FederationStatus:
        return record(FederationStatus, self._core._ask("bespoke_federation_status"))

    def request(self) -> FederationRequest:
        return record(FederationRequest, self._core._ask("bespoke_federation_request"))

    def respond(self, request: FederationRequest, response: bytes) -> None:
        given = text(json.dumps(asdict(request)))
        self._core._call("bespoke_federation_respond", given, text(response), self._core._place.waiting)

    def take_part(self, seconds: float | None, stop: Callable[[], bool] | None) -> dict[str, Any]:
        """Returns the core's report."""
        report: dict[str, Any] = self._core._computed("bespoke_federation_take_part", [], None, seconds, None, stop)
        return report

    def adopt(self) -> dict[str, Any]:
        """Returns the core's report of a run."""
        report: dict[str, Any] = self._core._computed("bespoke_federation_adopt", [])
        return report
