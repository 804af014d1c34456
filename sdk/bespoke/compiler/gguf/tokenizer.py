# SPDX-License-Identifier: Apache-2.0
"""A GGUF file's vocabulary (`tokenizer.ggml.*`) as tokenizer.json and tokenizer_config.json.

A byte-level BPE file names its pre-tokenizer in `tokenizer.ggml.pre`; the original model's tokenizer.json defines it.
SentencePiece stores scores and merges the neighbours whose joined token scores highest. A list of merges, ordered by the
scores of their results, does the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NoReturn

import numpy as np

from bespoke.data.tokenizer_kind import LLAMA3_PATTERN, QWEN2_PATTERN, QWEN3_5_PATTERN, SPACE_SIGN
from bespoke.errors import ModelError, UnsupportedModel
from bespoke.format.gguf_header import GgufHeader
from bespoke.remedies import Like, setting

__all__ = ["TokenizerFiles", "read_tokenizer"]

_KEY = "tokenizer.ggml."
_FOLDER = Like("FOLDER", "FOLDER")
_BYTES: dict[str, Any] = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}


class _Kind(IntEnum):
    """Values of `tokenizer.ggml.token_type`."""

    normal = 1
    unknown = 2
    control = 3
    user_defined = 4
    unused = 5
    byte = 6


@dataclass(frozen=True)
class TokenizerFiles:
    """The contents of tokenizer.json and tokenizer_config.json."""

    tokenizer: dict[str, Any]
    settings: dict[str, Any]


@dataclass(frozen=True)
class _PreTokenizer:
    """The pre-tokenizer behind a name in `tokenizer.ggml.pre`."""

    split: Mapping[str, Any] | None  # before the bytes; None: GPT-2's own pattern
    nfc: bool = False
    ignore_merges: bool = False
    begins_with_bos: bool = False  # the default if the file does not say


def _pattern(regex: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


_GPT2 = _PreTokenizer(None)
_SMOLLM = _PreTokenizer({"type": "Digits", "individual_digits": True})
_LLAMA3 = _PreTokenizer(_pattern(LLAMA3_PATTERN), ignore_merges=True, begins_with_bos=True)
_QWEN2 = _PreTokenizer(_pattern(QWEN2_PATTERN), nfc=True)
_QWEN3_5 = _PreTokenizer(_pattern(QWEN3_5_PATTERN), nfc=True)
_PRE_TOKENIZERS = {
    "gpt-2": _GPT2,
    "gpt2": _GPT2,
    "smollm": _SMOLLM,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _QWEN2,
    "qwen35": _QWEN3_5,
}


def read_tokenizer(header: GgufHeader) -> TokenizerFiles | None:
    """The tokenizer's files; None if the GGUF file has no vocabulary.

    Raises ModelError for a damaged vocabulary, UnsupportedModel for another kind of tokenizer.
    """
    metadata = header.metadata
    model = metadata.get(_KEY + "model")
    if model is None or model in ("none", "no_vocab"):
        return None
    reader = _VocabularyReader(header)
    if model == "gpt2":
        return reader.byte_level()
    if model == "llama":
        return reader.sentencepiece()
    return reader.refuse("model", repr(model)[:100], "gpt2 (byte-level BPE) or llama (SentencePiece)")


class _VocabularyReader:
    def __init__(self, header: GgufHeader) -> None:
        self.header = header
        self.tokens: list[str] = self._list("tokens", str)
        self.kinds = [int(kind) for kind in self._list("token_type", int, len(self.tokens))]

    def byte_level(self) -> TokenizerFiles:
        pre = self.header.metadata.get(_KEY + "pre", "default")
        pre_tokenizer = _PRE_TOKENIZERS.get(pre)
        if pre_tokenizer is None:
            return self.refuse("pre", repr(pre)[:100], f"one of {', '.join(_PRE_TOKENIZERS)}")

        # A token of bytes holds no space, so the first space after its first character is the border.
        merges = []
        for merge in self._list("merges", str):
            border = merge.find(" ", 1)
            if border < 0:
                self._damaged("merges", repr(merge)[:100], "two tokens with a space between them")
            merges.append([merge[:border], merge[border + 1 :]])

        vocabulary = self._vocabulary()
        self._check_merges(merges, vocabulary)

        split = pre_tokenizer.split
        bytes_step = {**_BYTES, "use_regex": split is None or pre_tokenizer is _SMOLLM}
        steps = [bytes_step] if split is None else [dict(split), bytes_step]
        model = {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre_tokenizer.ignore_merges,
            "vocab": vocabulary,
            "merges": merges,
        }
        document = self._document(
            model,
            normalizer={"type": "NFC"} if pre_tokenizer.nfc else None,
            pre_tokenizer=steps[0] if len(steps) == 1 else {"type": "Sequence", "pretokenizers": steps},
            decoder={**_BYTES, "add_prefix_space": True, "use_regex": True},
        )
        return TokenizerFiles(document, self._settings(pre_tokenizer.begins_with_bos))

    def sentencepiece(self) -> TokenizerFiles:
        if self.header.metadata.get(_KEY + "remove_extra_whitespaces"):
            return self.refuse("remove_extra_whitespaces", "true", "false: white space is kept")

        scores = self._list("scores", float, len(self.tokens))
        vocabulary = self._vocabulary()
        unknown = next(
            (token for token, kind in zip(self.tokens, self.kinds, strict=True) if kind == _Kind.unknown), None
        )
        model = {
            "type": "BPE",
            "dropout": None,
            "unk_token": unknown,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": self._merges_by_score(scores, vocabulary),
        }

        spaced = bool(self.header.metadata.get(_KEY + "add_space_prefix", True))
        replace = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE_SIGN}
        prepend = {"type": "Prepend", "prepend": SPACE_SIGN}
        back = {"type": "Replace", "pattern": {"String": SPACE_SIGN}, "content": " "}
        strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if spaced else []
        document = self._document(
            model,
            normalizer={"type": "Sequence", "normalizers": [prepend, replace]} if spaced else replace,
            pre_tokenizer=None,
            decoder={"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}, *strip]},
        )
        return TokenizerFiles(document, self._settings(True))

    def _merges_by_score(self, scores: Sequence[float], vocabulary: Mapping[str, int]) -> list[list[str]]:
        """All pairs of tokens that join to a token, highest score first, ties in the order of transformers' `generate_merges`."""
        merges: list[tuple[float, str, str]] = []
        for token, kind, score in zip(self.tokens, self.kinds, scores, strict=True):
            if kind in (_Kind.normal, _Kind.user_defined):
                pairs = ((token[:border], token[border:]) for border in range(1, len(token)))
                merges += [(-score, left, right) for left, right in pairs if left in vocabulary and right in vocabulary]
        merges.sort(key=lambda merge: (merge[0], -len(merge[1]), -len(merge[2])))
        return [[left, right] for _, left, right in merges]

    def _document(self, model: Any, *, normalizer: Any, pre_tokenizer: Any, decoder: Any) -> dict[str, Any]:
        special = (_Kind.control, _Kind.unknown)
        added = [
            {
                "id": token_id,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": kind in special,
            }
            for token_id, (token, kind) in enumerate(zip(self.tokens, self.kinds, strict=True))
            if kind in special or kind == _Kind.user_defined
        ]
        return {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": added,
            "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer,
            "post_processor": None,
            "decoder": decoder,
            "model": model,
        }

    def _settings(self, begins_with_bos: bool) -> dict[str, Any]:
        """The contents of tokenizer_config.json. `begins_with_bos`: the default if the file does not say."""
        metadata = self.header.metadata
        settings: dict[str, Any] = {"add_bos_token": bool(metadata.get(_KEY + "add_bos_token", begins_with_bos))}
        for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
            token_id = metadata.get(f"{_KEY}{key}_token_id")
            if isinstance(token_id, int) and 0 <= token_id < len(self.tokens):
                settings[f"{name}_token"] = self.tokens[token_id]
        template = metadata.get("tokenizer.chat_template")
        if isinstance(template, str) and template:
            settings["chat_template"] = template
        return settings

    def _vocabulary(self) -> dict[str, int]:
        """Token -> id, without the rows of the embedding that have no text."""
        vocabulary: dict[str, int] = {}
        for token_id, (token, kind) in enumerate(zip(self.tokens, self.kinds, strict=True)):
            if kind == _Kind.unused and token == f"[PAD{token_id}]":
                continue
            if token in vocabulary:
                self._damaged("tokens", f"{token[:50]!r} twice", "each token once")
            vocabulary[token] = token_id
        return vocabulary

    def _check_merges(self, merges: Sequence[Sequence[str]], vocabulary: Mapping[str, int]) -> None:
        for left, right in merges:
            if left not in vocabulary or right not in vocabulary or left + right not in vocabulary:
                self._damaged("merges", f"{left[:50]!r} and {right[:50]!r}", "merges of tokens into a token")

    def _list(self, name: str, of: type, count: int | None = None) -> list[Any]:
        value = self.header.metadata.get(_KEY + name)
        members = value.tolist() if isinstance(value, np.ndarray) else value
        if (
            not isinstance(members, list)
            or not all(isinstance(member, of) for member in members)
            or count not in (None, len(members))
        ):
            wanted = f"{'' if count is None else f'{count} '}members of the kind {of.__name__}"
            self._damaged(name, "nothing" if value is None else "something else", wanted)
        return members

    def _damaged(self, name: str, got: str, expected: str) -> NoReturn:
        subject = f"{self.header.path}: {_KEY}{name}"
        raise ModelError(
            subject,
            got=got,
            expected=expected,
            next_step="Download the file again, or give " + setting("tokenizer", _FOLDER),
        )

    def refuse(self, name: str, got: str, expected: str) -> NoReturn:
        raise UnsupportedModel(
            f"{self.header.path}: {_KEY}{name}",
            got=got,
            expected=expected,
            next_step="Give the folder of the model's own tokenizer ("
            + setting("tokenizer", _FOLDER)
            + "), or "
            + setting("text", False)
            + " for token ids only",
        )
