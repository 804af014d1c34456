# SPDX-License-Identifier: Apache-2.0
"""Turns a file of examples into the rows that a bundle ships: reads, tokenizes, splits and packs them, and reports on it.

Examples are assigned to a split whole, by their contents. So equal examples land in the same split, and the order of the file does
not matter. A file that holds a single text is split near its end instead.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from bespoke.config import JUDGED_POSITIONS, Settings
from bespoke.data.files import FileFormat, ReadReport, read_examples
from bespoke.data.rows import Encoded, TokenRow, TokenRows
from bespoke.data.shapes import Format
from bespoke.data.turns_in_text import TurnReader
from bespoke.errors import ConfigError, DataError

__all__ = ["DataReport", "Encoder", "Prepared", "TokenRows", "prepare"]


class Encoder(Protocol):
    """Makes rows of tokens from examples."""

    @property
    def max_length(self) -> int:
        """Most positions of a row. A row has one token more than positions."""

    def try_encode(self, example: Mapping[str, Any], subject: str) -> Encoded:
        """Rows of `example`, or why it has none. DataError, naming `subject`, if the example cannot be used."""


class DataReport(Settings):
    """Counts of a file's rows, examples and tokens, and of what was dropped.

    `tokens` are those of the rows that were kept, train and valid together. `repeated_rows` equal an earlier row. `left_out` counts
    messages of an export of chats by their kind.
    """

    file: str
    format: Format
    rows: int
    examples_train: int
    examples_valid: int
    rows_train: int
    rows_valid: int
    tokens: int
    trained_tokens: int
    windows: int
    texts_as_turns: int  # texts that held the chat template's own tokens
    truncated_examples: int
    truncated_tokens: int
    truncated_trained_tokens: int
    dropped: dict[str, int]
    repeated_rows: int
    left_out: dict[str, int]
    unknown_keys: dict[str, int]


@dataclass(frozen=True, eq=False)
class Prepared:
    """Rows to train on, rows to validate on, and the report on how they came about."""

    train: TokenRows
    valid: TokenRows
    report: DataReport


def prepare(
    path: str | Path,
    encoder: Encoder,
    *,
    format: FileFormat | None = None,
    fields: Mapping[str, str] | None = None,
    encoding: str | None = None,
    seed: int = 0,
    packing: bool = False,
    valid_share: float = 0.1,
    turns: TurnReader | None = None,
    on_row: Callable[[int], None] | None = None,
) -> Prepared:
    """Tokenizes the examples of a file and splits them into train and valid.

    Args:
        path: the file of examples.
        encoder: makes rows of tokens from an example.
        format: the shape of the rows. By default the keys of the first row decide.
        fields: which column or key holds what.
        encoding: the encoding of the file. By default it is UTF-8, or UTF-16 if it begins with a byte order mark.
        seed: chooses which examples are held out.
        packing: joins whole rows of `text` into rows of at most `max_length` positions. Attention then crosses from one text into
            the next, but no token is predicted across the border.
        valid_share: share of the examples that are held out. It is at least one example if there are two, and at most
            JUDGED_POSITIONS positions, since each gate evaluates the whole split.
        turns: reads a text that holds the tokens of a chat template as its turns.
        on_row: gets the number of each row, for a progress bar.

    Raises:
        DataError: with file and row, for a row that cannot be used.
    """
    if not 0 <= valid_share < 1:
        raise ConfigError(
            "valid_share", got=str(valid_share), expected="0 or more, below 1", next_step="Change valid_share"
        )
    read = ReadReport()
    dropped: Counter[str] = Counter()
    examples: list[Encoded] = []
    refusal: DataError | None = None
    texts_as_turns = 0
    for number, example in read_examples(path, format, fields, read, encoding):
        where = f"{path}, row {number}"
        if read.format == "preference":
            raise DataError(
                where,
                got="a chosen and a rejected answer",
                expected="messages, prompt and completion, or text",
                next_step="Add preferences to the user's examples, or give the chosen answer as the completion",
            )

        if turns is not None and (as_turns := turns.read(example, where)) is not example:
            texts_as_turns += "messages" in as_turns
            example = dict(as_turns)

        encoded = encoder.try_encode(example, where)
        if encoded.untrained is None:
            examples.append(encoded)
            read.unknown_keys.update(encoded.unused_keys.keys())
        else:
            refusal = refusal or encoded.untrained
            dropped[f"{encoded.untrained.got}; {encoded.untrained.expected}"] += 1
        if on_row is not None:
            on_row(number)

    if not examples:
        raise refusal or DataError(
            str(path), got="no rows", expected="at least one example", next_step="Give a file with examples"
        )

    train, valid, examples_valid = _split(examples, seed, valid_share)
    if packing and read.format == "text":
        train, valid = _pack(train, encoder.max_length), _pack(valid, encoder.max_length)
    report = DataReport(
        file=Path(path).name,
        format=read.format or "text",
        rows=read.rows,
        examples_train=len(examples) - examples_valid,
        examples_valid=examples_valid,
        rows_train=len(train),
        rows_valid=len(valid),
        tokens=sum(example.tokens for example in examples),
        trained_tokens=sum(example.trained_tokens for example in examples),
        windows=sum(example.windows for example in examples),
        texts_as_turns=texts_as_turns,
        truncated_examples=sum(example.truncated_tokens > 0 for example in examples),
        truncated_tokens=sum(example.truncated_tokens for example in examples),
        truncated_trained_tokens=sum(example.truncated_trained_tokens for example in examples),
        dropped=dict(sorted((dropped + read.dropped).items())),
        repeated_rows=read.repeated_rows,
        left_out=dict(sorted((+read.left_out).items())),
        unknown_keys=dict(sorted(read.unknown_keys.items())),
    )
    return Prepared(TokenRows.from_rows(train), TokenRows.from_rows(valid), report)


def _split(examples: Sequence[Encoded], seed: int, share: float) -> tuple[list[TokenRow], list[TokenRow], int]:
    """Rows to train on, rows to validate on, and the number of examples that the latter come from."""
    if len(examples) == 1:
        rows = examples[0].rows
        most = int(
            np.searchsorted(np.cumsum([len(row.tokens) - 1 for row in reversed(rows)]), JUDGED_POSITIONS, side="right")
        )
        count = min(_valid_count(len(rows), share), max(1, most))
        return rows[: len(rows) - count], rows[len(rows) - count :], 0

    keys = [_key(example, seed) for example in examples]
    count = _valid_count(len(examples), share)
    chosen: set[bytes] = set()
    taken = positions = 0
    sizes = {key: _positions(example.rows) for key, example in zip(keys, examples, strict=True)}
    for key, repeats in sorted(Counter(keys).items()):
        # Equal examples stay together, unless no example would be left to train on or the gate would look at too many positions.
        fits = not taken or positions + repeats * sizes[key] <= JUDGED_POSITIONS
        if taken < count and taken + repeats < len(examples) and fits:
            chosen.add(key)
            taken += repeats
            positions += repeats * sizes[key]

    train = [row for key, example in zip(keys, examples, strict=True) if key not in chosen for row in example.rows]
    valid = [row for key, example in zip(keys, examples, strict=True) if key in chosen for row in example.rows]
    return train, valid, taken


def _positions(rows: Sequence[TokenRow]) -> int:
    return sum(len(row.tokens) - 1 for row in rows)


def _valid_count(count: int, share: float) -> int:
    return 0 if share == 0 or count < 2 else min(max(1, round(share * count)), count - 1)


def _key(example: Encoded, seed: int) -> bytes:
    """A hash of the example's tokens and mask. The order of these hashes decides which examples are held out."""
    digest = hashlib.sha256(str(seed).encode())
    for row in example.rows:
        digest.update(row.tokens.astype("<i4").tobytes() + row.mask.tobytes())
    return digest.digest()


def _pack(rows: Sequence[TokenRow], max_length: int) -> list[TokenRow]:
    """Joins whole rows in their order, as many as fit. The first token of each stays untrained."""
    packed: list[list[TokenRow]] = []
    length = 0
    for row in rows:
        if packed and length + len(row.tokens) <= max_length + 1:
            packed[-1].append(row)
            length += len(row.tokens)
        else:
            packed.append([row])
            length = len(row.tokens)
    return [
        TokenRow(np.concatenate([row.tokens for row in group]), np.concatenate([row.mask for row in group]))
        for group in packed
    ]
