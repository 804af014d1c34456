# SPDX-License-Identifier: Apache-2.0
"""Conversion of a tokenizer.json to GGUF's vocabulary, the fields `tokenizer.ggml.*` that llama.cpp tokenizes with.

Byte-level BPE keeps its merges, and llama.cpp identifies the pre-tokenizer by a name. SentencePiece's BPE has scores instead: of
two possible merges, the one whose result has the higher score comes first. So a token's score is the negated rank of its merge.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import tokenizers
from gguf import TokenType

from bespoke.data.known_bytes import BYTE_TOKEN, byte_names
from bespoke.data.tokenizer_file import merge_pairs
from bespoke.data.tokenizer_kind import Pattern, Prefix, TokenizerKind, read_kind, refuse

__all__ = ["Vocabulary", "read_vocabulary"]

_LLAMA_CPP = "the tokenizer for llama.cpp"
_MOST_NUMBERS = {3: "llama-bpe", 1: "qwen2"}  # most digits of a word -> name, for patterns whose letters are \p{L}
_UNREACHED = -1e9  # score of a token that no merge results in


@dataclass(frozen=True)
class Vocabulary:
    """A vocabulary as lists by token id. Byte-level BPE has `merges`, SentencePiece's has `scores`. The other one is None."""

    model: str  # GGUF's tokenizer.ggml.model
    pre: str  # its tokenizer.ggml.pre
    tokens: list[str]
    types: list[int]  # gguf.TokenType
    scores: list[float] | None
    merges: list[str] | None
    space_first: bool  # whether a space is put before a text


def read_vocabulary(tokenizer_json: bytes, size: int) -> Vocabulary:
    """The vocabulary of a tokenizer.json. ModelError for a tokenizer that llama.cpp does not know.

    `size` is the number of rows of the embedding. Ids beyond the tokenizer's become unused tokens.
    """
    document = json.loads(tokenizers.Tokenizer.from_buffer(tokenizer_json).to_str())
    kind = read_kind(document, _LLAMA_CPP)
    _check_bytes(document["model"], kind)
    tokens, types = _tokens(document, size, bytewise=kind.pattern == Pattern.sentencepiece)

    pairs = list(merge_pairs(document["model"]["merges"]))
    if kind.pattern == Pattern.sentencepiece:
        ranks: dict[str, int] = {}
        for rank, (left, right) in enumerate(pairs):
            ranks.setdefault(left + right, rank)
        scores = [-float(ranks[token]) if token in ranks else _UNREACHED for token in tokens]
        return Vocabulary("llama", "default", tokens, types, scores, None, kind.prefix != Prefix.none)
    return Vocabulary("gpt2", _name(kind), tokens, types, None, [f"{left} {right}" for left, right in pairs], False)


def _check_bytes(model: dict[str, Any], kind: TokenizerKind) -> None:
    """Raises ModelError for a vocabulary that lacks bytes, if llama.cpp treats them differently.

    llama.cpp's byte-level BPE leaves out a byte without a token. Its SentencePiece tokenizer refuses the text.
    """
    byte_level = kind.pattern != Pattern.sentencepiece
    missing = [name for name in byte_names(byte_level) if name not in model["vocab"]]
    if missing and not byte_level:
        refuse(
            f"{_LLAMA_CPP}: model.vocab", f"no token {missing[0]!r} ({len(missing)} missing)", "a token for each byte"
        )
    if missing and model.get("unk_token") is not None:
        refuse(
            f"{_LLAMA_CPP}: model.unk_token", repr(model["unk_token"]), "none: llama.cpp leaves out what has no token"
        )


def _name(kind: TokenizerKind) -> str:
    """The name of the pre-tokenizer in llama.cpp."""
    if kind.prefix != Prefix.none:
        refuse(
            f"{_LLAMA_CPP}: pre_tokenizer",
            "add_prefix_space = true",
            "none: llama.cpp puts no space before byte-level BPE",
        )
    if kind.pattern == Pattern.gpt2:
        return "smollm" if kind.single_digits else "gpt-2"
    return _MOST_NUMBERS[kind.most_numbers] if kind.letters == r"\p{L}" else "qwen35"


def _tokens(document: dict[str, Any], size: int, bytewise: bool) -> tuple[list[str], list[int]]:
    """The text and the type of each token. With `bytewise`, tokens such as <0x0A> have the type BYTE."""
    tokens = [f"[PAD{token_id}]" for token_id in range(size)]
    types = [int(TokenType.UNUSED)] * size
    unknown = document["model"].get("unk_token")
    for text, token_id in document["model"]["vocab"].items():
        tokens[token_id] = text
        is_byte = bytewise and BYTE_TOKEN.fullmatch(text)
        types[token_id] = int(TokenType.BYTE if is_byte else TokenType.UNKNOWN if text == unknown else TokenType.NORMAL)
    for added in document["added_tokens"]:
        tokens[added["id"]] = added["content"]
        if added["content"] != unknown:
            types[added["id"]] = int(TokenType.CONTROL if added["special"] else TokenType.USER_DEFINED)
    return tokens, types
