# SPDX-License-Identifier: Apache-2.0
"""Writer of tokenizer.bin: a tokenizer.json as tables that a device maps and reads in place.

bindings/native/src/text/tokenizer_file.cpp reads it. All numbers are little-endian. The file is a header and then the sections in
the order of `SECTIONS`. Each section begins at a multiple of 8 bytes, and nothing follows the last:

    magic        8 bytes: "bsptok" and two zeros
    settings     uint32 each: version, flags, pattern, most_numbers, prefix, bos, eos, vocabulary, the most slots that a search
                 looks at in merges, characters and words, and the unknown token
    count        uint64 for each section: the number of its entries

The number of slots of a hash table is a power of two. A search begins at the key's own slot and looks at one slot after another, up
to the number in the header. An empty slot ends it: the key is absent. Empty and absent values are 2^32 - 1. Equal tokenizers give
equal bytes.

A vocabulary may lack tokens for some bytes (known_bytes.py). Files of version 1 have a token for each byte, and 0 in the place of
the unknown token.
"""

from __future__ import annotations

import itertools
import json
import re
import struct
from collections.abc import Iterable, Mapping, Sequence
from enum import IntFlag
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers

from bespoke.data.characters import matching, normalization, single_digits
from bespoke.data.known_bytes import BYTE_TOKEN, byte_names, token_bytes
from bespoke.data.text import Tokenizer
from bespoke.data.tokenizer_kind import SPACE_SIGN, Pattern, TokenizerKind, read_kind, refuse

__all__ = [
    "LARGEST_TOKEN",
    "MAGIC",
    "NONE",
    "SECTIONS",
    "SETTINGS",
    "VERSION",
    "AddedFlag",
    "Flag",
    "merge_pairs",
    "write_tokenizer_file",
]

MAGIC = b"bsptok\0\0"
VERSION = 2
NONE = 0xFFFFFFFF
LARGEST_TOKEN = 0xFFFF  # bytes
_ODD_BYTE = re.compile("<0x([+][0-9a-fA-F]|[0-9a-fA-F]{2})>")  # the `tokenizers` package decodes it to a byte
_BLOCK = 128  # characters of one block of classes


class Flag(IntFlag):
    """Bits of the header's flags."""

    nfc = 1
    replaces_spaces = 2
    whole_words = 4
    single_digits = 8
    cuts_words = 16
    strips_space = 32
    fuses_unknown = 64


class AddedFlag(IntFlag):
    """Bits of an added token's flags."""

    protected = 1
    normalized = 2


SETTINGS = (
    "version",
    "flags",
    "pattern",
    "most_numbers",
    "prefix",
    "bos",
    "eos",
    "vocabulary",
    "merge_slots",
    "character_slots",
    "word_slots",
    "unknown",
)
# Name to (type, numbers in an entry).
SECTIONS: Mapping[str, tuple[str, int]] = {
    "byte_ids": ("<u4", 1),  # [256]: the token of each byte, or absent
    "merges": ("<u4", 4),  # hash table: left, right, rank, result
    "token_ends": (
        "<u4",
        1,
    ),  # [vocabulary]: the end of each token in token_bytes; it begins at the end of the one before
    "token_bytes": ("u1", 1),  # the bytes that each token is decoded to
    "words": ("<u4", 1),  # hash table: tokens by their bytes
    "characters": ("<u4", 2),  # hash table: code point, token
    # Id, flags, first byte and size of its content in added_text, first byte and size there of the text to search for.
    "added": ("<u4", 6),
    "added_text": ("u1", 1),
    "control": ("<u4", 1),  # tokens that content never becomes; ascending
    "class_blocks": ("<u2", 1),  # [0x110000 / 128]: the block of classes for these characters
    "classes": ("u1", 1),  # [blocks * 128]: bits in the order of _classes
    "changes": ("<u4", 4),  # code point, order among marks (0: not a mark), first and count in decomposed; ascending
    "decomposed": ("<u4", 1),  # code points
    "compositions": ("<u4", 3),  # first, second, composed; ascending
}


