# SPDX-License-Identifier: Apache-2.0
"""Random words, and whether twelve characters in a row of one are in any file: as text, or as the token ids of that text.

The letters are few, so that a file is searched once for runs of them, however many words there are. Eight characters would be
too few: among thousands of forgotten words and as many that are there, two share eight in a row in one of a few long runs.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Iterable
from pathlib import Path

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
LENGTH = 24
PIECE = 12
_TEXT = re.compile(rb"[A-Z2-7]{12,}")
_TOKENS = re.compile(rb"(?:[A-Z2-7]\0\0\0){12,}")  # int32, whose values are bytes (tests/stress/bundles.py)


def new_word(chance: random.Random) -> str:
    return "".join(chance.choices(LETTERS, k=LENGTH))


def residue(folder: Path, words: Iterable[str]) -> list[str]:
    """Where a piece of one of `words` stands, in files of all kinds and in their names."""
    pieces = {word[at : at + PIECE].encode(): word for word in words for at in range(len(word) - PIECE + 1)}
    found = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes() + b"\0" + os.fsencode(path.name)
        for pattern, size in ((_TEXT, 1), (_TOKENS, 4)):
            for match in pattern.finditer(data):
                run = match[0][::size]
                hits = [at for at in range(len(run) - PIECE + 1) if run[at : at + PIECE] in pieces]
                if hits:
                    word = pieces[run[hits[0] : hits[0] + PIECE]]
                    length = hits[-1] - hits[0] + PIECE
                    kind = "characters" if size == 1 else "tokens"
                    found.append(f"{path.name}, byte {match.start() + hits[0] * size}: {length} {kind} of {word}")
    return found
