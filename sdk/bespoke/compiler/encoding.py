# SPDX-License-Identifier: Apache-2.0
"""Examples become rows in the core, by the bundle's own tokenizer.bin and turns.json: the code that does it on a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bespoke.bundle.manifest import TextRecord
from bespoke.core.encoding import encoding
from bespoke.core.library import error_of
from bespoke.data.rows import Encoded, TokenRow
from bespoke.errors import DataError

__all__ = ["CoreEncoder", "core_encoder"]


class CoreEncoder:
    """`bespoke.data.prepare.Encoder` by a running core."""

    def __init__(self, ask: Callable[[Mapping[str, Any], str], dict[str, Any]], max_length: int) -> None:
        self._ask = ask
        self.max_length = max_length

    def try_encode(self, example: Mapping[str, Any], subject: str) -> Encoded:
        said = self._ask(example, subject)
        if said["event"] == "untrained":
            why = error_of(said)
            assert isinstance(why, DataError)
            return Encoded([], 0, 0, 0, 0, 0, untrained=why)
        rows = [TokenRow(np.asarray(tokens, np.int32), np.asarray(mask, np.uint8)) for tokens, mask in said["rows"]]
        counts = ("tokens", "trained_tokens", "truncated_tokens", "truncated_trained_tokens", "windows", "unused_keys")
        return Encoded(rows, **{name: said[name] for name in counts})


@contextmanager
def core_encoder(folder: Path, text: TextRecord, max_length: int) -> Iterator[CoreEncoder]:
    """Of the text rules of the bundle in `folder`. MissingDependency where there is no core."""
    files = [None if name is None else folder / name for name in (text.tokenizer_bin, text.turns)]
    with encoding(*files, train_on=text.train_on, max_length=max_length, vocabulary=text.vocab_size) as ask:
        yield CoreEncoder(ask, max_length)
