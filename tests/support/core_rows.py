# SPDX-License-Identifier: Apache-2.0
"""The device core as an encoder of examples, with text rules of a tokenizer and turns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bespoke.bundle.manifest import TextRecord
from bespoke.compiler.encoding import CoreEncoder, core_encoder
from bespoke.data.text import Tokenizer
from bespoke.data.tokenizer_file import write_tokenizer_file
from bespoke.data.turns import Turns


@contextmanager
def core(
    folder: Path, tokenizer: Tokenizer | None, turns: Turns | None, train_on: Any, length: int, vocabulary: int
) -> Iterator[CoreEncoder]:
    files = {"tokenizer_bin": tokenizer and write_tokenizer_file(tokenizer), "turns": turns and turns.to_bytes()}
    for name, data in files.items():
        if data is not None:
            (folder / name).write_bytes(data)
    record = TextRecord(
        tokenizer=None,
        tokenizer_config=None,
        train_on=train_on,
        bos_id=None,
        eos_id=None,
        stop_ids=(),
        vocab_size=vocabulary,
        **{name: None if data is None else name for name, data in files.items()},
    )
    with core_encoder(folder, record, length) as encoder:
        yield encoder
