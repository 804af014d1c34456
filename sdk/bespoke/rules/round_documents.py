# SPDX-License-Identifier: Apache-2.0
"""What a server of federated learning and a device send each other, as JSON (docs/explanation/federation.md).

A server signs each `RoundDocument` (`bespoke.bundle.signature.signed_document`), so that others may keep it and pass it on. What a
device sends is a `DeviceDocument`: the client that carries it signs the request. The files that a document names travel by their
sha256.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field

from bespoke.config import Settings, as_tuple

__all__ = [
    "DeviceDocument",
    "Measurement",
    "ReceivedFile",
    "RoundDocument",
    "RoundGuidance",
    "RoundNumbers",
    "RoundSpan",
    "Snapshot",
]

MAX_DIRECTIONS = 4096  # of a round
MAX_SPANS = 1024
MAX_FILES = 4096
MAX_FILE_BYTES = 2**32
MAX_ROUND = 2**31 - 1  # a round is a word of its noise

_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Round = Annotated[int, Field(ge=1, le=MAX_ROUND)]
_Coefficients = Annotated[str, Field(max_length=4 * MAX_SPANS * MAX_DIRECTIONS)]


class ReceivedFile(Settings):
    """A file that a round brings: guidance of a block, by the name that plans give it."""

    name: str = Field(min_length=1, max_length=256)
    sha256: _Sha256
    size: int = Field(ge=0, le=MAX_FILE_BYTES, description="bytes")


_Files = Annotated[tuple[ReceivedFile, ...], BeforeValidator(as_tuple), Field(max_length=MAX_FILES)]


class RoundGuidance(Settings):
    """The guidance of the steps of a round."""

    coefficients: _Coefficients = Field(description="c' of each direction, as `coefficients_text`")
    files: _Files


class RoundSpan(Settings):
    """Rounds that have ended and follow each other. Each has the same number of directions."""

    first: _Round = Field(description="number of the first round")
    count: int = Field(ge=1, le=MAX_ROUND, description="rounds; 1 with guidance")
    directions: int = Field(ge=1, le=MAX_DIRECTIONS, description="of each round")
    coefficients: _Coefficients = Field(
        description="c of each direction of each round, in their order, as `coefficients_text`"
    )
    guidance: RoundGuidance | None
    half: bool = Field(
        description="whether the adapter is rounded to float16 after the last of these rounds, so that a snapshot of half the "
        "size is exact"
    )
    adapter: _Sha256 = Field(
        description="sha256 of the adapter after the last of these rounds, rounded where `half` says so"
    )


class Measurement(Settings):
    """What a device is asked to measure."""

    round: _Round = Field(description="the round that is open: the one after the last that has ended")
    first: int = Field(ge=0, lt=MAX_DIRECTIONS, description="number of the first direction")
    count: int = Field(ge=1, le=MAX_DIRECTIONS, description="directions")
    coefficient: float = Field(description="c of each of them")
    guidance_coefficient: float = Field(description="c' of each of them")
    files: _Files
    adapter: _Sha256 = Field(description="sha256 of the adapter that is measured")


class Snapshot(Settings):
    """The adapter after a round, as a safetensors file of the trained pieces: in float32, or in float16 if that is exact."""

    round: _Round
    adapter: _Sha256
    sha256: _Sha256 = Field(description="of the file")
    size: int = Field(ge=0, le=MAX_FILE_BYTES, description="bytes of the file")


class RoundDocument(Settings):
    """What a server answers."""

    task: str = Field(min_length=1, max_length=256)
    taken: Annotated[tuple[_Round, ...], BeforeValidator(as_tuple), Field(max_length=MAX_SPANS)] = Field(
        description="rounds whose numbers the server has, or does not want any more"
    )
    snapshot: Snapshot | None = Field(description="to start from, where that is less than the rounds before it")
    rounds: Annotated[tuple[RoundSpan, ...], BeforeValidator(as_tuple), Field(max_length=MAX_SPANS)]
    measure: Measurement | None
    wait_seconds: float = Field(ge=0, le=1e8, description="until the device asks again")
    done: bool = Field(description="whether the task has ended")


class RoundNumbers(Settings):
    """The numbers that a device measured in a round."""

    round: _Round
    first: int = Field(ge=0, lt=MAX_DIRECTIONS)
    numbers: Annotated[tuple[float, ...], BeforeValidator(as_tuple), Field(min_length=1, max_length=MAX_DIRECTIONS)]


class DeviceDocument(Settings):
    """What a device sends: where it stands, and its numbers that the server has not confirmed."""

    task: str = Field(min_length=1, max_length=256)
    round: int = Field(ge=0, le=MAX_ROUND, description="last round that it followed; 0: none")
    adapter: _Sha256 = Field(description="sha256 of its adapter")
    differs: bool = Field(description="whether its adapter was not the server's after a round: it needs a snapshot")
    measures: bool = Field(description="whether it would measure: it has examples and budget")
    numbers: Annotated[tuple[RoundNumbers, ...], BeforeValidator(as_tuple), Field(max_length=MAX_SPANS)]
