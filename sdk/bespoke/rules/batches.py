# SPDX-License-Identifier: Apache-2.0
"""Which rows each step trains on, decided by (seed, cursor) alone: a resumed run sees an undisturbed one's batches.

The rules, the same in every language; all draws are Philox words (`noise.philox`) under key `seed`:

- Step s (from 0) has micro-batches j = 0 .. accumulation - 1, each wholly from the user's rows or wholly from the
  bundle's general ones: general if word 0 of counter (j, 0, SOURCE, s) < floor(general_share * 2^32). A source
  without rows is never drawn.
- Place p of a source with n rows is row order[p mod n] of epoch e = p div n, where order sorts the rows by
  (word 0, word 1) of counter (row, 0, USER_ORDER or GENERAL_ORDER, e), ties by row number.
- A micro-batch takes the next min(batch_size, n) places; missing rows are padding rows (mask 0), never repeats.
- A row of n tokens gives n - 1 positions. T is the smallest sequence length that holds the longest row of the
  micro-batch; shorter rows are padded on the right with token 0, mask 0.

B = rows of a batch, T = positions of a row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np
from pydantic import Field

from bespoke.config import Settings
from bespoke.errors import ConfigError, DataError
from bespoke.rules.noise import PIECE, Stream, philox

__all__ = ["Batch", "BatchCursor", "CursorState", "Row", "RowLike", "Source", "check_rows", "evaluation_batches"]

Source = Literal["user", "general"]


class RowLike(Protocol):
    """What a row must have; `Row` and the rows of `bespoke.data` do."""

    @property
    def tokens(self) -> np.ndarray: ...

    @property
    def mask(self) -> np.ndarray: ...


class Row(NamedTuple):
    """tokens int32 [n]; mask uint8 [n], 1 where a token is trained on (mask[0] has no effect: nothing predicts it)."""

    tokens: np.ndarray
    mask: np.ndarray


class CursorState(Settings):
    """Where a run stands: steps taken, and rows taken from each source."""

    step: int = Field(default=0, ge=0, lt=2**32)
    user_position: int = Field(default=0, ge=0, lt=2**62)  # so that a step's rows can be added to it
    general_position: int = Field(default=0, ge=0, lt=2**62)


@dataclasses.dataclass(frozen=True, eq=False)
class Batch:
    """tokens, targets int64 [B, T]; mask float32 [B, T], 1 where the target counts, 0 elsewhere.

    `rows` are the numbers of the rows within their source, in the order of the batch; padding rows have none. `arrays` are those
    that a method asks for by name, int64 or float32 [B, T]; no row of an example or of a bundle has any yet.
    """

    tokens: np.ndarray
    targets: np.ndarray
    mask: np.ndarray
    sequence_length: int
    tokens_trained: int
    source: Source
    rows: tuple[int, ...]
    arrays: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)


class BatchCursor:
    """Hands out the micro-batches of one step after another. Holds no position of its own: that is `CursorState`."""

    def __init__(
        self,
        user: Sequence[RowLike],
        general: Sequence[RowLike],
        *,
        seed: int,
        batch_size: int,
        accumulation: int,
        sequence_lengths: Sequence[int],
        general_share: float,
        vocab_size: int | None = None,
    ) -> None:
        """Rows are read when their batch is made, so a sequence may be a database or a mapped file.

        Raises DataError where neither source has a row, ConfigError for settings that make no batch.
        """
        if not len(user) and not len(general):
            raise DataError(
                "training data",
                got="no example of the user and no general row in the bundle",
                expected="at least one row",
                next_step="Add an example, or build the bundle with data",
            )
        self._lengths = _checked_lengths(sequence_lengths)
        for name, value, fine in (
            ("batch_size", batch_size, batch_size >= 1),
            ("accumulation", accumulation, accumulation >= 1),
            ("general_share", general_share, 0 <= general_share <= 1),
            ("seed", seed, 0 <= seed < 1 << 64),
        ):
            if not fine:
                raise ConfigError(
                    f"training.{name}",
                    got=str(value),
                    expected={"general_share": "a share from 0 to 1", "seed": "0 to 2^64 - 1"}.get(name, "1 or more"),
                    next_step=f"Change {name}",
                )
        self._rows: dict[Source, Sequence[RowLike]] = {"user": user, "general": general}
        self._seed = seed
        self._batch_size = batch_size
        self._accumulation = accumulation
        self._vocab_size = vocab_size
        self._general_below = int(general_share * 2.0**32)
        self._orders: dict[tuple[Source, int], np.ndarray] = {}

    def step(self, state: CursorState) -> tuple[list[Batch], CursorState]:
        """All micro-batches of the step that `state` stands before, and the state after it.

        Raises DataError for a row that is too long or has nothing to train on.
        """
        positions: dict[Source, int] = {"user": state.user_position, "general": state.general_position}
        batches = []
        for source in self._sources(state.step):
            rows = self._rows[source]
            start, count = positions[source], min(self._batch_size, len(rows))
            numbers = tuple(self._row_number(source, place) for place in range(start, start + count))
            batches.append(
                _batch([rows[n] for n in numbers], numbers, self._batch_size, self._lengths, source, self._vocab_size)
            )
            positions[source] = start + count
        return batches, CursorState(
            step=state.step + 1, user_position=positions["user"], general_position=positions["general"]
        )

    def _sources(self, step: int) -> list[Source]:
        for only, other in (("user", "general"), ("general", "user")):
            if not len(self._rows[other]):  # type: ignore[index]
                return [only] * self._accumulation  # type: ignore[list-item]
        words = philox(0, self._accumulation, (0, Stream.SOURCE, step), self._seed)[0]
        return ["general" if int(word) < self._general_below else "user" for word in words]

    def _row_number(self, source: Source, place: int) -> int:
        count = len(self._rows[source])
        epoch, index = divmod(place, count)
        order = self._orders.get((source, epoch))
        if order is None:
            # One epoch a source is kept; a batch that crosses into the next one drops the old.
            self._orders = {key: kept for key, kept in self._orders.items() if key[0] != source}
            order = self._orders[source, epoch] = _epoch_order(count, source, epoch, self._seed)
        return int(order[index])


def evaluation_batches(
    rows: Sequence[RowLike],
    batch_size: int,
    sequence_lengths: Sequence[int],
    *,
    source: Source = "user",
    vocab_size: int | None = None,
) -> Iterator[Batch]:
    """Every row exactly once: shortest sequence length first, within a length in the order given.

    The last batch of a length is filled with padding rows. Raises DataError as `BatchCursor.step` does.
    """
    lengths = _checked_lengths(sequence_lengths)
    buckets: dict[int, list[int]] = {length: [] for length in lengths}
    for number in range(len(rows)):
        buckets[_length_for(len(rows[number].tokens) - 1, lengths, number, source)].append(number)
    for numbers in buckets.values():
        for start in range(0, len(numbers), batch_size):
            chosen = tuple(numbers[start : start + batch_size])
            yield _batch([rows[n] for n in chosen], chosen, batch_size, lengths, source, vocab_size)


def check_rows(rows: Sequence[RowLike], sequence_lengths: Sequence[int], *, source: Source = "user") -> None:
    """Raises DataError for the first row that no batch could take; `BatchCursor` finds it only when it gets there."""
    lengths = _checked_lengths(sequence_lengths)
    for number in range(len(rows)):
        _check_row(rows[number], lengths, number, source)


def _epoch_order(count: int, source: Source, epoch: int, seed: int) -> np.ndarray:
    stream = Stream.USER_ORDER if source == "user" else Stream.GENERAL_ORDER
    keys = np.empty(count, np.uint64)
    for start in range(0, count, PIECE):  # in pieces: Philox needs 50 bytes a row meanwhile
        words = philox(start, min(PIECE, count - start), (0, stream, epoch), seed)
        keys[start : start + PIECE] = words[0].astype(np.uint64) << np.uint64(32) | words[1]
    return np.argsort(keys, kind="stable").astype(np.uint32)


def _batch(
    rows: Sequence[RowLike],
    numbers: tuple[int, ...],
    batch_size: int,
    lengths: Sequence[int],
    source: Source,
    vocab_size: int | None,
) -> Batch:
    length = max(
        _check_row(row, lengths, number, source, vocab_size) for row, number in zip(rows, numbers, strict=True)
    )
    tokens = np.zeros((batch_size, length), np.int64)  # (B, T)
    targets = np.zeros((batch_size, length), np.int64)  # (B, T)
    mask = np.zeros((batch_size, length), np.float32)  # (B, T)
    for place, row in enumerate(rows):
        positions = len(row.tokens) - 1
        tokens[place, :positions] = row.tokens[:-1]
        targets[place, :positions] = row.tokens[1:]
        mask[place, :positions] = row.mask[1:] != 0
    return Batch(tokens, targets, mask, length, int(np.count_nonzero(mask)), source, numbers)


def _check_row(row: RowLike, lengths: Sequence[int], number: int, source: Source, vocab_size: int | None = None) -> int:
    """The sequence length that the row needs."""
    if len(row.tokens) != len(row.mask):
        raise DataError(
            f"row {number} of the {source} data",
            got=f"{len(row.tokens)} tokens and a mask of {len(row.mask)}",
            expected="one mask entry for each token",
            next_step="Tokenize the data again",
        )
    length = _length_for(len(row.tokens) - 1, lengths, number, source)
    low, high = int(np.min(row.tokens)), int(np.max(row.tokens))
    if low < 0 or (vocab_size is not None and high >= vocab_size):
        raise DataError(
            f"row {number} of the {source} data",
            got=f"token {low if low < 0 else high}",
            expected="0 or more" if vocab_size is None else f"0 to {vocab_size - 1}, which the model knows",
            next_step="Tokenize the data again",
        )
    if np.max(row.mask) > 1:
        raise DataError(
            f"row {number} of the {source} data",
            got=f"a mask of {int(np.max(row.mask))}",
            expected="0 or 1 for each token",
            next_step="Tokenize the data again",
        )
    if not np.any(row.mask[1:]):
        raise DataError(
            f"row {number} of the {source} data",
            got="no token to train on",
            expected="at least one unmasked token after the first",
            next_step="Leave the row out, or check train_on",
        )
    return length


def _length_for(positions: int, lengths: Sequence[int], number: int, source: Source) -> int:
    if positions < 1:
        raise DataError(
            f"row {number} of the {source} data",
            got=f"{positions + 1} tokens",
            expected="2 or more: each token is predicted from those before it",
            next_step="Leave the row out",
        )
    for length in lengths:
        if positions <= length:
            return length
    raise DataError(
        f"row {number} of the {source} data",
        got=f"{positions + 1} tokens",
        expected=f"at most {lengths[-1] + 1}: one more than the longest sequence length",
        next_step="Shorten the row, or build the bundle with a longer sequence length",
    )


def _checked_lengths(sequence_lengths: Sequence[int]) -> list[int]:
    lengths = sorted(set(sequence_lengths))
    if not lengths or lengths[0] < 1:
        raise ConfigError(
            "training.sequence_lengths",
            got=str(list(sequence_lengths)),
            expected="one or more lengths of at least 1",
            next_step="Change sequence_lengths",
        )
    return lengths
