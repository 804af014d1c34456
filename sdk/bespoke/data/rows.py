# SPDX-License-Identifier: Apache-2.0
"""Rows of tokens with their loss mask, and many of them as three flat arrays, which is how a bundle holds them
(data/train.safetensors)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bespoke.errors import BundleError, DataError
from bespoke.format.plain_file import open_plain

__all__ = ["Encoded", "TokenRow", "TokenRows", "text_rows"]

_TYPES = {"tokens": np.int32, "mask": np.uint8, "offsets": np.int64}


@dataclass(frozen=True, eq=False)
class TokenRow:
    """One row. `tokens` int32 [n], `mask` uint8 [n] of 0 and 1; 2 <= n <= max_length + 1."""

    tokens: npt.NDArray[np.int32]
    mask: npt.NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Encoded:
    """Rows of one example. `tokens` counts those in the rows, `truncated_tokens` those that found no room in them, of which
    `truncated_trained_tokens` were to be trained on; `windows` is the number of rows: of a text or a conversation that was split.
    `untrained` says why there are no rows, where nothing of the example would be trained. `unused_keys`: how often it and its
    messages have a key that says nothing here."""

    rows: list[TokenRow]
    tokens: int
    trained_tokens: int
    truncated_tokens: int
    truncated_trained_tokens: int
    windows: int
    untrained: DataError | None = None
    unused_keys: Mapping[str, int] = field(default_factory=dict)


def text_rows(tokens: Sequence[int], bos: int | None, max_length: int) -> list[TokenRow]:
    """Windows of a text: every token is predicted exactly once, the first only where bos stands before it.

    Without bos a window begins with the last token of the one before.
    """
    first, overlap = ([], 1) if bos is None else ([bos], 0)
    rows = []
    for start in range(0, len(tokens) - overlap, max_length):
        row = np.asarray([*first, *tokens[start : start + max_length + overlap]], np.int32)
        mask = np.ones(len(row), np.uint8)
        mask[0] = 0
        rows.append(TokenRow(row, mask))
    return rows


@dataclass(frozen=True, eq=False)
class TokenRows:
    """`tokens` int32 [N], `mask` uint8 [N], `offsets` int64 [rows + 1]: row i is tokens[offsets[i]:offsets[i + 1]]."""

    tokens: npt.NDArray[np.int32]
    mask: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.int64]

    @classmethod
    def from_rows(cls, rows: Iterable[TokenRow]) -> TokenRows:
        rows = list(rows)
        offsets = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([len(row.tokens) for row in rows], out=offsets[1:])
        return cls(
            np.concatenate([np.zeros(0, np.int32), *(row.tokens for row in rows)]),
            np.concatenate([np.zeros(0, np.uint8), *(row.mask for row in rows)]),
            offsets,
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def rows(self, index: int) -> TokenRow:
        """Row `index`, 0 <= index < len(self), without a copy."""
        part = slice(int(self.offsets[index]), int(self.offsets[index + 1]))
        return TokenRow(self.tokens[part], self.mask[part])

    def to_bytes(self) -> bytes:
        """The contents of a safetensors file; equal rows give equal bytes."""
        import safetensors.numpy

        arrays = {name: np.ascontiguousarray(getattr(self, name)) for name in _TYPES}
        data: bytes = safetensors.numpy.save(arrays)
        return data

    def save(self, path: str | Path) -> None:
        Path(path).write_bytes(self.to_bytes())

    @classmethod
    def load(cls, path: str | Path) -> TokenRows:
        """Read a file that `save` wrote; BundleError where it is not one."""
        import safetensors
        import safetensors.numpy

        try:
            with open_plain(path) as file:
                arrays = safetensors.numpy.load(file.read())
        except (safetensors.SafetensorError, OSError, KeyError, ValueError, TypeError) as error:
            raise _damaged(str(path), f"{type(error).__name__}: {error}", "rows of tokens as safetensors") from None
        return cls.from_arrays(arrays, str(path))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[np.generic]], subject: str) -> TokenRows:
        """The same from arrays that a reader mapped. Types, lengths, offsets and mask are checked here, once; ids
        against a vocabulary by who knows it."""
        if set(arrays) != set(_TYPES):
            raise _damaged(subject, f"the tensors {', '.join(sorted(arrays))}", ", ".join(_TYPES))
        for name, kind in _TYPES.items():
            if arrays[name].dtype != kind or arrays[name].ndim != 1:
                got = f"{name} of {arrays[name].dtype} {list(arrays[name].shape)}"
                raise _damaged(subject, got, f"{np.dtype(kind)} in one dimension")
        tokens, mask, offsets = (np.asarray(arrays[name]) for name in _TYPES)
        if len(mask) != len(tokens):
            raise _damaged(subject, f"{len(mask)} entries of mask for {len(tokens)} tokens", "one for each")
        bounds = offsets.astype(np.int64)
        if len(bounds) == 0 or bounds[0] != 0 or bounds[-1] != len(tokens) or (np.diff(bounds) < 2).any():
            raise _damaged(subject, "offsets that are not those of rows", "0 ... the number of tokens, 2 or more a row")
        if len(mask) and (int(mask.max()) > 1 or int(tokens.min()) < 0 or mask[offsets[:-1]].any()):
            raise _damaged(
                subject, "a mask or a token out of range", "mask of 0 and 1, 0 at the start of a row; ids of 0 or more"
            )
        return cls(tokens, mask, offsets)


def _damaged(subject: str, got: str, expected: str) -> BundleError:
    return BundleError(subject, got=got, expected=expected, next_step="Build the bundle again, or copy it again")
