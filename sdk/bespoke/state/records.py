# SPDX-License-Identifier: Apache-2.0
"""What goes into the state and what comes out of it, as plain frozen records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

Split = Literal["train", "validation"]


class TokenRows(Protocol):
    """One row of a tokenized example: `tokens` int32 (n,) and `mask` uint8 (n,), 1 where the token is trained on."""

    @property
    def tokens(self) -> np.ndarray: ...

    @property
    def mask(self) -> np.ndarray: ...


@dataclass(frozen=True)
class AddedExample:
    """`created` is False where the same id with the same content was there already.

    `truncated_tokens`: how many found no room in the bundle's longest sequence, the oldest of the context first;
    `truncated_trained_tokens`: how many of them were to be trained on, so that not even what is learned is whole.
    """

    id: str
    split: Split
    created: bool
    truncated_tokens: int = 0
    truncated_trained_tokens: int = 0


@dataclass(frozen=True)
class ExampleInfo:
    """An example as stored. `rows` counts its token rows (windows), `tokens` and `trained_tokens` sum over them."""

    id: str
    split: Split
    json: dict[str, Any]
    tokens: int
    trained_tokens: int
    rows: int
    added_at: str


class ExampleRow(NamedTuple):
    """Row `window` of example `id`: tokens int32 (n,), mask uint8 (n,)."""

    id: str
    window: int
    tokens: np.ndarray
    mask: np.ndarray


@dataclass(frozen=True)
class Forgotten:
    """`example`: it was there. `accepted_deleted`: adapters that had seen it. `run_stopped`: an unfinished run had."""

    example: bool
    accepted_deleted: int
    run_stopped: bool


@dataclass(frozen=True)
class Run:
    """A training run. `step` and `cursor` are those of the last commit, by slot or by journal."""

    id: int
    method: str
    seed: int
    settings: dict[str, Any]
    steps: int
    started_from: int | None
    example_ids: tuple[str, ...]
    step: int
    cursor: dict[str, Any]
    ended_because: str | None
    started_at: str
    ended_at: str | None


@dataclass(frozen=True)
class Slot:
    """Adapter and optimizer state of a committed step: float32, read-only, mapped from the file (no private memory)."""

    step: int
    cursor: dict[str, Any]
    tensors: Mapping[str, np.ndarray]


@dataclass(frozen=True)
class JournalRow:
    """A step of a replayable plan. `values` are 32-bit floats and come back bit for bit."""

    step: int
    cursor: dict[str, Any]
    values: Sequence[float]
    rejected: bool = False
    metrics: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Version:
    """An accepted adapter. `run_id` is None and `source` set where it was imported."""

    id: int
    run_id: int | None
    step: int
    metrics: dict[str, Any]
    accepted_at: str
    source: str | None = None
