# SPDX-License-Identifier: Apache-2.0
"""Rows of a bundle's behaviour data as words: prompts, and what the base model answers to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bespoke.data.rows import TokenRows
from bespoke.data.tokenizer_from_file import tokenizer_of
from bespoke.data.turns import Turns

__all__ = ["AskedRow", "asked_rows"]


@dataclass(frozen=True)
class AskedRow:
    """A prompt, and the base model's answer to it."""

    prompt: list[int]
    words: str  # what a user would have written: the prompt without the marks of a chat
    answer: str
    decode: Callable[[Sequence[int]], str]


def asked_rows(arrays: Mapping[str, Any], files: Any, read: Callable[[str], bytes], count: int) -> list[AskedRow]:
    """Returns at most `count` rows, from all over the file, so that they are of different kinds. None without a tokenizer.

    Args:
        arrays: The tensors of the data file.
        files: The `text` of a bundle's manifest.
        read: Reads a file of the bundle.
        count: Most rows.
    """
    tokenizer = tokenizer_of(files, read)
    if tokenizer is None:
        return []
    rows = TokenRows.from_arrays(arrays, "the bundle's behaviour rows")
    begin, end = ("", "") if files.turns is None else _around_a_question(Turns.from_bytes(read(files.turns)))
    asked = []
    for index in dict.fromkeys(part * len(rows) // count for part in range(count) if len(rows)):
        row = rows.rows(index)
        places = np.flatnonzero(row.mask)
        if not len(places) or not places[0]:
            continue
        prompt = row.tokens[: places[0]].tolist()
        marked = tokenizer.decode(prompt, skip_special=False)
        words = marked.removeprefix(begin).removesuffix(end)
        if words == marked:  # of another template: the marks that are tokens of their own go
            words = tokenizer.decode(prompt)
        asked.append(AskedRow(prompt, words.strip(), tokenizer.decode(row.tokens[places].tolist()), tokenizer.decode))
    return asked


def _around_a_question(turns: Turns) -> tuple[str, str]:
    """Returns the text before the only message of a user, and the text between it and the answer."""

    def texts(previous: str, following: str) -> Iterable[str]:
        return (glue.text for glue in turns.glue if (glue.previous, glue.next) == (previous, following))

    return max(texts("start", "user"), key=len, default=""), max(texts("user", "generate"), key=len, default="")
