# SPDX-License-Identifier: Apache-2.0
"""The choice of the rows for each step. It follows from (seed, cursor) alone, so a resumed run gets the same batches.

The rules are the same in every language. All draws are Philox words (`noise.philox`) under key `seed`:

- Step s (from 0) has micro-batches j = 0 .. accumulation - 1. Each is wholly from the user's rows or wholly from the
  bundle's general rows: general if word 0 of counter (j, 0, SOURCE, s) < floor(general_share * 2^32). A source
  without rows is never drawn.
- Place p of a source with n rows is row order[p mod n] of epoch e = p div n, where order sorts the rows by
  (word 0, word 1) of counter (row, 0, USER_ORDER or GENERAL_ORDER, e), ties by row number.
- A micro-batch takes the next min(batch_size, n) places. Missing rows are padding rows (mask 0), never repeats.
- A method that learns pairs gets a row with a rejected answer as two rows of the batch: it and, below it, the rejected one.
  A micro-batch then takes places while there is room for their rows. Its pairs come first, else the order is that of
  the places. Array `pairs` is 1 in the rows of a pair. Other methods get the row alone, which is the chosen answer.
- A row of n tokens has n - 1 positions. T is the smallest sequence length that holds the longest row of the
  micro-batch. Shorter rows are padded on the right with token 0, mask 0.

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
from bespoke.remedies import setting
from bespoke.rules.noise import PIECE, Stream, philox

__all__ = [
    "PAIRS",
    "BatchCursor",
    "CursorState",
    "Row",
    "RowLike",
    "Source",
    "TokenBatch",
    "check_rows",
    "evaluation_batches",
]

Source = Literal["user", "general"]

PAIRS = "pairs"
"""The array that a method asks for to learn from pairs of a chosen and a rejected answer: float32, 1 in the rows of a pair."""


class RowLike(Protocol):
    """The attributes that a row must have. `Row` and the rows of `bespoke.data` have them."""

    @property
    def tokens(self) -> np.ndarray: ...

    @property
    def mask(self) -> np.ndarray: ...


class Row(NamedTuple):
    """A row: tokens int32 [n], mask uint8 [n]. The mask is 1 for a trained token; mask[0] has no effect, nothing predicts it.

    `rejected` is the rejected answer to the same prompt, if the row is the chosen answer of a pair. Other kinds of row lack it.
    """

    tokens: np.ndarray
    mask: np.ndarray
    rejected: Row | None = None


class CursorState(Settings):
    """The position of a run: the steps taken, and the rows taken from each source."""

    step: int = Field(default=0, ge=0, lt=2**32)
    user_position: int = Field(default=0, ge=0, lt=2**62)  # leaves room to add a step's rows in 64 bits
    general_position: int = Field(default=0, ge=0, lt=2**62)


@dataclasses.dataclass(frozen=True, eq=False)
class TokenBatch:
    """Rows padded to one length, as a plan reads them.

    tokens, targets: int64 [B, T]
    mask:            float32 [B, T], 1 where the target counts, 0 elsewhere
    rows:            the numbers of the rows within their source, in the order of the batch; padding rows have none
    arrays:          int64 or float32 [B, T], which a method asks for by name; of examples there is `pairs` alone
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
    """Returns the micro-batches of each step. Its position is a `CursorState` that the caller holds."""

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
        pairs: bool = False,
    ) -> None:
        """Rows are read when their batch is built, so a sequence may be a database or a mapped file.

        `pairs`: whether the method learns from pairs of answers.

        Raises DataError if neither source has a row, and ConfigError for invalid settings.
        """
        if not len(user) and not len(general):
            raise DataError(
                "training data",
                got="no example of the user and no general row in the bundle",
                expected="at least one row",
                next_step="Add an example, or build the bundle with data",
            )

        self._lengths = _checked_lengths(sequence_lengths)
        for name, value, is_valid in (
            ("batch_size", batch_size, batch_size >= 1),
            ("accumulation", accumulation, accumulation >= 1),
            ("general_share", general_share, 0 <= general_share <= 1),
            ("seed", seed, 0 <= seed < 1 << 64),
        ):
            if not is_valid:
                raise ConfigError(
                    setting(f"training.{name}"),
                    got=str(value),
                    expected={"general_share": "a share from 0 to 1", "seed": "0 to 2^64 - 1"}.get(name, "1 or more"),
                    next_step="Change " + setting(name),
                )

        self._rows: dict[Source, Sequence[RowLike]] = {"user": user, "general": general}
        self._seed = seed
        self._batch_size = batch_size
        self._accumulation = accumulation
        self._vocab_size = vocab_size
        self._pairs = pairs
        self._general_below = int(general_share * 2.0**32)
        self._orders: dict[tuple[Source, int], np.ndarray] = {}

    def step(self, state: CursorState) -> tuple[list[TokenBatch], CursorState]:
        """All micro-batches of the step that comes after `state`, and the state after that step.

        Raises DataError for a row that is too long or has nothing to train on.
        """
        positions: dict[Source, int] = {"user": state.user_position, "general": state.general_position}
        batches = []
        for source in self._sources(state.step):
            numbers = self._numbers(source, positions[source])
            rows = [self._rows[source][n] for n in numbers]
            batches.append(
                _batch(rows, numbers, self._batch_size, self._lengths, source, self._vocab_size, pairs=self._pairs)
            )
            positions[source] += len(numbers)
        return batches, CursorState(
            step=state.step + 1, user_position=positions["user"], general_position=positions["general"]
        )

    def _sources(self, step: int) -> list[Source]:
        """The source of each micro-batch of a step."""
        for only, other in (("user", "general"), ("general", "user")):
            if not len(self._rows[other]):  # type: ignore[index]
                return [only] * self._accumulation  # type: ignore[list-item]
        words = philox(0, self._accumulation, (0, Stream.SOURCE, step), self._seed)[0]
        return ["general" if int(word) < self._general_below else "user" for word in words]

    def _numbers(self, source: Source, start: int) -> tuple[int, ...]:
        """The numbers of the rows that a micro-batch takes from place `start` on, those of pairs first."""
        rows = self._rows[source]
        singles: list[int] = []
        in_pairs: list[int] = []
        for place in range(start, start + len(rows)):
            number = self._row_number(source, place)
            is_pair = self._pairs and _rejected(rows[number]) is not None
            if 2 * len(in_pairs) + len(singles) + 1 + is_pair > self._batch_size:
                break
            (in_pairs if is_pair else singles).append(number)
        return (*in_pairs, *singles)

    def _row_number(self, source: Source, place: int) -> int:
        count = len(self._rows[source])
        epoch, index = divmod(place, count)
        order = self._orders.get((source, epoch))
        if order is None:
            # One epoch for each source is kept. A batch that crosses into the next epoch drops the old one.
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
) -> Iterator[TokenBatch]:
    """Yields every row exactly once: shortest sequence length first, and within a length in the order given.

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
    """Raises DataError for the first row that fits no batch. `BatchCursor` would notice it only when it gets there."""
    lengths = _checked_lengths(sequence_lengths)
    for number in range(len(rows)):
        _check_row(rows[number], lengths, number, source)


def _epoch_order(count: int, source: Source, epoch: int, seed: int) -> np.ndarray:
    """The order of a source's rows in an epoch."""
    stream = Stream.USER_ORDER if source == "user" else Stream.GENERAL_ORDER
    keys = np.empty(count, np.uint64)
    for start in range(0, count, PIECE):  # in pieces, because Philox needs 50 bytes of memory a row
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
    *,
    pairs: bool = False,
) -> TokenBatch:
    places: list[tuple[RowLike, int, bool]] = []  # row, its number, whether it is a row of a pair
    for row, number in zip(rows, numbers, strict=True):
        rejected = _rejected(row) if pairs else None
        places += [(row, number, rejected is not None)]
        if rejected is not None:
            places.append((rejected, number, True))
    length = max(_check_row(row, lengths, number, source, vocab_size) for row, number, _ in places)
    tokens = np.zeros((batch_size, length), np.int64)  # (B, T)
    targets = np.zeros((batch_size, length), np.int64)  # (B, T)
    mask = np.zeros((batch_size, length), np.float32)  # (B, T)
    of_pair = np.zeros((batch_size, length), np.float32)  # (B, T)
    trained = 0
    for place, (row, _, is_of_pair) in enumerate(places):
        positions = len(row.tokens) - 1
        tokens[place, :positions] = row.tokens[:-1]
        targets[place, :positions] = row.tokens[1:]
        mask[place, :positions] = row.mask[1:] != 0
        of_pair[place] = is_of_pair
        if not is_of_pair or place % 2 == 0:  # a rejected answer is not trained on
            trained += int(np.count_nonzero(mask[place]))
    return TokenBatch(tokens, targets, mask, length, trained, source, numbers, {PAIRS: of_pair} if pairs else {})


def _rejected(row: RowLike) -> Row | None:
    return getattr(row, "rejected", None)


def _check_row(row: RowLike, lengths: Sequence[int], number: int, source: Source, vocab_size: int | None = None) -> int:
    """The sequence length that the row needs. DataError for a row that cannot be trained on."""
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
            next_step="Leave the row out, or check " + setting("train_on"),
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
            setting("training.sequence_lengths"),
            got=str(list(sequence_lengths)),
            expected="one or more lengths of at least 1",
            next_step="Change " + setting("sequence_lengths"),
        )
    return lengths