def write_tokenizer_file(tokenizer: Tokenizer, subject: str = "tokenizer.json") -> bytes:
    """The bytes of tokenizer.bin. ModelError, naming the difference, for a tokenizer that the core does not run."""
    document = json.loads(tokenizers.Tokenizer.from_buffer(tokenizer.files()["tokenizer.json"]).to_str())
    kind = read_kind(document, subject)
    vocabulary: dict[str, int] = document["model"]["vocab"]
    added: list[dict[str, Any]] = document["added_tokens"]

    byte_level = kind.pattern != Pattern.sentencepiece
    names = byte_names(byte_level)
    lacks_bytes = not vocabulary.keys() >= set(names)
    unknown = _unknown(document["model"], kind, lacks_bytes, subject)

    spelled = {
        **{token_id: text for text, token_id in vocabulary.items()},
        **{token["id"]: token["content"] for token in added},
    }
    size = max(spelled) + 1
    tokens = [token_bytes(spelled[token_id], byte_level) if token_id in spelled else b"" for token_id in range(size)]
    longest = max(range(size), key=lambda token_id: len(tokens[token_id]))
    if len(tokens[longest]) > LARGEST_TOKEN:
        refuse(f"{subject}: token {longest}", f"{len(tokens[longest])} bytes", f"at most {LARGEST_TOKEN}")

    pairs = _merges(document["model"]["merges"], vocabulary)
    crosses = any(
        b.startswith(SPACE_SIGN) and not a.endswith(SPACE_SIGN) for a, b in merge_pairs(document["model"]["merges"])
    )
    merges, merge_slots = _hash_table(
        [(_pair_hash(left, right), (left, right, *pair)) for (left, right), pair in pairs.items()], 4
    )
    words: list[tuple[int, Sequence[int]]] = []
    letters: list[tuple[int, Sequence[int]]] = []
    if kind.whole_words:
        byte_alphabet = set(names)
        words = [(_bytes_hash(tokens[i]), (i,)) for text, i in vocabulary.items() if byte_alphabet.issuperset(text)]
    if not byte_level:
        letters = [(_pair_hash(ord(text), 0), (ord(text), i)) for text, i in vocabulary.items() if len(text) == 1]
    word_table, word_slots = _hash_table(words, 1)
    letter_table, letter_slots = _hash_table(letters, 2)

    records, added_text = _added(added, document["normalizer"], tokenizer.control_ids, subject)
    blocks, classes = _class_blocks(kind)
    changes, decomposed, compositions = _normalization(kind)
    sections: dict[str, npt.NDArray[Any]] = {
        "byte_ids": np.array([vocabulary.get(name, NONE) for name in names], "<u4"),
        "merges": merges,
        "token_ends": np.cumsum([len(token) for token in tokens]).astype("<u4"),
        "token_bytes": np.frombuffer(b"".join(tokens), np.uint8),
        "words": word_table,
        "characters": letter_table,
        "added": records,
        "added_text": np.frombuffer(added_text, np.uint8),
        "control": np.array(sorted(tokenizer.control_ids), "<u4"),
        "class_blocks": blocks,
        "classes": classes,
        "changes": changes,
        "decomposed": decomposed,
        "compositions": compositions,
    }

    # Words may be cut at spaces unless a merge crosses one. If bytes are lost, two signs for a space that stood apart may merge.
    cuts_words = not byte_level and not crosses and not lacks_bytes
    flags = _flags(kind, cuts_words=cuts_words, fuses_unknown=unknown is not None and document["model"]["fuse_unk"])
    settings = (
        VERSION,
        flags,
        kind.pattern,
        kind.most_numbers,
        kind.prefix,
        *map(_or_none, (tokenizer.bos_id, tokenizer.eos_id)),
    )
    return _pack((*settings, size, merge_slots, letter_slots, word_slots, _or_none(unknown)), sections)


