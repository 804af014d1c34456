# SPDX-License-Identifier: Apache-2.0
"""What a cloud and its edges tell each other, as JSON. An edge answers each order with where it stands.

An order says everything that an edge may not know: rounds that have ended, in their order, then the round that is open. So the same
order may come twice, late or not at all. Nothing is done twice, and what was missed comes with the next one. Only guidance travels
when it is asked for: an edge follows an order up to the first round of which it lacks files, and says which.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from bespoke.config import Settings, as_tuple
from bespoke.rules.round_documents import MAX_DIRECTIONS, MAX_FILES, MAX_ROUND, ReceivedFile

__all__ = [
    "MOST_ENDED",
    "Collected",
    "Ended",
    "GuidedBy",
    "Layout",
    "Numbers",
    "Opened",
    "Order",
    "Refusal",
    "SentFile",
    "Standing",
]

MOST_ENDED = 256  # rounds of an order
MOST_DEVICES = 1_000_000

_Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_Round = Annotated[int, Field(ge=1, le=MAX_ROUND)]
_Groups = Annotated[int, Field(ge=1, le=MAX_DIRECTIONS)]


class GuidedBy(Settings):
    """The guidance of a round: what a direction weighs, and the files."""

    coefficient: float = Field(ge=0, le=1e6, description="c of each direction")
    guidance_coefficient: float = Field(gt=0, le=1e6, description="c' of each direction")
    watched: int = Field(ge=0, lt=MAX_DIRECTIONS, description="groups at the end that measure z alone")
    files: Annotated[tuple[ReceivedFile, ...], BeforeValidator(as_tuple), Field(min_length=1, max_length=MAX_FILES)]


class Layout(Settings):
    """The directions of a round: groups that differ, each of so many directions."""

    groups: _Groups
    each: _Groups = Field(description="directions of a group")
    guidance: GuidedBy | None = Field(default=None, description="of this round; none: it is a plain one")


class Opened(Layout):
    """The round that is open, and an edge's share in it."""

    number: _Round
    first_group: int = Field(ge=0, lt=MAX_DIRECTIONS, description="of this edge")
    own_groups: _Groups = Field(description="groups of this edge")
    first_watched: int = Field(default=0, ge=0, lt=MAX_DIRECTIONS, description="group of this edge that measures z")
    own_watched: int = Field(default=0, ge=0, lt=MAX_DIRECTIONS, description="groups of this edge that do")
    devices: int = Field(ge=1, le=MOST_DEVICES, description="whose numbers this edge waits for")


class Ended(Layout):
    """A round that has ended."""

    number: _Round
    coefficients: str = Field(max_length=4 * MAX_DIRECTIONS, description="as `coefficients_text`")
    guided: str | None = Field(default=None, max_length=4 * MAX_DIRECTIONS, description="c' of the steps, likewise")
    half: bool = Field(description="whether the adapter is rounded to float16 after it")
    adapter: _Sha256 = Field(description="sha256 of the adapter after it")
    counted: bool = Field(description="whether what this edge had collected is in the coefficients")

    @model_validator(mode="after")
    def _has_both_or_one(self) -> Self:
        if (self.guided is None) != (self.guidance is None):
            raise ValueError("coefficients of guidance go with its files")
        if self.guided is not None and len(self.guided) != len(self.coefficients):
            raise ValueError("a direction has both coefficients")
        return self


class SentFile(Settings):
    """A file of guidance that an edge has said to lack."""

    sha256: _Sha256
    data: str = Field(description="its bytes in base64")


class Order(Settings):
    """What a cloud tells an edge."""

    task: str = Field(min_length=1, max_length=256)
    initial: _Sha256 = Field(description="sha256 of the adapter before the first round")
    rounds: int = Field(ge=1, le=MAX_ROUND, description="of the task")
    ended: Annotated[tuple[Ended, ...], BeforeValidator(as_tuple), Field(max_length=MOST_ENDED)] = Field(
        default=(), description="in their order, from the one on that the edge has not followed"
    )
    opened: Opened | None = Field(default=None, description="the round behind them")
    files: Annotated[tuple[SentFile, ...], BeforeValidator(as_tuple), Field(max_length=MAX_FILES)] = Field(
        default=(), description="that this edge lacks, of one round"
    )
    close: bool = Field(default=False, description="whether numbers of the open round are late from now on")
    each_number: bool = Field(default=False, description="whether sums are not enough: a median needs the numbers")
    compared: bool = Field(
        default=False,
        description="whether devices are left out whose numbers always lie at an end of what this edge has",
    )
    wait_seconds: float = Field(default=0.0, ge=0, le=3600, description="for which the edge's app waits for numbers")


class Numbers(Settings):
    """The numbers of one device."""

    first: int = Field(ge=0, lt=MAX_DIRECTIONS, description="number of the first direction")
    numbers: Annotated[tuple[float, ...], BeforeValidator(as_tuple), Field(min_length=1, max_length=MAX_DIRECTIONS)]


class Collected(Settings):
    """What came of a round so far, or of one that is closed: there it stays the same."""

    round: _Round
    devices: int = Field(ge=0, le=MOST_DEVICES, description="that sent numbers")
    closed: bool
    first: int = Field(default=0, ge=0, lt=MAX_DIRECTIONS, description="direction of the first sum")
    counts: Annotated[tuple[int, ...], BeforeValidator(as_tuple), Field(max_length=MAX_DIRECTIONS)] = Field(
        default=(), description="numbers of each direction of the edge's share"
    )
    sums: Annotated[tuple[float, ...], BeforeValidator(as_tuple), Field(max_length=MAX_DIRECTIONS)] = ()
    numbers: Annotated[tuple[Numbers, ...], BeforeValidator(as_tuple), Field(max_length=MOST_DEVICES)] = Field(
        default=(), description="in place of sums, where the cloud wants them"
    )


class Standing(Settings):
    """Where an edge stands."""

    edge: _Sha256 = Field(description="which edge: it is drawn once for a state folder")
    ended: int = Field(ge=0, le=MAX_ROUND, description="last round that has ended here")
    adapter: _Sha256 = Field(description="sha256 of the adapter after it")
    most_rounds: int = Field(ge=0, description="rounds of the device that sent numbers in most of them")
    collected: Collected | None = Field(default=None, description="of the round behind it, if it is open here")
    lacking: Annotated[tuple[_Sha256, ...], BeforeValidator(as_tuple), Field(max_length=MAX_FILES)] = Field(
        default=(), description="files without which it cannot go on with the order"
    )


class Refusal(Settings):
    """Why an edge did not do what it was told. Nothing has changed."""

    object: str
    got: str
    expected: str
    next_step: str
