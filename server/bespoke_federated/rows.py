# SPDX-License-Identifier: Apache-2.0
"""Rows of the server's database as the rest of the server sees them."""

from __future__ import annotations

from typing import Literal, NamedTuple

from bespoke.rules.guidance import Squares
from bespoke.rules.round_documents import ReceivedFile
from bespoke_federated.directions import Directions

__all__ = ["Assignment", "Device", "KeptFile", "RoundRow", "StepTexts", "Token"]


class Token(NamedTuple):
    """A one-time token of which only the hash is kept."""

    expires: float
    device: str | None


class Device(NamedTuple):
    """A device that has enrolled."""

    id: str
    public_key: bytes
    counter: int


class RoundRow(NamedTuple):
    """A round. Coefficients are there from `combined` on, the adapter's hash from `ended` on."""

    number: int
    state: Literal["waiting", "open", "combined", "ended"]
    started: float
    extensions: int
    measured: Directions
    guidance: tuple[ReceivedFile, ...]  # empty: none
    public: Squares
    coefficients: str | None
    guided: str | None
    half: bool
    adapter: str | None

    @property
    def directions(self) -> int:
        return self.measured.groups * self.measured.each

    @property
    def texts(self) -> StepTexts:
        """The step, once its coefficients are there."""
        assert self.coefficients is not None
        return StepTexts(self.coefficients, self.guided, self.half)


class StepTexts(NamedTuple):
    """The step of a round as documents have it: `coefficients_text` of c, and of c' where there is guidance."""

    coefficients: str
    guided: str | None
    half: bool


class Assignment(NamedTuple):
    """The directions that a device was asked for in a round."""

    first: int
    directions: int


class KeptFile(NamedTuple):
    """A snapshot of the adapter after a round, or guidance of a round."""

    sha256: str
    size: int
    path: str
    kind: Literal["snapshot", "guidance"]
    round: int
    half: bool = False