def _unknown(model: Mapping[str, Any], kind: TokenizerKind, lacks_bytes: bool, subject: str) -> int | None:
    """The token for bytes without one, None if they are lost. ModelError for rules that the core does not have."""
    name, vocabulary = model["unk_token"], model["vocab"]
    if not lacks_bytes:
        return None if name is None else vocabulary.get(name)
    if kind.pattern != Pattern.sentencepiece and model["byte_fallback"]:
        refuse(f"{subject}: model.byte_fallback", "true, with ByteLevel before it and bytes without a token", "false")
    odd = [token for token in vocabulary if _ODD_BYTE.fullmatch(token) and not BYTE_TOKEN.fullmatch(token)]
    if odd and kind.pattern == Pattern.sentencepiece:
        refuse(f"{subject}: model.vocab", f"the token {odd[0]!r}, which is decoded to a byte", "bytes as <0x0A>")
    if name is None:
        return None
    if name not in vocabulary:
        refuse(f"{subject}: model.unk_token", f"{name!r}, which is no token", "a token, or null")
    if len(name) < 2 or any(name in (left, right, left + right) for left, right in merge_pairs(model["merges"])):
        refuse(
            f"{subject}: model.unk_token",
            f"{name!r}, which is made of words too",
            "a token that stands for nothing else",
        )
    token_id: int = vocabulary[name]
    return token_id


def _pack(settings: Sequence[int], sections: Mapping[str, npt.NDArray[Any]]) -> bytes:
    counts = [len(sections[name]) for name in SECTIONS]
    data = bytearray(MAGIC + struct.pack(f"<{len(settings)}I", *settings))
    data += bytes(-len(data) % 8) + struct.pack(f"<{len(counts)}Q", *counts)
    for name in SECTIONS:
        data += bytes(-len(data) % 8) + sections[name].tobytes()
    return bytes(data)


def _flags(kind: TokenizerKind, cuts_words: bool, fuses_unknown: bool) -> int:
    values = {
        Flag.nfc: kind.nfc,
        Flag.replaces_spaces: kind.replaces_spaces,
        Flag.whole_words: kind.whole_words,
        Flag.single_digits: kind.single_digits,
        Flag.cuts_words: cuts_words,
        Flag.strips_space: kind.strips_space,
        Flag.fuses_unknown: fuses_unknown,
    }
    return sum(flag for flag, is_set in values.items() if is_set)


def _or_none(token_id: int | None) -> int:
    return NONE if token_id is None else token_id


# Tokens and merges.


def merge_pairs(merges: Iterable[Any]) -> Iterable[tuple[str, str]]:
    """Yields the (left, right) of each merge. tokenizer.json has a pair as a list or as a text with a space."""
    for merge in merges:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        yield left, right


def _merges(merges: Iterable[Any], vocabulary: Mapping[str, int]) -> dict[tuple[int, int], tuple[int, int]]:
    """(left, right) to (rank, result). If a pair is listed twice, the last counts, as in the `tokenizers` package."""
    return {
        (vocabulary[left], vocabulary[right]): (rank, vocabulary[left + right])
        for rank, (left, right) in enumerate(merge_pairs(merges))
    }


# Hash tables. tokenizer_file.cpp has these three functions too.


def _pair_hash(left: int, right: int) -> int:
    return ((left * 0x9E3779B1 ^ right * 0x85EBCA77) & 0xFFFFFFFF) >> 7


def _bytes_hash(text: bytes) -> int:
    """The FNV-1a hash of a token's bytes."""
    value = 0x811C9DC5
    for byte in text:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


def _hash_table(entries: Sequence[tuple[int, Sequence[int]]], width: int) -> tuple[npt.NDArray[np.uint32], int]:
    """The slots of a hash table, and the number of slots that the longest search looks at."""
    if not entries:
        return np.zeros((0, width), "<u4"), 0
    size = 1
    while size < len(entries) * 1.5:
        size *= 2

    slots: list[Sequence[int] | None] = [None] * size
    longest = 0
    for hashed, entry in entries:
        slot, looked_at = hashed & (size - 1), 1
        while slots[slot] is not None:
            slot, looked_at = (slot + 1) & (size - 1), looked_at + 1
        slots[slot] = entry
        longest = max(longest, looked_at)

    empty = (NONE,) * width
    return np.array([entry or empty for entry in slots], "<u4"), longest


