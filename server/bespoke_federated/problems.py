# SPDX-License-Identifier: Apache-2.0
"""Errors of requests, with the status of HTTP that goes with each. None says anything of a body's content."""

from __future__ import annotations

import math
from collections.abc import Callable

from bespoke.errors import BespokeError

__all__ = ["RequestError", "problem"]


class RequestError(BespokeError):
    """A request that is refused. Nothing has changed."""

    def __init__(
        self, subject: str, *, got: str, expected: str, next_step: str, status: int, retry_seconds: float | None = None
    ) -> None:
        super().__init__(subject, got=got, expected=expected, next_step=next_step)
        self.status = status
        self.retry_seconds = retry_seconds

    @property
    def headers(self) -> dict[str, str]:
        """What the answer says besides its body."""
        return {} if self.retry_seconds is None else {"Retry-After": str(max(1, math.ceil(self.retry_seconds)))}


def problem(status: int, subject: str) -> Callable[[str, str, str], RequestError]:
    """A maker of errors about one object with one status: it takes got, expected and next step."""

    def made(got: str, expected: str, next_step: str) -> RequestError:
        return RequestError(subject, got=got, expected=expected, next_step=next_step, status=status)

    return made
