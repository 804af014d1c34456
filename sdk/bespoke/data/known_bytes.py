# SPDX-License-Identifier: Apache-2.0
"""The known part of a text: what a BPE vocabulary has tokens for if it lacks tokens for some of the 256 bytes (SmolLM2 lacks 21).

The `tokenizers` package treats a byte without a token in one of these ways:

- Byte-level BPE leaves the byte out before it merges the others, so its neighbours are merged as if they were adjacent. If the
  vocabulary has an unknown token, that takes the byte's place.
- With byte fallback, a character without a token becomes its bytes if all of them have tokens. Otherwise the whole character is
  left out or unknown.

So different texts may have the same tokens, and texts are compared by their known parts. bindings/native/src/text/tokenizer.cpp
does the same on a device.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import tokenizers

from bespoke.data.tokenizer_kind import SPACE_SIGN

__all__ = ["BYTE_TOKEN", "KnownBytes", "byte_names", "token_bytes"]

BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")
_PRINTABLE = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
# How byte-level BPE writes each byte: as itself where it is printable, else as a character from U+0100 on.
_CHARACTERS = [chr(byte if byte in _PRINTABLE else 0x100 + _OTHERS.index(byte)) for byte in range(256)]
_BYTES = {character: byte for byte, character in enumerate(_CHARACTERS)}


def byte_names(byte_level: bool) -> list[str]:
    """The spelling of each byte's token in a vocabulary."""
    return _CHARACTERS if byte_level else [f"<0x{byte:02X}>" for byte in range(256)]


def token_bytes(token: str, byte_level: bool) -> bytes:
    """The bytes that a token is decoded to."""
    if byte_level:
        known = [_BYTES.get(character) for character in token]
        return token.encode() if None in known else bytes(byte for byte in known if byte is not None)
    return bytes([int(token[3:5], 16)]) if BYTE_TOKEN.fullmatch(token) else token.replace(SPACE_SIGN, " ").encode()


class KnownBytes:
    """The bytes that a BPE tokenizer has tokens for. It is byte-level, or over characters with byte fallback."""

    def __init__(self, tokenizer: tokenizers.Tokenizer, byte_level: bool) -> None:
        self._tokenizer = tokenizer
        self._model = model = tokenizer.model
        self._byte_level = byte_level
        ids = [model.token_to_id(name) for name in byte_names(byte_level)]
        self._known = {byte for byte, token_id in enumerate(ids) if token_id is not None}
        self._byte_ids = set(ids)
        self._is_known_character: dict[str, bool] = {}
        self.lacks_bytes = len(self._known) < 256
        # The token that stands for bytes without a token. None if there is no such token, or no such byte.
        self.unknown_id = (
            model.token_to_id(model.unk_token) if self.lacks_bytes and model.unk_token is not None else None
        )

    def part(self, text: str) -> tuple[str, Sequence[int]]:
        """The known part of a canonical text and, for each character of it, the place in the text that it comes from.

        It is the whole text if the vocabulary lacks no byte. Otherwise it is the bytes, each written as a character below U+0100.
        """
        if not self.lacks_bytes:
            return text, range(len(text))
        known = [(chr(byte), place) for place, character in enumerate(text) for byte in self._bytes(character)]
        return "".join(byte for byte, _ in known), [place for _, place in known]

    @property
    def drops_bytes(self) -> bool:
        """Whether bytes without a token are lost, instead of becoming the unknown token."""
        return self.lacks_bytes and self.unknown_id is None

    def sizes(self, ids: Sequence[int]) -> list[int]:
        """The number of characters of a text's known part that each token stands for, if bytes are lost."""
        return [self._size(token_id) for token_id in ids]

    def _size(self, token_id: int) -> int:
        if token_id in self._byte_ids:
            return 1
        decoded = token_bytes(self._tokenizer.id_to_token(token_id) or "", self._byte_level)
        if self._byte_level:
            return sum(byte in self._known for byte in decoded)
        return len(self.part(decoded.decode())[0])

    def _bytes(self, character: str) -> list[int]:
        """The bytes of a character of the canonical text that have a token."""
        all_bytes = list(character.encode())
        if self._byte_level:
            return [byte for byte in all_bytes if byte in self._known]

        is_known = self._is_known_character.get(character)
        if is_known is None:
            sign = SPACE_SIGN if character == " " else character
            is_known = self._model.token_to_id(sign) is not None or self._known.issuperset(sign.encode())
            self._is_known_character[character] = is_known
        return all_bytes if is_known else []
