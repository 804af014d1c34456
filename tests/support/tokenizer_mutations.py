# SPDX-License-Identifier: Apache-2.0
"""Random changes of a tokenizer.bin."""

from __future__ import annotations

import random
import struct

HEADER = 168
VOCABULARY, UNKNOWN = 36, 52  # offsets of settings in the header


def change(chance: random.Random, data: bytes) -> list[tuple[int, int]]:
    """New bytes: a number of the header or of a table made another, a bit turned, a stretch from elsewhere."""
    kind = chance.randrange(4)
    at = chance.randrange(8, HEADER) if chance.random() < 0.1 else chance.randrange(HEADER, len(data))
    if kind == 0:
        at -= at % 4
        (old,) = struct.unpack_from("<I", data.ljust(len(data) + 4, b"\0"), at)
        new = chance.choice(
            (0, 1, old + 1, old - 1, old * 2, 0x7FFFFFFF, 2**32 - 1, 2**32 - 2, len(data), chance.getrandbits(32))
        )
        return list(enumerate(struct.pack("<I", new & 0xFFFFFFFF), at))
    if kind < 3:
        return [(at, data[at] ^ 1 << chance.randrange(8))]
    source = chance.randrange(len(data))
    return list(enumerate(data[source : source + chance.randint(1, 40)], at))