# Added tokens.


def _added(
    added: Sequence[Mapping[str, Any]], normalizer: Any, control: frozenset[int], subject: str
) -> tuple[npt.NDArray[np.uint32], bytes]:
    """The records of the added tokens, and the texts that they point into.

    They are in the order of the search: first those that are searched in the original text, then those that are searched in the
    normalized text. Each part ascends by its bytes.
    """
    normalize = _normalize(normalizer)
    ordered = []
    for token in added:
        content = token["content"]
        sought = normalize(content) if token["normalized"] else content
        if not sought:
            refuse(f"{subject}: added token {token['id']}", f"{content!r}, of which nothing is left", "a text")
        ordered.append((bool(token["normalized"]), sought.encode(), content.encode(), token["id"]))
    ordered.sort()
    for (*key, token_id), (*following, other_id) in itertools.pairwise(ordered):
        if key[:2] == following[:2]:
            refuse(f"{subject}: added tokens {token_id} and {other_id}", "the same text", "a text of its own for each")

    text = b""
    records = []
    for normalized, sought, content, token_id in ordered:
        flags = (AddedFlag.protected if token_id in control else 0) | (AddedFlag.normalized if normalized else 0)
        records.append((token_id, flags, len(text), len(content), len(text) + len(content), len(sought)))
        text += content + sought
    return np.array(records, "<u4").reshape(-1, 6), text


def _normalize(normalizer: Any) -> Any:
    """A function that normalizes a text by the normalizer of a tokenizer.json."""
    if normalizer is None:
        return lambda text: text
    empty = json.loads(tokenizers.Tokenizer(tokenizers.models.BPE()).to_str())  # the package reads whole documents only
    return tokenizers.Tokenizer.from_str(json.dumps({**empty, "normalizer": normalizer})).normalizer.normalize_str


# Characters.


def _classes(kind: TokenizerKind) -> list[frozenset[str]]:
    """The characters of each class. The place in the list is the number of the class's bit."""
    patterns = (kind.letters, kind.numbers, kind.spaces, kind.before_letters, kind.newlines)
    classes = [frozenset[str]() if pattern is None else matching(pattern) for pattern in patterns]
    classes.append(single_digits() if kind.single_digits else frozenset())
    classes += [normalization().joining, normalization().changing] if kind.nfc else [frozenset(), frozenset()]
    return classes


def _class_blocks(kind: TokenizerKind) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.uint8]]:
    """The number of the block for each 128 characters, and the different blocks."""
    flat = np.zeros(0x110000, np.uint8)
    for bit, members in enumerate(_classes(kind)):
        flat[np.fromiter(map(ord, members), np.int64, len(members))] |= 1 << bit
    rows = [row.tobytes() for row in flat.reshape(-1, _BLOCK)]
    numbers = {row: number for number, row in enumerate(sorted(set(rows)))}
    return np.array([numbers[row] for row in rows], "<u2"), np.frombuffer(b"".join(numbers), np.uint8)


def _normalization(
    kind: TokenizerKind,
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """The sections changes, decomposed and compositions. They are empty for a tokenizer without NFC."""
    changes: list[tuple[int, int, int, int]] = []
    decomposed: list[int] = []
    compositions: list[tuple[int, int, int]] = []
    if kind.nfc:
        nfc = normalization()
        for character in sorted(nfc.decompositions.keys() | nfc.orders.keys()):
            parts = [ord(part) for part in nfc.decompositions.get(character, "")]
            changes.append((ord(character), nfc.orders.get(character, 0), len(decomposed), len(parts)))
            decomposed += parts
        compositions = sorted(
            (ord(first), ord(second), ord(composed)) for (first, second), composed in nfc.compositions.items()
        )
    return (
        np.array(changes, "<u4").reshape(-1, 4),
        np.array(decomposed, "<u4"),
        np.array(compositions, "<u4").reshape(-1, 3),
    )
