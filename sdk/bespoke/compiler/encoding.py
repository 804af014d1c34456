# SPDX-License-Identifier: Apache-2.0
"""Encoder of examples as rows. The core does it with the bundle's tokenizer.bin and turns.json, as on a device."""

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
    """A `bespoke.data.prepare.Encoder` that asks a running core."""

    def __init__(self, ask: Callable[[Mapping[str, Any], str], dict[str, Any]], max_length: int) -> None:
        self._ask = ask
        self.max_length = max_length

    def try_encode(self, example: Mapping[str, Any], subject: str) -> Encoded:
        answer = self._ask(example, subject)
        if answer["event"] == "untrained":
            reason = error_of(answer)
            assert isinstance(reason, DataError)
            return Encoded([], 0, 0, 0, 0, 0, untrained=reason)
        rows = [TokenRow(np.asarray(tokens, np.int32), np.asarray(mask, np.uint8)) for tokens, mask in answer["rows"]]
        counts = ("tokens", "trained_tokens", "truncated_tokens", "truncated_trained_tokens", "windows", "unused_keys")
        return Encoded(rows, **{name: answer[name] for name in counts})


@contextmanager
def core_encoder(folder: Path, text: TextRecord, max_length: int) -> Iterator[CoreEncoder]:
    """Encoder for the text rules of the bundle in `folder`. Raises MissingDependency if there is no core."""
    files = [None if name is None else folder / name for name in (text.tokenizer_bin, text.turns)]
    with encoding(*files, train_on=text.train_on, max_length=max_length, vocabulary=text.vocab_size) as ask:
        yield CoreEncoder(ask, max_length)
